"""Averaging of the gradients of a policy's model over the processes that train it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ding.utils.pytorch_ddp_dist_helper import await_work, begin_sum, copy_from_rank, has_group, sum_over_ranks


class GradientSynchronizer:
    """Averaging of the gradients of one model over all ranks, on any backend, CPU included.

    Construction copies rank 0's parameters and buffers to the others. With `bp_update_sync`, `sync` averages in one
    collective call per dtype, over the ranks that have a gradient for the parameter. Without it, each gradient is
    reduced as soon as backward has computed it, and `sync` waits for all of them: all ranks must then have gradients
    for the same parameters, each from one backward pass.

    Raises:
        RuntimeError: this process is not in a process group.
    """

    def __init__(self, model: nn.Module, bp_update_sync: bool = True) -> None:
        if not has_group():
            raise RuntimeError(
                "multi_gpu = True needs a process group: run the training inside `with DDPContext():` and start it "
                "with torchrun, or set policy.multi_gpu = False"
            )
        self.bp_update_sync = bp_update_sync
        self._pending: list[tuple[str, Any]] = []
        self._sent: dict[int, Tensor] = {}  # the parameters that backward sends, by id
        for tensor in model.state_dict().values():
            if isinstance(tensor, Tensor):
                copy_from_rank(tensor, 0)
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
            if not bp_update_sync and parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._send)  # type: ignore[no-untyped-call]
                self._sent[id(parameter)] = parameter

    def _send(self, parameter: Tensor) -> None:
        assert parameter.grad is not None
        parameter.grad.div_(dist.get_world_size())
        self._pending.append(begin_sum("the all_reduce of a gradient", parameter.grad))

    def sync(self, parameters: nn.Module | Iterable[Tensor]) -> None:
        """Average the gradients of these parameters, or of a module, over all ranks.

        Call it between backward and the optimizer's step.
        """
        if isinstance(parameters, nn.Module):
            parameters = parameters.parameters()
        groups: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
        for parameter in parameters:
            if parameter.requires_grad and id(parameter) not in self._sent:
                groups.setdefault((parameter.dtype, parameter.device), []).append(parameter)
        while self._pending:
            await_work(*self._pending.pop(0))
        if self._sent and torch.cuda.is_available():
            torch.cuda.synchronize()
        for group in groups.values():
            _average(group)


def _average(parameters: list[Tensor]) -> None:
    """All-reduce one flat bucket: the gradients, then for each parameter a flag whether this rank has its gradient."""
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    has_gradient = gradients[0].new_tensor([0.0 if p.grad is None else 1.0 for p in parameters])
    bucket = torch.cat([gradient.flatten() for gradient in gradients] + [has_gradient])
    sum_over_ranks(bucket)
    counts = bucket[-len(parameters) :].tolist()
    start = 0
    for parameter, count in zip(parameters, counts, strict=True):
        end = start + parameter.numel()
        if count > 0.5:  # otherwise no rank has one: leave None, as a single process would
            averaged = (bucket[start:end] / count).view_as(parameter)
            if parameter.grad is None:
                parameter.grad = averaged
            else:
                parameter.grad.copy_(averaged)
        start = end
