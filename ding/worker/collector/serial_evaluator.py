"""Base of the serial evaluators: when to evaluate, logs, the best checkpoint, and the broadcast to other ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from easydict import EasyDict

from ding.utils.config_helper import NO_DEFAULT, Setting, Settings, check_section, integer, number
from ding.utils.pytorch_ddp_dist_helper import broadcast_object_list
from ding.utils.time_helper import EasyTimer
from ding.worker.collector.base_serial_evaluator import ISerialEvaluator, as_plain
from ding.worker.collector.serial_worker import SerialWorker

Result = TypeVar("Result")
SaveCheckpoint = Callable[[str], Any]

# What places an evaluation is no measurement of it.
_NOT_IN_TENSORBOARD = ("train_iter", "ckpt_name", "each_reward")


class SerialEvaluator(SerialWorker, ISerialEvaluator):
    """Base of the serial evaluators; a subclass measures, and decides which result is better and which is good enough.

    Args:
        cfg: config, see `default_config`.
        env: what to evaluate in.
        policy: the eval mode of a policy (for battles a list of them).
        tb_logger: a TensorBoard writer shared with others; without one, one is made.
        exp_name: the experiment's folder, for the logs.
        instance_name: name in the logs and tags.
    """

    settings = Settings(
        {
            "eval_freq": Setting(50, number(-1), "Number of iterations between two evaluations."),
            "patience": Setting(
                NO_DEFAULT,
                integer(1, optional=True),
                "Number of evaluations in a row without a better mean return that end the run; None for no limit.",
            ),
        }
    )
    # Values of keys that a config may leave out.
    _defaults: dict[str, Any] = {"eval_freq": 50}
    _last_eval_iter: int

    def __init__(
        self,
        cfg: EasyDict,
        env: Any = None,
        policy: Any = None,
        tb_logger: Any = None,
        exp_name: str = "default_experiment",
        instance_name: str = "evaluator",
    ) -> None:
        check_section(cfg, type(self))
        self._is_live = False
        self._open(cfg, tb_logger, exp_name, instance_name)
        self._timer = EasyTimer(cuda=False)
        self._read_settings({**self._defaults, **cfg})
        self.reset(policy, env)
        self._is_live = True

    def _read_settings(self, settings: Mapping[str, Any]) -> None:
        self._eval_freq = settings["eval_freq"]
        self._stop_value = settings["stop_value"]

    @property
    def env(self) -> Any:
        """The env manager; setting it is `reset_env`."""
        return self._env

    @env.setter
    def env(self, _env: Any) -> None:
        self.reset_env(_env)

    @property
    def policy(self) -> Any:
        """The evaluated policy; setting it is `reset_policy`."""
        return self._policy

    @policy.setter
    def policy(self, _policy: Any) -> None:
        self.reset_policy(_policy)

    def should_eval(self, train_iter: int) -> bool:
        """Whether an evaluation is due: at iteration 0, then when `eval_freq` iterations have passed since the last."""
        if train_iter == self._last_eval_iter:
            return False
        if train_iter - self._last_eval_iter < self._eval_freq and train_iter != 0:
            return False
        self._last_eval_iter = train_iter
        return True

    def state_dict(self) -> dict[str, Any]:
        """The last evaluation and the best result so far, in plain values; without envs and policy."""
        return {"last_eval_iter": self._last_eval_iter}

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        """Restore a state of `state_dict`; return why that is not exact, a sentence for each reason."""
        self._last_eval_iter = state["last_eval_iter"]
        return []

    def _from_rank_0(self, evaluate: Callable[[], tuple[bool, Result]]) -> tuple[bool, Result]:
        """What `evaluate` returns on rank 0, which alone calls it; all ranks must come here together."""
        shared: list[Any] = [None, None]
        if self._rank == 0:
            shared = list(evaluate())
        if self._world_size > 1:
            broadcast_object_list(shared, src=0)
        stop, result = shared
        return stop, result

    def _report(self, summary: Mapping[str, Any], train_iter: int, envstep: int) -> None:
        """Write the single values of `summary` as a text table and, if they are numbers, to TensorBoard."""
        plain = {key: as_plain(value) for key, value in summary.items()}
        single = {key: value for key, value in plain.items() if isinstance(value, str | int | float)}
        self._logger.info(self._logger.get_tabulate_vars_hor(single))
        assert self._log is not None
        shown = {
            key: value for key, value in single.items() if key not in _NOT_IN_TENSORBOARD and not isinstance(value, str)
        }
        self._log.scalars(shown, train_iter=train_iter, envstep=envstep)

    def _report_stop(self, result: Any) -> None:
        assert self._log is not None
        self._logger.info(
            "the evaluation result %s has reached stop_value %s: training may stop; the evaluations are in %s/",
            result,
            self._stop_value,
            self._log.path,
        )
