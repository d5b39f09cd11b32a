"""Save a checkpoint when training ends by an exception or by a signal, but none that a NaN has ruined."""

from __future__ import annotations

import contextlib
import functools
import logging
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


class _SignalReceived(SystemExit):
    """Unwinds the guarded block on a signal: saving within the handler could wait for a lock that the block holds."""

    def __init__(self, name: str) -> None:
        super().__init__(_INTERRUPT_STATUS)
        self.name = name


def _raise_signal_received(signum: int, frame: FrameType | None) -> NoReturn:
    raise _SignalReceived(signal.Signals(signum).name)


@contextlib.contextmanager
def guard_training(save_checkpoint: Callable[[str], Any] | None) -> Iterator[None]:
    """Save a checkpoint, if there is one to save, when the block ends by an exception or, in the main thread, by SIGINT
    or SIGTERM.

    An exception saves 'ckpt_exception.pth.tar' and goes on. A signal leaves the block, saves 'ckpt_interrupt.pth.tar'
    and raises SystemExit(130). The signal handlers of before are back before anything is saved, so a second signal cuts
    the saving short. A save that fails is logged, and never hides why training ended; nor does one that refuses to
    write NaN (`refuse_nan`).

    Example:
        >>> with contextlib.suppress(ZeroDivisionError), guard_training(print):
        ...     1 / 0
        ckpt_exception.pth.tar
    """
    previous: dict[signal.Signals, Any] = {}
    try:
        _install_handlers(previous)
        yield
    except _SignalReceived as received:
        _restore_handlers(previous)
        doing = "leaving" if save_checkpoint is None else "saving a checkpoint, then leaving"
        logging.getLogger("ding").warning("received %s: %s", received.name, doing)
        _save(save_checkpoint, "ckpt_interrupt.pth.tar")
        raise SystemExit(_INTERRUPT_STATUS) from None
    except Exception:
        _restore_handlers(previous)
        _save(save_checkpoint, "ckpt_exception.pth.tar")
        raise
    finally:
        _restore_handlers(previous)


def auto_checkpoint(function: _Function) -> _Function:
    """Decorate a method so that it runs under `guard_training(self.save_checkpoint)`.

    Raises:
        AssertionError: on a call, when the object has no method `save_checkpoint`.
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
    """Look through the tensors and arrays in nested `state`, such as a policy's, which is to be written.

    Args:
        when: completes "the parameters hold NaN", as in "at train_iter 7".

    Raises:
        FloatingPointError: one holds a NaN; the message names it.
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


def _install_handlers(previous: dict[signal.Signals, Any]) -> None:
    """Handle the signals; put the handlers of before into `previous`. Python allows it in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        return
    for signum in _SIGNALS:
        handler = signal.getsignal(signum)
        if handler is not None:  # None was not installed by Python and could not be put back
            previous[signum] = handler
            signal.signal(signum, _raise_signal_received)


def _restore_handlers(previous: dict[signal.Signals, Any]) -> None:
    for signum in list(previous):
        signal.signal(signum, previous.pop(signum))


def _save(save_checkpoint: Callable[[str], Any] | None, name: str) -> None:
    if save_checkpoint is None:
        return
    try:
        save_checkpoint(name)
    except (FloatingPointError, OSError) as e:  # they say all there is to say
        logging.getLogger("ding").error("%s is not written: %s", name, e)
    except Exception:
        logging.getLogger("ding").exception("could not save %s", name)
