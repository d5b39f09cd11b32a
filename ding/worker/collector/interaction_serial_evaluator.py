"""Evaluators that let policies play episodes: their base, and the evaluator of a single policy."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

import numpy as np
from easydict import EasyDict

from ding.torch_utils.data_helper import to_item
from ding.utils.config_helper import NO_DEFAULT, Setting, Settings, integer, number, one_of
from ding.utils.default_helper import one_time_warning
from ding.utils.registry_factory import SERIAL_EVALUATOR_REGISTRY
from ding.utils.render_helper import fps
from ding.worker.collector.actor import Actor, SoloActor, StateActor
from ding.worker.collector.base_serial_evaluator import SaveCheckpoint, SerialEvaluator, VectorEvalMonitor
from ding.worker.collector.env_round import Ended, entry_of
from ding.worker.collector.rollout import Quota, Rollout, RolloutListener
from ding.worker.collector.statistics import MAX_EPISODE_STEPS, StepLimit, episode_return, per


@dataclass(frozen=True, slots=True)
class EvalRecord:
    """One evaluation.

    Attributes:
        train_iter: iteration of the policy.
        envstep: env steps of the training so far.
        returns: return of each episode, env by env.
        lengths: steps of each episode, in the same order.
        seconds: how long the evaluation took.
        success_rate: share of the episodes with a true `is_success` in their last info; None if no info has that.
    """

    train_iter: int
    envstep: int
    returns: list[float]
    lengths: list[int]
    seconds: float
    success_rate: float | None = None


class EpisodeRecorder(RolloutListener, Quota):
    """The recorder of an evaluation, which fills a `VectorEvalMonitor`; as a quota it steps envs that lack episodes.

    Args:
        monitor: has a share of the episodes for each env.
        env_num: number of envs.
        players: number of players, each with its own info; player 0 is judged. None if infos are not by player.
        on_episode: called with the env and the return when an episode has ended.

    Attributes:
        lengths: steps of the episodes of each env.
        successes: `is_success` of the episodes whose last info has that.
        infos: for each player, the text and numbers in its infos of the episodes, in the order of their ends.
    """

    def __init__(
        self,
        monitor: VectorEvalMonitor,
        env_num: int,
        players: int | None = None,
        on_episode: Callable[[int, float], None] = lambda env_id, value: None,
    ) -> None:
        self.monitor = monitor
        self.lengths: dict[int, list[int]] = {env_id: [] for env_id in range(env_num)}
        self.successes: list[bool] = []
        self.infos: list[list[dict[str, Any]]] = [[] for _ in range(players or 0)]
        self._on_episode = on_episode

    def is_filled(self) -> bool:
        return self.monitor.is_finished()

    def choose(self, env_ids: list[int]) -> list[int]:
        """Return the ready envs that lack episodes."""
        chosen = [env_id for env_id in env_ids if not self.monitor.is_full(env_id)]
        return env_ids if len(chosen) == len(env_ids) else chosen

    def on_ends(self, ended: Ended) -> None:
        for env_id, info, steps in zip(ended.env_ids, ended.infos, ended.steps.tolist(), strict=True):
            of_players = [entry_of(info, player) for player in range(len(self.infos))]
            judged = of_players[0] if of_players else info
            value = episode_return(judged, env_id)
            reported = {} if of_players else {"eval_episode_return": judged["eval_episode_return"]}
            reported.update(judged.get("episode_info") or {})
            self.lengths[env_id].append(steps)
            if "is_success" in judged:
                self.successes.append(bool(judged["is_success"]))
            if reported:
                self.monitor.update_info(env_id, reported)
            self.monitor.update_reward(env_id, value)
            self._on_episode(env_id, value)
            for known, own in zip(self.infos, of_players, strict=True):
                known.append(_items(own))

    def result(self, train_iter: int, envstep: int, seconds: float) -> EvalRecord:
        """Return the record of the evaluation, which took that long."""
        returns = [float(value) for value in self.monitor.get_episode_return()]
        lengths = [length for of_env in self.lengths.values() for length in of_env]
        success_rate = float(np.mean(self.successes)) if self.successes else None
        return EvalRecord(train_iter, envstep, returns, lengths, seconds, success_rate)


def _items(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of an info that are single values, or made of them; the rest are left out."""
    items = {}
    for key, value in info.items():
        with contextlib.suppress(ValueError, TypeError):  # arrays of several elements, and foreign types
            items[key] = to_item(value)
    return items


