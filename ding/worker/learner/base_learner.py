"""The learner, which passes data to the policy and calls the hooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from math import inf
from operator import attrgetter
from time import perf_counter
from typing import Any

import numpy as np
import torch
from easydict import EasyDict

from ding.torch_utils import thread_count
from ding.torch_utils.checkpoint_helper import CountVar, auto_checkpoint
from ding.torch_utils.data_helper import build_log_buffer, to_device
from ding.torch_utils.thread_count import fitting_count, model_of
from ding.utils.autolog import TickTime
from ding.utils.config_helper import (
    NO_DEFAULT,
    Configurable,
    Setting,
    Settings,
    boolean,
    check_section,
    instance_of,
    integer,
)
from ding.utils.data.dataloader import AsyncDataLoader
from ding.utils.data.samples import table_of
from ding.utils.import_helper import import_module
from ding.utils.log_helper import only_shows
from ding.utils.object_state import SavedAttributes, declared_state, load_declared_state
from ding.utils.pytorch_ddp_dist_helper import get_rank, get_world_size
from ding.utils.registry_factory import LEARNER_REGISTRY
from ding.worker.learner.learner_hook import (
    LearnerHook,
    add_learner_hook,
    build_learner_hook_by_cfg,
    hook_mapping,
    unknown_hooks,
)
from ding.worker.worker_log import (
    LogEntries,
    TickMonitor,
    WorkerLog,
    get_simple_monitor_type,
    sort_out,
)

__all__ = ["BaseLearner", "BatchSource", "LoadedBatches", "TickMonitor", "create_learner", "get_simple_monitor_type"]


# With one value per tick, averages are over the last 11.
_MONITOR_EXPIRE_TICKS = 10


class BatchSource:
    """A source of the batches of a learner.

    Attributes:
        envstep: env steps that were collected when the newest batch was sampled; a negative number if unknown.
    """

    envstep: int = -1

    def next_batch(self) -> Any:
        """Wait for the next batch and return it; None if there are no more."""
        raise NotImplementedError

    def after_train(self, learner: BaseLearner) -> None:
        """Handle that the newest batch was trained on; its priorities are in `learner.priority_info`."""


class LoadedBatches(BatchSource):
    """The batches of the learner's dataloader."""

    def __init__(self, learner: BaseLearner) -> None:
        self._learner = learner

    def next_batch(self) -> Any:
        return self._learner._next_data()


def _field(name: str, doc: str, is_writable: bool = False) -> Any:
    """Return a property that reads the attribute `name` without a Python call."""
    return property(
        attrgetter(name), (lambda self, value: setattr(self, name, value)) if is_writable else None, doc=doc
    )


