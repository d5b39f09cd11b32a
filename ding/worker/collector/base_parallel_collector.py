"""What collectors in parallel training have in common: a rollout in a thread, until their episodes are played."""

from __future__ import annotations

import contextlib
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from easydict import EasyDict

from ding.torch_utils.data_helper import build_log_buffer
from ding.utils.autolog import TickTime
from ding.utils.config_helper import Configurable
from ding.utils.import_helper import import_module
from ding.utils.log_helper import build_logger
from ding.utils.registry_factory import PARALLEL_COLLECTOR_REGISTRY
from ding.utils.system_helper import get_task_uid
from ding.worker.collector.batch import PolicyOutput
from ding.worker.collector.parallel_round import CollectorActor, CollectorMonitor, OneRound, RoundSteps
from ding.worker.collector.rollout import Listener, Rollout

# How long `close` waits for a round that is under way.
ROUND_TIMEOUT_S = 10.0


_OWN = "ding.worker.collector.parallel_collectors"  # registers the collectors of this package


class BaseParallelCollector(Configurable, ABC):
    """Plays the episodes of one task, in the thread that calls `start`, until they are over or `close` is called.

    A subclass implements the abstract methods and sets `env_manager`, which is launched. Each round goes

        ready observations -> _policy_inference -> _env_step -> _process_timestep -> _iter_after_hook

    The rollout copies what the envs return before they may write into it again, refuses NaN, and resets envs that
    return an abnormal step; `_process_timestep` receives that step, too.

    Args:
        cfg: needs `eval_flag`, `exp_name` and `print_freq`.
    """

    # Set on an instance before it starts, see `TaskChannel`.
    send_stepdata: Callable[..., Any]
    send_metadata: Callable[[Any], None]
    get_policy_update_info: Callable[[str], dict[str, Any] | None]

    _end_flag = True
    _runner: threading.Thread | None = None
    _last_round_at: float | None = None  # when a round ended, or the first began; None while none is played
    # What the policy returned in this round, for the listeners; a `_policy_inference` may set it.
    _policy_output: PolicyOutput | None = None

    def __init__(self, cfg: EasyDict) -> None:
        self._cfg = cfg
        self._eval_flag: bool = cfg.eval_flag
        self._prefix = "EVALUATOR" if self._eval_flag else "COLLECTOR"
        self._collector_uid = get_task_uid()
        self._env_manager: Any = None
        self._policy: Any = None
        self._iter_count = 0
        self._last_stepped: tuple[int, float] = 0, 0.0  # envs stepped in the round so far, and when that was noticed
        self._life = threading.Lock()
        self._stopping, self._ended = threading.Event(), threading.Event()
        self._setup_logger()
        self._setup_timer()
        self._end_flag = False
        self.info(f"config: {cfg}")

    def _setup_logger(self) -> None:
        """Open the text log: `./<exp_name>/log/<collector or evaluator>/<name>_logger.txt`.

        The name is that of the worker, `log_name` in the config, so that all its tasks are in one file; without one it
        is that of the task.
        """
        folder = os.path.join(".", self._cfg.exp_name, "log", self._prefix.lower())
        self._logger: Any = build_logger(folder, self._cfg.get("log_name") or self._collector_uid, need_tb=False)[0]

    def _setup_timer(self) -> None:
        """Begin to measure rounds: `_monitor` averages the values that are put into `_log_buffer` during a round."""
        self._log_buffer: Any = build_log_buffer()
        self._monitor: Any = CollectorMonitor(TickTime(), expire=2 * self._cfg.print_freq)

    @property
    def collector_uid(self) -> str:
        """The unique id of the collector, after which its log and its chunks of samples are named."""
        return self._collector_uid

    def info(self, s: str) -> None:
        """Log a line."""
        self._logger.info("[%s(%s)]: %s", self._prefix, self._collector_uid, s)

    def debug(self, s: str) -> None:
        """Log a line at level DEBUG."""
        self._logger.debug("[%s(%s)]: %s", self._prefix, self._collector_uid, s)

    def error(self, s: str) -> None:
        """Log a line about something that went wrong."""
        self._logger.error("[%s(%s)]: %s", self._prefix, self._collector_uid, s)

    @property
    def policy(self) -> Any:
        """The mode of a policy that acts, or a list of them."""
        return self._policy

    @policy.setter
    def policy(self, _policy: Any) -> None:
        self._policy = _policy

    @property
    def env_manager(self) -> Any:
        """The env manager."""
        return self._env_manager

    @env_manager.setter
    def env_manager(self, _env_manager: Any) -> None:
        self._env_manager = _env_manager

    def start(self) -> None:
        """Get the policy, then play until the envs are done or `close` is called.

        Raises:
            RuntimeError: it has been started before.
        """
        with self._life:
            if self._runner is not None:
                raise RuntimeError(f"{self!r} starts once; make another one")
            self._runner = threading.current_thread()
        try:
            if not self._stopping.is_set():
                self._update_policy()
            if not self._stopping.is_set():
                self._start_thread()
                self._play()
        finally:
            self._last_round_at = None
            self._join_thread()
            self._ended.set()

    @property
    def silence_s(self) -> float:
        """Seconds since the last env step; 0 before the first round, while it waits for weights, and after the last.

        A round may step many slow envs one after another; each of them counts, as of the first call after its step.
        """
        since, now = self._last_round_at, monotonic()
        if since is None:
            return 0.0
        stepped = getattr(self._env_manager, "stepped_count", 0)  # 0 for managers of other packages
        if stepped != self._last_stepped[0]:
            self._last_stepped = stepped, now
        return max(0.0, now - max(since, self._last_stepped[1]))

    def progress(self) -> dict[str, Any]:
        """How far the task is, in the keys of an info; empty where that is not counted."""
        return {}

    def _play(self) -> None:
        steps, one_round = RoundSteps(self), OneRound()
        actor = CollectorActor(self)
        rollout = Rollout(steps, actor, [*self._listeners(), steps], info=self.info)
        self._last_round_at = monotonic()
        while not (self._stopping.is_set() or self._env_manager.done):
            rollout.run(one_round, {})
            self._process_timestep(steps.take())
            self._iter_after_hook()
            self._last_round_at = monotonic()

    def _listeners(self) -> Sequence[Listener]:
        """What records the rollout besides `_process_timestep`, and before it."""
        return ()

    def _bare_output(self, action: Any) -> Any:
        """The output of a policy for an env whose action is all that `_policy_inference` returned."""
        return {"action": action}

    def _iter_after_hook(self) -> None:
        """Called after each round; every `print_freq` rounds it logs how long they took, at level DEBUG."""
        self._monitor.record(self._log_buffer)
        self._monitor.time.step()
        self._log_buffer.clear()
        self._iter_count += 1
        if self._iter_count % self._cfg.print_freq == 0:
            self.debug(f"after {self._iter_count} rounds: {self._monitor.averages()}")

    def close(self) -> None:
        """End a running `start` after its present round, and join helper threads. Bounded in time; idempotent."""
        if self._end_flag:
            return
        self._end_flag = True
        self._stopping.set()
        self._join_thread()
        if self._runner not in (None, threading.current_thread()) and not self._ended.wait(ROUND_TIMEOUT_S):
            self.error(f"the round under way has not ended within {ROUND_TIMEOUT_S:g} s; it is left to itself")

    def __del__(self) -> None:
        # At interpreter exit the attributes may be gone already, and there is no caller to raise an error to.
        with contextlib.suppress(Exception):
            self.close()

    def _start_thread(self) -> None:  # noqa: B027 overriding it is optional
        """Start helper threads."""

    def _join_thread(self) -> None:  # noqa: B027 overriding it is optional
        """End and join helper threads; called more than once, and also if none was started."""

    def _reset_policy(self, env_ids: Sequence[int] | None) -> None:  # noqa: B027 overriding it is optional
        """The episodes of these envs, or of all, have ended or are void; called after `_listeners`."""

    @abstractmethod
    def get_finish_info(self) -> dict[str, Any]:
        """The message to the commander at the end of the task."""

    @abstractmethod
    def __repr__(self) -> str: ...

    @abstractmethod
    def _policy_inference(self, obs: Any) -> Any:
        """Actions `{env_id: action}`, arrays or tensors, for the observations `{env_id: float32 tensors}`."""

    @abstractmethod
    def _env_step(self, actions: Any) -> Any:
        """Act in the envs by `{env_id: array}`; return their timesteps `{env_id: timestep}`."""

    @abstractmethod
    def _process_timestep(self, timestep: Any) -> None:
        """Take the timesteps of a round, `{env_id: timestep of float32 tensors}`."""

    @abstractmethod
    def _update_policy(self) -> None:
        """Get the weights before the first round; a wait for them ends when `_join_thread` is called."""


def create_parallel_collector(cfg: EasyDict) -> BaseParallelCollector:
    """The parallel collector of the type `cfg.type`, after importing `cfg.import_names`.

    Raises:
        KeyError: no parallel collector is registered under that type.
    """
    import_module([_OWN, *cfg.get("import_names", [])])
    collector: BaseParallelCollector = PARALLEL_COLLECTOR_REGISTRY.build(cfg.type, cfg=cfg)
    return collector


def get_parallel_collector_cls(cfg: EasyDict) -> type[BaseParallelCollector]:
    """The parallel collector class registered as `cfg.type`, after importing `cfg.import_names`.

    Raises:
        KeyError: no parallel collector is registered under that type.
    """
    import_module([_OWN, *cfg.get("import_names", [])])
    collector_cls: type[BaseParallelCollector] = PARALLEL_COLLECTOR_REGISTRY.get(cfg.type)
    return collector_cls
