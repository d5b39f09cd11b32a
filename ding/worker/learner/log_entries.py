"""Sorts the results of a policy by how they are logged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from ding.utils.data.samples import Kind, Samples


class LogEntries(NamedTuple):
    """The log of one iteration: numbers, groups of curves, and distributions, without tensors and numpy values."""

    scalar: dict[str, Any]
    scalars: dict[str, Any]
    histogram: dict[str, Any]


def take_priority_info(results: list[dict[str, Any]], data: Any) -> dict[str, Any]:
    """Pop the priorities from the last of `results`; return them with the ids of their items, {} if missing."""
    priority = results[-1].pop("priority", None) if results else None
    if priority is None:
        return {}
    columns = data.columns if isinstance(data, Samples) else None
    info = {"priority": priority}
    for key in ("replay_buffer_idx", "replay_unique_id"):
        if columns is None:
            info[key] = [item.get(key) for item in data]
        elif key not in columns:
            info[key] = [None] * len(data)
        else:
            column = columns[key]
            info[key] = column.values() if column.kind is Kind.OBJECT else column.items()
    return info


def sort_out(results: dict[str, Any]) -> LogEntries:
    """Sort `results` by key.

    A key that contains `[scalars]` or `[histogram]` is popped and logged as that kind, under the text after its last
    `]`. The other keys stay and are logged as scalars.
    """
    entries = LogEntries({}, {}, {})
    for key, value in list(results.items()):
        if "[scalars]" in key or "[histogram]" in key:
            kind = entries.scalars if "[scalars]" in key else entries.histogram
            kind[key.rpartition("]")[2]] = _plain(results.pop(key))
        else:
            entries.scalar[key] = value if type(value) is float else _plain(value)
    return entries


def refuse_nan(entries: Sequence[LogEntries], train_iter: int) -> None:
    """Check the scalars of consecutive iterations from `train_iter` on.

    Raises:
        FloatingPointError: a scalar is or contains NaN; the message names those of its iteration.
    """
    for offset, entry in enumerate(entries):
        found = []
        for key, value in entry.scalar.items():
            # NaN alone differs from itself; a float, the usual case, needs no call.
            if value != value if type(value) is float else _contains_nan(value):
                found.append(f"{key} = {value}")
        if found:
            raise FloatingPointError(
                f"{', '.join(found)} at train_iter {train_iter + offset}; look at the learning rate, and for NaN in "
                "the observations and rewards"
            )


def _plain(value: Any) -> Any:
    """Returns tensors and numpy values as Python numbers (if they have one element) or lists."""
    if isinstance(value, torch.Tensor):
        return value.item() if value.numel() == 1 else value.tolist()
    if isinstance(value, np.ndarray | np.generic):
        return value.item() if value.size == 1 else value.tolist()
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return value


def _contains_nan(value: Any) -> bool:
    if isinstance(value, float):
        return value != value
    if isinstance(value, dict):
        return any(map(_contains_nan, value.values()))
    return isinstance(value, list | tuple) and any(map(_contains_nan, value))
