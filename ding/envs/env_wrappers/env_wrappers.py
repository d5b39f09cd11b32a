"""Env wrappers that change rewards, the course of episodes, actions, observations or images; exports of all others."""

from __future__ import annotations

import copy
from collections import deque
from typing import Any

import numpy as np

from ding.envs.common.gym_compat import gymnasium_space, space_kind
from ding.envs.env.base_env import BaseEnvTimestep
from ding.envs.env.gymnasium_spaces import reward_space_of
from ding.envs.env_wrappers.base_wrapper import EnvWrapper, ObservationWrapper
from ding.envs.env_wrappers.base_wrapper import GymToGymnasiumWrapper as GymToGymnasiumWrapper
from ding.envs.env_wrappers.normalize_wrappers import (  # noqa: F401
    ObsNormWrapper,
    RewardNormWrapper,
    RunningMeanStd,
    StaticObsNormWrapper,
)
from ding.envs.env_wrappers.wrapper_factory import create_env_wrapper as create_env_wrapper
from ding.envs.env_wrappers.wrapper_factory import update_shape as update_shape
from ding.utils.import_helper import optional_module
from ding.utils.registry_factory import ENV_WRAPPER_REGISTRY

_CHARACTERS = "abcdefghijklmnopqrstuvwxyz ,"
_CV2_DTYPES = ("uint8", "uint16", "float32")


@ENV_WRAPPER_REGISTRY.register("clip_reward")
class ClipRewardWrapper(EnvWrapper):
    """Wrapper that replaces rewards by their sign: -1, 0 or 1."""

    reward_range = (-1, 1)

    def step(self, action: Any) -> tuple[Any, Any, bool, dict[str, Any]]:
        """Act once, and return (obs, reward, done, info)."""
        obs, reward, done, info = self.env.step(action)
        return obs, np.sign(reward), done, info


@ENV_WRAPPER_REGISTRY.register("delay_reward")
class DelayRewardWrapper(EnvWrapper):
    """Wrapper that withholds rewards and pays their sum every `delay_reward_step` steps and at an episode's end."""

    _saved = ("_held", "_steps")
    _held: Any = 0.0
    _steps = 0

    def __init__(self, env: Any, delay_reward_step: int = 0) -> None:
        super().__init__(env)
        self.delay_reward_step = delay_reward_step

    def reset(self, **kwargs: Any) -> Any:
        """Begin an episode and return its first observation."""
        self._held, self._steps = 0.0, 0
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> tuple[Any, Any, bool, dict[str, Any]]:
        """Act once, and return (obs, reward, done, info)."""
        obs, reward, done, info = self.env.step(action)
        self._held = self._held + reward
        self._steps += 1
        if not done and self._steps < self.delay_reward_step:
            return obs, 0.0, done, info
        paid, self._held, self._steps = self._held, 0.0, 0
        return obs, paid, done, info


@ENV_WRAPPER_REGISTRY.register("final_eval_reward")  # this and the next two: names of earlier releases
@ENV_WRAPPER_REGISTRY.register("FinalEvalRewardEnv")
@ENV_WRAPPER_REGISTRY.register("EvalEpisodeReturnEnv")
@ENV_WRAPPER_REGISTRY.register("eval_episode_return")
class EvalEpisodeReturnWrapper(EnvWrapper):
    """Wrapper that puts the sum of the rewards it sees into `info['eval_episode_return']`, [1] float32, at the end."""

    _saved = ("_return",)
    _return: Any = 0.0

    def reset(self, **kwargs: Any) -> Any:
        """Begin an episode and return its first observation."""
        self._return = 0.0
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> Any:
        """Act once, and return (obs, reward, done, info)."""
        timestep = self.env.step(action)
        obs, reward, done, info = timestep
        self._return = self._return + reward
        if not done:
            return timestep
        info = {**info, "eval_episode_return": np.asarray(self._return, np.float32).reshape(-1)}
        is_of_base_env = isinstance(timestep, BaseEnvTimestep)
        return timestep._replace(info=info) if is_of_base_env else (obs, reward, done, info)


