"""Joining the group of training processes, leaving it, and breaking off so that no other rank waits for this one."""

from __future__ import annotations

import atexit
import ctypes
import functools
import itertools
import logging
import multiprocessing
import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from multiprocessing.util import Finalize
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from ding.utils.collectives import copy_objects, current, has_group
from ding.utils.default_helper import one_time_warning
from ding.utils.rank_connect import connect_ranks
from ding.utils.rank_line import RankLine

TIMEOUT_VARIABLE, DEFAULT_TIMEOUT_S = "DING_DIST_TIMEOUT", 1800.0
GRACE_VARIABLE, DEFAULT_GRACE_S = "DING_RANK_GRACE", 30.0
# The ranks are all there when they connect: they joined the group just before.
_CONNECT_S = 60.0
# How long a rank that is done waits for the others, which may still evaluate or save.
_LEAVE_S = 60.0
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

    What is not given comes from the environment: `MASTER_ADDR` and `MASTER_PORT` (else localhost:10314), the rank from
    `SLURM_LOCALID` or `RANK`, the size from `SLURM_NTASKS` or `WORLD_SIZE`; under torchrun from `RANK` and
    `WORLD_SIZE`. With CUDA, this process uses device `rank % number of devices`, and `nccl` means NCCL for CUDA tensors
    and gloo for CPU tensors; without CUDA, `nccl` becomes `gloo`. A group of one process uses no network.

    Args:
        timeout: how long the ranks wait for each other when they join, and in an operation, as a timedelta or in
            seconds; $DING_DIST_TIMEOUT or 1800 seconds by default. The end of a rank is noticed at once, so it only
            counts where a rank hangs. It must be longer than what rank 0 does alone, such as an evaluation.

    Where another rank fails, this one has $DING_RANK_GRACE (30) seconds to end in an orderly way; then it is ended.

    Raises:
        AssertionError: `backend` is neither `nccl` nor `gloo`.
        RuntimeError: the rank or the size is not known, this process is in a group already, or the ranks do not meet.
        ValueError: the rank is not in 0 ... `world_size` - 1, the timeout is not positive, or a variable holds no
            number.
    """
    if backend not in ("nccl", "gloo"):
        raise AssertionError(f"backend = {backend!r} is not allowed; it must be 'nccl' or 'gloo'")
    if has_group():
        raise RuntimeError("this process is in a process group already; leave it with dist_finalize() first")
    if backend == "nccl" and not torch.cuda.is_available():
        one_time_warning("no CUDA device: the process group uses gloo instead of nccl")
        backend = "gloo"
    for variable, value, default in zip(MASTER_VARIABLES, (addr, port), ("localhost", "10314"), strict=True):
        os.environ[variable] = str(value) if value is not None else os.environ.get(variable, default)
    rank, world_size = _place(rank, world_size)
    if torch.cuda.is_available():
        # Before the group is made, so that no process makes its context on device 0 as well.
        torch.cuda.set_device(rank % torch.cuda.device_count())
    if not isinstance(timeout, timedelta):
        seconds = _number_in(TIMEOUT_VARIABLE, float, DEFAULT_TIMEOUT_S) if timeout is None else timeout
        timeout = timedelta(seconds=seconds)
    if timeout <= timedelta(0):
        raise ValueError(f"timeout = {timeout.total_seconds():g} s is not allowed; it must be above 0")
    grace_s = _number_in(GRACE_VARIABLE, float, DEFAULT_GRACE_S)
    _join("cpu:gloo,cuda:nccl" if backend == "nccl" else backend, rank, world_size, timeout, grace_s)
    return rank, world_size


def _place(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """The rank and the size, where they are not given from the environment."""
    ranks, sizes = ["SLURM_LOCALID", "RANK"], ["SLURM_NTASKS", "WORLD_SIZE"]
    if "TORCHELASTIC_RUN_ID" in os.environ:
        # In a SLURM job torchrun's processes inherit the variables of the one task that runs torchrun.
        ranks, sizes = ranks[1:], sizes[1:]
    elif rank is None and "SLURM_LOCALID" in os.environ and os.environ.get("SLURM_NNODES", "1") != "1":
        raise RuntimeError(
            f"the SLURM job has {os.environ['SLURM_NNODES']} nodes, and SLURM_LOCALID numbers the processes of each; "
            "start the ranks with torchrun on every node, or pass rank and world_size to dist_init"
        )
    rank = _from_environment("rank", rank, ranks)
    world_size = _from_environment("world_size", world_size, sizes)
    if not 0 <= rank < world_size:
        raise ValueError(f"rank = {rank} is not allowed in a group of {world_size}; ranks are 0 to world_size - 1")
    return rank, world_size


def _from_environment(what: str, value: int | None, variables: Sequence[str]) -> int:
    if value is not None:
        return value
    for variable in variables:
        if variable in os.environ:
            return _number_in(variable, int, 0)
    raise RuntimeError(
        f"dist_init does not know {what}: pass it, start the script with torchrun, or set "
        f"{' or '.join(variables)} in the environment"
    )


def _number_in(variable: str, kind: type[Number], default: Number) -> Number:
    """The number in an environment variable."""
    text = os.environ.get(variable)
    try:
        return default if text is None else kind(text)
    except ValueError:
        raise ValueError(f"the environment variable {variable} = {text!r} holds no number ({kind.__name__})") from None


def _join(backend: str, rank: int, world_size: int, timeout: timedelta, grace_s: float) -> None:
    master = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    try:
        store = _open_store(rank, world_size, timeout)
        dist.init_process_group(backend, rank=rank, world_size=world_size, timeout=timeout, store=store)
    except RuntimeError as e:
        raise RuntimeError(
            f"rank {rank} did not meet the other ranks of {world_size} at {master} within "
            f"{timeout.total_seconds():g} s: {e}; start every rank, all with the same MASTER_ADDR, MASTER_PORT and "
            "WORLD_SIZE"
        ) from e
    _leave_with_the_process()
    if world_size == 1:
        return
    try:
        names, sockets = connect_ranks(rank, world_size, os.environ["MASTER_ADDR"], _copy_from_0, _CONNECT_S)
    except BaseException:
        _destroy(is_broken=True)
        raise
    current.line = RankLine(rank, names, sockets, grace_s, on_failure=_abort_nccl)


def _open_store(rank: int, world_size: int, timeout: timedelta) -> Any:
    if world_size == 1:
        return dist.HashStore()  # type: ignore[attr-defined,unused-ignore]
    # One store serves all groups that this process joins in turn: a rank that is quick to join again must not meet the
    # store that rank 0 is about to close. None of them must find the addresses of the group before.
    key = (*map(os.environ.get, MASTER_VARIABLES), rank, world_size)
    if key not in _stores:
        meeting = dist.rendezvous("env://", rank, world_size, timeout=timeout)  # type: ignore[attr-defined,unused-ignore]
        _stores[key] = next(meeting)[0]
    _stores[key].set_timeout(timeout)
    return dist.PrefixStore(f"ding/{next(_joins)}", _stores[key])  # type: ignore[attr-defined,unused-ignore]


def _copy_from_0(objects: list[Any]) -> None:
    """Fill `objects` with those of rank 0."""
    copy_objects(objects, 0)


def dist_finalize() -> None:
    """Leave the process group in an orderly way; does nothing when there is none.

    Waits until all ranks leave, up to a minute.

    Raises:
        RankFailedError: another rank failed before; this one has left all the same.
    """
    line = current.line
    try:
        if line is not None:
            line.leave(_LEAVE_S)
    except BaseException:
        _hang_up()
        _destroy(is_broken=True)
        raise
    _hang_up()
    _destroy(is_broken=False)


def break_off(error: BaseException) -> None:
    """Leave the process group because of `error`, and tell the other ranks, which then fail too. Waits for nobody."""
    if current.line is not None:
        current.line.fail(error)
    _hang_up()
    _destroy(is_broken=True)


def _hang_up() -> None:
    line, current.line = current.line, None
    if line is not None:
        line.close()


def _destroy(is_broken: bool) -> None:
    """Take the group apart.

    The destructor of a gloo group waits for its pending operations. In a broken group they would wait for a rank that
    is gone, so its memory is given up instead.
    """
    current.pending.clear()
    if not has_group():
        return
    if is_broken:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(dist.group.WORLD))
    dist.destroy_process_group()


def _abort_nccl() -> None:
    """End the operations that run on the GPU, where the main thread would wait for them for ever."""
    if not has_group() or "nccl" not in dist.get_backend_config():
        return
    try:
        dist.group.WORLD.abort()  # type: ignore[union-attr,unused-ignore]
    except RuntimeError:
        logging.getLogger("ding").exception("the operations on the GPU could not be aborted")


@functools.lru_cache(maxsize=1)
def _leave_with_the_process() -> None:
    """See to it that a process that ends without `dist_finalize` leaves the group, once."""
    atexit.register(_leave_at_exit)
    if multiprocessing.parent_process() is not None:  # such a process may end without the handlers of atexit
        Finalize(None, _leave_at_exit, exitpriority=0)


def _leave_at_exit() -> None:
    if current.line is None:
        return
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)  # what ended the script
    if error is None:
        dist_finalize()
    else:
        break_off(error)


def _forget_in_child() -> None:
    # An env worker that was forked from a rank is none, and must not keep the connections of a killed rank alive.
    line, current.line = current.line, None
    if line is not None:
        line.drop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
