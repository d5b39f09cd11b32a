"""Collective operations of several training processes, which do nothing with a single process."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, MutableMapping
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from ding.utils.collectives import (
    await_work,
    begin_sum,
    comm_device,
    copy_from_rank,
    copy_objects,
    has_group,
    pending,
    sum_on_rank,
    sum_over_ranks,
)
from ding.utils.process_group import DDPContext, DistContext, dist_finalize, dist_init, dist_mode

__all__ = [
    "DDPContext",
    "DistContext",
    "allreduce",
    "allreduce_async",
    "allreduce_data",
    "allreduce_with_indicator",
    "broadcast",
    "broadcast_object_list",
    "dist_finalize",
    "dist_init",
    "dist_mode",
    "get_rank",
    "get_world_size",
    "on_all_ranks",
    "reduce_data",
    "synchronize",
    "to_ddp_config",
]


def get_rank() -> int:
    """Return the rank of this process in its group, 0 without a group."""
    return dist.get_rank() if has_group() else 0


def get_world_size() -> int:
    """Return the number of processes in the group, 1 without a group."""
    return dist.get_world_size() if has_group() else 1


def allreduce(x: torch.Tensor) -> None:
    """Replace `x` by its mean over all processes."""
    if get_world_size() > 1:
        sum_over_ranks(x)
        x.div_(get_world_size())


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
        TypeError: `x` is neither a number nor a tensor, or `op` is 'avg' for a tensor of integers.
    """
    if op not in ("sum", "avg"):
        raise AssertionError(f"op = {op!r} is not allowed; it must be 'sum' or 'avg'")
    if isinstance(x, torch.Tensor):
        if op == "avg" and not (x.is_floating_point() or x.is_complex()):
            raise TypeError(f"a tensor of {x.dtype} cannot hold its mean; convert it to a float tensor")
        if get_world_size() > 1:
            sum_over_ranks(x)
            if op == "avg":
                x.div_(get_world_size())
        return x
    total = _reduce_number(x, sum_over_ranks)
    return total / get_world_size() if op == "avg" and get_world_size() > 1 else total


def reduce_data(x: Any, dst: int = 0) -> Any:
    """Return the sum of `x` over all processes on rank `dst`, else an undefined value; tensors are modified in place.

    Raises:
        TypeError: `x` is neither a number nor a tensor.
    """
    reduce = partial(sum_on_rank, rank=dst)
    if isinstance(x, torch.Tensor):
        if get_world_size() > 1:
            reduce(x)
        return x
    return _reduce_number(x, reduce)


def _reduce_number(x: Any, operation: Callable[[torch.Tensor], Any]) -> Any:
    """Apply `operation` to a Python or numpy number, and return a Python number of the same kind."""
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
    """Replace the contents of `object_list` by those of rank `src`, which are sent as pickles.

    Raises:
        ValueError: the lists differ in length.
    """
    if get_world_size() > 1:
        copy_objects(object_list, src, group, device)


def synchronize() -> None:
    """Wait for the operations of `allreduce_async`, and for the CUDA device if CUDA is in use."""
    while pending:
        await_work(*pending.pop(0))
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call,unused-ignore]
        torch.cuda.synchronize()


def to_ddp_config(cfg: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Divide batch sizes and amounts of collected data by the number of processes, rounded up, and return `cfg`.

    It modifies `policy.batch_size`, `policy.learn.batch_size`, `policy.collect.n_sample` and `policy.collect.n_episode`
    in place.
    """
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
