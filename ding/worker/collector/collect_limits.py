"""The amounts that a collect gathers, the length of fragments, and the quotas of the rollout."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ding.utils.config_helper import ConfigError, Setting, boolean
from ding.utils.default_helper import one_time_warning
from ding.worker.collector.env_round import Ended
from ding.worker.collector.rollout import Quota, RolloutListener
from ding.worker.collector.trajectory import INF

FIXED_ROLLOUT = Setting(
    rule=boolean,
    doc="Whether fragments end with the collect, so that each step becomes a sample; otherwise an on-policy collect "
    "drops unfinished fragments.",
)


def checked_n_sample(n_sample: int | None, default: int | None, env_num: int, fixed_rollout: bool = False) -> int:
    """Return the number of samples to collect; with `fixed_rollout` it is rounded up to the same number for each env.

    Raises:
        RuntimeError: neither the call nor the policy gives it.
        ValueError: it is below 1.
    """
    if n_sample is None:
        n_sample = default
    if n_sample is None:
        raise RuntimeError(
            "collect needs n_sample: give it to collect(), or set policy.collect.n_sample; for whole episodes use the "
            "collector 'episode' and policy.collect.n_episode"
        )
    if n_sample < 1:
        raise ValueError(f"n_sample = {n_sample} is not allowed; it must be at least 1")
    if n_sample % env_num != 0:
        one_time_warning(
            f"n_sample {n_sample} is not a multiple of the {env_num} envs: each collect makes extra samples"
        )
    return math.ceil(n_sample / env_num) * env_num if fixed_rollout else n_sample


def checked_n_episode(n_episode: int | None, default: int | None, env_num: int) -> int:
    """Return the number of episodes to collect.

    Raises:
        RuntimeError: neither the call nor the policy gives it.
        AssertionError: it is below the number of envs.
    """
    if n_episode is None:
        n_episode = default
    if n_episode is None:
        raise RuntimeError("collect needs n_episode: give it to collect(), or set policy.collect.n_episode")
    if n_episode < env_num:
        raise AssertionError(
            f"n_episode = {n_episode} is below the number of envs, {env_num}: each env plays at least one episode; "
            "raise policy.collect.n_episode or lower env.collector_env_num"
        )
    return n_episode


def warn_short_fragments(cfg: Mapping[str, Any], n_sample: int | None, length: float, env_num: int) -> None:
    """Warn, once in a process for each text, that fragments of `length` steps are too short for n-step returns.

    Args:
        cfg: the policy's config, which may have `nstep`.
        env_num: the number of envs that share `n_sample`; 1 where each env collects `n_sample` steps at a time.
    """
    nstep = cfg.get("nstep", 1) if cfg.get("nstep_return", True) else 1
    if nstep > length:
        one_time_warning(
            f"policy.nstep = {nstep} has no full effect: policy.collect.n_sample = {n_sample} and {env_num} env(s) "
            f"give fragments of {length:g} step(s), and no return spans more; set policy.collect.n_sample to "
            f"{nstep * env_num} or more (several times that is better), or policy.nstep to {length:g}"
        )


def fragment_settings(
    cfg: Mapping[str, Any], policy_cfg: Mapping[str, Any], n_sample: int | None, unroll_len: int, env_num: int
) -> tuple[float, bool]:
    """Return the transitions of a fragment, and the setting `fixed_rollout` of a collector of samples.

    A fragment has each env's share of `n_sample` transitions; infinitely many, for a policy with `traj_len_inf`, mean
    whole episodes.

    Raises:
        ConfigError: `fixed_rollout` is True, but the policy's fragments cannot be cut at any step.
    """
    is_infinite = (policy_cfg.get("collect") or {}).get("traj_len_inf", policy_cfg.get("traj_len_inf", False))
    length = INF if n_sample is None or is_infinite else max(unroll_len, math.ceil(n_sample / env_num))
    warn_short_fragments(policy_cfg, n_sample, length, env_num)
    if not cfg.get("fixed_rollout", False):
        return length, False
    if is_infinite:
        raise ConfigError(
            "collector.fixed_rollout = True contradicts policy.traj_len_inf = True: the first ends all fragments with "
            "the collect, the second only with their episodes; set one of them to False"
        )
    if unroll_len > 1:
        raise ConfigError(
            f"collector.fixed_rollout = True is not allowed with unroll_len = {unroll_len}: sequences would overlap or "
            "be padded wherever a fragment is cut; set unroll_len to 1 or fixed_rollout to False"
        )
    return length, True


class EpisodeQuota(RolloutListener, Quota):
    """The quota that starts exactly as many episodes as requested, and steps the envs that play them until they end.

    An env whose episode ends may start another; an env that breaks off plays its episode anew. Of the envs that are
    ready to start one, those with the lowest ids are chosen.

    Args:
        finished: returns the number of episodes that were gathered and not yet taken.
        left: envs that an earlier quota has left in mid-episode.

    Attributes:
        playing: the envs in mid-episode.
    """

    _saved = ("playing", "_n_episode")

    def __init__(self, finished: Callable[[], int], left: Iterable[int] = ()) -> None:
        self._finished = finished
        self._n_episode = 0
        self.playing = set(left)

    def begin(self, n_episode: int, restart: Callable[[int], None]) -> None:
        """Request `n_episode` episodes, and `restart` those that an exception interrupted, as they may have a gap."""
        for env_id in sorted(self.playing):
            restart(env_id)
        self.playing.clear()
        self._n_episode = n_episode

    def is_filled(self) -> bool:
        return self._finished() >= self._n_episode

    def choose(self, env_ids: list[int]) -> list[int]:
        playing = self.playing
        idle = set(env_ids) - playing
        if not idle:
            return env_ids
        to_start = self._n_episode - self._finished() - len(playing)
        playing.update(sorted(idle)[: max(to_start, 0)])
        chosen = [env_id for env_id in env_ids if env_id in playing]
        return env_ids if len(chosen) == len(env_ids) else chosen

    def on_ends(self, ended: Ended) -> None:
        self.playing.difference_update(ended.env_ids)


def episode_data(
    cfg: Mapping[str, Any], policy: Any, env_id: int, transitions: list[dict[str, Any]], env: Any = None
) -> list[Any]:
    """Return the data of an episode: the list of its transitions, or the samples that the policy makes of them.

    The settings `get_train_sample` and, with an `env` manager, `reward_shaping` are read from `cfg` at each episode.
    """
    if env is not None and cfg.get("reward_shaping", False):
        shaped = env.reward_shaping(env_id, transitions)
        transitions = transitions if shaped is None else shaped
    if cfg.get("get_train_sample", False):
        return (policy.get_train_sample(transitions) or []) if transitions else []
    return [transitions]
