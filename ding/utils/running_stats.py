"""Minibatches and running statistics of arrays and tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch


def split_data_generator(data: Mapping[str, Any], split_size: int, shuffle: bool = True) -> Iterator[dict[str, Any]]:
    """Yield `data` in batches of `split_size` rows, shuffled by numpy's global generator.

    The last batch is filled up with rows of the previous one. If there are fewer rows than `split_size`, there is one
    batch of all. The first entry that is neither None nor a list of strings determines the number of rows. Entries may
    be tensors, arrays, dicts of them, or lists of them; None, strings and lists of strings are passed on unchanged.

    Raises:
        AssertionError: `split_size` is below 1.
        TypeError: an entry is of another type.
        ValueError: no entry has rows.
    """
    if split_size < 1:
        raise AssertionError(f"split_size = {split_size!r} is not allowed; it must be at least 1")
    return _batches(data, split_size, shuffle)


def _batches(data: Mapping[str, Any], split_size: int, shuffle: bool) -> Iterator[dict[str, Any]]:
    rows = next((get_shape0(value) for value in data.values() if not _is_passed_through(value, text=False)), None)
    if rows is None:
        raise ValueError(f"data with the keys {', '.join(data)} has no entry with rows; add a tensor or an array")
    order = np.random.permutation(rows) if shuffle else np.arange(rows)
    for start in range(0, rows, split_size):
        start = max(0, min(start, rows - split_size))
        picked = order[start : start + split_size]
        yield {key: _pick(key, value, picked) for key, value in data.items()}


def _is_passed_through(value: Any, text: bool = True) -> bool:
    is_list_of_text = isinstance(value, list) and len(value) > 0 and isinstance(value[0], str)
    return value is None or is_list_of_text or (text and isinstance(value, str))


def _pick(key: str, value: Any, rows: np.ndarray) -> Any:
    if _is_passed_through(value):
        return value
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return value[rows]
    if isinstance(value, Mapping):
        return {sub: _pick(sub, leaf, rows) for sub, leaf in value.items()}
    if isinstance(value, list):
        return [_pick(key, part, rows) for part in value]
    raise TypeError(
        f"{key!r} of type {type(value).__name__} cannot be split; use tensors, arrays, dicts or lists of them"
    )


def get_shape0(data: Any) -> int:
    """Return the number of rows of the first leaf in nested dicts, lists and tree tensors: `shape[0]`, or the length.

    Raises:
        TypeError: the leaf has no length.
    """
    if isinstance(data, Mapping):
        return get_shape0(next(iter(data.values())))
    if isinstance(data, (list, tuple)):
        return get_shape0(data[0])
    if isinstance(data, (torch.Tensor, np.ndarray)):
        return int(data.shape[0])
    if callable(getattr(type(data), "json", None)):  # a tree of tensors, of DI-treetensor
        return get_shape0(data.json())
    return len(data)


class Moments(NamedTuple):
    """Mean and variance of `size` values."""

    mean: Any
    var: Any
    size: float


def merged(one: Moments, other: Moments) -> Moments:
    """Return the moments of the values of both, by the formula of Chan et al."""
    size = one.size + other.size
    delta = other.mean - one.mean
    squares = one.var * one.size + other.var * other.size + np.square(delta) * one.size * other.size / size
    return Moments(one.mean + delta * other.size / size, squares / size, size)


class RunningMeanStd:
    """Running mean and standard deviation, merged batch by batch by the formula of Chan et al.

    `mean` and `std` are numbers if `shape` is (), else float32 tensors on `device`.

    Args:
        epsilon: initial weight of mean 0 and variance 1.
        shape: shape of one row of a batch.
        device: device of `mean` and `std`.

    Example:
        >>> stats = RunningMeanStd(epsilon=0)
        >>> stats.update(np.array([1.0, 3.0]))
        >>> float(stats.mean)
        2.0
    """

    def __init__(self, epsilon: float = 1e-4, shape: tuple[int, ...] = (), device: str | torch.device = "cpu") -> None:
        self._epsilon = epsilon
        self._shape = shape
        self._device = device
        self.reset()

    def reset(self) -> None:
        """Reset to mean 0, variance 1 and weight `epsilon`."""
        self._mean: Any = np.zeros(self._shape, "float64") if self._shape else np.float64(0)
        self._var: Any = np.ones(self._shape, "float64") if self._shape else np.float64(1)
        self._count = self._epsilon

    @staticmethod
    def new_shape(obs_shape: Any, action_shape: Any, reward_shape: Any) -> tuple[Any, Any, Any]:
        """Return the shapes after normalization, which are the same."""
        return obs_shape, action_shape, reward_shape

    def update(self, x: np.ndarray) -> None:
        """Add the batch `x` [B, *shape]."""
        self.merge(np.mean(x, axis=0), np.var(x, axis=0), x.shape[0])

    def merge(self, mean: Any, var: Any, count: float) -> None:
        """Add a batch of `count` rows with this mean and variance."""
        self.moments = merged(self.moments, Moments(mean, var, count))

    @property
    def moments(self) -> Moments:
        """The mean, variance and number of rows, including `epsilon`; it may be set."""
        return Moments(self._mean, self._var, self._count)

    @moments.setter
    def moments(self, moments: Moments) -> None:
        self._mean, self._var, self._count = moments

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the moments as float64 tensors."""
        values = {"mean": self._mean, "var": self._var, "count": self._count}
        return {name: torch.as_tensor(value, dtype=torch.float64).clone() for name, value in values.items()}

    def load_state_dict(self, state_dict: Mapping[str, torch.Tensor]) -> None:
        """Restore a state that `state_dict` returned."""
        self._mean, self._var = (state_dict[name].cpu().numpy().copy()[()] for name in ("mean", "var"))
        self._count = float(state_dict["count"])

    @property
    def mean(self) -> Any:
        """The mean."""
        return self._value(self._mean)

    @property
    def std(self) -> Any:
        """The standard deviation: the square root of the variance, plus 1e-8."""
        return self._value(np.sqrt(self._var + 1e-8))

    def _value(self, value: Any) -> Any:
        return value if np.isscalar(value) else torch.as_tensor(value, dtype=torch.float32, device=self._device)
