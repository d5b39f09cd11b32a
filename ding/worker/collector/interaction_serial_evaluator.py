"""The serial evaluator that lets a policy play episodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from easydict import EasyDict

from ding.utils.config_helper import Setting, Settings, number, one_of
from ding.utils.registry_factory import SERIAL_EVALUATOR_REGISTRY
from ding.utils.render_helper import fps
from ding.worker.collector.actor import SoloActor, StateActor
from ding.worker.collector.episode_evaluator import EpisodeEvaluator, EpisodeRecorder

_RENDER_DEFAULTS = {"render_freq": -1, "mode": "train_iter"}


@SERIAL_EVALUATOR_REGISTRY.register("interaction")
class InteractionSerialEvaluator(EpisodeEvaluator):
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

    settings = Settings(
        {
            "eval_freq": 1000,
            "render": Setting({}, None, "When videos are recorded."),
            "render.render_freq": Setting(-1, number(-1), "Iterations or env steps between two; -1 for none."),
            "render.mode": Setting("train_iter", one_of("envstep", "train_iter"), "What `render_freq` counts."),
            "figure_path": Setting(
                None, None, "Folder of the figures that an env with `enable_save_figure` draws of each episode."
            ),
        },
        EpisodeEvaluator.settings,
    )
    _defaults: dict[str, Any] = {**EpisodeEvaluator._defaults, "eval_freq": 1000, "figure_path": None, "render": {}}

    def _read_settings(self, settings: Mapping[str, Any]) -> None:
        super()._read_settings(settings)
        self._figure_path = settings["figure_path"]
        self._render = EasyDict({**_RENDER_DEFAULTS, **settings["render"]})

    def _read_policy(self) -> None:
        self._policy_cfg = self._policy.get_attribute("cfg")

    def reset(self, _policy: Any = None, _env: Any = None) -> None:
        """Use the given policy and env, reset those that are not given, and forget the best return and last evaluation.

        Raises:
            AssertionError: a policy is given, but no env was ever set.
            AttributeError: env or policy is missing.
        """
        super().reset(_policy, _env)
        self._last_render_iter = -1

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "last_render_iter": self._last_render_iter}

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        self._last_render_iter = state["last_render_iter"]
        return super().load_state_dict(state)

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

        def evaluate() -> tuple[bool, dict[str, Any] | None]:
            recorder = EpisodeRecorder(self._monitor_of(n_episode), self._env_num)
            render = force_render or self._should_render(envstep, train_iter)
            self._evaluate(recorder, policy_kwargs or {}, render, train_iter, envstep)
            return self._judge(save_ckpt_fn, train_iter), recorder.monitor.get_episode_info()

        stop, info = self._from_rank_0(evaluate)
        return stop, info or {}

    def _evaluate(
        self,
        recorder: EpisodeRecorder,
        policy_kwargs: Mapping[str, Any],
        render: bool,
        train_iter: int,
        envstep: int,
    ) -> None:
        from ding.policy.modes import takes_state  # here: importing the workers loads no policies

        monitor = recorder.monitor
        make_actor = StateActor if takes_state(self._policy) else SoloActor
        self._actor = make_actor(self._policy, float_obs=True, keep_integers=True)
        film = (lambda: monitor.update_video(self._env.ready_imgs)) if render else None
        seconds = self._play(recorder, self._actor, policy_kwargs, film)
        self._summarise(recorder, train_iter, envstep, seconds)
        if render:
            tag = f"{self._instance_name}_{self._render.mode}/"
            position = self._render_position(envstep, train_iter)
            assert self._log is not None  # of `_open`
            with self._log.only_shows():
                self._tb_logger.add_video(tag, monitor.get_video(), position, fps(self._env))

    def _finish_episode(self, env_id: int, reward: Any, number_played: int) -> None:
        if self._figure_path is not None:
            self._env.enable_save_figure(env_id, self._figure_path)
        super()._finish_episode(env_id, reward, number_played)
