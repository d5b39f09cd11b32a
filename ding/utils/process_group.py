"""Joining and leaving the group of training processes."""

from __future__ import annotations

import atexit
import ctypes
import functools
import itertools
import os
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from ding.utils.collectives import has_group, pending
from ding.utils.default_helper import one_time_warning

TIMEOUT_VARIABLE, DEFAULT_TIMEOUT_S = "DING_DIST_TIMEOUT", 1800.0
MASTER_VARIABLES = ("MASTER_ADDR", "MASTER_PORT")
Number = TypeVar("Number", int, float)
_joins = itertools.count()
_stores: dict[Any, Any] = {}


def dist_init(
    backend: str = "nccl",
    addr: str | None = None,
    port: str | int | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    timeout: timedelta | float | None = None,
) -> tuple[int, int]:
    """Join the process group and return `(rank, world_size)`.

    With CUDA, this process uses device `rank % number of devices`, and `nccl` means NCCL for CUDA tensors and gloo for
    CPU tensors; without CUDA, `nccl` becomes `gloo`. A group of one process does not use the network.

    Args:
        backend: `nccl` or `gloo`.
        addr: address of rank 0; by default `$MASTER_ADDR` or localhost.
        port: port of rank 0; by default `$MASTER_PORT` or 10314.
        rank: rank of this process; by default `$SLURM_LOCALID` or `$RANK`, under torchrun `$RANK`.
        world_size: number of processes; by default `$SLURM_NTASKS` or `$WORLD_SIZE`, under torchrun `$WORLD_SIZE`.
        timeout: how long ranks wait for each other when they join and in an operation, as a timedelta or in seconds;
            by default `$DING_DIST_TIMEOUT` or 1800 seconds. If a rank ends, operations of the others fail at once, so
            the timeout only matters if a rank hangs. It must be longer than what rank 0 does alone, such as an
            evaluation.

    Raises:
        AssertionError: `backend` has another value.
        RuntimeError: rank or size are unknown, this process is already in a group, or the other ranks do not join.
        ValueError: the rank is not in [0, `world_size`), the timeout is not positive, or an environment variable is
            not a number.
    """
    if backend not in ("nccl", "gloo"):
        raise AssertionError(f"backend = {backend!r} is not allowed; it must be 'nccl' or 'gloo'")
    if has_group():
        raise RuntimeError("this process is already in a process group; leave it with dist_finalize() first")
    if backend == "nccl" and not torch.cuda.is_available():
        one_time_warning("no CUDA device: the process group uses gloo instead of nccl")
        backend = "gloo"
    for variable, value, default in zip(MASTER_VARIABLES, (addr, port), ("localhost", "10314"), strict=True):
        os.environ[variable] = str(value) if value is not None else os.environ.get(variable, default)
    rank, world_size = _rank_and_size(rank, world_size)
    if torch.cuda.is_available():
        # Before joining, so that no process creates a context on device 0 too.
        torch.cuda.set_device(rank % torch.cuda.device_count())
    if not isinstance(timeout, timedelta):
        seconds = _number_in(TIMEOUT_VARIABLE, float, DEFAULT_TIMEOUT_S) if timeout is None else timeout
        timeout = timedelta(seconds=seconds)
    if timeout <= timedelta(0):
        raise ValueError(f"timeout = {timeout.total_seconds():g} s is not allowed; it must be above 0")
    _join("cpu:gloo,cuda:nccl" if backend == "nccl" else backend, rank, world_size, timeout)
    return rank, world_size


