"""Saving and restoring of training state."""

from __future__ import annotations

import contextlib
import functools
import logging
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, NoReturn, TypeVar, cast

import numpy as np
import torch
from torch import nn

from ding.utils.data.nested import has_nan, leaves_by_path
from ding.utils.file_helper import read_file, save_file
from ding.utils.module_state import check_keys, fit_optimizer_state, load_parts, parameter_names

_Function = TypeVar("_Function", bound=Callable[..., Any])

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_INTERRUPT_STATUS = 130


class _SignalReceived(SystemExit):
    """Exception that leaves the guarded block on a signal: saving in the handler could wait for a lock of the block."""

    def __init__(self, name: str) -> None:
        super().__init__(_INTERRUPT_STATUS)
        self.name = name


def _raise_signal_received(signum: int, frame: FrameType | None) -> NoReturn:
    raise _SignalReceived(signal.Signals(signum).name)


class Interruption:
    """Flag of a received signal, which a training checks between two rounds.

    With an `Interruption`, the first signal in `guard_training` only sets `signal_name`; `leave_if_interrupted` then
    leaves the block. A second signal leaves it at once.

    Attributes:
        signal_name: the name of the received signal, None before.

    Example:
        >>> interruption = Interruption()
        >>> interruption.leave_if_interrupted()
    """

    def __init__(self) -> None:
        self.signal_name: str | None = None

    def receive(self, signum: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if self.signal_name is not None:
            _raise_signal_received(signum, frame)
        self.signal_name = signal.Signals(signum).name
        # No logging here: the block may hold the lock of a log handler.

    def leave_if_interrupted(self) -> None:
        """Leave the guarded block if a signal was received."""
        if self.signal_name is not None:
            raise _SignalReceived(self.signal_name)


@contextlib.contextmanager
def guard_training(
    save_checkpoint: Callable[[str], Any] | None, interruption: Interruption | None = None
) -> Iterator[None]:
    """Save a checkpoint if the block raises an exception or, in the main thread, receives SIGINT or SIGTERM.

    An exception saves 'ckpt_exception.pth.tar' and is re-raised. A signal leaves the block, saves
    'ckpt_interrupt.pth.tar' and raises SystemExit(130). The previous signal handlers are restored before saving, so a
    second signal interrupts it. A signal that the process ignores stays ignored. A failed save, also one refused
    because of NaN (`refuse_nan`), is logged and never hides the reason why training ended. An `interruption` defers the
    signal.

    Example:
        >>> with contextlib.suppress(ZeroDivisionError), guard_training(print):
        ...     1 / 0
        ckpt_exception.pth.tar
    """
    previous: dict[signal.Signals, Any] = {}
    try:
        _install_handlers(previous, _raise_signal_received if interruption is None else interruption.receive)
        yield
    except _SignalReceived as received:
        _restore_handlers(previous)
        doing = "leaving" if save_checkpoint is None else "saving a checkpoint, then leaving"
        logging.getLogger("ding").warning("received %s: %s", received.name, doing)
        _save(save_checkpoint, "ckpt_interrupt.pth.tar")
        raise SystemExit(_INTERRUPT_STATUS) from None
    except Exception:  # any: the weights are saved, and it is raised again
        _restore_handlers(previous)
        _save(save_checkpoint, "ckpt_exception.pth.tar")
        raise
    finally:
        _restore_handlers(previous)


def auto_checkpoint(function: _Function) -> _Function:
    """Decorate a method so that it runs under `guard_training(self.save_checkpoint)`.

    Raises:
        AssertionError: when called, if the object has no method `save_checkpoint`.
    """

    @functools.wraps(function)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        # The decorated method may be that of any class.
        save_checkpoint = getattr(self, "save_checkpoint", None)
        if not callable(save_checkpoint):
            raise AssertionError(f"auto_checkpoint needs a method save_checkpoint, {type(self).__name__} has none")
        with guard_training(save_checkpoint):
            return function(self, *args, **kwargs)

    return cast(_Function, guarded)


def refuse_nan(state: Any, when: str) -> None:
    """Check that no tensor or array in the nested `state` contains NaN, before it is written.

    Args:
        when: the end of the message "the parameters hold NaN ...", such as "at train_iter 7".

    Raises:
        FloatingPointError: a tensor or array contains a NaN; the message names it.
    """
    for path, leaf in leaves_by_path(state, join=lambda path, key: f"{path}.{key}" if path else str(key)):
        if isinstance(leaf, torch.Tensor | np.ndarray) and has_nan(leaf):
            raise FloatingPointError(
                f"the parameters hold NaN {when} (the first is {path}) and are not written, what was written before "
                "stays; lower the learning rate, clip gradients, or look for NaN and large numbers in observations and "
                "rewards"
            )


def _install_handlers(previous: dict[signal.Signals, Any], handle: Callable[[int, FrameType | None], None]) -> None:
    """Install handlers and store the old ones in `previous`; Python allows this in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        return
    for signum in _SIGNALS:
        handler = signal.getsignal(signum)
        # A background job of a script ignores SIGINT, and None was not installed from Python and cannot be restored.
        if handler not in (signal.SIG_IGN, None):
            previous[signum] = handler
            signal.signal(signum, handle)


def _restore_handlers(previous: dict[signal.Signals, Any]) -> None:
    for signum in list(previous):
        signal.signal(signum, previous.pop(signum))


def _save(save_checkpoint: Callable[[str], Any] | None, name: str) -> None:
    if save_checkpoint is None:
        return
    try:
        save_checkpoint(name)
    except (FloatingPointError, OSError) as e:  # their messages need no traceback
        logging.getLogger("ding").error("%s is not written: %s", name, e)
    except Exception:  # any: the error that ended the training counts, and is raised
        logging.getLogger("ding").exception("could not save %s", name)


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
        current = model.state_dict()
        state = {name: value for name, value in state.items() if not name.startswith(tuple(mask))}
        matching = {
            name: value for name, value in state.items() if name in current and current[name].shape == value.shape
        }
        model.load_state_dict(matching, strict=False)
        for name in current.keys() - matching.keys():
            reason = f"the shape is {tuple(state[name].shape)}" if name in state else "it is missing"
            self._logger.warning("%sparameter %s is not loaded: %s in the file", logger_prefix, name, reason)
        for name in state.keys() - current.keys():
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
