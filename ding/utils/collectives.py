"""Collective operations on tensors and objects, on a device that the group's backend supports."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

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


def sum_on_rank(x: torch.Tensor, rank: int) -> None:
    """Replace `x` on `rank` by its sum over all ranks; on other ranks `x` becomes undefined."""
    with _explained("reduce"):
        on_comm_device(partial(dist.reduce, dst=rank), x)


def copy_from_rank(x: torch.Tensor, rank: int, group: Any = None) -> None:
    """Replace `x` by that of `rank`."""
    with _explained("broadcast"):
        on_comm_device(partial(dist.broadcast, src=rank, group=group), x)


def begin_sum(name: str, x: torch.Tensor) -> tuple[str, Any]:
    """Start to replace `x` by its sum over all ranks, and return the arguments of `await_work`.

    `x` must be contiguous and on a device that the backend supports, and must not be used until then.
    """
    with _explained(name):
        return name, dist.all_reduce(x, async_op=True)


def copy_objects(objects: list[Any], src: int, group: Any = None, device: torch.device | None = None) -> None:
    """Replace the contents of `objects` by those of rank `src`, which are sent as pickles.

    Raises:
        ValueError: the lists differ in length.
    """
    device = comm_device() if device is None else device
    is_source = dist.get_rank() == src
    packed = torch.frombuffer(bytearray(pickle.dumps(objects) if is_source else b" "), dtype=torch.uint8)
    size = torch.tensor([packed.numel()], dtype=torch.int64, device=device)
    copy_from_rank(size, src, group)
    packed = packed.to(device) if is_source else torch.empty(int(size), dtype=torch.uint8, device=device)
    copy_from_rank(packed, src, group)
    if is_source:
        return
    received = pickle.loads(packed.cpu().numpy().tobytes())
    if len(received) != len(objects):
        raise ValueError(f"rank {src} sent {len(received)} objects, expected are {len(objects)}")
    objects[:] = received