def _rank_and_size(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Return the rank and the size, by default from the environment."""
    ranks, sizes = ["SLURM_LOCALID", "RANK"], ["SLURM_NTASKS", "WORLD_SIZE"]
    if "TORCHELASTIC_RUN_ID" in os.environ:
        # In a SLURM job, the processes of torchrun inherit the variables of the single task that runs torchrun.
        ranks, sizes = ranks[1:], sizes[1:]
    elif rank is None and "SLURM_LOCALID" in os.environ and os.environ.get("SLURM_NNODES", "1") != "1":
        raise RuntimeError(
            f"the SLURM job has {os.environ['SLURM_NNODES']} nodes, and SLURM_LOCALID numbers the processes of each; "
            "start the ranks with torchrun on every node, or pass rank and world_size to dist_init"
        )
    rank = _from_environment("rank", rank, ranks)
    world_size = _from_environment("world_size", world_size, sizes)
    if not 0 <= rank < world_size:
        raise ValueError(f"rank = {rank} is not allowed; it must be in [0, {world_size}), the world_size")
    return rank, world_size


def _from_environment(what: str, value: int | None, variables: Sequence[str]) -> int:
    if value is not None:
        return value
    for variable in variables:
        if variable in os.environ:
            return _number_in(variable, int, 0)
    raise RuntimeError(
        f"dist_init: {what} is unknown; pass it, start the script with torchrun, or set {' or '.join(variables)} in "
        "the environment"
    )


def _number_in(variable: str, kind: type[Number], default: Number) -> Number:
    """Return the number in an environment variable, or `default` if it is not set."""
    text = os.environ.get(variable)
    try:
        return default if text is None else kind(text)
    except ValueError:
        raise ValueError(f"${variable} = {text!r} is not allowed; it must be {kind.__name__}") from None


def _join(backend: str, rank: int, world_size: int, timeout: timedelta) -> None:
    master = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    try:
        store = _open_store(rank, world_size, timeout)
        dist.init_process_group(backend, rank=rank, world_size=world_size, timeout=timeout, store=store)
    except RuntimeError as e:
        raise RuntimeError(
            f"rank {rank} could not join the other ranks of {world_size} at {master} within "
            f"{timeout.total_seconds():g} s: {e}; start every rank, all with the same MASTER_ADDR, MASTER_PORT and "
            "WORLD_SIZE"
        ) from e
    _leave_with_the_process()


def _open_store(rank: int, world_size: int, timeout: timedelta) -> Any:
    if world_size == 1:
        return dist.HashStore()  # type: ignore[attr-defined,unused-ignore]
    # All groups that this process joins one after the other use one store: a rank that joins again quickly must not
    # connect to a store that rank 0 is about to close. The prefix separates their addresses.
    key = (*map(os.environ.get, MASTER_VARIABLES), rank, world_size)
    if key not in _stores:
        meeting = dist.rendezvous("env://", rank, world_size, timeout=timeout)  # type: ignore[attr-defined,unused-ignore]
        _stores[key] = next(meeting)[0]
    _stores[key].set_timeout(timeout)
    return dist.PrefixStore(f"ding/{next(_joins)}", _stores[key])  # type: ignore[attr-defined,unused-ignore]


def dist_finalize() -> None:
    """Leave the process group, if this process is in one."""
    pending.clear()
    if has_group():
        dist.destroy_process_group()


def _abandon() -> None:
    """Leave the process group after an error, without waiting for other ranks.

    The destructor of a gloo group waits for its pending operations, which may need a rank that waits for this process
    to end. Therefore, the group is leaked instead; its connections close when the process ends.
    """
    if has_group():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(dist.group.WORLD))
    dist_finalize()


@functools.lru_cache(maxsize=1)
def _leave_with_the_process() -> None:
    """Register, once, that this process leaves the group at its exit."""
    atexit.register(_leave_at_exit)


def _leave_at_exit() -> None:
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)  # the uncaught exception, if any
    if error is None:
        dist_finalize()
    else:
        _abandon()


class DDPContext:
    """Context manager, with the arguments of `dist_init`, that joins the process group on entry and leaves it on exit.

    If an exception leaves the block and ends the process, operations of the other ranks fail. `MASTER_ADDR` and
    `MASTER_PORT` are restored on exit.

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
                _abandon()
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
    """Decorate `func` to run in a `DDPContext`."""

    @functools.wraps(func)
    def in_group(*args: Any, **kwargs: Any) -> Any:
        with DDPContext():
            return func(*args, **kwargs)

    return in_group
