"""Statistics by which observations and rewards are normalized, one for all envs of a manager.

Env wrappers gather some of them, each in the process of its env: a manager collects what they have gathered and gives
each env the sum. That takes two requests to each env for each round of collecting, and none without such wrappers.
`env.norm_obs` and `env.norm_reward` of envs of the type `gymnasium` are applied by rollouts, to all envs of a round at
once, whatever the env manager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ding.envs.env_wrappers.normalize_wrappers import RunningNormWrapper
from ding.utils.config_helper import ConfigError
from ding.utils.data.nested import map_by_path, parts_of, plain
from ding.utils.data.samples import Column, IntArray, Kind, Node
from ding.utils.running_stats import Moments, merged

# As `VecNormalize` of Stable-Baselines3 has them.
_CLIP, _EPSILON = 10.0, 1e-8
# The names of the statistics that rollouts gather: those of an entry of a dict are `obs.<key>`.
OBS, _RETURN = "obs", "return"
# Entries of dicts that are real-valued, but no measurements.
_MASK = "action_mask"


def take_moments(env: Any) -> dict[str, Moments]:
    """Return the statistics that each wrapper has gathered since the last call, by its name."""
    return {name: wrapper.take_moments() for name, wrapper in _named_normalizers(env)}


def put_moments(env: Any, moments: Mapping[str, Sequence[Any]], is_frozen: bool) -> None:
    """Give the wrappers the statistics under their names; a wrapper that gets none keeps its own."""
    for name, wrapper in _named_normalizers(env):
        if name in moments:
            wrapper.put_moments(Moments(*moments[name]), is_frozen)


ENV_CALLS: dict[str, Callable[..., Any]] = {"take_moments": take_moments, "put_moments": put_moments}

# An object that has every attribute would have no innermost env.
_DEEPEST = 64


def attribute_of(obj: Any, name: str) -> Any:
    """Return an attribute; None if there is none, or if reading it fails, as it may before the first reset."""
    try:
        return getattr(obj, name, None)
    except Exception:  # a property of a foreign object may raise anything
        return None


def _named_normalizers(env: Any) -> Iterator[tuple[str, RunningNormWrapper]]:
    """Yield `(name, wrapper)` of wrappers that share statistics, outermost first; a name is the class and a number."""
    numbers: Counter[str] = Counter()
    for _ in range(_DEEPEST):
        if isinstance(env, RunningNormWrapper) and env.keep_statistics is not False:
            kind = type(env).__name__
            yield f"{kind}{numbers[kind]}", env
            numbers[kind] += 1
        inner = attribute_of(env, "env")
        env = attribute_of(env, "_env") if inner is None else inner  # a BaseEnv keeps its inner env private
        if env is None:
            return


class Normalization:
    """The statistics of the envs of a manager, and what rollouts do by them.

    Observations are normalized by mean and deviation, each real-valued entry of a dict by itself; integers, such as
    bytes of images, and `action_mask` stay as they are. Rewards are divided by the deviation of the discounted return
    so far, but not centred. Both are clipped to +-10.

    Args:
        section: the keys `norm_obs` and `norm_reward` of an env section, if rollouts are to apply them.
        env_num: the number of envs.

    Attributes:
        moments: the statistics by name.
        is_frozen: whether the statistics no longer change. Rewards stay as they are then.

    Raises:
        ConfigError: the statistics of a data set are wanted, but not in `section`.
    """

    def __init__(self, section: Mapping[str, Any] | None = None, env_num: int = 0) -> None:
        norm_obs, norm_reward = ((section or {}).get(key) or {} for key in ("norm_obs", "norm_reward"))
        self.moments: dict[str, Moments] = {}
        self.is_frozen = False
        self._normalizes_obs = bool(norm_obs.get("use_norm"))
        self._of_data: tuple[Any, Any] | None = _statistics_of_data(norm_obs) if self._normalizes_obs else None
        self._discount: float | None = norm_reward.get("reward_discount", 0.99) if norm_reward.get("use_norm") else None
        self._returns = np.zeros(env_num)  # the discounted return of each running episode so far
        self._gathered: dict[str, Moments] | None = None  # since the last `take_gathered`; None if nobody takes it

    @property
    def is_for_rollouts(self) -> bool:
        """Whether rollouts normalize anything."""
        return self._normalizes_obs or self._discount is not None

    def merge(self, gathered: Sequence[Mapping[str, Moments]]) -> None:
        """Add the statistics of the envs, in their order."""
        for moments_by_name in gathered:
            for name, moments in moments_by_name.items():
                self.moments[name] = _sum_of(self.moments.get(name), moments, epsilon=1e-4)
                if self._gathered is not None:
                    self._gathered[name] = _sum_of(self._gathered.get(name), moments, epsilon=0)

    def take_gathered(self) -> dict[str, dict[str, Any]]:
        """Return what was gathered since the last call, in plain values; it is kept only from the first call on."""
        gathered, self._gathered = self._gathered or {}, {}
        return {name: plain(moments._asdict()) for name, moments in gathered.items() if moments.size}

    def gather(self, obs: Node) -> None:
        """Add the observations of a round, unless the statistics are frozen or those of a data set."""
        if self._normalizes_obs and not (self.is_frozen or self._of_data):
            self.merge([{name: _moments_of(column.data) for name, column in _real_columns(obs)}])

    def first_scaled(self, obs: Node) -> Node:
        """Return normalized observations like `scaled`; the very first ones by their own statistics.

        Observations are counted after they were normalized. So what an env shows is normalized by the same statistics
        as what its last step has returned, also in a run that resumes.
        """
        if not self._normalizes_obs or self.moments or self.is_frozen or self._of_data:
            return self.scaled(obs)
        own = Normalization({"norm_obs": {"use_norm": True}})
        own.gather(obs)
        return own.scaled(obs)

    def scaled(self, obs: Node) -> Node:
        """Return normalized observations, or `obs` itself without statistics; entries without any are kept."""
        if not self._normalizes_obs or not (self.moments or self._of_data):
            return obs
        return map_by_path(self._scaled_column, obs, OBS)

    def _scaled_column(self, name: str, column: Column) -> Column:
        scale = self.scale_of(name)
        if scale is None or column.kind is Kind.OBJECT or column.steps:
            return column
        mean, std, clip = scale
        dtype = column.data.dtype if column.data.dtype.kind == "f" else np.float32
        return Column(column.kind, ((column.data - mean) / std).clip(-clip, clip).astype(dtype))

    def scale_of(self, name: str) -> tuple[Any, Any, float] | None:
        """Return mean, deviation and limit of the observations `name`, such as `obs` or `obs.<key>`; None if kept."""
        if not self._normalizes_obs:
            return None
        if self._of_data is not None:
            return (*self._of_data, np.inf) if name == OBS else None
        moments = self.moments.get(name)
        return None if moments is None else (moments.mean, np.sqrt(moments.var + _EPSILON), _CLIP)

    def scaled_rewards(self, reward: Node, ids: IntArray, ends: np.ndarray) -> Node:
        """Return the normalized rewards of a step of the envs `ids`, and count them.

        Args:
            reward: one number for each env; returned as it is unless rewards are normalized, or if the statistics are
                frozen.
            ends: bools [K], whether the episode of each env has ended.
        """
        if self._discount is None or self.is_frozen:
            return reward
        rewards = reward.data.reshape(len(ids)).astype(np.float64)
        returns = self._returns[ids] * self._discount + rewards
        self.merge([{_RETURN: _moments_of(returns)}])
        self._returns[ids] = np.where(ends, 0.0, returns)
        std = np.sqrt(self.moments[_RETURN].var + _EPSILON)
        scaled = (rewards / std).clip(-_CLIP, _CLIP).astype(reward.data.dtype)
        return Column(reward.kind, scaled.reshape(reward.data.shape))

    def begin_episode(self, env_ids: IntArray | int) -> None:
        """Note that the running episodes of these envs do not continue."""
        self._returns[env_ids] = 0.0

    def state_dict(self) -> dict[str, dict[str, torch.Tensor]]:
        """Return the statistics as float64 tensors."""
        return {
            name: {key: torch.as_tensor(value, dtype=torch.float64) for key, value in moments._asdict().items()}
            for name, moments in self.moments.items()
        }

    def load_state_dict(self, state_dict: Mapping[str, Mapping[str, Any]], is_frozen: bool = False) -> list[str]:
        """Restore a state of `state_dict`, or the same in plain values; frozen statistics no longer change."""
        self.is_frozen = is_frozen
        self.moments = {name: moments_of_state(parts) for name, parts in state_dict.items()}
        return []

    def adopt(self, state_dict: Mapping[str, Mapping[str, Any]], is_frozen: bool) -> None:
        """Restore a state of `state_dict` by which a policy was trained.

        Raises:
            ConfigError: the policy saw normalized observations, but rollouts would leave them as they are.
        """
        if not self._normalizes_obs and any(name.partition(".")[0] == OBS for name in state_dict):
            raise ConfigError(
                "the checkpoint is of a policy that was trained on normalized observations, but env.norm_obs is not "
                "set here: set env.norm_obs = dict(use_norm=True), in an env of the type gymnasium"
            )
        self.load_state_dict(state_dict, is_frozen)

    def running_state(self) -> dict[str, Any]:
        """Return also what belongs to the running episodes, in plain values."""
        return {"moments": self.state_dict(), "is_frozen": self.is_frozen, "returns": self._returns.copy()}

    def load_running_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state of `running_state`."""
        self.load_state_dict(state["moments"], state["is_frozen"])
        self._returns = np.array(state["returns"])


