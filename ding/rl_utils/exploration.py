"""Exploration: epsilon schedules and noise for continuous actions."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from ding.utils.default_helper import new_generator
from ding.utils.random_draws import draw_normal


def get_epsilon_greedy_fn(start: float, end: float, decay: float, type_: str = "exp") -> Callable[[float], float]:
    """Return the schedule env step -> epsilon, falling from `start` to `end`.

    'exp' falls with the time constant `decay` (env steps) asymptotically; 'linear' reaches `end` at step `decay`.

    Raises:
        AssertionError: `type_` is unknown.

    Example:
        >>> epsilon = get_epsilon_greedy_fn(1.0, 0.5, 100, "linear")
        >>> epsilon(0), epsilon(50), epsilon(1000)
        (1.0, 0.75, 0.5)
    """
    if type_ == "exp":
        return lambda step: (start - end) * math.exp(-step / decay) + end
    if type_ == "linear":
        return lambda step: (start - end) * (1 - step / decay) + end if step < decay else end
    raise AssertionError(f"epsilon schedule type {type_!r} is not known; use 'exp' or 'linear'")


class BaseNoise(ABC):
    """Action noise: called with a shape, it returns a tensor of that shape, drawn from a generator of its own.

    Raises:
        AssertionError: `sigma` is negative, at construction or when it is set later.
    """

    _saved: ClassVar[tuple[str, ...]] = ("_sigma",)
    _sigma: float

    @property
    def sigma(self) -> float:
        """The standard deviation of the noise; it may be changed at any time, for example for a decay."""
        return self._sigma

    @sigma.setter
    def sigma(self, value: float) -> None:
        if value < 0:
            raise AssertionError(f"sigma = {value} is not allowed; it must be >= 0")
        self._sigma = value

    @abstractmethod
    def __call__(self, shape: Sequence[int], device: str | torch.device = "cpu") -> Tensor:
        """Sample noise."""


class GaussianNoise(BaseNoise):
    """Independent normal noise."""

    _saved = ("_rng",)

    def __init__(self, mu: float = 0.0, sigma: float = 1.0) -> None:
        self._rng = new_generator()
        self._mu = mu
        self.sigma = sigma

    def __call__(self, shape: Sequence[int], device: str | torch.device = "cpu") -> Tensor:
        return draw_normal(self._rng, shape, like=torch.empty(0, device=device)) * self._sigma + self._mu


class OUNoise(BaseNoise):
    """Ornstein-Uhlenbeck noise x, which changes by theta (mu - x) dt + sigma sqrt(dt) N(0, 1) per call.

    `x0` is the initial value, restored by `reset` (or by setting `x0`); None means zeros.

    Example:
        >>> noise = OUNoise(mu=1.0, sigma=0.0, theta=0.5, dt=1.0)
        >>> noise((1,)).item(), noise((1,)).item()
        (0.5, 0.75)
    """

    _saved = ("_rng", "_x")

    def __init__(
        self,
        mu: float = 0.0,
        sigma: float = 0.3,
        theta: float = 0.15,
        dt: float = 1e-2,
        x0: float | Tensor | None = 0.0,
    ) -> None:
        self._rng = new_generator()
        self._mu = mu
        self.sigma = sigma
        self._theta = theta
        self._dt = dt
        self.x0 = x0

    def reset(self) -> None:
        """Set the process back to its initial value `x0`."""
        self._x = self._x0

    def __call__(self, shape: Sequence[int], device: str | torch.device = "cpu", mu: float | None = None) -> Tensor:
        """Return the next value of the process; `mu` replaces the long-term mean for this step."""
        if not isinstance(self._x, Tensor) or self._x.shape != tuple(shape):
            start = self._x0 if self._x0 is not None else 0.0
            self._x = torch.zeros(tuple(shape), device=device) + start
        x = self._x.to(device)
        mean = self._mu if mu is None else mu
        drift = self._theta * (mean - x) * self._dt
        self._x = x + drift + self._sigma * math.sqrt(self._dt) * draw_normal(self._rng, x.shape, like=x)
        return self._x

    @property
    def x0(self) -> float | Tensor | None:
        """The initial value of the process; setting it resets the process."""
        return self._x0

    @x0.setter
    def x0(self, value: float | Tensor | None) -> None:
        self._x0 = value
        self.reset()


_NOISES: dict[str, Callable[..., BaseNoise]] = {"gauss": GaussianNoise, "ou": OUNoise}


def create_noise_generator(noise_type: str, noise_kwargs: Mapping[str, Any]) -> BaseNoise:
    """Create the noise `noise_type` ('gauss' or 'ou').

    Raises:
        KeyError: `noise_type` is unknown.
    """
    if noise_type not in _NOISES:
        raise KeyError(f"noise type {noise_type!r} is not known; use one of {', '.join(sorted(_NOISES))}")
    return _NOISES[noise_type](**noise_kwargs)
