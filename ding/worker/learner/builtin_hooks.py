"""The built-in hooks of a learner: load and save checkpoints, write the log."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ding.utils.config_helper import ConfigError, integer
from ding.utils.file_helper import read_file, save_file
from ding.worker.learner.checkpoint import (
    EXTRA,
    NORMALIZATION,
    checkpoint_folder,
    checkpoint_state,
    delete_old_checkpoints,
    normalization_of,
)
from ding.worker.learner.hook_base import LearnerHook, PeriodicHook
from ding.worker.learner.log_reduce_hook import LogReduceHook

__all__ = ["LoadCkptHook", "LogReduceHook", "LogShowHook", "SaveCkptHook"]


class LoadCkptHook(LearnerHook):
    """Loads `ext_args['load_path']` into the policy and the learner's counters; does nothing if the path is empty.

    Reads checkpoints of DI-engine, too. With `ext_args['trust_pickle']` (default False) it also reads files that
    contain more than tensors and plain values; loading such a file can run code that it contains.

    Raises:
        KeyError: `ext_args` has no `load_path`.
        FileNotFoundError: when called, if the file does not exist.
        TypeError: when called, if the file does not contain a dict.
    """

    def __init__(self, *args: Any, ext_args: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if ext_args is None or "load_path" not in ext_args:
            raise KeyError(f"hook {self._name!r}: ext_args lacks 'load_path', the checkpoint file ('' for none)")
        self._load_path = os.fspath(ext_args["load_path"] or "")
        self._trust_pickle = bool(ext_args.get("trust_pickle", False))

    def __call__(self, engine: Any) -> None:
        """Load the checkpoint into `engine`."""
        path = self._load_path
        if not path:
            return
        if not os.path.isfile(path):
            raise FileNotFoundError(
                f"hook {self._name!r}: there is no checkpoint {path!r} (looked for at {os.path.abspath(path)!r}); "
                "correct load_ckpt_before_run in the learner's hook config, or set it to '' to start afresh"
            )
        state = read_file(path, trust_pickle=self._trust_pickle)
        if not isinstance(state, dict):
            raise TypeError(
                f"hook {self._name!r}: {path!r} holds a {type(state).__name__}, not the dict of a checkpoint"
            )
        if "last_iter" in state:
            engine.last_iter.update(int(state.pop("last_iter")))
        if "last_step" in state:
            engine.collector_envstep = int(state.pop("last_step"))
        if normalization := normalization_of(state):
            engine.ckpt_extra[NORMALIZATION] = normalization
        state.pop(EXTRA, None)
        engine.policy.load_state_dict(state)
        engine.info(
            f"loaded the checkpoint {path} at iteration {engine.train_iter}, env step {engine.collector_envstep}"
        )


class SaveCkptHook(PeriodicHook):
    """Saves the policy's state with `last_iter` and `last_step` (the collector's env steps) on rank 0.

    The file is `./<exp_name>/ckpt/iteration_<n>.pth.tar`, or `engine.ckpt_name` if set; the folder is
    `ckpt_<instance_name>` unless the learner is called `learner`. The write is atomic, and
    `torch.load(path, weights_only=True)` reads the file.

    `ext_args['keep']` is the number of the newest `iteration_<n>` files to keep, by default `keep_checkpoints` of the
    learner's config; None keeps all. Other files, such as `ckpt_best`, are never deleted.

    Raises:
        ConfigError: `keep` is not an integer >= 1.
        FloatingPointError: when called, if the policy's state contains a NaN; nothing is written.
    """

    def __init__(self, *args: Any, ext_args: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, ext_args=ext_args, **kwargs)
        self._keep = (ext_args or {}).get("keep")
        allowed = integer(minimum=1, optional=True)(self._keep)
        if allowed is not None:
            raise ConfigError(f"hook {self._name!r}: keep = {self._keep!r} is not allowed; it must be {allowed}")

    def act(self, engine: Any) -> None:
        """Write the file."""
        if engine.rank != 0:
            return
        name = engine.ckpt_name or f"iteration_{engine.train_iter}.pth.tar"
        folder = checkpoint_folder(engine)
        path = os.path.join(folder, name)
        try:
            save_file(path, checkpoint_state(engine))
        except OSError as e:
            on_unsaved = getattr(engine, "on_unsaved", None)
            if on_unsaved is None:
                raise
            on_unsaved(e)
            engine.logger.error("the checkpoint %s is not saved: %s", path, e)
        else:
            engine.info(f"saved the checkpoint {path}")
            keep = self._keep or getattr(engine, "keep_checkpoints", None)
            if keep is not None:
                delete_old_checkpoints(folder, int(keep), newest=name)


class LogShowHook(PeriodicHook):
    """Records the scalars of each iteration in the monitor; writes their averages every `freq` iterations.

    The averages of `policy.monitor_vars()` are written to the text log as a table, and to TensorBoard under
    `<instance_name>_iter/<name>_avg` and `<instance_name>_step/<name>_avg`. The newest `[histogram]` and `[scalars]`
    entries are written to TensorBoard under `<instance_name>/<key>`. Does nothing on a rank that does not monitor.

    The learner clears the log buffer before it logs the next iteration, so hooks of any priority see the newest one.

    What cannot be logged, such as a monitored value that is not a number, is told once and ends nothing.
    """

    def __call__(self, engine: Any) -> None:
        """Record, and write if due."""
        if engine.is_monitor:
            super().__call__(engine)

    def observe(self, engine: Any) -> None:
        """Record the scalars and advance the monitor's clock."""
        monitor, scalars = engine.monitor, engine.log_buffer["scalar"]
        try:
            monitor.record(scalars)
        except Exception:  # the others of them are recorded, and that one is told
            for name, value in scalars.items():
                with engine.worker_log.only_shows(f"averaging {name}"):
                    monitor.record({name: value})
        monitor.time.step()

    def act(self, engine: Any) -> None:
        """Write to the logs."""
        with engine.worker_log.only_shows():
            self._write(engine)

    def _write(self, engine: Any) -> None:
        averages = {f"{name}_avg": engine.monitor.avg[name]() for name in engine.policy.monitor_vars()}
        engine.info(f"train iteration {engine.train_iter}, env step {engine.collector_envstep}")
        engine.logger.info(engine.logger.get_tabulate_vars_hor(averages))
        engine.worker_log.scalars(averages, engine.train_iter, engine.collector_envstep)
        on_averages = getattr(engine, "on_averages", None)
        if on_averages is not None:
            on_averages(engine.train_iter, averages)
        if engine.tb_logger is None:
            return
        for key, values in engine.log_buffer["histogram"].items():
            engine.tb_logger.add_histogram(f"{engine.instance_name}/{key}", np.asarray(values), engine.train_iter)
        for key, values in engine.log_buffer["scalars"].items():
            engine.tb_logger.add_scalars(f"{engine.instance_name}/{key}", _by_name(values), engine.train_iter)


def _by_name(values: Any) -> dict[str, Any]:
    """Returns one named number per curve; numbers of a sequence are named by their index."""
    if isinstance(values, Mapping):
        return {str(name): value for name, value in values.items()}
    return {str(index): value for index, value in enumerate(np.asarray(values).ravel().tolist())}
