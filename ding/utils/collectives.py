"""Collective operations that end when a rank does: each waits for its result and for news of a failed rank at once."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from ding.utils.rank_line import RankFailedError, RankLine

# How often a waiting operation looks for news (and lets the handlers of signals run).
_LOOK = timedelta(seconds=0.2)
# How long an operation that broke waits to hear why.
_NEWS_S = 3.0
# An operation that still lacks a rank this long after that one has left will not get it.
_LEFT_S = 3.0


class Membership:
    """What this process keeps of the group it is in.

    Attributes:
        line: the line to the other ranks, in a group of several that `dist_init` made.
        pending: the arguments of `await_work` for operations that nobody has waited for yet.
    """

    def __init__(self) -> None:
        self.line: RankLine | None = None
        self.pending: list[tuple[str, Any, bool]] = []


current = Membership()


def has_group() -> bool:
    """Whether this process is in a process group."""
    return dist.is_available() and dist.is_initialized()


def comm_device(device: torch.device | None = None) -> torch.device:
    """`device`, if the group's backend reaches its kind, else a device that it reaches: the CPU where it can."""
    kinds = [entry.partition(":")[0] for entry in dist.get_backend_config().split(",")]
    if device is not None and device.type in kinds:
        return device
    return torch.device("cpu") if "cpu" in kinds else torch.device("cuda", torch.cuda.current_device())


def begin(name: str, start: Callable[[], Any]) -> Any:
    """Begin the operation `name`; returns what `start` does (a `dist.Work`, or None), for `await_work`.

    Raises:
        RankFailedError: another rank has failed.
        RuntimeError: the group is broken.
    """
    if current.line is not None:
        current.line.check()
    try:
        return start()
    except RuntimeError as e:
        _raise_explained(name, e)


def await_work(name: str, work: Any, is_on_cpu: bool) -> None:
    """Wait for the result of an operation that `begin` began; on CUDA only the current stream waits.

    Raises:
        RankFailedError: another rank has failed meanwhile.
        RuntimeError: the group is broken, or another rank left it before it took part.
    """
    if work is None:
        return
    try:
        if current.line is None or not is_on_cpu:
            work.wait()
        else:
            _wait_in_slices(work, current.line)
    except RankFailedError:
        raise
    except RuntimeError as e:
        _raise_explained(name, e)


def _wait_in_slices(work: Any, line: RankLine) -> None:
    """Wait for an operation of gloo, which has no way to abort one: look up between short waits."""
    while True:
        try:
            work.wait(_LOOK)
            return
        except RuntimeError:
            if work.is_completed():  # meanwhile, or with an error of its own
                work.wait()
                return
        line.check()
        if line.first_left(_LEFT_S) is not None:
            raise RuntimeError("it needs every rank")


def _raise_explained(name: str, error: RuntimeError) -> NoReturn:
    """Raise the failure of a rank that broke the operation, if one is heard of, else `error` with what is known."""
    line = current.line
    if line is None:
        raise error
    absent, is_timeout = line.first_left(), "imed out" in str(error)
    try:
        line.wait_for_failure(0.0 if absent or is_timeout else _NEWS_S)
    except RankFailedError as failure:
        raise failure from error
    hint = f"{absent} has left the group already" if absent else "no rank is known to have failed"
    if is_timeout:
        hint += "; a rank hangs, or takes longer than the timeout of dist_init ($DING_DIST_TIMEOUT, in seconds)"
    raise RuntimeError(f"{name} broke: {error} ({hint})") from error


def on_comm_device(operation: Callable[[torch.Tensor], None], x: torch.Tensor) -> None:
    """Run the in-place `operation` on `x`, or on a copy of it where the backend cannot reach the device of `x`."""
    device = comm_device(x.device)
    if x.device.type == device.type and x.is_contiguous():
        operation(x)
        return
    moved = x.detach().to(device, copy=True).contiguous()
    operation(moved)
    with torch.no_grad():
        x.copy_(moved)


def sum_over_ranks(x: torch.Tensor) -> None:
    """Replace `x` by its sum over all ranks. Raises as `await_work`, like the next ones."""
    on_comm_device(partial(_run, "all_reduce", partial(dist.all_reduce, async_op=True)), x)


def sum_on_rank(x: torch.Tensor, rank: int) -> None:
    """Replace `x` by its sum over all ranks on `rank`; elsewhere it is unspecified."""
    on_comm_device(partial(_run, "reduce", partial(dist.reduce, dst=rank, async_op=True)), x)


def copy_from_rank(x: torch.Tensor, rank: int, group: Any = None) -> None:
    """Replace `x` by that of `rank`."""
    on_comm_device(partial(_run, "broadcast", partial(dist.broadcast, src=rank, group=group, async_op=True)), x)


def begin_sum(name: str, x: torch.Tensor) -> tuple[str, Any, bool]:
    """Begin to replace `x` by its sum over all ranks; returns the arguments of `await_work`.

    `x` must be contiguous, on a device that the backend reaches, and left alone until then.
    """
    return name, begin(name, partial(dist.all_reduce, x, async_op=True)), x.device.type == "cpu"


def _run(name: str, operation: Callable[[torch.Tensor], Any], x: torch.Tensor) -> None:
    await_work(name, begin(name, partial(operation, x)), x.device.type == "cpu")


def copy_objects(objects: list[Any], src: int, group: Any = None, device: torch.device | None = None) -> None:
    """Fill `objects` with those of rank `src`, pickled.

    Raises:
        ValueError: the lists have different lengths.
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
        raise ValueError(f"rank {src} sent {len(received)} objects, here is room for {len(objects)}")
    objects[:] = received
