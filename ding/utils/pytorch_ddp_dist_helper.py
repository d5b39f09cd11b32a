"""The group of training processes, and its collective operations, which do nothing in a single process."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import itertools
import math
import numbers
import os
import sys
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist

from ding.utils.default_helper import one_time_warning

# Pending operations of `allreduce_async`, as arguments of `await_work`.
pending: list[tuple[str, Any]] = []


class BrokenCollective(RuntimeError):
    """An operation of a process group has failed: another rank has ended, left the group, or not taken part in time."""


def has_group() -> bool:
    """Return whether this process is in a process group."""
    return dist.is_available() and dist.is_initialized()


def comm_device(device: torch.device | None = None) -> torch.device:
    """Return `device` if the backend supports it, else a supported device, the CPU if possible."""
    kinds = [entry.partition(":")[0] for entry in dist.get_backend_config().split(",")]
    if device is not None and device.type in kinds:
        return device
    return torch.device("cpu") if "cpu" in kinds else torch.device("cuda", torch.cuda.current_device())


@contextlib.contextmanager
def _explained(name: str) -> Iterator[None]:
    """Add the probable cause to errors of an operation: the backend reports only lost connections and timeouts."""
    try:
        yield
    except RuntimeError as e:
        if "imed out" in str(e):
            hint = "a rank hangs, or takes longer than the timeout of dist_init ($DING_DIST_TIMEOUT, in seconds)"
        else:
            hint = "another rank has ended or left the group; the first error in the outputs of the ranks says why"
        raise BrokenCollective(f"{name} broke: {e} ({hint})") from e


def await_work(name: str, work: Any) -> None:
    """Wait for an operation of `begin_sum`; on CUDA, only the current stream waits.

    Raises:
        BrokenCollective: another rank has ended, left the group, or did not take part within the group's timeout.
    """
    with _explained(name):
        work.wait()


def on_comm_device(operation: Callable[[torch.Tensor], Any], x: torch.Tensor) -> None:
    """Run the in-place `operation` on `x`, via a copy if the backend does not support the device of `x`."""
    device = comm_device(x.device)
    if x.device.type == device.type and x.is_contiguous():
        operation(x)
        return
    moved = x.detach().to(device, copy=True).contiguous()
    operation(moved)
    with torch.no_grad():
        x.copy_(moved)


def sum_over_ranks(x: torch.Tensor) -> None:
    """Replace `x` by its sum over all ranks; the errors are those of `await_work`, also in the following functions."""
    with _explained("all_reduce"):
        on_comm_device(dist.all_reduce, x)


def smallest_over_ranks(number: int) -> int:
    """Return the smallest of the numbers that the ranks pass; the errors are those of `await_work`."""
    value = torch.tensor([number], dtype=torch.int64, device=comm_device())
    with _explained("all_reduce"):
        dist.all_reduce(value, op=dist.ReduceOp.MIN)
    return int(value)


def copy_from_rank(x: torch.Tensor, rank: int) -> None:
    """Replace `x` by that of `rank`."""
    with _explained("broadcast"):
        on_comm_device(partial(dist.broadcast, src=rank), x)


def begin_sum(name: str, x: torch.Tensor) -> tuple[str, Any]:
    """Start to replace `x` by its sum over all ranks, and return the arguments of `await_work`.

    `x` must be contiguous and on a device that the backend supports, and must not be used until then.
    """
    with _explained(name):
        return name, dist.all_reduce(x, async_op=True)


def get_rank() -> int:
    """Return the rank of this process in its group, 0 without a group."""
    return dist.get_rank() if has_group() else 0


def get_world_size() -> int:
    """Return the number of processes in the group, 1 without a group."""
    return dist.get_world_size() if has_group() else 1


def allreduce(x: torch.Tensor) -> None:
    """Replace `x` by its mean over all processes."""
    allreduce_data(x, "avg")


def allreduce_async(name: str, x: torch.Tensor) -> None:
    """Start to replace `x` by its mean over all processes; `synchronize` waits for it. `name` is for error messages.

    `x` must be contiguous and on a device that the backend supports, and must not be used until then.
    """
    if get_world_size() > 1:
        x.div_(get_world_size())
        pending.append(begin_sum(name, x))


def allreduce_with_indicator(grad: torch.Tensor, indicator: torch.Tensor) -> None:
    """Replace `grad` by its sum over all processes, divided by the sum of their one-element `indicator`s (0 or 1).

    `indicator` becomes this sum. If it is 0, `grad` is not divided.
    """
    if get_world_size() > 1:
        sum_over_ranks(grad)
        sum_over_ranks(indicator)
    count = float(indicator)
    if abs(count) > 1e-4:
        grad.div_(count)


def allreduce_data(x: Any, op: str) -> Any:
    """Return the sum (`op='sum'`) or mean (`'avg'`) of `x` over all processes; a tensor is modified in place.

    Raises:
        AssertionError: `op` has another value.
        TypeError: `x` is neither a number nor a tensor.
    """
    if op not in ("sum", "avg"):
        raise AssertionError(f"op = {op!r} is not allowed; it must be 'sum' or 'avg'")
    total, size = _reduced(x, sum_over_ranks), get_world_size()
    if op == "sum" or size == 1:
        return total
    return total.div_(size) if isinstance(total, torch.Tensor) else total / size


def reduce_data(x: Any, dst: int = 0) -> Any:
    """Return the sum of `x` over all processes on rank `dst`, else an undefined value; tensors are modified in place.

    Raises:
        TypeError: `x` is neither a number nor a tensor.
    """

    def reduce(value: torch.Tensor) -> None:
        with _explained("reduce"):
            on_comm_device(partial(dist.reduce, dst=dst), value)

    return _reduced(x, reduce)


def _reduced(x: Any, operation: Callable[[torch.Tensor], Any]) -> Any:
    """Apply `operation` to a tensor in place, or to a number, and return it; numbers become those of Python."""
    if isinstance(x, torch.Tensor):
        if get_world_size() > 1:
            operation(x)
        return x
    if not isinstance(x, numbers.Real):
        raise TypeError(f"{x!r} of type {type(x).__name__} cannot be reduced; it must be a number or a tensor")
    number = int(x) if isinstance(x, numbers.Integral) else float(x)
    if get_world_size() == 1:
        return number
    dtype = torch.int64 if isinstance(number, int) else torch.float64
    value = torch.tensor([number], dtype=dtype, device=comm_device())
    operation(value)
    return value.item()


def on_all_ranks(flag: bool) -> bool:
    """Return on all processes whether `flag` is true on all of them."""
    return flag if get_world_size() == 1 else bool(allreduce_data(int(flag), "sum") == get_world_size())


def broadcast(value: torch.Tensor, rank: int) -> None:
    """Replace `value` by that of rank `rank`."""
    if get_world_size() > 1:
        copy_from_rank(value, rank)


def broadcast_object_list(
    object_list: list[Any], src: int = 0, group: Any = None, device: torch.device | None = None
) -> None:
    """Replace the contents of `object_list`, of the same length on all ranks, by those of `src`, sent as pickles."""
    if get_world_size() > 1:
        with _explained("broadcast"):
            dist.broadcast_object_list(object_list, src, group, device or comm_device())


def synchronize() -> None:
    """Wait for the operations of `allreduce_async`, and for the CUDA device if CUDA is in use."""
    while pending:
        name, work = pending.pop(0)
        await_work(name, work)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call,unused-ignore]
        torch.cuda.synchronize()


def to_ddp_config(cfg: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Divide batch sizes and amounts of collected data by the number of processes, rounded up, and return `cfg`.

    It modifies `batch_size` of `policy` and `policy.learn`, and `n_sample` and `n_episode` of `policy` and
    `policy.collect`, in place. The pipelines for data sets divide the batch by themselves.
    """
    world_size = get_world_size()
    policy = cfg["policy"]
    for section, keys in (
        (policy, ("batch_size", "n_sample", "n_episode")),
        (policy.get("learn", {}), ("batch_size",)),
        (policy.get("collect", {}), ("n_sample", "n_episode")),
    ):
        for key in keys:
            if section.get(key) is not None:
                section[key] = math.ceil(section[key] / world_size)
    return cfg


