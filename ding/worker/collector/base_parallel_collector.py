"""The base of the collectors of parallel training, which run a rollout until the episodes of a task are played."""

from __future__ import annotations

import contextlib
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from time import monotonic, perf_counter
from typing import Any

import torch
from easydict import EasyDict

from ding.torch_utils.data_helper import build_log_buffer, to_tensor
from ding.utils.autolog import LoggedModel, LoggedValue, TickTime
from ding.utils.batch_methods import batch_method
from ding.utils.config_helper import Configurable
from ding.utils.import_helper import import_module
from ding.utils.log_helper import build_logger
from ding.utils.registry_factory import PARALLEL_COLLECTOR_REGISTRY
from ding.utils.system_helper import get_task_uid
from ding.worker.collector.actor import env_actions
from ding.worker.collector.env_round import Batch, PolicyOutput, Steps
from ding.worker.collector.rollout import CustomManagerBlocks, Quota, Rollout, RolloutListener

# How long `close` waits for a round that is under way.
ROUND_TIMEOUT_S = 10.0

# They register the collectors of this package.
OWN_MODULES = tuple(f"ding.worker.collector.{name}_parallel_collector" for name in ("zergling", "marine"))


class CollectorMonitor(LoggedModel):
    """Moving averages over rounds: seconds in the policy, seconds in the envs, timesteps, env seconds per timestep.

    `monitor.avg[name]()` is the mean over the last rounds.
    """

    policy_time = LoggedValue(float)
    env_time = LoggedValue(float)
    timestep_size = LoggedValue(float)
    norm_env_time = LoggedValue(float)

    def __init__(self, time_: TickTime, expire: float) -> None:
        super().__init__(time_, expire)
        for name in self._declared:
            self.register_attribute_value("avg", name, partial(self.mean_of, name))

    def record(self, values: Mapping[str, Any]) -> None:
        """Record the measured values of a round. Values under other names are set as plain attributes."""
        for name, value in values.items():
            setattr(self, name, value)

    def averages(self) -> dict[str, float]:
        """Return the mean of each value over the last rounds, by name."""
        return {name: self.mean_of(name) for name in self._declared}


class BaseParallelCollector(Configurable, ABC):
    """Base of the collectors of parallel training, which play the episodes of one task.

    They play in the thread that calls `start`, until the episodes are over or `close` is called.

    A subclass implements the abstract methods and sets `env_manager`, which is then launched. Each round runs

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
        self._read_policy(_policy)
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
        """Return the progress of the task in the keys of an info; an empty dict if it is not counted."""
        return {}

    def _play(self) -> None:
        round_ = CollectorRound(self)
        rollout = Rollout(round_, CollectorActor(self), [*self._listeners(), round_], info=self.info)
        self._last_round_at = monotonic()
        while not (self._stopping.is_set() or self._env_manager.done):
            rollout.run(round_, {})
            self._process_timestep(round_.take())
            self._iter_after_hook()
            self._last_round_at = monotonic()

    def _listeners(self) -> Sequence[RolloutListener]:
        """Return the listeners that record the rollout; they are called before `_process_timestep`."""
        return ()

    def _bare_output(self, action: Any) -> Any:
        """Return the policy's output for an env of which `_policy_inference` returned only the action."""
        return {"action": action}

    def _iter_after_hook(self) -> None:
        """Handle the end of a round: every `print_freq` rounds, log their durations at level DEBUG."""
        self._monitor.record(self._log_buffer)
        self._monitor.time.step()
        self._log_buffer.clear()
        self._iter_count += 1
        if self._iter_count % self._cfg.print_freq == 0:
            self.debug(f"after {self._iter_count} rounds: {self._monitor.averages()}")

    def close(self) -> None:
        """End a running `start` after its present round, and join helper threads, in bounded time.

        Further calls do nothing.
        """
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

    def _read_policy(self, policy: Any) -> None:  # noqa: B027 overriding it is optional
        """Check the new value of `policy`, and read the settings that collecting needs from it."""

    def _start_thread(self) -> None:  # noqa: B027 overriding it is optional
        """Start helper threads."""

    def _join_thread(self) -> None:  # noqa: B027 overriding it is optional
        """End and join helper threads. It may be called more than once, and also if none was started."""

    def _reset_policy(self, env_ids: Sequence[int] | None) -> None:  # noqa: B027 overriding it is optional
        """Reset the policy for these envs, or for all, as their episodes are over; called after the `_listeners`."""

    @abstractmethod
    def get_finish_info(self) -> dict[str, Any]:
        """Return the message to the commander at the end of the task."""

    @abstractmethod
    def __repr__(self) -> str: ...

    @abstractmethod
    def _policy_inference(self, obs: Any) -> Any:
        """Return the actions `{env_id: array or tensor}` for the observations `{env_id: float32 tensors}`."""

    @abstractmethod
    def _env_step(self, actions: Any) -> Any:
        """Step the envs with the actions `{env_id: array}`, and return their timesteps `{env_id: timestep}`."""

    @abstractmethod
    def _process_timestep(self, timestep: Any) -> None:
        """Process the timesteps of a round, `{env_id: timestep of float32 tensors}`."""

    @abstractmethod
    def _update_policy(self) -> None:
        """Load the weights before the first round; waiting for them ends when `_join_thread` is called."""


