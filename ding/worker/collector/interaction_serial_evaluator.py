"""The serial evaluator that lets a policy play episodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import numpy as np
from easydict import EasyDict

from ding.utils.config_helper import anything, check_config, integer, number, one_of
from ding.utils.pytorch_ddp_dist_helper import broadcast_object_list
from ding.utils.registry_factory import SERIAL_EVALUATOR_REGISTRY
from ding.utils.render_helper import fps
from ding.worker.collector.actor import SoloActor, StateActor
from ding.worker.collector.base_serial_evaluator import ISerialEvaluator, VectorEvalMonitor, as_plain
from ding.worker.collector.episode_recorder import EpisodeRecorder, EvalRecord
from ding.worker.collector.rollout import Rollout
from ding.worker.collector.serial_worker import SerialWorker
from ding.worker.collector.statistics import per

# What a config may leave out: nobody stops training then, and nothing is rendered.
_DEFAULTS: dict[str, Any] = {"n_episode": None, "stop_value": int(1e10), "figure_path": None, "render": {}}
_RENDER_DEFAULTS = {"render_freq": -1, "mode": "train_iter"}
_RULES = {
    "eval_freq": number(-1),
    "render.render_freq": number(-1),
    "render.mode": one_of("envstep", "train_iter"),
    "figure_path": anything,
    "n_episode": integer(1, optional=True),
    "stop_value": number(),
}


@SERIAL_EVALUATOR_REGISTRY.register("interaction")
class InteractionSerialEvaluator(SerialWorker, ISerialEvaluator):
    """Lets the eval mode of a policy play a fixed number of episodes in each env of a manager.

    The evaluator owns its env manager: it launches it (on rank 0, which alone evaluates), and closes it with itself.

    Args:
        cfg: config, see `default_config`.
        env: an env manager that is not launched yet.
        policy: the eval mode of a policy.
        tb_logger: a TensorBoard writer shared with others; without one, one is made.
        exp_name: the experiment's folder, for the logs.
        instance_name: name in the logs and tags.
    """

    config: dict[str, Any] = {
        # Evaluate every so many training iterations.
        "eval_freq": 1000,
        # Record a video every so many iterations or env steps (`mode`: 'train_iter' or 'envstep'); -1 for never.
        "render": {"render_freq": -1, "mode": "train_iter"},
        # Folder of the figures that an env with `enable_save_figure` draws at the end of an episode.
        "figure_path": None,
    }

    def __init__(
        self,
        cfg: EasyDict,
        env: Any = None,
        policy: Any = None,
        tb_logger: Any = None,
        exp_name: str = "default_experiment",
        instance_name: str = "evaluator",
    ) -> None:
        name = type(self).__name__
        check_config(cfg, name, {**_RULES, **dict.fromkeys(set(self.config) - set(_RULES) - {"render"}, anything)})
        self._is_live = False
        self._open(cfg, tb_logger, exp_name, instance_name)
        settings = {**InteractionSerialEvaluator.config, **_DEFAULTS, **cfg}
        self._eval_freq = settings["eval_freq"]
        self._default_n_episode = settings["n_episode"]
        self._stop_value = settings["stop_value"]
        self._figure_path = settings["figure_path"]
        self._render = EasyDict({**_RENDER_DEFAULTS, **settings["render"]})
        self.reset(policy, env)
        self._is_live = True

    @property
    def env(self) -> Any:
        """The env manager; setting one is `reset_env`."""
        return self._env

    @env.setter
    def env(self, _env: Any) -> None:
        self.reset_env(_env)

    @property
    def policy(self) -> Any:
        """The eval mode; setting one is `reset_policy`."""
        return self._policy

    @policy.setter
    def policy(self, _policy: Any) -> None:
        self.reset_policy(_policy)

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
            self._policy = _policy
        self._policy_cfg = self._policy.get_attribute("cfg")
        self._policy.reset()

    def reset(self, _policy: Any = None, _env: Any = None) -> None:
        """Take over what is given, reset what is not, and forget the best return and the last evaluation.

        Raises:
            AssertionError: a policy is given, but no env was ever set.
            AttributeError: env or policy is missing.
        """
        if _env is not None or self._is_live:
            self.reset_env(_env)
        if _policy is not None or self._is_live:
            self.reset_policy(_policy)
        if self._env is None or self._policy is None:
            raise AttributeError(f"{type(self).__name__} needs an env manager and a policy, got {_env} and {_policy}")
        self._max_episode_return = -math.inf
        self._last_eval_iter = -1
        self._last_render_iter = -1
        self.last_eval: EvalRecord | None = None
        self._end_flag = False

    def should_eval(self, train_iter: int) -> bool:
        """Whether an evaluation is due: at iteration 0, then when `eval_freq` iterations have passed since the last."""
        if train_iter == self._last_eval_iter:
            return False
        if train_iter - self._last_eval_iter < self._eval_freq and train_iter != 0:
            return False
        self._last_eval_iter = train_iter
        return True

    def _should_render(self, envstep: int, train_iter: int) -> bool:
        if self._render.render_freq == -1:
            return False
        position = envstep if self._render.mode == "envstep" else train_iter
        if position - self._last_render_iter < self._render.render_freq:
            return False
        self._last_render_iter = position
        return True

    def eval(
        self,
        save_ckpt_fn: Callable[[str], Any] | None = None,
        train_iter: int = -1,
        envstep: int = -1,
        n_episode: int | None = None,
        force_render: bool = False,
        policy_kwargs: dict[str, Any] | None = {},
    ) -> tuple[bool, dict[str, Any]]:
        """Play the episodes; on several ranks rank 0 does and tells the others, so all must call this together.

        Args:
            save_ckpt_fn: called with `ckpt_best.pth.tar` when the mean return is the best so far.
            train_iter: iteration of the policy.
            envstep: env steps of the training so far.
            n_episode: number of episodes; None for that of the config.
            force_render: record a video of this evaluation.
            policy_kwargs: keyword arguments of the policy's forward.

        Returns:
            `(stop, info)`: whether the mean return has reached `stop_value` (never before the first iteration), and
            `{'eval_episode_return': [float, ...], ...}`, lists of what the episodes reported, with their means.

        Raises:
            AssertionError: no number of episodes is given, or it is below the number of envs.
        """
        stop = False
        info: dict[str, Any] | None = None
        if self._rank == 0:
            stop, info = self._evaluate(save_ckpt_fn, train_iter, envstep, n_episode, force_render, policy_kwargs or {})
        if self._world_size > 1:
            told: list[Any] = [stop, info]
            broadcast_object_list(told, src=0)
            stop, info = told
        return stop, info or {}

    def _evaluate(
        self,
        save_ckpt_fn: Callable[[str], Any] | None,
        train_iter: int,
        envstep: int,
        n_episode: int | None,
        force_render: bool,
        policy_kwargs: Mapping[str, Any],
    ) -> tuple[bool, dict[str, Any] | None]:
        n_episode = self._default_n_episode if n_episode is None else n_episode
        if n_episode is None:
            raise AssertionError("eval needs n_episode: give it to eval(), or set env.n_evaluator_episode")
        render = force_render or self._should_render(envstep, train_iter)
        start = perf_counter()
        recorder = self._play(VectorEvalMonitor(self._env_num, n_episode), policy_kwargs, render)
        monitor, seconds = recorder.monitor, perf_counter() - start
        returns = [float(value) for value in monitor.get_episode_return()]
        lengths = [length for env_lengths in recorder.lengths.values() for length in env_lengths]
        self.last_eval = EvalRecord(train_iter, envstep, returns, lengths, seconds)
        info = monitor.get_episode_info()
        self._report(self.last_eval, info or {})
        if render:
            position = envstep if self._render.mode == "envstep" else train_iter
            tag = f"{self._instance_name}_{self._render.mode}/"
            self._tb_logger.add_video(tag, monitor.get_video(), position, fps(self._env))
        return self._judge(float(np.mean(returns)), save_ckpt_fn, train_iter), info

    def _play(self, monitor: VectorEvalMonitor, policy_kwargs: Mapping[str, Any], render: bool) -> EpisodeRecorder:
        self._env.reset()
        self._policy.reset()
        recorder = EpisodeRecorder(monitor, self._env_num)
        recorder.on_episode = self._finish_episode
        self._monitor = monitor
        is_stateful = self._policy_cfg.type == "dreamer_command"
        actor = StateActor(self._policy) if is_stateful else SoloActor(self._policy)
        rollout = Rollout(self._env, actor, [recorder], float_obs=True, info=self._logger.info)
        film = (lambda: monitor.update_video(self._env.ready_imgs)) if render else None
        rollout.run(recorder, policy_kwargs, film)
        return recorder

    def _finish_episode(self, env_id: int, reward: Any) -> None:
        if self._figure_path is not None:
            self._env.enable_save_figure(env_id, self._figure_path)
        number_played = self._monitor.get_current_episode()
        self._logger.info(
            "[EVALUATOR]env %d finish episode, return: %.4f, current episode: %d",
            env_id,
            float(np.mean(as_plain(reward))),
            number_played,
        )

    def _report(self, record: EvalRecord, info: Mapping[str, Any]) -> None:
        """Write the summary as a text table and, numbers only, to TensorBoard."""
        episodes, steps = len(record.returns), sum(record.lengths)
        summary: dict[str, Any] = {
            "train_iter": record.train_iter,
            "ckpt_name": f"iteration_{record.train_iter}.pth.tar",
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
        }
        scalars = {key: value for key, value in info.items() if np.isscalar(value)}
        self._logger.info(self._logger.get_tabulate_vars_hor({**summary, **scalars}))
        assert self._log is not None
        hidden = ("train_iter", "ckpt_name", "each_reward")
        shown = {
            key: value
            for key, value in {**summary, **scalars}.items()
            if key not in hidden and not isinstance(value, str)
        }
        self._log.scalars(shown, train_iter=record.train_iter, envstep=record.envstep)

    def _judge(self, mean_return: float, save_ckpt_fn: Callable[[str], Any] | None, train_iter: int) -> bool:
        """Save a new best checkpoint; return whether training may stop."""
        if mean_return > self._max_episode_return:
            if save_ckpt_fn is not None:
                save_ckpt_fn("ckpt_best.pth.tar")
            self._max_episode_return = mean_return
        stop = bool(mean_return >= self._stop_value and train_iter > 0)
        if stop:
            assert self._log is not None
            self._logger.info(
                "the mean return %s has reached stop_value %s: training may stop; the evaluations are in %s/",
                mean_return,
                self._stop_value,
                self._log.path,
            )
        return stop
