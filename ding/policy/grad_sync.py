"""Keeps the replicas of a policy's model equal when several processes train it together."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn


class GradientSynchronizer:
    """Averages the gradients of one model over all ranks; works on any backend, CPU included.

    Construction copies rank 0's parameters and buffers to the others. With `bp_update_sync` the average is taken in
    `sync`, one collective call per dtype, over the ranks that have a gradient for the parameter. Without it each
    gradient is sent as soon as backward has it, and `sync` waits for them: all ranks must then have gradients for the
    same parameters.
    """

    def __init__(self, model: nn.Module, bp_update_sync: bool = True) -> None:
        self.bp_update_sync = bp_update_sync
        self._pending: list[dist.Work] = []
        for tensor in model.state_dict().values():
            if isinstance(tensor, Tensor):
                dist.broadcast(tensor, 0)
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
            if not bp_update_sync and parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._send)  # type: ignore[no-untyped-call]

    def _send(self, parameter: Tensor) -> None:
        assert parameter.grad is not None
        parameter.grad.div_(dist.get_world_size())
        self._pending.append(dist.all_reduce(parameter.grad, async_op=True))

    def sync(self, model: nn.Module) -> None:
        """Make the gradients of `model` equal on all ranks; call it between backward and the optimizer's step."""
        if not self.bp_update_sync:
            for work in self._pending:
                work.wait()
            self._pending.clear()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            return
        groups: dict[tuple[torch.dtype, torch.device], list[nn.Parameter]] = {}
        for parameter in model.parameters():
            if parameter.requires_grad:
                groups.setdefault((parameter.dtype, parameter.device), []).append(parameter)
        for parameters in groups.values():
            _average(parameters)


def _average(parameters: list[nn.Parameter]) -> None:
    """All-reduce one flat bucket: the gradients, then for each parameter whether this rank has one."""
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    has_gradient = gradients[0].new_tensor([0.0 if p.grad is None else 1.0 for p in parameters])
    bucket = torch.cat([gradient.flatten() for gradient in gradients] + [has_gradient])
    dist.all_reduce(bucket)
    counts = bucket[-len(parameters) :].tolist()
    start = 0
    for parameter, count in zip(parameters, counts, strict=True):
        end = start + parameter.numel()
        if count > 0.5:  # no rank has one: stay without, as a single process would
            averaged = (bucket[start:end] / count).view_as(parameter)
            if parameter.grad is None:
                parameter.grad = averaged
            else:
                parameter.grad.copy_(averaged)
        start = end