class EpisodeEvaluator(SerialEvaluator):
    """Base of the evaluators that play a fixed number of episodes in each env of a manager.

    The evaluator owns its env manager: it launches it (on rank 0, which alone evaluates), and closes it in `close`.
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
                f"Number of steps within which an episode must end; {MAX_EPISODE_STEPS} by default, None for no limit.",
            ),
        },
        SerialEvaluator.settings,
    )
    _saved = ("_max_episode_return",)

    def _read_settings(self, cfg: Mapping[str, Any]) -> None:
        super()._read_settings(cfg)
        self._default_n_episode = cfg.get("n_episode")
        self._stop_value = cfg.get("stop_value", int(1e10))
        self._max_episode_steps = cfg.get("max_episode_steps", MAX_EPISODE_STEPS)

    def reset_env(self, _env: Any = None) -> None:
        """Take over and launch `_env`, and close the env manager it replaces; with None reset the present one."""
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
        super().reset_policy(_policy)

    def reset(self, _policy: Any = None, _env: Any = None) -> None:
        """Use the given policy and env, reset those that are not given, and forget the best return and last evaluation.

        Raises:
            AssertionError: a policy is given, but no env was ever set.
            AttributeError: env or policy is missing.
        """
        super().reset(_policy, _env)
        self._check_complete(_policy, _env)
        self._max_episode_return = -math.inf
        self.last_eval: EvalRecord | None = None

    def note_best(self, mean_return: float) -> None:
        """Note a mean return that an earlier run has reached: only a better one is worth a new best checkpoint."""
        self._max_episode_return = max(self._max_episode_return, mean_return)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "last_eval": None if self.last_eval is None else asdict(self.last_eval)}

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        self.last_eval = None if state["last_eval"] is None else EvalRecord(**state["last_eval"])
        return super().load_state_dict(state)

    def _recorder(self, n_episode: int | None, players: int | None = None) -> EpisodeRecorder:
        n_episode = self._default_n_episode if n_episode is None else n_episode
        if n_episode is None:
            raise AssertionError("eval needs n_episode: give it to eval(), or set env.n_evaluator_episode")
        monitor = VectorEvalMonitor(self._env_num, n_episode)

        def finish(env_id: int, value: float) -> None:
            self._finish_episode(env_id, value, monitor.get_current_episode())

        return EpisodeRecorder(monitor, self._env_num, players, finish)

    def _finish_episode(self, env_id: int, value: float, number_played: int) -> None:
        self._logger.info(
            "[EVALUATOR]env %d finish episode, return: %.4f, current episode: %d", env_id, value, number_played
        )

    def _play(
        self,
        recorder: EpisodeRecorder,
        actor: Actor,
        train_iter: int,
        envstep: int,
        policy_kwargs: Mapping[str, Any] = {},
        before_act: Callable[[], None] | None = None,
        listeners: Sequence[RolloutListener] = (),
    ) -> None:
        """Play episodes from their beginning into `recorder`, keep the evaluation as `last_eval`, and log it.

        Args:
            listeners: further listeners of the rollout.

        Raises:
            RuntimeError: an episode does not end within `max_episode_steps` steps.
        """
        start = perf_counter()
        self._env.reset()
        self._reset_policies()
        listeners = [recorder, StepLimit(self._max_episode_steps), *listeners]
        Rollout(self._env, actor, listeners, info=self._logger.info).run(recorder, policy_kwargs, before_act)
        self.last_eval = record = recorder.result(train_iter, envstep, perf_counter() - start)
        episodes, steps = len(record.returns), sum(record.lengths)
        values = {
            "episode_count": episodes,
            "envstep_count": steps,
            "avg_envstep_per_episode": per(steps, episodes),
            "evaluate_time": record.seconds,
            "avg_envstep_per_sec": per(steps, record.seconds),
            "avg_time_per_episode": per(record.seconds, episodes),
            "reward_mean": float(np.mean(record.returns)),
            "reward_std": float(np.std(record.returns)),
            "reward_max": max(record.returns),
            "reward_min": min(record.returns),
            **({} if record.success_rate is None else {"success_rate": record.success_rate}),
            **(recorder.monitor.get_episode_info() or {}),
        }
        self._report(values, train_iter, envstep)

    def _judge(self, save_ckpt_fn: SaveCheckpoint | None, train_iter: int) -> bool:
        """Save a new best checkpoint; return whether training may stop."""
        assert self.last_eval is not None
        mean_return = float(np.mean(self.last_eval.returns))
        if math.isnan(mean_return):
            one_time_warning(
                "the mean return of an evaluation is NaN: no best checkpoint is saved and the stop value is not "
                f"reached; look at info['eval_episode_return'] of the env; the returns are {self.last_eval.returns}"
            )
        is_best, is_enough = mean_return > self._max_episode_return, bool(mean_return >= self._stop_value)
        stop = self._conclude(mean_return, is_best, is_enough, save_ckpt_fn, train_iter)
        if is_best:
            self._max_episode_return = mean_return
        return stop


@SERIAL_EVALUATOR_REGISTRY.register("interaction")
class InteractionSerialEvaluator(EpisodeEvaluator):
    """A serial evaluator that lets the eval mode of a policy play a fixed number of episodes in each env of a manager.

    The evaluator owns its env manager: it launches it (on rank 0, which alone evaluates), and closes it in `close`.

    Args:
        cfg: config, see `default_config`.
        env: an env manager that is not launched yet.
        policy: the eval mode of a policy.
        tb_logger: a TensorBoard writer shared with others; without one, one is made.
        exp_name: the experiment's folder, for the logs.
        instance_name: name in the logs and tags.
    """

    settings = Settings(
        {
            "eval_freq": 1000,
            "render": Setting({}, None, "Recording of videos."),
            "render.render_freq": Setting(-1, number(-1), "Iterations or env steps between two videos; -1 for none."),
            "render.mode": Setting("train_iter", one_of("envstep", "train_iter"), "Unit that `render_freq` counts."),
            "figure_path": Setting(
                None, None, "Folder of the figures that an env with `enable_save_figure` draws of each episode."
            ),
        },
        EpisodeEvaluator.settings,
    )
    _saved = ("_last_render_iter",)

    def _read_settings(self, cfg: Mapping[str, Any]) -> None:
        super()._read_settings(cfg)
        self._figure_path = cfg["figure_path"]
        self._render = EasyDict({**self.settings.section("render").config(), **cfg["render"]})

    def reset_policy(self, _policy: Any = None) -> None:
        super().reset_policy(_policy)
        self._policy_cfg = self._policy.get_attribute("cfg")

    def reset(self, _policy: Any = None, _env: Any = None) -> None:
        super().reset(_policy, _env)
        self._last_render_iter = -1

    def _should_render(self, envstep: int, train_iter: int) -> bool:
        if self._render.render_freq == -1:
            return False
        position = self._render_position(envstep, train_iter)
        if position - self._last_render_iter < self._render.render_freq:
            return False
        self._last_render_iter = position
        return True

    def _render_position(self, envstep: int, train_iter: int) -> int:
        return envstep if self._render.mode == "envstep" else train_iter

    def eval(
        self,
        save_ckpt_fn: Callable[[str], Any] | None = None,
        train_iter: int = -1,
        envstep: int = -1,
        n_episode: int | None = None,
        force_render: bool = False,
        policy_kwargs: dict[str, Any] | None = {},
    ) -> tuple[bool, dict[str, Any]]:
        """Play the episodes; on several ranks rank 0 plays and broadcasts the result, so all must call this together.

        Args:
            save_ckpt_fn: called with `ckpt_best.pth.tar` when the mean return is the best so far.
            train_iter: iteration of the policy.
            envstep: env steps of the training so far.
            n_episode: number of episodes; None for that of the config.
            force_render: record a video of this evaluation.
            policy_kwargs: keyword arguments of the policy's forward.

        Returns:
            `(stop, info)`: whether the mean return has reached `stop_value` (never before the first iteration), and
            `{'eval_episode_return': [float, ...], ...}`, the values that the episodes reported, with their means.

        Raises:
            AssertionError: no number of episodes is given, or it is below the number of envs.
        """

        from ding.policy.modes import takes_state  # here: importing the workers loads no policies

        def evaluate() -> tuple[bool, dict[str, Any] | None]:
            recorder = self._recorder(n_episode)
            monitor = recorder.monitor
            render = force_render or self._should_render(envstep, train_iter)
            film = (lambda: monitor.update_video(self._env.ready_imgs)) if render else None
            make_actor = StateActor if takes_state(self._policy) else SoloActor
            self._actor = make_actor(self._policy, float_obs=True, keep_integers=True)
            self._play(recorder, self._actor, train_iter, envstep, policy_kwargs or {}, film)
            if render:
                self._write_video(monitor, self._render_position(envstep, train_iter))
            return self._judge(save_ckpt_fn, train_iter), monitor.get_episode_info()

        stop, info = self._from_rank_0(evaluate)
        return stop, info or {}

    def _write_video(self, monitor: VectorEvalMonitor, position: int) -> None:
        assert self._log is not None  # `_open` has set it
        with self._log.only_shows():
            tag = f"{self._instance_name}_{self._render.mode}/"
            self._tb_logger.add_video(tag, monitor.get_video(), position, fps(self._env))

    def _finish_episode(self, env_id: int, value: float, number_played: int) -> None:
        if self._figure_path is not None:
            self._env.enable_save_figure(env_id, self._figure_path)
        super()._finish_episode(env_id, value, number_played)