class CollectorActor:
    """The actor of a collector, which calls its `_policy_inference`."""

    model = None  # a worker has chosen its threads
    is_stateless = False
    keeps_layers = True

    def __init__(self, collector: BaseParallelCollector) -> None:
        self._collector = collector

    def act(self, obs: Batch, kwargs: Mapping[str, Any]) -> tuple[PolicyOutput, Sequence[Any]]:
        collector = self._collector
        start = perf_counter()
        act = batch_method(collector._policy_inference)
        if act is not None:
            output, actions = act(obs)
            collector._log_buffer["policy_time"] = perf_counter() - start
            return output, actions
        collector._policy_output = None
        by_env = collector._policy_inference(obs.seen(as_float=True))
        collector._log_buffer["policy_time"] = perf_counter() - start
        output = collector._policy_output
        if output is None:
            output = {env_id: collector._bare_output(action) for env_id, action in by_env.items()}
        return output, env_actions({env_id: {"action": action} for env_id, action in by_env.items()}, obs.env_ids)

    def reset(self, env_ids: Sequence[int] | None = None) -> None:
        self._collector._reset_policy(env_ids)


class CollectorRound(RolloutListener, Quota, CustomManagerBlocks):
    """One round of a collector: the env manager, stepped by `_env_step`, the quota, and the listener of a rollout.

    It keeps what the envs returned.
    """

    def __init__(self, collector: BaseParallelCollector) -> None:
        super().__init__(collector._env_manager)
        self._collector = collector
        self._answers: Mapping[int, Any] = {}
        self._steps: Steps | None = None
        self._is_over = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._collector._env_manager, name)

    def is_filled(self) -> bool:
        self._is_over = not self._is_over
        return self._is_over

    def choose(self, env_ids: list[int]) -> list[int]:
        return env_ids

    def step(self, actions: Mapping[int, Any]) -> Mapping[int, Any]:
        collector = self._collector
        start = perf_counter()
        self._answers = collector._env_step(actions)
        seconds, size = perf_counter() - start, len(self._answers)
        collector._log_buffer.update(
            {"env_time": seconds, "timestep_size": size, "norm_env_time": seconds / max(1, size)}
        )
        return self._answers

    def on_steps(self, steps: Steps) -> None:
        self._steps = steps

    def take(self) -> Mapping[int, Any]:
        """Return the timesteps of the round as float32 tensors; those of normal steps are copies."""
        answers, steps = self._answers, self._steps
        self._answers, self._steps = {}, None
        return RoundTimesteps(answers, steps)


class RoundTimesteps(Mapping[int, Any]):
    """A mapping `{env_id: timestep of float32 tensors}`, converted on access, as most collectors need none.

    Args:
        returned: what the envs returned.
        steps: the normal ones among them, with arrays that are copies.
    """

    def __init__(self, returned: Mapping[int, Any], steps: Steps | None) -> None:
        self._returned, self._steps = returned, steps

    @cached_property
    def _tensors(self) -> dict[int, Any]:
        steps = self._steps
        own = {} if steps is None else dict(zip(steps.env_ids, steps.timesteps(), strict=True))
        return {env_id: to_tensor(own.get(env_id, step), torch.float32) for env_id, step in self._returned.items()}

    def __getitem__(self, env_id: int) -> Any:
        return self._tensors[env_id]

    def __iter__(self) -> Iterator[int]:
        return iter(self._returned)

    def __len__(self) -> int:
        return len(self._returned)


def create_parallel_collector(cfg: EasyDict) -> BaseParallelCollector:
    """Return the parallel collector of the type `cfg.type`, after importing `cfg.import_names`.

    Raises:
        KeyError: no parallel collector is registered under that type.
    """
    import_module([*OWN_MODULES, *cfg.get("import_names", [])])
    collector: BaseParallelCollector = PARALLEL_COLLECTOR_REGISTRY.build(cfg.type, cfg=cfg)
    return collector


def get_parallel_collector_cls(cfg: EasyDict) -> type[BaseParallelCollector]:
    """Return the parallel collector class registered as `cfg.type`, after importing `cfg.import_names`.

    Raises:
        KeyError: no parallel collector is registered under that type.
    """
    import_module([*OWN_MODULES, *cfg.get("import_names", [])])
    collector_cls: type[BaseParallelCollector] = PARALLEL_COLLECTOR_REGISTRY.get(cfg.type)
    return collector_cls
