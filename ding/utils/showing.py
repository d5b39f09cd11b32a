"""Display that never ends a run: if code that only shows something fails, one warning says so.

`shown` shows objects of users. Code that only shows something, such as a write to a log, runs in `only_shows`.

`PULSE` is how a display of the progress is refreshed. Loops check `PULSE.due` once a round, which costs as much as
reading a clock and needs no thread:

    if perf_counter() > PULSE.due:
        PULSE.beat(steps)
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator
from math import inf
from time import perf_counter
from typing import Any

_logger = logging.getLogger("ding")
_told: set[str] = set()  # in this process


def shown(obj: Any, text_of: Callable[[Any], str] = repr) -> str:
    """Return the text of `obj` for a message, or `<name of its class>` if that fails, with one warning for each class.

    Args:
        obj: any object, even one whose `__repr__` raises.
        text_of: `repr`, `str` or another function that returns the text.

    Example:
        >>> class Unready:
        ...     def __repr__(self):
        ...         return self.name
        >>> logging.getLogger("ding").setLevel("ERROR")
        >>> shown(3), shown(Unready())
        ('3', '<Unready>')
    """
    name = type(obj).__name__
    with only_shows(f"showing a {name}"):
        return text_of(obj)
    return f"<{name}>"


@contextlib.contextmanager
def only_shows(what: str, told: set[str] | None = None) -> Iterator[None]:
    """Catch exceptions of a block that only shows something, and warn of the first one.

    Args:
        what: what the block does, as the subject of "fails".
        told: the earlier warnings, so that each is logged once; None for once per process.
    """
    try:
        yield
    except Exception as e:  # the purpose of this block
        tell_once(what, e, told)


def tell_once(what: str, error: Exception, told: set[str] | None = None) -> None:
    """Warn that `what` fails with `error` and that the run continues, unless that was logged; see `only_shows`."""
    told = _told if told is None else told
    if what in told:
        return
    told.add(what)
    try:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
    except Exception:  # its text fails, too
        reason = type(error).__name__
    with contextlib.suppress(Exception):  # of a handler, such as one that writes to a closed standard error
        _logger.warning(
            "%s fails with %s; it is only shown, so the run goes on, and this is not told again", what, reason
        )


@functools.lru_cache(maxsize=1024)
def one_time_warning(warning_msg: str) -> None:
    """Log a warning, once per process for each text."""
    _logger.warning(warning_msg)


class Pulse:
    """Regular call of one function every few seconds, from whatever loop runs then.

    A run within a run, such as a training in `on_evaluation`, takes over the pulse until it ends.

    Attributes:
        due: the time of the next call, by `perf_counter`.
    """

    def __init__(self) -> None:
        self.due = inf
        self._started: list[tuple[float, Callable[[int], None]]] = []  # periods and functions, the last one is called

    def start(self, period_s: float, beat: Callable[[int], None]) -> None:
        """Call `beat(steps)` every `period_s` seconds from now on, instead of the earlier function."""
        self._started.append((period_s, beat))
        self._wait()

    def stop(self, beat: Callable[[int], None]) -> None:
        """Stop calling `beat`; the earlier function is called again, unless it was stopped."""
        for entry in list(self._started):  # in place: another thread may start or stop, too
            if entry[1] == beat:
                self._started.remove(entry)
        self._wait()

    def beat(self, steps: int = 0) -> None:
        """Call the function.

        Args:
            steps: the number of env steps of the current rollout; 0 outside of rollouts.
        """
        self._wait()
        for _, beat in self._started[-1:]:
            beat(steps)

    def _wait(self) -> None:
        self.due = min((perf_counter() + period_s for period_s, _ in self._started[-1:]), default=inf)


PULSE = Pulse()
