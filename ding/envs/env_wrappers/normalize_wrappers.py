"""Wrappers that scale observations and rewards to about unit variance."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ding.envs.env_wrappers.base_wrapper import EnvWrapper, ObservationWrapper
from ding.utils.registry_factory import ENV_WRAPPER_REGISTRY
from ding.utils.running_stats import Moments
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


class RunningNormWrapper(EnvWrapper):
    """Base of the wrappers with running statistics of one value per step.

    Each wrapper gathers its own statistics. An env manager may share those of all its envs, see
    `BaseEnvManager.sync_normalization`; between two such calls each wrapper continues from the shared ones.

    Args:
        keep_statistics: True gathers statistics over all episodes, and shares them; with False each episode begins
            without any, with None also, unless they are shared.
        shape: the shape of a value; by default that of observations.
    """

    _saved: ClassVar[tuple[str, ...]] = ("rms", "data_count", "_is_frozen", "_is_shared", "_gathered")

    def __init__(self, env: Any, keep_statistics: bool | None, shape: tuple[int, ...] | None = None) -> None:
        super().__init__(env)
        shape = self.env.observation_space.shape if shape is None else shape
        self.keep_statistics = keep_statistics
        self.rms = RunningMeanStd(shape=shape)
        self.data_count = 0
        self._is_frozen = self._is_shared = False
        self._gathered = RunningMeanStd(epsilon=0, shape=shape)  # since the last `take_moments`

    def take_moments(self) -> Moments:
        """Return the statistics gathered since the last call."""
        moments = self._gathered.moments
        self._gathered.reset()
        return moments

    def put_moments(self, moments: Moments, is_frozen: bool) -> None:
        """Continue from these statistics; frozen ones no longer change."""
        self.rms.moments = moments
        self.data_count = int(moments.size)
        self._is_frozen, self._is_shared = is_frozen, True
        self._gathered.reset()

    def _begin_episode(self) -> None:
        is_kept = self._is_shared if self.keep_statistics is None else self.keep_statistics
        if not is_kept:
            self.data_count = 0
            self.rms.reset()

    def _gather(self, value: np.ndarray) -> None:
        if self._is_frozen:
            return
        self.data_count += 1
        self.rms.merge(value, 0.0, 1)
        self._gathered.merge(value, 0.0, 1)


@ENV_WRAPPER_REGISTRY.register("obs_norm")
class ObsNormWrapper(RunningNormWrapper):
    """Wrapper that normalizes each feature of observations by running mean and standard deviation, clipped to +-3.

    The first 30 steps only gather statistics and return observations unchanged.

    Args:
        keep_statistics: gather statistics over all episodes, and over all envs of a run; otherwise each episode begins
            without any.
    """

    def __init__(self, env: Any, keep_statistics: bool = True) -> None:
        super().__init__(env, keep_statistics)
        self.clip_range = (-_CLIP, _CLIP)

    def reset(self, **kwargs: Any) -> Any:
        """Begin an episode and return its first observation."""
        self._begin_episode()
        return self.observation(self.env.reset(**kwargs))

    def step(self, action: Any) -> tuple[Any, Any, bool, dict[str, Any]]:
        """Act once, and return (obs, reward, done, info)."""
        obs, reward, done, info = self.env.step(action)
        self._gather(np.asarray(obs))
        return self.observation(obs), reward, done, info

    def observation(self, observation: Any) -> np.ndarray:
        """Return the normalized observation, float32."""
        obs = np.asarray(observation)
        if self.data_count > _WARM_UP_STEPS:
            low, high = self.clip_range
            obs = np.clip((obs - self.rms.mean) / self.rms.std, low, high)
        return obs.astype(np.float32)


@ENV_WRAPPER_REGISTRY.register("static_obs_norm")
class StaticObsNormWrapper(ObservationWrapper):
    """Wrapper that subtracts `mean` from observations and divides them by `std`, clipped to +-3."""

    def __init__(self, env: Any, mean: Any, std: Any) -> None:
        super().__init__(env)
        self.mean = np.asarray(mean)
        self.std = np.asarray(std)
        self.clip_range = (-_CLIP, _CLIP)

    def observation(self, observation: Any) -> np.ndarray:
        """Return the normalized observation, float32."""
        low, high = self.clip_range
        scaled: np.ndarray = np.clip((observation - self.mean) / self.std, low, high)
        return scaled.astype(np.float32)


@ENV_WRAPPER_REGISTRY.register("reward_norm")
class RewardNormWrapper(RunningNormWrapper):
    """Wrapper that divides rewards by the running deviation of the return so far, discounted by `reward_discount`.

    The first 30 steps only gather statistics and return rewards unchanged.

    Args:
        keep_statistics: True gathers statistics over all episodes, and over all envs of a run; with False each episode
            begins without any, so that the rewards of short ones stay unchanged; None is True in a run, else False.
    """

    _saved = ("cum_reward",)

    def __init__(self, env: Any, reward_discount: float, keep_statistics: bool | None = None) -> None:
        super().__init__(env, keep_statistics, (1,))
        self.reward_discount = reward_discount
        self.cum_reward = np.zeros(1)

    def reset(self, **kwargs: Any) -> Any:
        """Begin an episode and return its first observation."""
        self.cum_reward = np.zeros(1)
        self._begin_episode()
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> tuple[Any, Any, bool, dict[str, Any]]:
        """Act once, and return (obs, reward, done, info)."""
        obs, reward, done, info = self.env.step(action)
        self.cum_reward = self.cum_reward * self.reward_discount + reward
        self._gather(self.cum_reward)
        if self.data_count > _WARM_UP_STEPS:
            reward = np.asarray(reward) / self.rms.std
        return obs, float(np.asarray(reward).item()), done, info
