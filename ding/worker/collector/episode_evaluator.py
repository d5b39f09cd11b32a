"""Base of the evaluators that let policies play episodes."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch

from ding.torch_utils.data_helper import to_item
from ding.utils.config_helper import NO_DEFAULT, Setting, Settings, integer, number
from ding.utils.default_helper import one_time_warning
from ding.utils.showing import shown
from ding.worker.collector.actor import Actor
from ding.worker.collector.base_serial_evaluator import VectorEvalMonitor, as_plain
from ding.worker.collector.batch import Ended, entry_of
from ding.worker.collector.rollout import Listener, Rollout
from ding.worker.collector.serial_evaluator import SaveCheckpoint, SerialEvaluator
from ding.worker.collector.statistics import MAX_EPISODE_STEPS, StepLimit, per, reported_return


@dataclass(frozen=True, slots=True)
class EvalRecord:
    """One evaluation.

    Attributes:
        train_iter: iteration of the policy.
        envstep: env steps of the training so far.
        returns: return of each episode, env by env.
        lengths: steps of each episode, in the same order.
        seconds: how long the evaluation took.
    """

    train_iter: int
    envstep: int
    returns: list[float]
    lengths: list[int]
    seconds: float


class EpisodeRecorder(Listener):
    """Fills a `VectorEvalMonitor` with the episodes of an evaluation; as a quota it steps only envs that lack some."""

    def __init__(self, monitor: VectorEvalMonitor, env_num: int) -> None:
        self.monitor = monitor
        self.lengths: dict[int, list[int]] = {env_id: [] for env_id in range(env_num)}
        self.on_episode: Callable[[int, Any, int], None] = lambda env_id, reward, number_played: None

    def is_filled(self) -> bool:
        return self.monitor.is_finished()

    def choose(self, env_ids: list[int]) -> list[int]:
        """The ready envs that lack episodes."""
        chosen = [env_id for env_id in env_ids if not self.monitor.is_full(env_id)]
        return env_ids if len(chosen) == len(env_ids) else chosen

    def on_ends(self, ended: Ended) -> None:
        for env_id, info, steps in zip(ended.env_ids, ended.infos, ended.lengths, strict=True):
            self._count(env_id, info, steps, with_return=True)

    def _count(self, env_id: int, info: Mapping[str, Any], steps: int, with_return: bool) -> None:
        reward = reported_return(info, env_id)
        reported = {"eval_episode_return": reward} if with_return else {}
        reported.update(info.get("episode_info") or {})
        self.lengths[env_id].append(steps)
        if reported:
            self.monitor.update_info(env_id, reported)
        self.monitor.update_reward(env_id, _single(reward))
        self.on_episode(env_id, reward, self.monitor.get_current_episode())


class BattleRecorder(EpisodeRecorder):
    """Fills the monitor with what player 0 did, and keeps the infos of all players.

    Attributes:
        infos: for each player, the text and numbers in its infos of the episodes, in the order of their ends.
    """

    def __init__(self, monitor: VectorEvalMonitor, env_num: int, players: int) -> None:
        super().__init__(monitor, env_num)
        self.infos: list[list[dict[str, Any]]] = [[] for _ in range(players)]

    def on_ends(self, ended: Ended) -> None:
        for env_id, of_players, steps in zip(ended.env_ids, ended.infos, ended.lengths, strict=True):
            infos = [entry_of(of_players, player) for player in range(len(self.infos))]
            self._count(env_id, infos[0], steps, with_return=False)
            for known, info in zip(self.infos, infos, strict=True):
                known.append(_items(info))


def _items(info: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of an info that are single values, or made of them; the rest are left out."""
    items = {}
    for key, value in info.items():
        with contextlib.suppress(ValueError, TypeError):  # arrays of several elements, and foreign types
            items[key] = to_item(value)
    return items


def _single(reward: Any) -> Any:
    """A one-element array or tensor as a number; a vector-valued return as its mean."""
    if isinstance(reward, torch.Tensor):
        return reward.item() if reward.numel() == 1 else reward.float().mean().item()
    return float(np.mean(reward))