# Names of earlier releases.
EvalEpisodeReturnEnv = EvalEpisodeReturnWrapper
FinalEvalRewardEnv = EvalEpisodeReturnWrapper


@ENV_WRAPPER_REGISTRY.register("noop_reset")
class NoopResetWrapper(EnvWrapper):
    """Wrapper that does nothing (action 0) for 1 to `noop_max` steps after each reset, to vary the initial states.

    The number is drawn from a generator that `seed` seeds; without a seed, from numpy's global one. If an episode ends
    meanwhile, the env is reset again.

    Raises:
        AssertionError: the meaning of action 0 is not NOOP.
    """

    noop_action = 0

    def __init__(self, env: Any, noop_max: int = 30) -> None:
        super().__init__(env)
        _check_meaning(self, 0, "NOOP")
        self.noop_max = noop_max
        self._random: Any = np.random

    def seed(self, seed: int | None = None, *args: Any) -> Any:
        """Seed the number of steps and the env."""
        self._random = np.random if seed is None else np.random.RandomState(seed % 2**32)
        return self.env.seed(seed, *args)

    def reset(self, **kwargs: Any) -> Any:
        """Begin an episode, and return the observation after the steps without action."""
        obs = self.env.reset(**kwargs)
        for _ in range(self._random.randint(1, self.noop_max + 1)):
            obs, _, done, _ = self.env.step(self.noop_action)
            if done:
                obs = self.env.reset()
        return obs


@ENV_WRAPPER_REGISTRY.register("episodic_life")
class EpisodicLifeWrapper(EnvWrapper):
    """Wrapper that ends the episode with each lost life; the game is reset only when it is over.

    Otherwise the next episode begins with a step without action. Lives are those of `env.unwrapped.ale`.

    Attributes:
        lives: the number of lives that are left.
        was_real_done: whether the game is over.
    """

    lives = 0
    was_real_done = True

    def step(self, action: Any) -> tuple[Any, Any, bool, dict[str, Any]]:
        """Act once, and return (obs, reward, done, info)."""
        obs, reward, done, info = self.env.step(action)
        self.was_real_done = done
        lives = self.unwrapped.ale.lives()
        # Some games show 0 lives for a few frames before they are over.
        if 0 < lives < self.lives and not done:
            done = True
            if "terminated" in info:
                info = {**info, "terminated": True, "truncated": False}
        self.lives = lives
        return obs, reward, done, info

    def reset(self, **kwargs: Any) -> Any:
        """Begin the next life, or a new game when the last one is over."""
        is_over = self.was_real_done
        if not is_over:
            obs, _, is_over, _ = self.env.step(0)
        if is_over:
            obs = self.env.reset(**kwargs)
        self.was_real_done = False
        self.lives = self.unwrapped.ale.lives()
        return obs


