"""Save and restore training state."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ding.torch_utils.training_guard import auto_checkpoint, guard_training, refuse_nan
from ding.utils.file_helper import read_file, save_file

__all__ = ["CheckpointHelper", "CountVar", "auto_checkpoint", "build_checkpoint_helper", "guard_training"]

_StateDict = Mapping[str, torch.Tensor]


class CountVar:
    """A counter that several components share.

    Example:
        >>> last_iter = CountVar(0)
        >>> last_iter.add(2)
        >>> last_iter.val
        2
    """

    def __init__(self, init_val: int) -> None:
        self._val = init_val

    @property
    def val(self) -> int:
        """The present count."""
        return self._val

    def update(self, val: int) -> None:
        """Set the count."""
        self._val = val

    def add(self, add_num: int) -> None:
        """Increase the count by `add_num`."""
        self._val += add_num


def build_checkpoint_helper(cfg: Any) -> CheckpointHelper:
    """A `CheckpointHelper`; nothing in `cfg` is read."""
    return CheckpointHelper()


class CheckpointHelper:
    """Writes a model and the state of what trains it to one file, and reads it back.

    Files appear whole or not at all, and are read without running code that they hold.

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
        """Write the state of all that is given to `path`, each under the name of its argument.

        Args:
            dataset: anything with a `state_dict`, as are `optimizer` and `collector_info`.
            prefix_op: 'add' `prefix` to the names in the model's state, or 'remove' it from their beginning.

        Raises:
            KeyError: another `prefix_op`.
            FloatingPointError: the model or the optimizer holds NaN; then nothing is written.
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
        """Restore all that is given from `load_path`. What the file does not hold is logged and left as it is.

        Args:
            prefix_op: 'add' `prefix` to the names in the file, or 'remove' it from their beginning.
            strict: demand that names and shapes in the file are those of the model; otherwise only those parameters are
                loaded that are in both with the same shape, and the others are logged.
            logger_prefix: begins every logged line.
            state_dict_mask: names that begin so are not loaded; one such makes the loading not strict.
            trust_pickle: read files with objects of any class, which can run code that they hold.

        Raises:
            RuntimeError: `strict`, and model and file do not match.
            KeyError: another `prefix_op`, or `collector_info` is given and not in the file.
            NotImplementedError: an `lr_schduler` is given.
        """
        if lr_schduler is not None:
            raise NotImplementedError("checkpoints hold no learning rate scheduler: load it on its own")
        checkpoint = read_file(load_path, trust_pickle=trust_pickle)
        state = _apply_prefix(checkpoint["model"], prefix_op, prefix)
        if state_dict_mask:
            strict = False
            state = {name: value for name, value in state.items() if not name.startswith(tuple(state_dict_mask))}
        if strict:
            model.load_state_dict(state, strict=True)
        else:
            self._load_matching(model, state, logger_prefix)
        stateful = {"optimizer": optimizer, "dataset": dataset}
        counters = {"last_iter": last_iter, "last_epoch": last_epoch, "last_frame": last_frame}
        for name, part in (stateful | counters).items():
            if part is None:
                continue
            if name not in checkpoint:
                self._logger.warning("%s%s holds no %s, which stays as it is", logger_prefix, load_path, name)
            elif name in counters:
                part.update(checkpoint[name])
            else:
                part.load_state_dict(checkpoint[name])
        if collector_info is not None:
            if "collector_info" not in checkpoint:
                raise KeyError(f"{load_path} holds no collector_info, only {sorted(checkpoint)}")
            collector_info.load_state_dict(checkpoint["collector_info"])
        self._logger.info("%sloaded checkpoint %s", logger_prefix, load_path)

    def _load_matching(self, model: nn.Module, state: _StateDict, logger_prefix: str) -> None:
        own = model.state_dict()
        matching = {name: value for name, value in state.items() if name in own and own[name].shape == value.shape}
        model.load_state_dict(matching, strict=False)
        for name in own.keys() - matching.keys():
            reason = f"the shape is {tuple(state[name].shape)}" if name in state else "it is missing"
            self._logger.warning("%sparameter %s is not loaded: %s in the file", logger_prefix, name, reason)
        for name in state.keys() - own.keys():
            self._logger.warning("%sparameter %s in the file is none of the model's", logger_prefix, name)


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