class EpisodeEvaluator(SerialEvaluator):
    """Base of the evaluators that play a fixed number of episodes in each env of a manager.

    The evaluator owns its env manager: it launches it (on rank 0, which alone evaluates), and closes it with itself.
    """

    settings = Settings(
        {
            "n_episode": Setting(
                NO_DEFAULT, integer(1, optional=True), "Number of episodes of an evaluation; set by `env`."
            ),
            "stop_value": Setting(NO_DEFAULT, number(), "Mean return that ends the training; set by `env`."),
            "max_episode_steps": Setting(
                NO_DEFAULT,
                integer(1, optional=True),
                f"An env that ends no episode for so many steps is an error; {MAX_EPISODE_STEPS} by default, None for "
                "no limit.",
            ),
        },
        SerialEvaluator.settings,
    )
    _defaults: dict[str, Any] = {
        **SerialEvaluator._defaults,
        "n_episode": None,
        "stop_value": int(1e10),
        "max_episode_steps": MAX_EPISODE_STEPS,
    }
    _needs_policy = True  # at construction

    def _read_settings(self, settings: Mapping[str, Any]) -> None:
        super()._read_settings(settings)
        self._default_n_episode = settings["n_episode"]
        self._max_episode_steps = settings["max_episode_steps"]

    def reset_env(self, _env: Any = None) -> None:
        """Take over and launch `_env`, closing the env manager it replaces; with None reset the present one."""
        if _env is not None:
            self._replace_env(_env, launch=self._rank == 0)
        elif self._rank == 0:
            self._env.reset()

    def reset_policy(self, _policy: Any = None) -> None:
        """Take over `_policy` and reset it; with None only reset the present one.

        Raises:
            AssertionError: no env was ever set.
        """
        if self._env is None:
            raise AssertionError("set an env first (reset_env)")
        if _policy is not None:
            self._policy = self._checked_policy(_policy)
        self._read_policy()
        self._reset_policies()

    def reset(self, _policy: Any = None, _env: Any = None) -> None:
        """Use the given policy and env, reset those that are not given, and forget the best return and last evaluation.

        Raises:
            AssertionError: a policy is given, but no env was ever set.
            AttributeError: env or policy is missing.
        """
        if _env is not None or self._is_live:
            self.reset_env(_env)
        if _policy is not None or (self._is_live and self._policy is not None):
            self.reset_policy(_policy)
        if self._env is None or (self._policy is None and self._needs_policy):
            raise AttributeError(
                f"{type(self).__name__} needs an env manager and a policy, got {shown(_env, str)} and "
                f"{shown(_policy, str)}"
            )
        self._max_episode_return = -math.inf
        self._last_eval_iter = -1
        self.last_eval: EvalRecord | None = None
        self._end_flag = False

    def note_best(self, mean_return: float) -> None:
        """Count a return that an earlier run has reached: only a better one is worth a new best checkpoint."""
        self._max_episode_return = max(self._max_episode_return, mean_return)

    def state_dict(self) -> dict[str, Any]:
        last = None if self.last_eval is None else asdict(self.last_eval)
        return {**super().state_dict(), "max_episode_return": self._max_episode_return, "last_eval": last}

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        self._max_episode_return = state["max_episode_return"]
        self.last_eval = None if state["last_eval"] is None else EvalRecord(**state["last_eval"])
        return super().load_state_dict(state)

    def _read_policy(self) -> None:
        """Take from the policy what evaluating depends on."""

    def _monitor_of(self, n_episode: int | None) -> VectorEvalMonitor:
        n_episode = self._default_n_episode if n_episode is None else n_episode
        if n_episode is None:
            raise AssertionError("eval needs n_episode: give it to eval(), or set env.n_evaluator_episode")
        return VectorEvalMonitor(self._env_num, n_episode)

    def _play(
        self,
        recorder: EpisodeRecorder,
        actor: Actor,
        policy_kwargs: Mapping[str, Any],
        before_act: Callable[[], None] | None = None,
    ) -> float:
        """Fill `recorder` with episodes that begin now; return the seconds it took.

        Raises:
            RuntimeError: an env ends no episode for `max_episode_steps` steps.
        """
        start = perf_counter()
        self._env.reset()
        self._reset_policies()
        recorder.on_episode = self._finish_episode
        listeners = [recorder, StepLimit(self._max_episode_steps)]
        rollout = Rollout(self._env, actor, listeners, info=self._logger.info)
        rollout.run(recorder, policy_kwargs, before_act)
        return perf_counter() - start

    def _finish_episode(self, env_id: int, reward: Any, number_played: int) -> None:
        self._logger.info(
            "[EVALUATOR]env %d finish episode, return: %.4f, current episode: %d",
            env_id,
            float(np.mean(as_plain(reward))),
            number_played,
        )

    def _summarise(self, recorder: EpisodeRecorder, train_iter: int, envstep: int, seconds: float) -> None:
        """Keep the evaluation as `last_eval`, and log it."""
        returns = [float(value) for value in recorder.monitor.get_episode_return()]
        lengths = [length for env_lengths in recorder.lengths.values() for length in env_lengths]
        self.last_eval = EvalRecord(train_iter, envstep, returns, lengths, seconds)
        episodes, steps = len(returns), sum(lengths)
        summary = {
            "train_iter": train_iter,
            "ckpt_name": f"iteration_{train_iter}.pth.tar",
            "episode_count": episodes,
            "envstep_count": steps,
            "avg_envstep_per_episode": per(steps, episodes),
            "evaluate_time": seconds,
            "avg_envstep_per_sec": per(steps, seconds),
            "avg_time_per_episode": per(seconds, episodes),
            "reward_mean": float(np.mean(returns)),
            "reward_std": float(np.std(returns)),
            "reward_max": max(returns),
            "reward_min": min(returns),
            **(recorder.monitor.get_episode_info() or {}),
        }
        self._report(summary, train_iter, envstep)

    def _judge(self, save_ckpt_fn: SaveCheckpoint | None, train_iter: int) -> bool:
        """Save a new best checkpoint; return whether training may stop."""
        assert self.last_eval is not None
        mean_return = float(np.mean(self.last_eval.returns))
        if math.isnan(mean_return):
            one_time_warning(
                "the mean return of an evaluation is NaN: no best checkpoint is saved and the stop value is not "
                f"reached; look at info['eval_episode_return'] of the env; the returns are {self.last_eval.returns}"
            )
        if mean_return > self._max_episode_return:
            if save_ckpt_fn is not None:
                save_ckpt_fn("ckpt_best.pth.tar")
            self._max_episode_return = mean_return
        stop = bool(mean_return >= self._stop_value and train_iter > 0)
        if stop:
            self._report_stop(mean_return)
        return stop
