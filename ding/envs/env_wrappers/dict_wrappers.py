"""Wrappers that add to observations, or flatten them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ding.envs.common.gym_compat import spaces_like
from ding.envs.env.base_env import BaseEnvTimestep
from ding.envs.env.gymnasium_spaces import reward_space_of
from ding.envs.env_wrappers.base_wrapper import EnvWrapper, ObservationWrapper
from ding.utils.registry_factory import ENV_WRAPPER_REGISTRY

_CHARACTERS = "abcdefghijklmnopqrstuvwxyz ,"


@ENV_WRAPPER_REGISTRY.register("obs_plus_prev_action_reward")
class ObsPlusPrevActRewWrapper(EnvWrapper):
    """Wrapper with dicts as observations: `obs`, and `prev_action` and `prev_reward_extrinsic`, which led to it.

    At the start of an episode the action is -1, in the shape of an action, and the reward 0.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        space, action_space = self.env.observation_space, self.env.action_space
        is_box = isinstance(action_space, spaces_like(action_space).Box)
        self._no_action: Any = np.full(action_space.shape, -1, action_space.dtype) if is_box else -1
        self.observation_space = spaces_like(space).Dict(
            {"obs": space, "prev_action": action_space, "prev_reward_extrinsic": reward_space_of(self.env)}
        )

    def reset(self, **kwargs: Any) -> dict[str, Any]:
        """Begin an episode and return its first observation."""
        no_action = self._no_action.copy() if isinstance(self._no_action, np.ndarray) else self._no_action
        return {"obs": self.env.reset(**kwargs), "prev_action": no_action, "prev_reward_extrinsic": 0}

    def step(self, action: Any) -> tuple[dict[str, Any], Any, bool, dict[str, Any]]:
        """Act once, and return (obs, reward, done, info)."""
        obs, reward, done, info = self.env.step(action)
        own = action.copy() if isinstance(action, np.ndarray) else action
        return {"obs": obs, "prev_action": own, "prev_reward_extrinsic": reward}, reward, done, info


@ENV_WRAPPER_REGISTRY.register("reward_in_obs")
class AllinObsWrapper(EnvWrapper):
    """Wrapper with dicts as observations: `obs`, and `reward` [1] float32, which led to it (0 for the first one).

    The Decision Transformer uses it, mostly around a `BaseEnv`; `step` returns a `BaseEnvTimestep`.
    """

    @property
    def observation_space(self) -> Any:
        """A Dict of the env's observation and reward spaces; None while the env does not know them."""
        space = self.env.observation_space
        if space is None:
            return None
        return spaces_like(space).Dict({"obs": space, "reward": self.reward_space})

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
        self.observation_space = spaces_like(space).Box(0.0, 255.0, (size,), np.float32)
        self._mission: tuple[str | None, np.ndarray] = (None, np.zeros(0, np.float32))  # and its code

    def observation(self, observation: dict[str, Any]) -> np.ndarray:
        """Return the image and the mission as one vector.

        Raises:
            AssertionError: the mission is longer than `maxStrLen`.
            ValueError: the mission has a character without a code.
        """
        mission = observation["mission"]
        if mission != self._mission[0]:
            self._mission = mission, self._encode(mission)
        return np.concatenate([np.asarray(observation["image"], np.float32).ravel(), self._mission[1]])

    def _encode(self, mission: str) -> np.ndarray:
        if len(mission) > self.maxStrLen:
            raise AssertionError(
                f"the mission {mission!r} has {len(mission)} characters; maxStrLen is {self.maxStrLen}"
            )
        code = np.zeros((self.maxStrLen, self.numCharCodes), np.float32)
        for place, character in enumerate(mission.lower()):
            if character not in _CHARACTERS:
                raise ValueError(f"the mission {mission!r} has {character!r}; known are letters, spaces and commas")
            code[place, _CHARACTERS.index(character)] = 1.0
        return code.ravel()
