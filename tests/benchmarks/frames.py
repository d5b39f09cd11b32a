"""A vector env of images as large as those of Atari, which needs no ROM: `make_vec("Frames-v0", num_envs)`."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

STACK, SIDE, ACTIONS, EPISODE = 4, 84, 6, 200


class FramesVectorEnv(VectorEnv):
    """Shows the last four frames, no two of which are equal, and resets an env in the step after its episode."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP, "frame_stack": STACK}

    def __init__(self, num_envs: int, render_mode: str | None = None) -> None:
        self.num_envs, self.render_mode = num_envs, render_mode
        self.single_observation_space = Box(0, 255, (STACK, SIDE, SIDE), np.uint8)
        self.single_action_space = Discrete(ACTIONS)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._pictures = np.random.default_rng(0).integers(0, 256, (64, SIDE, SIDE), np.uint8)
        self._drawn, self._ids = 0, np.arange(num_envs)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = self._ids * EPISODE // self.num_envs  # episodes do not end all at once
        self._ended = np.zeros(self.num_envs, np.bool_)
        self._obs = np.repeat(self._frames()[:, None], STACK, axis=1)
        return self._obs, {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        begins, frames = self._ended, self._frames()
        self._obs = np.concatenate([self._obs[:, 1:], frames[:, None]], axis=1)
        self._obs[begins] = frames[begins, None]
        self._steps = np.where(begins, 0, self._steps + 1)
        self._ended = self._steps == EPISODE
        reward = np.where(begins, 0.0, 1.0).astype(np.float32)
        return self._obs, reward, self._ended, np.zeros_like(self._ended), {}

    def _frames(self) -> np.ndarray:
        """Draw the next frame of each env; its number makes it differ from all others."""
        numbers = self._drawn + self._ids
        self._drawn += self.num_envs
        frames = self._pictures[numbers % len(self._pictures)]
        frames.reshape(self.num_envs, -1)[:, :8] = numbers.astype(np.int64).view(np.uint8).reshape(-1, 8)
        return frames


gymnasium.register("Frames-v0", vector_entry_point=FramesVectorEnv)
