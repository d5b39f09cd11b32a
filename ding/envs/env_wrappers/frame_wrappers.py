"""Wrappers that resize, scale, stack or transpose images."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from ding.envs.common.gym_compat import spaces_like
from ding.envs.env_wrappers.base_wrapper import EnvWrapper, ObservationWrapper, sole_box
from ding.utils.import_helper import missing_package
from ding.utils.registry_factory import ENV_WRAPPER_REGISTRY

_CV2_DTYPES = ("uint8", "uint16", "float32")


@ENV_WRAPPER_REGISTRY.register("warp_frame")
class WarpFrameWrapper(ObservationWrapper):
    """Wrapper with gray, resized images: [H, W, 3] or [H, W] become [size, size] of the same dtype.

    If the first dimension is less than 10 it counts as channels: [C, H, W] becomes [C, size, size], each channel
    by itself. Of a tuple of images, each is resized; a tuple of one becomes its member.

    Raises:
        ImportError: OpenCV is not installed.
    """

    def __init__(self, env: Any, size: int = 84) -> None:
        super().__init__(env)
        self.size = size
        self._cv2 = _import_cv2()
        space = self.env.observation_space
        spaces = spaces_like(space)
        if isinstance(space, spaces.Tuple) and len(space.spaces) > 1:
            self.observation_space = spaces.Tuple([self._warped(member) for member in space.spaces])
        else:
            self.observation_space = self._warped(sole_box(self))

    def observation(self, observation: Any) -> Any:
        """Return the resized image, or a tuple of them."""
        if not isinstance(observation, tuple):
            return self._warp(observation)
        frames = tuple(self._warp(frame) for frame in observation)
        return frames[0] if len(frames) == 1 else frames

    def _warped(self, space: Any) -> Any:
        channels = space.shape[:1] if len(space.shape) == 3 and space.shape[0] < 10 else ()
        return _box_like(space, (*channels, self.size, self.size))

    def _warp(self, frame: np.ndarray) -> np.ndarray:
        dtype = frame.dtype
        if dtype.name not in _CV2_DTYPES:
            frame = frame.astype(np.float32)
        if frame.ndim == 3 and frame.shape[0] < 10:
            warped = np.stack([self._resize(channel) for channel in frame])
        elif frame.ndim == 3 and frame.shape[-1] == 3:
            warped = self._resize(self._cv2.cvtColor(frame, self._cv2.COLOR_RGB2GRAY))
        else:
            warped = self._resize(frame)
        return warped.astype(dtype, copy=False)

    def _resize(self, frame: np.ndarray) -> np.ndarray:
        resized: np.ndarray = self._cv2.resize(frame, (self.size, self.size), interpolation=self._cv2.INTER_AREA)
        return resized


@ENV_WRAPPER_REGISTRY.register("scaled_float_frame")
class ScaledFloatFrameWrapper(ObservationWrapper):
    """Wrapper that scales observations from the lowest and highest bound of their space to [0, 1], float32.

    Raises:
        ValueError: the observation space has no such bounds.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        space = sole_box(self)
        self.bias = np.float32(np.min(space.low))
        self.scale = np.float32(np.max(space.high)) - self.bias
        if not np.isfinite(self.scale) or self.scale <= 0:
            raise ValueError(f"scaled_float_frame needs an observation space with finite bounds; this one is {space}")
        self.observation_space = spaces_like(space).Box(0.0, 1.0, space.shape, np.float32)

    def observation(self, observation: Any) -> np.ndarray:
        """Return the scaled observation."""
        scaled: np.ndarray = (np.asarray(observation, np.float32) - self.bias) / self.scale
        return scaled


