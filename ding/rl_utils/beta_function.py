"""Risk distortions, which reshape the uniform quantile fractions at which a quantile network acts.

See "Implicit Quantile Networks for Distributional Reinforcement Learning", https://arxiv.org/abs/1806.06923, section 3.
Each maps fractions in [0, 1] to fractions in [0, 1].
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor


def uniform(x: Tensor) -> Tensor:
    """Return the fractions unchanged, which is neutral to risk."""
    return x


def cpw(x: Tensor, eta: float = 0.71) -> Tensor:
    """Return the weighting of cumulative prospect theory, which overweights both ends."""
    return x**eta / (x**eta + (1 - x) ** eta) ** (1 / eta)


def CVaR(x: Tensor, eta: float = 0.71) -> Tensor:
    """Return the fractions of the conditional value at risk: the lowest share `eta`."""
    return x * eta


def Pow(x: Tensor, eta: float = 0.0) -> Tensor:
    """Return a power of the fractions: risk-averse for a negative `eta`, risk-seeking for a positive one.

    Example:
        >>> import torch
        >>> Pow(torch.tensor([0.5]), 1.0), Pow(torch.tensor([0.5]), -1.0)
        (tensor([0.7071]), tensor([0.2929]))
    """
    exponent = 1 / (1 + abs(eta))
    return x**exponent if eta >= 0 else 1 - (1 - x) ** exponent


beta_function_map: dict[str, Callable[[Tensor], Tensor]] = {
    "uniform": uniform,
    "CPW": cpw,
    "CVaR": CVaR,
    "Pow": Pow,
}
