"""Checkpoints at the end of training by an exception or a signal, but never with NaN."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType
from typing import Any, NoReturn, TypeVar, cast

import numpy as np
import torch

_Function = TypeVar("_Function", bound=Callable[..., Any])

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_INTERRUPT_STATUS = 130


# Seconds after which a deferred signal takes effect.
_PATIENCE_S = 15.0


class _SignalReceived(SystemExit):
    """Exception that leaves the guarded block on a signal: saving in the handler could wait for a lock of the block."""

    def __init__(self, name: str) -> None:
        super().__init__(_INTERRUPT_STATUS)
        self.name = name


def _raise_signal_received(signum: int, frame: FrameType | None) -> NoReturn:
    raise _SignalReceived(signal.Signals(signum).name)


class Interruption:
    """Deferral of a signal until the training can stop, between two rounds.

    With an `Interruption`, the first signal in `guard_training` only sets `signal_name`; `leave_if_asked` then leaves
    the block. It is left at once by a second signal, or 15 seconds after the first one.

    Attributes:
        signal_name: the name of the received signal, None before.

    Example:
        >>> interruption = Interruption()
        >>> interruption.leave_if_asked()
    """

    def __init__(self, patience_s: float = _PATIENCE_S) -> None:
        self.signal_name: str | None = None
        self._patience_s = patience_s
        self._timer: threading.Timer | None = None

    def receive(self, signum: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if self.signal_name is not None:
            _raise_signal_received(signum, frame)
        self.signal_name = signal.Signals(signum).name
        self._timer = threading.Timer(self._patience_s, os.kill, (os.getpid(), signum))
        self._timer.daemon = True
        self._timer.start()
        # No logging here: the block may hold the lock of a log handler.

    def leave_if_asked(self) -> None:
        """Leave the guarded block if a signal was received."""
        if self.signal_name is not None:
            raise _SignalReceived(self.signal_name)

    def close(self) -> None:
        """Cancel the timer of a deferred signal."""
        if self._timer is not None:
            self._timer.cancel()


@contextlib.contextmanager
def guard_training(
    save_checkpoint: Callable[[str], Any] | None, interruption: Interruption | None = None
) -> Iterator[None]:
    """Save a checkpoint if the block raises an exception or, in the main thread, receives SIGINT or SIGTERM.

    An exception saves 'ckpt_exception.pth.tar' and is re-raised. A signal leaves the block, saves
    'ckpt_interrupt.pth.tar' and raises SystemExit(130). The previous signal handlers are restored before saving, so a
    second signal interrupts it. A failed save, also one refused because of NaN (`refuse_nan`), is logged and never
    hides the reason why training ended. An `interruption` defers the signal.

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
        _leave(previous, interruption)
        doing = "leaving" if save_checkpoint is None else "saving a checkpoint, then leaving"
        logging.getLogger("ding").warning("received %s: %s", received.name, doing)
        _save(save_checkpoint, "ckpt_interrupt.pth.tar")
        raise SystemExit(_INTERRUPT_STATUS) from None
    except Exception:
        _leave(previous, interruption)
        _save(save_checkpoint, "ckpt_exception.pth.tar")
        raise
    finally:
        _leave(previous, interruption)


def _leave(previous: dict[signal.Signals, Any], interruption: Interruption | None) -> None:
    if interruption is not None:
        interruption.close()
    _restore_handlers(previous)


def auto_checkpoint(function: _Function) -> _Function:
    """Decorate a method so that it runs under `guard_training(self.save_checkpoint)`.

    Raises:
        AssertionError: when called, if the object has no method `save_checkpoint`.
    """

    @functools.wraps(function)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
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
    path = next(_nan_paths(state, ""), None)
    if path is not None:
        raise FloatingPointError(
            f"the parameters hold NaN {when} (the first is {path}) and are not written, what was written before "
            "stays; lower the learning rate, clip gradients, or look for NaN and large numbers in observations and "
            "rewards"
        )


def _nan_paths(state: Any, path: str) -> Iterator[str]:
    if isinstance(state, torch.Tensor):
        if (state.is_floating_point() or state.is_complex()) and bool(torch.isnan(state).any()):
            yield path
        return
    if isinstance(state, np.ndarray):
        if state.dtype.kind in "fc" and bool(np.isnan(state).any()):
            yield path
        return
    parts: Iterable[tuple[Any, Any]] = ()
    if isinstance(state, Mapping):
        parts = state.items()
    elif isinstance(state, (list, tuple)):
        parts = enumerate(state)
    for key, part in parts:
        yield from _nan_paths(part, f"{path}.{key}" if path else str(key))


def _install_handlers(previous: dict[signal.Signals, Any], handle: Callable[[int, FrameType | None], None]) -> None:
    """Install handlers and store the old ones in `previous`; Python allows this in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        return
    for signum in _SIGNALS:
        handler = signal.getsignal(signum)
        if handler is not None:  # None was not installed from Python and cannot be restored
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
    except Exception:
        logging.getLogger("ding").exception("could not save %s", name)
