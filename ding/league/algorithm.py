"""Matchmaking: probabilities of opponents by win rates."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

_WEIGHTINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "squared": lambda rates: (1 - rates) ** 2,  # prefers opponents that are hard to beat
    "variance": lambda rates: rates * (1 - rates),  # prefers opponents of the same strength
}


def pfsp(win_rates: np.ndarray, weighting: str) -> np.ndarray:
    """Return the probability [opponents] of each opponent by prioritized fictitious self-play.

    See Vinyals et al., "Grandmaster level in StarCraft II using multi-agent reinforcement learning" (2019), Methods.

    Args:
        win_rates: [opponents], the win rates x in [0, 1] against each opponent.
        weighting: 'squared' for weights (1 - x)^2, 'variance' for x (1 - x). If all weights are 0, the probabilities
            are equal.

    Raises:
        KeyError: `weighting` has another value.
        ValueError: `win_rates` is empty, not one-dimensional, or has values outside [0, 1].

    Example:
        >>> pfsp(np.array([0.0, 0.5, 1.0]), "squared").tolist()
        [0.8, 0.2, 0.0]
    """
    if weighting not in _WEIGHTINGS:
        raise KeyError(f"weighting = {weighting!r} is not allowed; it must be one of {', '.join(_WEIGHTINGS)}")
    rates = np.asarray(win_rates, dtype=np.float64)
    if rates.ndim != 1 or not len(rates) or not np.all((rates >= 0) & (rates <= 1)):
        raise ValueError(f"win_rates = {win_rates!r} is not allowed; it must be a vector of numbers in [0, 1]")
    weights = _WEIGHTINGS[weighting](rates)
    total = weights.sum()
    return weights / total if total > 0 else uniform(rates)


def uniform(win_rates: np.ndarray) -> np.ndarray:
    """Return the same probability for each opponent."""
    return np.full(len(win_rates), 1 / len(win_rates))