@ENV_WRAPPER_REGISTRY.register("fire_reset")
class FireResetWrapper(EnvWrapper):
    """Wrapper that takes action 1 (FIRE) after each reset, for games that begin with it, even if that ends the episode.

    Raises:
        AssertionError: the meaning of action 1 is not FIRE, or there are fewer than three actions.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        _check_meaning(self, 1, "FIRE")
        meanings = self.unwrapped.get_action_meanings()
        if len(meanings) < 3:
            raise AssertionError(f"FireResetWrapper needs an env of three actions or more; it has {meanings}")

    def reset(self, **kwargs: Any) -> Any:
        """Begin an episode and return the observation after FIRE."""
        self.env.reset(**kwargs)
        return self.env.step(1)[0]


class TimeLimitWrapper(EnvWrapper):
    """Wrapper that ends each episode after `max_limit` steps, which `info` reports as `truncated`.

    `info` has at each step `time_count`, the number of steps since the reset, and `time_limit`, whether it has reached
    `max_limit`.
    """

    time_count = 0

    def __init__(self, env: Any, max_limit: int) -> None:
        super().__init__(env)
        self.max_limit = max_limit

    def reset(self, **kwargs: Any) -> Any:
        """Begin an episode and return its first observation."""
        self.time_count = 0
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> tuple[Any, Any, bool, dict[str, Any]]:
        """Act once, and return (obs, reward, done, info)."""
        obs, reward, done, info = self.env.step(action)
        self.time_count += 1
        is_over = self.time_count >= self.max_limit
        info = {"terminated": bool(done), **info, "time_limit": is_over, "time_count": self.time_count}
        info["truncated"] = info.get("truncated", False) or is_over
        return obs, reward, done or is_over, info


def _check_meaning(env: EnvWrapper, action: int, meaning: str) -> None:
    meanings = list(env.unwrapped.get_action_meanings())
    if meanings[action : action + 1] != [meaning]:
        raise AssertionError(f"{type(env).__name__} needs an env whose action {action} is {meaning}; it has {meanings}")


@ENV_WRAPPER_REGISTRY.register("max_and_skip")
class MaxAndSkipWrapper(EnvWrapper):
    """Wrapper that takes each action `skip` times: the observation is the maximum of the last two, the reward the sum.

    An episode that ends stops the repetition. `info` is that of the last step.
    """

    def __init__(self, env: Any, skip: int = 4) -> None:
        super().__init__(env)
        self.skip = skip

    def step(self, action: Any) -> tuple[Any, Any, bool, dict[str, Any]]:
        """Act `skip` times; return (obs, reward, done, info)."""
        total_reward = 0.0
        previous = None
        for i in range(self.skip):
            obs, reward, done, info = self.env.step(action)
            total_reward = total_reward + reward
            if done or i == self.skip - 1:
                break
            previous = np.array(obs)  # a copy: the env may write its next observation into the same array
        return obs if previous is None else np.maximum(previous, obs), total_reward, done, info


@ENV_WRAPPER_REGISTRY.register("action_repeat")
class ActionRepeatWrapper(EnvWrapper):
    """Wrapper that takes each action `action_repeat` times; the reward is the sum, where None counts as 0.

    The observation and the `info` are those of the last step.

    An episode that ends stops the repetition.
    """

    def __init__(self, env: Any, action_repeat: int = 1) -> None:
        super().__init__(env)
        self.action_repeat = action_repeat

    def step(self, action: Any) -> tuple[Any, Any, bool, dict[str, Any]]:
        """Act `action_repeat` times; return (obs, reward, done, info)."""
        total_reward = 0.0
        for _ in range(self.action_repeat):
            obs, reward, done, info = self.env.step(action)
            total_reward = total_reward + (0.0 if reward is None else reward)
            if done:
                break
        return obs, total_reward, done, info


@ENV_WRAPPER_REGISTRY.register("gym_hybrid_dict_action")
class GymHybridDictActionWrapper(EnvWrapper):
    """Wrapper of envs whose action is a pair (type, arguments), for actions in a dict with `type`, `mask` and `args`.

    The mask is meant for the policy; the env gets (type, args). The spaces of `type` and `args` are those of the env's
    own pair; if it has none, Discrete(3) and a Box [2] within [-1, 1].
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        from gymnasium import spaces

        kind, args = spaces.Discrete(3), spaces.Box(-1.0, 1.0, (2,), np.float32)
        if space_kind(self.env.action_space) == "Tuple":
            kind, args = self.env.action_space.spaces
        mask = spaces.Box(0, 1, args.shape, np.int64)
        self.action_space = spaces.Dict({"type": kind, "mask": mask, "args": args})

    def step(self, action: dict[str, Any]) -> Any:
        """Act once, and return (obs, reward, done, info)."""
        return self.env.step((action["type"], action["args"]))