MASTER_VARIABLES = ("MASTER_ADDR", "MASTER_PORT")
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
        ValueError: the rank is not in [0, `world_size`), or an environment variable is not a number.
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
        seconds = os.environ.get("DING_DIST_TIMEOUT", 1800.0) if timeout is None else timeout
        timeout = timedelta(seconds=float(seconds))
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
            return int(os.environ[variable])
    raise RuntimeError(
        f"dist_init: {what} is unknown; pass it, start the script with torchrun, or set {' or '.join(variables)} in "
        "the environment"
    )


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
    atexit.unregister(_leave_at_exit)  # once, however often this process joins a group
    atexit.register(_leave_at_exit)


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


def _leave_at_exit() -> None:
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)  # the uncaught exception, if any
    if error is None:
        dist_finalize()
    else:
        _abandon()


class DDPContext:
    """Context manager, with the arguments of `dist_init`, that joins the process group on entry and leaves it on exit.

    If an exception leaves the block and ends the process, operations of the other ranks fail.

    Example:
        >>> import torch.distributed
        >>> with DDPContext("gloo", rank=0, world_size=1):
        ...     torch.distributed.get_world_size()
        1
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._args = args
        self._kwargs = kwargs

    def __enter__(self) -> None:
        dist_init(*self._args, **self._kwargs)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or (isinstance(error, SystemExit) and not error.code):
            dist_finalize()
        else:
            _abandon()


DistContext = DDPContext


def dist_mode(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate `func` to run in a `DDPContext`."""

    @functools.wraps(func)
    def in_group(*args: Any, **kwargs: Any) -> Any:
        with DDPContext():
            return func(*args, **kwargs)

    return in_group
