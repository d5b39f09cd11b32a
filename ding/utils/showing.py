"""Display that never ends a run: if code that only shows something fails, one warning says so.

`shown` shows objects of users. Code that only shows something, such as a write to a log, runs in `only_shows`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
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
    except Exception as e:
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
