"""Failures of an env in its own process, and how they reach whoever called the manager."""

from __future__ import annotations

import pickle
import signal
import traceback
from typing import Any, NamedTuple

_HINTS = {
    "SIGKILL": "if nobody killed it, the system ran out of memory: see dmesg, and use fewer or smaller envs",
    "SIGSEGV": "native code of the env, or of a library it uses, crashed",
    "SIGABRT": "native code of the env, or of a library it uses, gave up",
    "SIGBUS": "native code crashed, or shared memory is used up: see df /dev/shm",
}


class EnvProcessError(RuntimeError):
    """An env raised, in its own process, what cannot be raised again in this one.

    Attributes:
        env_id: the env.
        method: what it was asked for.
    """

    def __init__(self, text: str, env_id: int, method: str) -> None:
        super().__init__(text)
        self.env_id = env_id
        self.method = method

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.env_id, self.method)


class EnvDiedError(EnvProcessError):
    """The process of an env ended while something was asked of it."""


class Failure(NamedTuple):
    """An exception, as it goes from the env's process to the manager's.

    Attributes:
        method: what failed: `make` for the function that makes the env, else a method of the env.
        class_name: class of the exception.
        text: its traceback.
        pickled: the exception, or None if it does not survive pickling.
    """

    method: str
    class_name: str
    text: str
    pickled: bytes | None

    @classmethod
    def of(cls, error: BaseException, method: str) -> Failure:
        """The failure of `method` with `error`, whatever that is."""
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        return cls(method, type(error).__name__, text, _pickled(error))

    def to_exception(self, env_id: int) -> Exception:
        """An exception of the original class, if it can be made, whose only argument says what failed where."""
        head = f"env {env_id} failed in {self.method} with {self.class_name}"
        text = f"{head}\n\nIn the process of env {env_id}:\n{self.text}"
        try:
            error = pickle.loads(self.pickled) if self.pickled is not None else None
        except Exception:  # its class cannot be imported here
            error = None
        own = EnvProcessError(text, env_id, self.method)
        if not isinstance(error, Exception):
            return own
        error.args = (text,)
        try:
            is_told = text in str(error)
        except Exception:  # its text needs the arguments it had
            return own
        if not is_told:  # it has a text of its own
            error.__cause__ = own
        return error


def _pickled(error: BaseException) -> bytes | None:
    # SystemExit and the like were meant for the env's process, not for the manager's.
    if not isinstance(error, Exception):
        return None
    error = error.with_traceback(None)
    for dumps in (pickle.dumps, _dumps_by_value):
        try:
            data: bytes = dumps(error)
            pickle.loads(data)  # classes with constructors of their own fail only here
            return data
        except Exception:
            continue
    return None


def _dumps_by_value(error: BaseException) -> bytes:
    import cloudpickle

    data: bytes = cloudpickle.dumps(error)
    return data


def describe_exit(exitcode: int | None) -> str:
    """How a process ended, in words: the name of the signal, or the exit code."""
    if exitcode is None:
        return "its process has closed its connection"
    if exitcode >= 0:
        return f"its process ended with exit code {exitcode}"
    try:
        name = signal.Signals(-exitcode).name
    except ValueError:
        name = f"signal {-exitcode}"
    hint = _HINTS.get(name)
    return f"its process was ended by {name}" + (f" ({hint})" if hint else "")
