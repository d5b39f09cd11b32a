"""Collective operations of several training processes; with a single process each of them is the identity."""

from __future__ import annotations

import functools
import math
import numbers
import os
from collections.abc import Callable, MutableMapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ding.utils.default_helper import one_time_warning

_pending: list[Any] = []


def get_rank() -> int:
    """The number of this process in its group; 0 without a group."""
    return dist.get_rank() if _has_group() else 0


def get_world_size() -> int:
    """The number of processes in the group; 1 without a group."""
    return dist.get_world_size() if _has_group() else 1


def _has_group() -> bool:
    return dist.is_available() and dist.is_initialized()


def _comm_device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")


def _on_comm_device(operation: Callable[[torch.Tensor], Any], x: torch.Tensor) -> None:
    """Run the in-place `operation` on `x`, or on a copy of it where the backend cannot reach the device of `x`."""
    device = _comm_device()
    if x.device.type == device.type and x.is_contiguous():
        operation(x)
        return
    moved = x.detach().to(device, copy=True).contiguous()
    operation(moved)
    with torch.no_grad():
        x.copy_(moved)


def allreduce(x: torch.Tensor) -> None:
    """Replace `x` by its mean over all processes."""
    if get_world_size() > 1:
        _on_comm_device(dist.all_reduce, x)
        x.div_(get_world_size())


def allreduce_async(name: str, x: torch.Tensor) -> None:
    """Start to replace `x` by its mean over all processes; it is there after `synchronize`. `name` only labels it.

    `x` must be contiguous, on a device that the backend reaches, and left alone until then.
    """
    if get_world_size() > 1:
        x.div_(get_world_size())
        _pending.append(dist.all_reduce(x, async_op=True))


def allreduce_with_indicator(grad: torch.Tensor, indicator: torch.Tensor) -> None:
    """Replace `grad` by its mean over the processes whose one-element `indicator` is 1 instead of 0.

    `indicator` becomes their number; where it is 0, `grad` is the plain sum.
    """
    if get_world_size() > 1:
        _on_comm_device(dist.all_reduce, grad)
        _on_comm_device(dist.all_reduce, indicator)
    count = float(indicator)
    if abs(count) > 1e-4:
        grad.div_(count)


def allreduce_data(x: Any, op: str) -> Any:
    """The sum (`op='sum'`) or mean (`'avg'`) of `x` over all processes: a tensor in place, a number as a new number.

    Raises:
        AssertionError: another `op`.
        TypeError: `x` is neither a number nor a tensor, or the mean is asked of a tensor of integers.
    """
    if op not in ("sum", "avg"):
        raise AssertionError(f"op = {op!r} is not allowed; it must be 'sum' or 'avg'")
    if isinstance(x, torch.Tensor):
        if op == "avg" and not (x.is_floating_point() or x.is_complex()):
            raise TypeError(f"the mean of a tensor of {x.dtype} cannot be stored in it; convert it to a float tensor")
        if get_world_size() > 1:
            _on_comm_device(dist.all_reduce, x)
            if op == "avg":
                x.div_(get_world_size())
        return x
    total = _reduce_number(x, dist.all_reduce)
    return total / get_world_size() if op == "avg" and get_world_size() > 1 else total


def reduce_data(x: Any, dst: int = 0) -> Any:
    """The sum of `x` over all processes, on process `dst` (elsewhere unspecified): a tensor in place, else a number.

    Raises:
        TypeError: `x` is neither a number nor a tensor.
    """
    reduce = functools.partial(dist.reduce, dst=dst)
    if isinstance(x, torch.Tensor):
        if get_world_size() > 1:
            _on_comm_device(reduce, x)
        return x
    return _reduce_number(x, reduce)


def _reduce_number(x: Any, operation: Callable[[torch.Tensor], Any]) -> Any:
    """`operation` on a Python or numpy number, as a Python number; integers stay integers."""
    if not isinstance(x, numbers.Real):
        raise TypeError(f"{x!r} of type {type(x).__name__} cannot be reduced; it must be a number or a tensor")
    number = int(x) if isinstance(x, numbers.Integral) else float(x)
    if get_world_size() == 1:
        return number
    dtype = torch.int64 if isinstance(number, int) else torch.float64
    value = torch.tensor([number], dtype=dtype, device=_comm_device())
    operation(value)
    return value.item()


