"""Wrappers that scale observations and rewards to about unit variance."""

from __future__ import annotations

from typing import Any

import numpy as np

from ding.envs.env_wrappers.base_wrapper import EnvWrapper, ObservationWrapper, sole_box
from ding.utils.registry_factory import ENV_WRAPPER_REGISTRY
from ding.utils.running_stats import RunningMeanStd as _RunningMeanStd

_WARM_UP_STEPS = 30
_CLIP = 3.0


class RunningMeanStd(_RunningMeanStd):
    """Mean and standard deviation of all batches so far, as numpy values of shape `shape`.

    Example:
        >>> stats = RunningMeanStd(epsilon=0, shape=(2,))
        >>> stats.update(np.array([[1.0, 0.0], [3.0, 0.0]]))
        >>> stats.mean.tolist(), stats.std.tolist()
        ([2.0, 0.0], [1.0, 0.0])
    """

    def __init__(self, epsilon: float = 1e-4, shape: tuple[int, ...] = ()) -> None:
        super().__init__(epsilon, shape)

    @property
    def mean(self) -> Any:
        """The mean."""
        return self._mean

    @property
    def std(self) -> Any:
        """The square root of the variance, plus `epsilon`."""
        return np.sqrt(self._var) + self._epsilon


@ENV_WRAPPER_REGISTRY.register("obs_norm")
class ObsNormWrapper(EnvWrapper):
    """Observations less their running mean, divided by their running deviation, each feature by its own; within +-3.

    The first 30 steps only gather statistics and return observations as they are.

    Args:
        keep_statistics: gather over all episodes; else each begins without any.
    """

    def __init__(self, env: Any, keep_statistics: bool = True) -> None:
        super().__init__(env)
        self.keep_statistics = keep_statistics
        self.data_count = 0
        self.clip_range = (-_CLIP, _CLIP)
        self.rms = RunningMeanStd(shape=sole_box(self).shape)

    def reset(self, **kwargs: Any) -> Any:
        """Begin an episode and return its first observation."""
        if not self.keep_statistics:
            self.data_count = 0
            self.rms.reset()
        return self.observation(self.env.reset(**kwargs))

    def step(self, action: Any) -> tuple[Any, Any, bool, dict[str, Any]]:
        """Act once; return (obs, reward, done, info)."""
        obs, reward, done, info = self.env.step(action)
        self.data_count += 1
        self.rms.update(np.asarray(obs)[None])
        return self.observation(obs), reward, done, info

    def observation(self, observation: Any) -> np.ndarray:
        """The normalized observation, float32."""
        obs = np.asarray(observation)
        if self.data_count > _WARM_UP_STEPS:
            obs = np.clip((obs - self.rms.mean) / self.rms.std, *self.clip_range)
        return obs.astype(np.float32)


@ENV_WRAPPER_REGISTRY.register("static_obs_norm")
class StaticObsNormWrapper(ObservationWrapper):
    """Observations less `mean`, divided by `std`; within +-3."""

    def __init__(self, env: Any, mean: Any, std: Any) -> None:
        super().__init__(env)
        self.mean = np.asarray(mean)
        self.std = np.asarray(std)
        self.clip_range = (-_CLIP, _CLIP)

    def observation(self, observation: Any) -> np.ndarray:
        """The normalized observation, float32."""
        scaled: np.ndarray = np.clip((observation - self.mean) / self.std, *self.clip_range)
        return scaled.astype(np.float32)


@ENV_WRAPPER_REGISTRY.register("reward_norm")
class RewardNormWrapper(EnvWrapper):
    """Rewards divided by the running deviation of the return so far, discounted by `reward_discount`.

    The first 30 steps only gather statistics and return rewards as they are.

    Args:
        keep_statistics: gather over all episodes; else each begins without any, so that short ones stay as they are.
    """

    def __init__(self, env: Any, reward_discount: float, keep_statistics: bool = False) -> None:
        super().__init__(env)
        self.reward_discount = reward_discount
        self.keep_statistics = keep_statistics
        self.data_count = 0
        self.cum_reward = np.zeros(1)
        self.rms = RunningMeanStd(shape=(1,))

    def reset(self, **kwargs: Any) -> Any:
        """Begin an episode and return its first observation."""
        self.cum_reward = np.zeros(1)
        if not self.keep_statistics:
            self.data_count = 0
            self.rms.reset()
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> tuple[Any, Any, bool, dict[str, Any]]:
        """Act once; return (obs, reward, done, info)."""
        obs, reward, done, info = self.env.step(action)
        self.data_count += 1
        self.cum_reward = self.cum_reward * self.reward_discount + reward
        self.rms.update(self.cum_reward[None])
        if self.data_count > _WARM_UP_STEPS:
            reward = np.asarray(reward) / self.rms.std
        return obs, float(np.asarray(reward).item()), done, info
