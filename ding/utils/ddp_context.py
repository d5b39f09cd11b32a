"""Being in the process group for as long as a block or a function runs."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from types import TracebackType
from typing import Any

from ding.utils.process_group import MASTER_VARIABLES, break_off, dist_finalize, dist_init


class DDPContext:
    """Joins the process group on entry and leaves it on exit; takes the arguments of `dist_init`.

    An exception that leaves the block (a `SystemExit` other than 0, too) is told to the other ranks, which raise
    `RankFailedError` in the operation they are in, or in the next. `MASTER_ADDR` and `MASTER_PORT` are as before
    afterwards.

    Example:
        >>> import torch.distributed
        >>> with DDPContext("gloo", rank=0, world_size=1):
        ...     torch.distributed.get_world_size()
        1
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._args = args
        self._kwargs = kwargs
        self._before: dict[str, str | None] = {}

    def __enter__(self) -> None:
        self._before = {variable: os.environ.get(variable) for variable in MASTER_VARIABLES}
        try:
            dist_init(*self._args, **self._kwargs)
        except BaseException:
            self._restore()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None or (isinstance(error, SystemExit) and not error.code):
                dist_finalize()
            else:
                break_off(error)
        finally:
            self._restore()

    def _restore(self) -> None:
        for variable, value in self._before.items():
            if value is None:
                os.environ.pop(variable, None)
            else:
                os.environ[variable] = value


DistContext = DDPContext


def dist_mode(func: Callable[..., Any]) -> Callable[..., Any]:
    """`func` that runs inside a `DDPContext`."""

    @functools.wraps(func)
    def in_group(*args: Any, **kwargs: Any) -> Any:
        with DDPContext():
            return func(*args, **kwargs)

    return in_group
