"""The training loop: it hands data to the policy and calls the hooks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import numpy as np
import torch
from easydict import EasyDict

from ding.torch_utils.checkpoint_helper import auto_checkpoint
from ding.torch_utils.data_helper import to_device
from ding.utils.config_helper import anything, boolean, check_config, default_config_of, instance_of, integer
from ding.utils.data.dataloader import AsyncDataLoader
from ding.utils.import_helper import import_module
from ding.utils.object_state import attributes_state, load_attributes_state
from ding.utils.pytorch_ddp_dist_helper import get_rank, get_world_size
from ding.utils.registry_factory import LEARNER_REGISTRY
from ding.worker.learner.learner_hook import LearnerHook, add_learner_hook, build_learner_hook_by_cfg, hook_mapping
from ding.worker.learner.learner_view import LearnerView
from ding.worker.learner.log_entries import LogEntries, nan_values, sort_out, take_priority_info
from ding.worker.learner.monitor import TickMonitor, get_simple_monitor_type

__all__ = ["BaseLearner", "TickMonitor", "create_learner", "get_simple_monitor_type"]

_RULES = {
    "train_iterations": integer(minimum=0),
    "dataloader.num_workers": integer(minimum=0),
    "dataloader.chunk_size": integer(minimum=1, optional=True),
    "log_policy": boolean,
    "is_multitask_pipeline": boolean,
    "only_monitor_rank0": boolean,
    "keep_checkpoints": integer(minimum=1, optional=True),
    "hook": instance_of(Mapping),  # checked where the hooks are built
    # read by others from the same section
    "exp_name": anything,
    "learner_num": anything,
    "load_path": anything,
    "send_policy_freq": anything,
}


@LEARNER_REGISTRY.register("base")
class BaseLearner(LearnerView):
    """Trains a policy on the data it is given, and calls hooks before and after each iteration and the whole run.

    Serial use: `call_hook('before_run')`, any number of `train(data, envstep)`, `call_hook('after_run')`. Parallel use:
    set `get_data`, call `setup_dataloader()` and `start()`. Further attributes may be set on an instance by whoever
    drives it. Not safe for use from several threads, but for `close`, which also ends a running `start`.

    Args:
        cfg: see `config` for the keys and defaults. With several ranks `hook.log_reduce_after_iter` is added to it,
            unless it is there.
        policy: the learn mode of a policy; may also be assigned later.
        tb_logger: a TensorBoard writer to share, left open at `close`; without one the learner makes its own.
        dist_info: rank and world size; those of the process group by default.

    Raises:
        AttributeError: `cfg` has no `hook` section, or that has an unknown key.
        ConfigError: a value in `cfg` is of the wrong kind, or a key is misspelt.

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

    config: dict[str, Any] = {
        "train_iterations": int(1e9),
        "dataloader": {"num_workers": 0},
        "log_policy": True,
        "is_multitask_pipeline": False,
        "only_monitor_rank0": True,
        # How many of the checkpoints iteration_<n> to keep, the newest; None keeps all.
        "keep_checkpoints": None,
        "hook": {
            "load_ckpt_before_run": "",
            "log_show_after_iter": 100,
            "save_ckpt_after_iter": 10000,
            "save_ckpt_after_run": True,
        },
    }

    # So that a learner whose construction failed can be closed.
    _end_flag = True
    _is_stopping = False
    _dataloader: AsyncDataLoader | None = None
    _data_time: Mapping[str, float] = {}  # of the batch that was fetched last
    # Is called when a checkpoint cannot be written; without it, or if it raises, that is raised.
    on_unsaved: Callable[[OSError], Any] | None = None

    @classmethod
    def default_config(cls) -> EasyDict:
        """A fresh copy of the class's defaults, with `cfg_type` = `<ClassName>Dict`."""
        return default_config_of(cls)

    def __init__(
        self,
        cfg: EasyDict,
        policy: Any = None,
        tb_logger: Any = None,
        dist_info: tuple[int, int] | list[int] | None = None,
        exp_name: str = "default_experiment",
        instance_name: str = "learner",
    ) -> None:
        check_config(cfg, f"the learner {instance_name!r}", _RULES)
        rank, world_size = (get_rank(), get_world_size()) if dist_info is None else dist_info
        if world_size > 1 and "log_reduce_after_iter" not in cfg.hook:
            cfg.hook.log_reduce_after_iter = True
        self._hooks = build_learner_hook_by_cfg(cfg.hook)
        super().__init__(cfg, rank, world_size, exp_name, instance_name, tb_logger)
        self._end_flag = False
        if policy is not None:
            self.policy = policy

    def train(
        self, data: Any, envstep: int = -1, policy_kwargs: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Train on one batch; return the dicts of results of the policy, without priorities and marked entries.

        The hooks at `before_iter` are called once. For each dict the policy returns, its entries go to the log buffer,
        the hooks at `after_iter` are called, and then the iteration counter moves.

        Args:
            data: what the policy's `forward` takes; dicts, where it returns priorities.
            envstep: env steps collected so far; a negative number keeps the one known.
            policy_kwargs: keyword arguments for `forward`.

        Raises:
            AssertionError: no policy was set.
            TypeError: the policy returned neither a dict nor a list of them.
            FloatingPointError: a scalar it returned is NaN; no hook is called and the counter stays.
        """
        policy = self._require_policy()
        begin_s = perf_counter()
        self.call_hook("before_iter")
        output = policy.forward(data, **(policy_kwargs or {}))
        results = [output] if isinstance(output, dict) else output
        if not isinstance(results, list):
            raise TypeError(f"policy.forward must return a dict or a list of dicts, not a {type(output).__name__}")
        self._priority_info = take_priority_info(results, data)
        if envstep >= 0:
            self._collector_envstep = envstep
        entries = [sort_out(result) for result in results]
        self._refuse_nan(entries)
        times = {"train_time": perf_counter() - begin_s, **self._data_time}
        self._data_time = {}
        for entry in entries:
            for section in self._log_buffer.values():  # only now: every hook has seen what the last iteration logged
                section.clear()
            self._log_buffer["scalar"].update(times)
            times = {}
            for kind, values in zip(LogEntries._fields, entry, strict=True):
                if values:
                    self._log_buffer[kind].update(values)
            self.call_hook("after_iter")
            self._last_iter.add(1)
        return results

    def _refuse_nan(self, entries: list[LogEntries]) -> None:
        # All are looked at before the first hook: the parameters are ruined for each of them, and must not be saved.
        for offset, entry in enumerate(entries):
            found = nan_values(entry)
            if found:
                values = ", ".join(f"{key} = {value}" for key, value in found.items())
                raise FloatingPointError(
                    f"{values} at train_iter {self.train_iter + offset}; look at the learning rate, and for NaN in the "
                    "observations and rewards"
                )

    @auto_checkpoint
    def start(self) -> None:
        """Train `train_iterations` batches from the dataloader, or until `close`; for parallel use.

        A learner that resumed from a checkpoint trains that many more, less `trained_before`. An exception, or a signal
        that ends the process, saves a checkpoint first.

        Raises:
            RuntimeError: `setup_dataloader` was not called.
        """
        self._end_flag = False
        self._learner_done = False
        self.call_hook("before_run")
        for _ in range(self.trained_before, int(self._cfg.get("train_iterations", self.config["train_iterations"]))):
            if self._is_stopping:
                break
            data = self._next_data()
            if self._is_stopping or self._end_flag or data is None:  # ended meanwhile, or already before the start
                break
            self.train(data)
        self._is_stopping = False
        self._learner_done = True
        self.call_hook("after_run")

    def stop(self) -> None:
        """Have a running `start` end after its present iteration, or one that follows at once; from any thread.

        It still waits for the batch it has asked for, so whoever gives the batches must end that wait.
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
        """Begin to fetch batches with `self.get_data(batch_size)` in the background; for parallel use.

        Raises:
            AttributeError: the learner has no `get_data`.
        """
        get_data = getattr(self, "get_data", None)
        if get_data is None:
            raise AttributeError("the learner has no get_data(batch_size); set it, or define it in a subclass")
        policy = self._require_policy()
        batch_size = policy.get_attribute("batch_size")
        cfg = self._cfg.get("dataloader", {})
        if self._dataloader is not None:
            self._dataloader.close()
        self._dataloader = AsyncDataLoader(
            get_data,
            batch_size,
            str(policy.get_attribute("device")),
            cfg.get("chunk_size") or batch_size,
            _as_is,
            int(cfg.get("num_workers", 0)),
            to_device_fn=to_device,
        )

    def close(self) -> None:
        """Stop a running `start` and the dataloader; flush the TensorBoard writer, and close it if it was made here.

        Idempotent.
        """
        if self._end_flag:
            return
        self._end_flag = True
        if self._dataloader is not None:
            self._dataloader.close()
        if self._log is not None:
            self._log.close()

    def __del__(self) -> None:
        # At interpreter exit the parts may be gone already; there is nobody left to tell.
        with contextlib.suppress(Exception):
            self.close()

    def state_dict(self) -> dict[str, Any]:
        """How far the learner is: its counters, what it has logged and not shown yet, and what its hooks hold.

        The policy, which tells its own state, is not part of it; nor is what `start` and the dataloader work with.
        """
        return {
            "last_iter": self.train_iter,
            "collector_envstep": self._collector_envstep,
            "ckpt_extra": dict(self.ckpt_extra),
            "priority_info": {
                key: values if isinstance(values, (torch.Tensor, np.ndarray)) else list(values)
                for key, values in self._priority_info.items()
            },
            "log_buffer": {kind: dict(values) for kind, values in self._log_buffer.items()},
            "monitor": None if self._monitor is None else attributes_state(self._monitor),
            "hooks": {position: [attributes_state(hook) for hook in row] for position, row in self._hooks.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` of a learner of the same config and policy has told.

        Raises:
            ValueError: it had other hooks.
        """
        for position, row in self._hooks.items():
            told = state["hooks"].get(position, [])
            if len(told) != len(row):
                raise ValueError(
                    f"the learner has {len(row)} hooks at {position!r}, and the state tells of {len(told)}; register "
                    "the same hooks as before"
                )
            for hook, attributes in zip(row, told, strict=True):
                load_attributes_state(hook, attributes)
        self._last_iter.update(int(state["last_iter"]))
        self._collector_envstep = int(state["collector_envstep"])
        self.ckpt_extra = dict(state["ckpt_extra"])
        self._priority_info = dict(state["priority_info"])
        for kind, values in state["log_buffer"].items():
            self._log_buffer[kind].clear()
            self._log_buffer[kind].update(values)
        if self._monitor is not None and state["monitor"] is not None:
            load_attributes_state(self._monitor, state["monitor"])

    def call_hook(self, name: str) -> None:
        """Call the hooks at the position `name`, in the order of their priority.

        Raises:
            KeyError: there is no such position.
        """
        try:
            hooks = self._hooks[name]
        except KeyError:
            raise KeyError(f"unknown hook position {name!r}; the positions are {', '.join(self._hooks)}") from None
        for hook in hooks:
            hook(self)

    def register_hook(self, hook: LearnerHook) -> None:
        """Add `hook`, to be called after those of its position with the same or a lower priority number."""
        add_learner_hook(self._hooks, hook)

    def save_checkpoint(self, ckpt_name: str | None = None) -> None:
        """Save a checkpoint now, in a file called `ckpt_name`, by default `iteration_<n>.pth.tar`.

        The first `after_run` hook called `save_ckpt_after_run` does it; where the config left that out, a new one.

        Raises:
            AssertionError: no policy was set.
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
    """Import the modules in `cfg.import_names`, then build the learner registered as `cfg.type` with `kwargs`.

    Raises:
        AttributeError: `cfg` has no `type`.
        KeyError: nothing is registered under that type.
    """
    import_module(cfg.get("import_names", []))
    learner: BaseLearner = LEARNER_REGISTRY.build(cfg.type, cfg=cfg, **kwargs)
    return learner


def _as_is(batch: Any) -> Any:
    """The collate function: policies collate themselves."""
    return batch