@LEARNER_REGISTRY.register("base")
class BaseLearner(SavedAttributes, Configurable):
    """A learner, which trains a policy, and calls hooks before and after each iteration and the whole run.

    In serial training, call `call_hook('before_run')`, `train(data, envstep)` for each batch, and
    `call_hook('after_run')`. In parallel training, set `get_data`, and call `setup_dataloader()` and `start()`. The
    caller may set further attributes on an instance. Only `close` and `stop` may be called from another thread.

    Args:
        cfg: see `settings` for the keys and defaults. With several ranks, `hook.log_reduce_after_iter` is added to it
            if missing.
        policy: the learn mode of a policy; it may also be assigned later.
        tb_logger: a shared TensorBoard writer, which `close` leaves open; None creates one.
        dist_info: rank and world size; by default from the process group.

    Raises:
        AttributeError: `cfg` has no `hook` section.
        ConfigError: a value in `cfg` has the wrong type or range.

    Example:
        >>> import os, tempfile
        >>> class Policy:
        ...     def forward(self, data):
        ...         return {"total_loss": sum(data) / len(data)}
        ...     def monitor_vars(self):
        ...         return ["total_loss"]
        ...     def info(self):
        ...         return "averages"
        >>> cfg = BaseLearner.default_config()
        >>> cfg.hook = {"log_show_after_iter": 10}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     learner = BaseLearner(cfg, Policy(), exp_name=os.path.relpath(folder))
        ...     learner.train([1.0, 2.0], envstep=64)
        ...     learner.close()
        [{'total_loss': 1.5}]
    """

    _saved = ("_collector_envstep", "ckpt_extra", "_log_buffer")
    settings = Settings(
        {
            "train_iterations": Setting(
                int(1e9), integer(0), "Number of iterations, in parallel training of batches, after which it stops."
            ),
            "dataloader.num_workers": Setting(
                0, integer(0), "Number of threads that load samples, in parallel training."
            ),
            "dataloader.chunk_size": Setting(
                NO_DEFAULT, integer(1, optional=True), "Number of samples that a thread loads at a time."
            ),
            "log_policy": Setting(True, boolean, "Whether the policy is described in the log."),
            "is_multitask_pipeline": Setting(
                False, boolean, "Whether all ranks log, whatever `only_monitor_rank0` is."
            ),
            "only_monitor_rank0": Setting(True, boolean, "Whether only rank 0 logs."),
            "keep_checkpoints": Setting(
                NO_DEFAULT, integer(1, optional=True), "Number of the newest checkpoints to keep; None for all."
            ),
            # The values are checked by the hooks.
            "hook": Setting(
                {}, instance_of(Mapping), "Hooks: the simplified keys below, or a full form under any key."
            ),
            "hook.load_ckpt_before_run": Setting("", None, "Checkpoint to start from."),
            "hook.log_show_after_iter": Setting(100, None, "Number of iterations between two tables in the log."),
            "hook.save_ckpt_after_iter": Setting(10000, None, "Number of iterations between two checkpoints."),
            "hook.save_ckpt_after_run": Setting(True, None, "Whether to save a checkpoint at the end."),
            "hook.log_reduce_after_iter": Setting(NO_DEFAULT, None, "Whether to average the logged values over ranks."),
            "exp_name": Setting(NO_DEFAULT, None, "Folder of the run."),
            "load_path": Setting(NO_DEFAULT, None, "Checkpoint of a trained policy, for its evaluation."),
            "learner_num": Setting(NO_DEFAULT, None, "Number of learners, in parallel training."),
            "send_policy_freq": Setting(
                NO_DEFAULT,
                None,
                "Number of iterations between two versions of the weights that are sent to collectors.",
            ),
        }
    )

    last_iter: CountVar = _field("_last_iter", "The iteration counter; hooks may set it.")
    train_iter: int = _field(
        "_last_iter.val", "Iterations so far; in an `after_iter` hook the index of the current iteration, from 0."
    )
    collector_envstep: int = _field(
        "_collector_envstep", "Env steps that were collected when the last batch was sampled; 0 if unknown.", True
    )
    priority_info: dict[str, Any] = _field(
        "_priority_info",
        "The argument of a buffer's `update`: `priority`, `replay_buffer_idx` and `replay_unique_id`; empty if the "
        "last `train` returned no priorities.",
        True,
    )
    log_buffer: dict[str, Any] = _field(
        "_log_buffer", "The log of the current iteration: a dict each for `scalar`, `scalars` and `histogram`.", True
    )
    ckpt_name: str | None = _field(
        "_ckpt_name", "The file name of the next checkpoint; None for `iteration_<n>.pth.tar`.", True
    )
    worker_log: WorkerLog = _field("_log", "The text and TensorBoard logs; `scalars` writes under both axes.")
    logger: Any = _field("_log.text", "The text logger.")
    tb_logger: Any = _field("_log.tb", "The TensorBoard writer; None on a rank that does not monitor.")
    exp_name: str = _field("_exp_name", "The folder of the experiment.")
    instance_name: str = _field("_instance_name", "The name of this learner within the experiment.")
    rank: int = _field("_rank", "The index of this process in distributed training, from 0.")
    world_size: int = _field("_world_size", "The number of processes in distributed training.")

    # Class attributes, so that `close` works after a failed construction.
    _log: WorkerLog | None = None
    _end_flag = True
    _is_stopping = False
    _dataloader: AsyncDataLoader | None = None
    _follows_progress = False
    _data_time: Mapping[str, float] = {}  # seconds for loading the newest batch
    # Returns the samples of a batch, or functions that load them; set it, or define it in a subclass.
    get_data: Callable[[int], Any] | None = None
    # The source of the batches of `start`; None for the dataloader.
    batch_source: BatchSource | None = None
    # If set, called with the iteration and the averages of the monitored values whenever they are logged.
    on_averages: Callable[[int, dict[str, float]], Any] | None = None

    def __init__(
        self,
        cfg: EasyDict,
        policy: Any = None,
        tb_logger: Any = None,
        dist_info: tuple[int, int] | list[int] | None = None,
        exp_name: str = "default_experiment",
        instance_name: str = "learner",
    ) -> None:
        check_section(cfg, type(self), f"the learner {instance_name!r}")
        self._cfg, self._exp_name, self._instance_name = cfg, exp_name, instance_name
        self._rank, self._world_size = (get_rank(), get_world_size()) if dist_info is None else dist_info
        if self._world_size > 1 and "log_reduce_after_iter" not in cfg.hook:
            cfg.hook.log_reduce_after_iter = True
        unknown = unknown_hooks(cfg.hook)
        self._hooks = build_learner_hook_by_cfg({key: cfg.hook[key] for key in cfg.hook if key not in unknown})
        is_multitask = cfg.get("is_multitask_pipeline", False)
        self.only_monitor_rank0: bool = cfg.get("only_monitor_rank0", True) and not is_multitask
        # How many checkpoints iteration_<n> to keep; None for all.
        self.keep_checkpoints: int | None = cfg.get("keep_checkpoints")
        self._log = WorkerLog(exp_name, instance_name, tb_logger, is_monitor=self.is_monitor)
        self._log_buffer: dict[str, Any] = {kind: build_log_buffer() for kind in LogEntries._fields}
        self._last_iter, self._collector_envstep = CountVar(0), 0
        self._priority_info: dict[str, Any] = {}
        self._ckpt_name: str | None = None
        # Added to each checkpoint if it is not empty; it is for the pipeline, not for the policy.
        self.ckpt_extra: dict[str, Any] = {}
        # The number of batches that another learner trained on in the run that `start` continues.
        self.trained_before = 0
        # The limits of the run, by which its progress is told to policies whose learning rates depend on it.
        default = self.config["train_iterations"]
        iterations = cfg.get("train_iterations", default)
        self.max_train_iter: float = inf if iterations == default else iterations
        self.max_env_step: float = inf
        self._learner_done = self._end_flag = False
        self._policy: Any = None
        self._threads: int | None = None  # the number of torch threads for its model, see `fitting_count`
        self._monitor: TickMonitor | None = None
        if policy is not None:
            self.policy = policy

    def info(self, s: str) -> None:
        """Write `s` to the text log, prefixed with the rank."""
        self.logger.info(f"[RANK{self._rank}]: {s}")

    def debug(self, s: str) -> None:
        """Write `s` to the text log at level DEBUG, prefixed with the rank."""
        self.logger.debug(f"[RANK{self._rank}]: {s}")

    @property
    def policy(self) -> Any:
        """The learn mode of a policy, or None; assigning one creates a new monitor."""
        return self._policy

    @policy.setter
    def policy(self, _policy: Any) -> None:
        from ding.policy.modes import follows_progress  # here: importing the workers loads no policies

        self._policy, self._follows_progress = _policy, follows_progress(_policy)
        self._threads = fitting_count(model_of(_policy))
        if self.is_monitor:
            self._monitor = get_simple_monitor_type(_policy.monitor_vars())(TickTime(), _MONITOR_EXPIRE_TICKS)
        if self._cfg.get("log_policy", True):
            with only_shows(f"info() of the policy {type(_policy).__name__}"):
                self.info(_policy.info())

    @property
    def monitor(self) -> TickMonitor:
        """The averages of the logged scalars.

        Raises:
            AttributeError: the learner has no policy, or this rank does not monitor.
        """
        if self._monitor is None:
            raise AttributeError("the learner has no monitor: assign a policy first, on a rank that monitors")
        return self._monitor

    @property
    def is_monitor(self) -> bool:
        """Whether this rank logs averages and TensorBoard: rank 0, or every rank unless `only_monitor_rank0`."""
        return self._rank == 0 or not self.only_monitor_rank0

    def progress_remaining(self, envstep: int = -1) -> float | None:
        """Return the share of the run that is left, from 1 to 0, by the limit that is closer; None without a limit.

        Args:
            envstep: env steps collected so far; a negative number stands for the last known value.
        """
        if self.max_train_iter == self.max_env_step == inf:
            return None
        steps = self._collector_envstep if envstep < 0 else envstep
        done = max(self.train_iter / max(self.max_train_iter, 1), steps / max(self.max_env_step, 1))
        return max(1.0 - done, 0.0)

    @property
    def learn_info(self) -> dict[str, Any]:
        """A dict of `learner_step` (iterations so far), `priority_info`, and `learner_done` (`start` has finished)."""
        return {
            "learner_step": self.train_iter,
            "priority_info": self._priority_info,
            "learner_done": self._learner_done,
        }

    def train(
        self, data: Any, envstep: int = -1, policy_kwargs: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Train on one batch.

        The hooks at `before_iter` are called once. For each dict that the policy returns, its entries are written to
        the log buffer, the hooks at `after_iter` are called, and then the iteration counter is incremented.

        Args:
            data: input of the policy's `forward`; a list of dicts if the policy returns priorities.
            envstep: env steps collected so far; a negative number keeps the last known value.
            policy_kwargs: keyword arguments of `forward`.

        Returns:
            The dicts of the policy, without priorities and without `[scalars]` and `[histogram]` entries.

        Raises:
            AssertionError: the learner has no policy.
            TypeError: the policy returns neither a dict nor a list of dicts.
            FloatingPointError: the policy returns NaN or inf; no hook is called and the counter does not change.
        """
        policy = self._require_policy()
        begin_s = perf_counter()
        self.call_hook("before_iter")
        if self._follows_progress:
            policy.set_attribute("progress_remaining", self.progress_remaining(envstep))
        threads = torch.get_num_threads()
        fitting = self._threads if threads == thread_count.AT_IMPORT and threads != self._threads else None
        if fitting is not None:
            torch.set_num_threads(fitting)
        try:
            output = policy.forward(data, **(policy_kwargs or {}))
        finally:
            if fitting is not None:
                torch.set_num_threads(threads)
        results = [output] if isinstance(output, dict) else output
        if not isinstance(results, list):
            raise TypeError(f"policy.forward must return a dict or a list of dicts, not a {type(output).__name__}")
        self._priority_info = _take_priority_info(results, data)
        if envstep >= 0:
            self._collector_envstep = envstep
        entries = list(map(sort_out, results, count(self.train_iter)))  # before a hook can save ruined parameters
        times = {"train_time": perf_counter() - begin_s, **self._data_time}
        self._data_time = {}
        for entry in entries:
            for section in self._log_buffer.values():  # not earlier: `before_iter` hooks read the last log
                section.clear()
            self._log_buffer["scalar"].update({**times, **entry.scalar})
            times = {}
            if entry.scalars or entry.histogram:
                self._log_buffer["scalars"].update(entry.scalars)
                self._log_buffer["histogram"].update(entry.histogram)
            self.call_hook("after_iter")
            self._last_iter.val += 1
        return results

    def train_from(self, source: BatchSource, max_iter: float = inf, max_batches: float = inf) -> bool:
        """Train on the batches of `source`; return False if `stop` or `close` has ended the training.

        Args:
            max_iter: the training continues while `train_iter` is smaller.
            max_batches: the maximum number of batches.
        """
        while self.train_iter < max_iter and max_batches > 0 and not self._is_stopping:
            batch = source.next_batch()
            if batch is None or self._is_stopping or self._end_flag:  # closed meanwhile, or before the start
                break
            if source.envstep >= 0:
                self.train(batch, source.envstep)
            else:
                self.train(batch)
            source.after_train(self)
            max_batches -= 1
        return not (self._is_stopping or self._end_flag)

    @auto_checkpoint
    def start(self) -> None:
        """Train on `train_iterations` batches from the dataloader, or until `close`, in parallel training.

        After resuming from a checkpoint, it trains on `train_iterations - trained_before` more batches. It saves a
        checkpoint if an exception or a signal ends the training.

        Raises:
            RuntimeError: `setup_dataloader` has not been called.
        """
        self._end_flag = False
        self._learner_done = False
        self.call_hook("before_run")
        number = int(self._cfg.get("train_iterations", self.config["train_iterations"]))
        self.train_from(self.batch_source or LoadedBatches(self), max_batches=number - self.trained_before)
        self._is_stopping = False
        self._learner_done = True
        self.call_hook("after_run")

    def stop(self) -> None:
        """End a running `start` or serial run after the current iteration; a later `start` ends at once.

        Any thread may call it.

        `start` still waits for the batch it has requested, so the provider of the batches must end that wait.
        """
        self._is_stopping = True

    def _next_data(self) -> Any:
        if self._dataloader is None:
            raise RuntimeError("the learner has no data: call setup_dataloader() before start()")
        begin_s = perf_counter()
        data = next(self._dataloader)
        self._data_time = {"data_time": perf_counter() - begin_s}
        return data

    def setup_dataloader(self) -> None:
        """Start fetching batches with `self.get_data(batch_size)` in the background, in parallel training.

        Raises:
            AttributeError: the learner has no `get_data`.
        """
        if self.get_data is None:
            raise AttributeError("the learner has no get_data(batch_size); set it, or define it in a subclass")
        policy = self._require_policy()
        batch_size = policy.get_attribute("batch_size")
        cfg = self._cfg.get("dataloader", {})
        if self._dataloader is not None:
            self._dataloader.close()
        self._dataloader = AsyncDataLoader(
            self.get_data,
            batch_size,
            str(policy.get_attribute("device")),
            cfg.get("chunk_size") or batch_size,
            _as_is,
            int(cfg.get("num_workers", 0)),
            to_device_fn=to_device,
        )

    def close(self) -> None:
        """Stop a running `start` and the dataloader; flush the TensorBoard writer, and close it unless it is shared.

        This method is idempotent and thread-safe.
        """
        if self._end_flag:
            return
        self._end_flag = True
        if self._dataloader is not None:
            self._dataloader.close()
        if self._log is not None:
            self._log.close()

    def __del__(self) -> None:
        # At interpreter exit, modules such as `contextlib` may be gone already; an error cannot reach a caller.
        try:  # noqa: SIM105
            self.close()
        except Exception:
            pass

    def state_dict(self) -> dict[str, Any]:
        """Return the counters, the log entries that are not shown yet, and the state of the hooks.

        The policy and the dataloader are not included.
        """
        return {
            **super().state_dict(),
            "last_iter": self.train_iter,
            "priority_info": {
                key: values if isinstance(values, (torch.Tensor, np.ndarray)) else list(values)
                for key, values in self._priority_info.items()
            },
            "monitor": None if self._monitor is None else declared_state(self._monitor),
            "hooks": {position: [hook.state_dict() for hook in row] for position, row in self._hooks.items()},
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> list[str]:
        """Restore the state of a learner with the same config and policy; nothing of it is lost.

        Raises:
            ValueError: the number of hooks differs.
        """
        for position, row in self._hooks.items():
            saved = state_dict["hooks"].get(position, [])
            if len(saved) != len(row):
                raise ValueError(
                    f"the learner has {len(row)} hooks at {position!r}, but the state has {len(saved)}; register the "
                    "same hooks as before"
                )
            for hook, state in zip(row, saved, strict=True):
                hook.load_state_dict(state)
        self._last_iter.update(int(state_dict["last_iter"]))
        self._priority_info = dict(state_dict["priority_info"])
        if self._monitor is not None and state_dict["monitor"] is not None:
            load_declared_state(self._monitor, state_dict["monitor"])
        return super().load_state_dict(state_dict)

    def call_hook(self, name: str) -> None:
        """Call the hooks at the position `name` in the order of their priority.

        Raises:
            KeyError: the position is unknown.
        """
        try:
            hooks = self._hooks[name]
        except KeyError:
            raise KeyError(f"unknown hook position {name!r}; the positions are {', '.join(self._hooks)}") from None
        for hook in hooks:
            hook(self)

    @property
    def hooks(self) -> list[LearnerHook]:
        """The hooks of all positions."""
        return [hook for row in self._hooks.values() for hook in row]

    def register_hook(self, hook: LearnerHook) -> None:
        """Add `hook`; it runs after the hooks of its position with the same or a lower priority number."""
        add_learner_hook(self._hooks, hook)

    def save_checkpoint(self, ckpt_name: str | None = None) -> None:
        """Save a checkpoint now as `ckpt_name`, by default `iteration_<n>.pth.tar`.

        The first `after_run` hook named `save_ckpt_after_run` saves it; one is created if the config has none.

        Raises:
            AssertionError: the learner has no policy.
        """
        self._require_policy()
        if ckpt_name is not None:
            self._ckpt_name = ckpt_name
        name = "save_ckpt_after_run"
        hook = next((hook for hook in self._hooks["after_run"] if hook.name == name), None)
        try:
            (hook or hook_mapping["save_ckpt"](name, 20, position="after_run"))(self)
        finally:
            self._ckpt_name = None

    def _require_policy(self) -> Any:
        if self._policy is None:
            raise AssertionError("the learner has no policy; pass one to its constructor or assign learner.policy")
        return self._policy


def create_learner(cfg: EasyDict, **kwargs: Any) -> BaseLearner:
    """Import the modules in `cfg.import_names`, then build the learner registered as `cfg.type`.

    Raises:
        AttributeError: `cfg` has no `type`.
        KeyError: the type is not registered.
    """
    import_module(cfg.get("import_names", []))
    learner: BaseLearner = LEARNER_REGISTRY.build(cfg.type, cfg=cfg, **kwargs)
    return learner


def _as_is(batch: Any) -> Any:
    """Return the batch unchanged, as a collate function: policies collate batches themselves."""
    return batch


def _take_priority_info(results: list[dict[str, Any]], data: Any) -> dict[str, Any]:
    """Pop the priorities from the last of `results`, and return them with the ids of their items; {} if missing."""
    priority = results[-1].pop("priority", None) if results else None
    if priority is None:
        return {}
    table = table_of(data)
    info = {"priority": priority}
    for key in ("replay_buffer_idx", "replay_unique_id"):
        if table is None:
            info[key] = [item.get(key) for item in data]
        else:
            info[key] = table.columns[key].values() if key in table.columns else [None] * len(data)
    return info