@ENV_WRAPPER_REGISTRY.register("obs_plus_prev_action_reward")
class ObsPlusPrevActRewWrapper(EnvWrapper):
    """Wrapper with dicts as observations: `obs`, and `prev_action` and `prev_reward_extrinsic`, which led to it.

    At the start of an episode the action is -1, in the shape of an action, and the reward 0.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        from gymnasium import spaces

        space, action_space = map(gymnasium_space, (self.env.observation_space, self.env.action_space))
        is_box = space_kind(action_space) == "Box"
        self._no_action: Any = np.full(action_space.shape, -1, action_space.dtype) if is_box else -1
        self.observation_space = spaces.Dict(
            {"obs": space, "prev_action": action_space, "prev_reward_extrinsic": reward_space_of(self.env)}
        )

    def reset(self, **kwargs: Any) -> dict[str, Any]:
        """Begin an episode and return its first observation."""
        return {"obs": self.env.reset(**kwargs), "prev_action": copy.copy(self._no_action), "prev_reward_extrinsic": 0}

    def step(self, action: Any) -> tuple[dict[str, Any], Any, bool, dict[str, Any]]:
        """Act once, and return (obs, reward, done, info)."""
        obs, reward, done, info = self.env.step(action)
        return {"obs": obs, "prev_action": copy.copy(action), "prev_reward_extrinsic": reward}, reward, done, info


@ENV_WRAPPER_REGISTRY.register("reward_in_obs")
class AllinObsWrapper(EnvWrapper):
    """Wrapper with dicts as observations: `obs`, and `reward` [1] float32, which led to it (0 for the first one).

    The Decision Transformer uses it, mostly around a `BaseEnv`; `step` returns a `BaseEnvTimestep`.
    """

    @property
    def observation_space(self) -> Any:
        """A Dict of the env's observation and reward spaces; None while the env does not know them."""
        from gymnasium import spaces

        space = gymnasium_space(self.env.observation_space)
        if space is None:
            return None
        return spaces.Dict({"obs": space, "reward": self.reward_space})

    @property
    def reward_space(self) -> Any:
        """The reward space of the env."""
        return reward_space_of(self.env)

    def reset(self, **kwargs: Any) -> dict[str, Any]:
        """Begin an episode and return its first observation."""
        return {"obs": self.env.reset(**kwargs), "reward": np.zeros(1, np.float32)}

    def step(self, action: Any) -> BaseEnvTimestep:
        """Act once."""
        obs, reward, done, info = self.env.step(action)
        return BaseEnvTimestep({"obs": obs, "reward": np.array(reward, np.float32).reshape(-1)}, reward, done, info)

    def seed(self, seed: int, dynamic_seed: bool = True) -> Any:
        """Seed the env."""
        return self.env.seed(seed, dynamic_seed)


class FlatObsWrapper(ObservationWrapper):
    """Wrapper with observations of minigrid as one float32 vector: the image, then the mission, one-hot by character.

    The 28 classes of characters are a to z, the space and the comma. Missions are padded with zeros to `maxStrLen`.
    """

    def __init__(self, env: Any, maxStrLen: int = 96) -> None:  # noqa: N803
        super().__init__(env)
        self.maxStrLen = maxStrLen
        self.numCharCodes = len(_CHARACTERS)
        space = self.env.observation_space
        size = int(np.prod(space.spaces["image"].shape)) + self.numCharCodes * maxStrLen
        self.observation_space = _box(0.0, 255.0, (size,), np.float32)

    def observation(self, observation: dict[str, Any]) -> np.ndarray:
        """Return the image and the mission as one vector.

        Raises:
            AssertionError: the mission is longer than `maxStrLen`.
            ValueError: the mission has a character without a code.
        """
        mission = observation["mission"].lower()
        if len(mission) > self.maxStrLen:
            raise AssertionError(f"the mission {mission!r} is longer than maxStrLen = {self.maxStrLen}")
        code = np.zeros((self.maxStrLen, self.numCharCodes), np.float32)
        code[np.arange(len(mission)), [_CHARACTERS.index(character) for character in mission]] = 1.0
        return np.concatenate([np.asarray(observation["image"], np.float32).ravel(), code.ravel()])


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
        self._cv2 = optional_module("cv2", "resizing frames", "opencv-python-headless", "atari")
        space = self.env.observation_space
        warped = []
        for member in space.spaces if space_kind(space) == "Tuple" else [space]:
            channels = member.shape[:1] if len(member.shape) == 3 and member.shape[0] < 10 else ()
            warped.append(_box_like(member, (*channels, size, size)))
        self.observation_space = warped[0] if len(warped) == 1 else type(space)(warped)

    def observation(self, observation: Any) -> Any:
        """Return the resized image, or a tuple of them."""
        if not isinstance(observation, tuple):
            return self._warp(observation)
        frames = tuple(self._warp(frame) for frame in observation)
        return frames[0] if len(frames) == 1 else frames

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

    The bounds must be finite.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        space = self.env.observation_space
        self.bias = np.float32(np.min(space.low))
        self.scale = np.float32(np.max(space.high)) - self.bias
        self.observation_space = _box(0.0, 1.0, space.shape, np.float32)

    def observation(self, observation: Any) -> np.ndarray:
        """Return the scaled observation."""
        scaled: np.ndarray = (np.asarray(observation, np.float32) - self.bias) / self.scale
        return scaled