def moments_of_state(parts: Mapping[str, Any]) -> Moments:
    """Return the moments of an entry of `Normalization.state_dict`, or of `take_gathered`."""
    mean, var = (torch.as_tensor(parts[key], dtype=torch.float64).numpy().copy()[()] for key in ("mean", "var"))
    return Moments(mean, var, float(parts["size"]))


def _statistics_of_data(norm_obs: Mapping[str, Any]) -> tuple[Any, Any] | None:
    stats = norm_obs.get("offline_stats") or {}
    if not stats.get("use_offline_stats"):
        return None
    if "mean" not in stats or "std" not in stats:
        raise ConfigError("env.norm_obs.offline_stats lacks mean and std; serial_pipeline_offline writes them there")
    return np.asarray(stats["mean"]), np.asarray(stats["std"])


def _sum_of(total: Moments | None, moments: Moments, epsilon: float) -> Moments:
    """Return the moments of both; a new total begins with mean 0 and variance 1 of the weight `epsilon`."""
    if total is None:
        total = Moments(np.zeros(np.shape(moments.mean))[()], np.ones(np.shape(moments.mean))[()], epsilon)
    return merged(total, moments) if moments.size else total


def _moments_of(data: np.ndarray) -> Moments:
    """Return the moments of the rows of an array."""
    # What `mean` and `var` do, at half of their cost.
    mean = np.add.reduce(data, axis=0, dtype=np.float64) / len(data)
    return Moments(mean, np.add.reduce(np.square(data - mean), axis=0) / len(data), len(data))


def _real_columns(obs: Node, name: str = OBS) -> Iterator[tuple[str, Column]]:
    if type(obs) is not Column:
        for key, part in parts_of(obs):
            if key != _MASK:
                yield from _real_columns(part, f"{name}.{key}")
    elif obs.kind is not Kind.OBJECT and obs.data.dtype.kind == "f" and not obs.steps and len(obs.data):
        yield name, obs
