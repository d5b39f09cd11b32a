"""Reading samples that may come late: tried again for a while, then an error that says what is missing."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TypeVar

T = TypeVar("T")

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.01, 0.2


def read_patiently(
    read: Callable[[], T], what: str, timeout_s: float, wait: Callable[[float], bool], since: float | None = None
) -> T:
    """What `read` returns, tried again while it finds no file or a damaged one.

    Args:
        what: names the file in the error.
        timeout_s: when to give up.
        wait: waits so many seconds; True if there is no use in waiting on.
        since: from when the time counts, on the clock `time.monotonic`; from now on by default.

    Raises:
        FileNotFoundError: the file has not come.
        ValueError: it stayed damaged, or is not what it should be.
    """
    deadline, wait_s = (monotonic() if since is None else since) + timeout_s, _FIRST_WAIT_S
    while True:
        try:
            return read()
        except (FileNotFoundError, ValueError) as e:
            if monotonic() + wait_s > deadline or wait(wait_s):
                reason = f"the samples {what} could not be read within {timeout_s:g} s: {e}"
                raise (FileNotFoundError if isinstance(e, FileNotFoundError) else ValueError)(reason) from e
        wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