@ENV_WRAPPER_REGISTRY.register("frame_stack")
class FrameStackWrapper(EnvWrapper):
    """Wrapper that stacks the last `n_frames` observations on a new first axis, newest last.

    An episode begins with copies of its first observation.

    Raises:
        ValueError: `n_frames` is less than 1.
    """

    def __init__(self, env: Any, n_frames: int = 4) -> None:
        super().__init__(env)
        if n_frames < 1:
            raise ValueError(f"n_frames = {n_frames!r} is not allowed; it must be at least 1")
        self.n_frames = n_frames
        self.frames: deque[np.ndarray] = deque(maxlen=n_frames)
        space = sole_box(self)
        self.observation_space = _box_like(space, (n_frames, *space.shape))

    def reset(self, **kwargs: Any) -> np.ndarray:
        """Begin an episode and return its first observation."""
        frame = _own_frame(self.env.reset(**kwargs))
        self.frames.extend([frame] * self.n_frames)
        return np.stack(self.frames)

    def step(self, action: Any) -> tuple[np.ndarray, Any, bool, dict[str, Any]]:
        """Act once, and return (obs, reward, done, info)."""
        obs, reward, done, info = self.env.step(action)
        self.frames.append(_own_frame(obs))
        return np.stack(self.frames), reward, done, info


@ENV_WRAPPER_REGISTRY.register("obs_transpose")
class ObsTransposeWrapper(ObservationWrapper):
    """Wrapper with images [H, W, C] as [C, H, W]; a tuple of n of them becomes one array [n, C, H, W]."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        space = self.env.observation_space
        spaces = spaces_like(space)
        if isinstance(space, spaces.Tuple):
            first = space.spaces[0]
            self.observation_space = _box_like(first, (len(space.spaces), *_channels_first(first.shape)))
        else:
            self.observation_space = _box_like(sole_box(self), _channels_first(space.shape))

    def observation(self, observation: Any) -> np.ndarray:
        """Return the transposed image or images."""
        if isinstance(observation, tuple):
            return np.stack([np.moveaxis(frame, -1, 0) for frame in observation])
        return np.moveaxis(observation, -1, 0)


class TransposeWrapper(ObsTransposeWrapper):
    """`ObsTransposeWrapper` under another name."""


@ENV_WRAPPER_REGISTRY.register("ram")
class RamWrapper(ObservationWrapper):
    """Wrapper whose observation is the memory of an Atari game, 128 bytes, as [128, 1, 1] float32.

    Args:
        render: render the env at each step.
    """

    def __init__(self, env: Any, render: bool = False) -> None:
        super().__init__(env)
        self._render = render
        space = sole_box(self)
        low, high = _bounds(space)
        self.observation_space = spaces_like(space).Box(np.float32(low), np.float32(high), (128, 1, 1), np.float32)

    def step(self, action: Any) -> tuple[np.ndarray, Any, bool, dict[str, Any]]:
        """Act once, and return (obs, reward, done, info)."""
        timestep: tuple[np.ndarray, Any, bool, dict[str, Any]] = super().step(action)
        if self._render:
            self.env.render()
        return timestep

    def observation(self, observation: Any) -> np.ndarray:
        """Return the memory as an array [128, 1, 1]."""
        return np.asarray(observation).reshape(128, 1, 1).astype(np.float32)


def _import_cv2() -> Any:
    try:
        import cv2
    except ImportError as e:
        raise missing_package("resizing frames", "opencv-python-headless", "atari") from e
    return cv2


def _own_frame(obs: Any) -> np.ndarray:
    """Return a copy: the env may write its next observation into the same array."""
    return np.array(obs[0] if isinstance(obs, tuple) else obs)


def _bounds(space: Any) -> tuple[Any, Any]:
    return np.min(space.low), np.max(space.high)


def _box_like(space: Any, shape: tuple[int, ...]) -> Any:
    """Return a Box of this shape within the lowest and highest bound of `space`, of the same library and dtype."""
    low, high = _bounds(space)
    return spaces_like(space).Box(low, high, shape, space.dtype.type)


def _channels_first(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (shape[-1], *shape[:-1])