def broadcast(value: torch.Tensor, rank: int) -> None:
    """Replace `value` by that of process `rank`."""
    if get_world_size() > 1:
        _on_comm_device(functools.partial(dist.broadcast, src=rank), value)


def broadcast_object_list(
    object_list: list[Any], src: int = 0, group: Any = None, device: torch.device | None = None
) -> None:
    """Fill `object_list` in place with the objects of process `src`, pickled; the lists must have equal lengths."""
    if get_world_size() > 1:
        dist.broadcast_object_list(object_list, src=src, group=group, device=device)


def synchronize() -> None:
    """Wait for the operations that `allreduce_async` started, and for the CUDA device where CUDA is in use."""
    while _pending:
        _pending.pop(0).wait()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call,unused-ignore]
        torch.cuda.synchronize()


def dist_init(
    backend: str = "nccl",
    addr: str | None = None,
    port: str | int | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    timeout: timedelta = timedelta(seconds=60000),
) -> tuple[int, int]:
    """Join the process group and return `(rank, world_size)`.

    What is not given comes from the environment: `MASTER_ADDR` and `MASTER_PORT` (else localhost:10314), the rank from
    `SLURM_LOCALID` or `RANK`, the size from `SLURM_NTASKS` or `WORLD_SIZE`. With CUDA, this process uses device
    `rank % number of devices`; without CUDA, `nccl` becomes `gloo`.

    Raises:
        AssertionError: `backend` is neither `nccl` nor `gloo`.
        RuntimeError: the rank or the size is neither given nor in the environment.
    """
    if backend not in ("nccl", "gloo"):
        raise AssertionError(f"backend = {backend!r} is not allowed; it must be 'nccl' or 'gloo'")
    if backend == "nccl" and not torch.cuda.is_available():
        one_time_warning("no CUDA device: the process group uses gloo instead of nccl")
        backend = "gloo"
    _set_master("MASTER_ADDR", addr, "localhost")
    _set_master("MASTER_PORT", port, "10314")
    rank = _from_environment("rank", rank, ("SLURM_LOCALID", "RANK"))
    world_size = _from_environment("world_size", world_size, ("SLURM_NTASKS", "WORLD_SIZE"))
    if torch.cuda.is_available():
        # Before the group is made, so that no process makes its context on device 0 as well.
        torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group(backend=backend, rank=rank, world_size=world_size, timeout=timeout)
    return rank, world_size


def _set_master(variable: str, value: str | int | None, default: str) -> None:
    os.environ[variable] = str(value) if value is not None else os.environ.get(variable, default)


def _from_environment(what: str, value: int | None, variables: tuple[str, ...]) -> int:
    if value is not None:
        return value
    for variable in variables:
        if variable in os.environ:
            return int(os.environ[variable])
    raise RuntimeError(f"dist_init does not know {what}: pass it, or set {' or '.join(variables)} in the environment")


def dist_finalize() -> None:
    """Leave the process group; does nothing when there is none."""
    _pending.clear()
    if _has_group():
        dist.destroy_process_group()


class DDPContext:
    """Joins the process group on entry and leaves it on exit; takes the arguments of `dist_init`.

    Example:
        >>> with DDPContext("gloo", port=29511, rank=0, world_size=1):
        ...     get_world_size()
        1
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._args = args
        self._kwargs = kwargs

    def __enter__(self) -> None:
        dist_init(*self._args, **self._kwargs)

    def __exit__(self, *exc_info: object) -> None:
        dist_finalize()


DistContext = DDPContext


def dist_mode(func: Callable[..., Any]) -> Callable[..., Any]:
    """`func` that runs inside a `DDPContext`."""

    @functools.wraps(func)
    def in_group(*args: Any, **kwargs: Any) -> Any:
        with DDPContext():
            return func(*args, **kwargs)

    return in_group


def to_ddp_config(cfg: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Divide batch sizes and collected amounts by the number of processes, rounding up, in place; returns `cfg`."""
    world_size = get_world_size()
    policy = cfg["policy"]
    for section, keys in (
        (policy, ("batch_size",)),
        (policy.get("learn", {}), ("batch_size",)),
        (policy.get("collect", {}), ("n_sample", "n_episode")),
    ):
        for key in keys:
            if section.get(key) is not None:
                section[key] = math.ceil(section[key] / world_size)
    return cfg
