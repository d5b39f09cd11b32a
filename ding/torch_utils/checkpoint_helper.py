"""Saving and restoring of training state."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ding.torch_utils.training_guard import auto_checkpoint, guard_training, refuse_nan
from ding.utils.file_helper import read_file, save_file
from ding.utils.state_loading import check_keys, fit_optimizer_state, load_parts, parameter_names

__all__ = ["CheckpointHelper", "CountVar", "auto_checkpoint", "build_checkpoint_helper", "guard_training"]

_StateDict = Mapping[str, torch.Tensor]


class CountVar:
    """A counter shared by several objects; `val` is the current count.

    Example:
        >>> last_iter = CountVar(0)
        >>> last_iter.add(2)
        >>> last_iter.val
        2
    """

    def __init__(self, init_val: int) -> None:
        self.val = init_val

    def update(self, val: int) -> None:
        """Set the count."""
        self.val = val

    def add(self, add_num: int) -> None:
        """Increase the count by `add_num`."""
        self.val += add_num


def build_checkpoint_helper(cfg: Any) -> CheckpointHelper:
    """Return a `CheckpointHelper`; `cfg` is ignored."""
    return CheckpointHelper()


class CheckpointHelper:
    """Saving of a model and its training state to one file, and loading.

    Writes are atomic; loading runs no code from the file.

    Example:
        >>> import os, tempfile
        >>> helper, model, last_iter = CheckpointHelper(), nn.Linear(2, 1), CountVar(0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "ckpt.pth.tar")
        ...     helper.save(path, model, last_iter=CountVar(7))
        ...     helper.load(path, model, last_iter=last_iter)
        >>> last_iter.val
        7
    """

    def __init__(self) -> None:
        self._logger = logging.getLogger("ding")

    def save(
        self,
        path: str,
        model: nn.Module,
        optimizer: Any = None,
        last_iter: CountVar | None = None,
        last_epoch: CountVar | None = None,
        last_frame: CountVar | None = None,
        dataset: Any = None,
        collector_info: Any = None,
        prefix_op: str | None = None,
        prefix: str | None = None,
    ) -> None:
        """Write the state of each argument to `path`, under the name of the argument.

        Args:
            optimizer, dataset, collector_info: objects with a `state_dict`.
            prefix_op: 'add' `prefix` to the names in the model's state, or 'remove' it.

        Raises:
            KeyError: `prefix_op` is unknown.
            FloatingPointError: the model or the optimizer contains a NaN; nothing is written.
        """
        checkpoint: dict[str, Any] = {"model": _apply_prefix(model.state_dict(), prefix_op, prefix)}
        stateful = {"optimizer": optimizer, "dataset": dataset, "collector_info": collector_info}
        counters = {"last_iter": last_iter, "last_epoch": last_epoch, "last_frame": last_frame}
        checkpoint |= {name: part.state_dict() for name, part in stateful.items() if part is not None}
        checkpoint |= {name: counter.val for name, counter in counters.items() if counter is not None}
        refuse_nan({key: checkpoint[key] for key in ("model", "optimizer") if key in checkpoint}, f"for {path}")
        save_file(path, checkpoint)
        self._logger.info("saved checkpoint %s", path)

    def load(
        self,
        load_path: str,
        model: nn.Module,
        optimizer: Any = None,
        last_iter: CountVar | None = None,
        last_epoch: CountVar | None = None,
        last_frame: CountVar | None = None,
        lr_schduler: Any = None,
        dataset: Any = None,
        collector_info: Any = None,
        prefix_op: str | None = None,
        prefix: str | None = None,
        strict: bool = True,
        logger_prefix: str = "",
        state_dict_mask: Sequence[str] = [],
        *,
        trust_pickle: bool = False,
    ) -> None:
        """Restore each argument from `load_path`; an argument that is not in the file is logged and stays unchanged.

        Args:
            prefix_op: 'add' `prefix` to the names in the file, or 'remove' it.
            strict: whether names and shapes in the file must match the model; otherwise matching parameters are loaded,
                and the others are logged.
            logger_prefix: the prefix of each log line.
            state_dict_mask: prefixes of names that are not loaded; with it, loading is not strict.
            trust_pickle: whether to read files with objects of any class; loading such a file can run code.

        Raises:
            RuntimeError: `strict` is True, and the model does not match the file.
            ValueError: the file is not a checkpoint, or the state of the optimizer does not fit its parameters; then
                nothing is loaded.
            KeyError: `prefix_op` is unknown, or the file has no `collector_info`.
            NotImplementedError: `lr_schduler` is not None.
        """
        if lr_schduler is not None:
            raise NotImplementedError("checkpoints have no learning rate scheduler; load it separately")
        checkpoint = read_file(load_path, trust_pickle=trust_pickle)
        check_keys(["model"], checkpoint)
        state = _apply_prefix(checkpoint["model"], prefix_op, prefix)
        if isinstance(optimizer, torch.optim.Optimizer) and "optimizer" in checkpoint:
            # Before anything is written.
            checkpoint["optimizer"] = fit_optimizer_state(optimizer, checkpoint["optimizer"], parameter_names(model))
        if strict and not state_dict_mask:
            load_parts({"model": model}, {"model": state})
        else:
            self._load_matching(model, state, state_dict_mask, logger_prefix)
        stateful = {"optimizer": optimizer, "dataset": dataset}
        counters = {"last_iter": last_iter, "last_epoch": last_epoch, "last_frame": last_frame}
        for name, part in (stateful | counters).items():
            if part is None:
                continue
            if name not in checkpoint:
                self._logger.warning("%s%s has no %s, which stays unchanged", logger_prefix, load_path, name)
            elif name in counters:
                part.update(checkpoint[name])
            else:
                part.load_state_dict(checkpoint[name])
        if collector_info is not None:
            if "collector_info" not in checkpoint:
                raise KeyError(f"{load_path} has no collector_info, only {sorted(checkpoint)}")
            collector_info.load_state_dict(checkpoint["collector_info"])
        self._logger.info("%sloaded checkpoint %s", logger_prefix, load_path)

    def _load_matching(self, model: nn.Module, state: _StateDict, mask: Sequence[str], logger_prefix: str) -> None:
        own = model.state_dict()
        state = {name: value for name, value in state.items() if not name.startswith(tuple(mask))}
        matching = {name: value for name, value in state.items() if name in own and own[name].shape == value.shape}
        model.load_state_dict(matching, strict=False)
        for name in own.keys() - matching.keys():
            reason = f"the shape is {tuple(state[name].shape)}" if name in state else "it is missing"
            self._logger.warning("%sparameter %s is not loaded: %s in the file", logger_prefix, name, reason)
        for name in state.keys() - own.keys():
            self._logger.warning("%sparameter %s in the file is not in the model", logger_prefix, name)


def _apply_prefix(state: _StateDict, operation: str | None, prefix: str | None) -> _StateDict:
    if operation is None:
        return state
    if operation not in ("remove", "add"):
        raise KeyError(f"prefix_op must be 'remove', 'add' or None, got {operation!r}")
    if prefix is None:
        raise ValueError(f"prefix_op {operation!r} needs a prefix")
    if operation == "add":
        return {prefix + name: value for name, value in state.items()}
    return {name.removeprefix(prefix): value for name, value in state.items()}