@ENV_WRAPPER_REGISTRY.register("frame_stack")
class FrameStackWrapper(EnvWrapper):
    """Wrapper that stacks the last `n_frames` observations on a new first axis, newest last.

    An episode begins with copies of its first observation.
    """

    _saved = ("frames",)

    def __init__(self, env: Any, n_frames: int = 4) -> None:
        super().__init__(env)
        self.n_frames = n_frames
        self.frames: deque[np.ndarray] = deque(maxlen=n_frames)
        space = self.env.observation_space
        self.observation_space = _box_like(space, (n_frames, *space.shape))

    def reset(self, **kwargs: Any) -> np.ndarray:
        """Begin an episode and return its first observation."""
        frame = np.array(self.env.reset(**kwargs))  # a copy: the env may write its next observation into it
        self.frames.extend([frame] * self.n_frames)
        return np.stack(self.frames)

    def step(self, action: Any) -> tuple[np.ndarray, Any, bool, dict[str, Any]]:
        """Act once, and return (obs, reward, done, info)."""
        obs, reward, done, info = self.env.step(action)
        self.frames.append(np.array(obs))
        return np.stack(self.frames), reward, done, info


@ENV_WRAPPER_REGISTRY.register("obs_transpose")
class ObsTransposeWrapper(ObservationWrapper):
    """Wrapper with images [H, W, C] as [C, H, W]; a tuple of n of them becomes one array [n, C, H, W]."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        space = self.env.observation_space
        if space_kind(space) == "Tuple":
            height, width, channels = space.spaces[0].shape
            self.observation_space = _box_like(space.spaces[0], (len(space.spaces), channels, height, width))
        else:
            *size, channels = space.shape
            self.observation_space = _box_like(space, (channels, *size))

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
        space = self.env.observation_space
        low, high = np.float32(np.min(space.low)), np.float32(np.max(space.high))
        self.observation_space = _box(low, high, (128, 1, 1), np.float32)

    def step(self, action: Any) -> tuple[np.ndarray, Any, bool, dict[str, Any]]:
        """Act once, and return (obs, reward, done, info)."""
        timestep: tuple[np.ndarray, Any, bool, dict[str, Any]] = super().step(action)
        if self._render:
            self.env.render()
        return timestep

    def observation(self, observation: Any) -> np.ndarray:
        """Return the memory as an array [128, 1, 1]."""
        return np.asarray(observation).reshape(128, 1, 1).astype(np.float32)


def _box(low: Any, high: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    from gymnasium.spaces import Box

    return Box(low, high, shape, dtype)


def _box_like(space: Any, shape: tuple[int, ...]) -> Any:
    """Return a Box of this shape within the lowest and highest bound of `space`, of the same dtype."""
    return _box(np.min(space.low), np.max(space.high), shape, space.dtype.type)
