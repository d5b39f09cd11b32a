"""The scale of the values that a critic predicts."""

from __future__ import annotations

from torch import Tensor

from ding.utils.pytorch_ddp_dist_helper import allreduce_data
from ding.utils.running_stats import RunningMeanStd


class ValueNorm(RunningMeanStd):
    """The deviation of all returns so far: a critic trained on returns divided by it has errors of one size.

    Example:
        >>> import torch
        >>> norm = ValueNorm()
        >>> norm.take_in(torch.tensor([-10.0, 10.0]), all_ranks=False)
        >>> round(float(norm.std))
        10
    """

    def take_in(self, returns: Tensor, all_ranks: bool) -> None:
        """Count the returns [*B]; with `all_ranks` those of every process, so that all of them have one scale."""
        returns = returns.detach().double()
        number = float(returns.numel())
        sums = returns.new_tensor([number, 0.0, 0.0])
        sums[1], sums[2] = returns.sum(), returns.square().sum()
        if all_ranks:
            allreduce_data(sums, "sum")
        number, total, squares = sums.tolist()
        mean = total / number
        self.merge(mean, max(squares / number - mean * mean, 0.0), number)
