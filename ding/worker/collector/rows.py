"""Per-env copies of what envs returned, as items, as one batch, and as tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from ding.utils.data.env_batch import LazyEnvBatch
from ding.worker.collector.stacking import as_tensor, is_array, stack_arrays, stack_rows, tensor_rows


class Rows(LazyEnvBatch):
    """Copies of what envs returned: `{env_id: item}`, and the items as tensors.

    Attributes:
        env_ids: the keys, in order.
        parts: where each item is a list or tuple of arrays or dicts, their first elements, their second ones, ...;
            such items are not stacked themselves. Else ().
    """

    __slots__ = ("_players", "_sources", "_tensors", "env_ids", "parts")

    def __init__(self, env_ids: list[int], stacked: Any, split: Callable[[Any], Iterable[Any]]) -> None:
        # What the base class does; some four of these are made in each round, and calling it costs a quarter more.
        dict.__init__(self, dict.fromkeys(env_ids))
        self.stacked = stacked
        self._split = split
        self.env_ids = env_ids
        self.parts: tuple[Rows, ...] = ()
        self._sources: list[tuple[Rows, int]] | None = None
        self._tensors: Sequence[Any] | None = None
        self._players: dict[int, Rows] | None = None

    @classmethod
    def copied(cls, env_ids: list[int], items: Sequence[Any]) -> Rows:
        """Copies of `items`, those of the envs `env_ids`."""
        if is_array(items[0]):
            batch = stack_arrays(items)
            if batch is not None:
                return cls(env_ids, batch, list)
        elif _have_parts(items):
            parts = tuple(cls.copied(env_ids, column) for column in zip(*items, strict=True))
            make = type(items[0])
            rows = cls(env_ids, None, lambda _: map(make, zip(*(part.values() for part in parts), strict=True)))
            rows.parts = parts
            return rows
        copies, stacked = stack_rows(items)
        return cls(env_ids, stacked, lambda _: copies)

    @classmethod
    def gathered(cls, env_ids: list[int], sources: list[tuple[Rows, int]], stacked: Any = None) -> Rows:
        """The very items and tensors that are the rows `sources` of others; `stacked` may hold them once more."""
        rows = cls(env_ids, stacked, lambda _: [source[source.env_ids[row]] for source, row in sources])
        rows._sources = sources
        return rows

    def of_envs(self, env_ids: list[int]) -> Rows:
        """Those of these envs, in this order."""
        if env_ids == self.env_ids:
            return self
        return Rows.gathered(env_ids, [(self, self.env_ids.index(env_id)) for env_id in env_ids])

    def of_player(self, player: int) -> Rows:
        """What is one player's, where each item holds something for each player, by index; the same at each call.

        Raises:
            ValueError: an item holds nothing for this player.
        """
        if self.parts and player < len(self.parts):
            return self.parts[player]
        if self._players is None:
            self._players = {}
        rows = self._players.get(player)
        if rows is None:
            rows = self._players[player] = self._cut(player)
        return rows

    def _cut(self, player: int) -> Rows:
        if self._sources is not None:
            rows = Rows.gathered(self.env_ids, [(source.of_player(player), row) for source, row in self._sources])
            if isinstance(self.stacked, np.ndarray | torch.Tensor):
                rows.stacked = self.stacked[:, player]
            return rows
        stacked = self.stacked
        if isinstance(stacked, np.ndarray | torch.Tensor) and stacked.ndim > 1 and player < stacked.shape[1]:
            return Rows(self.env_ids, stacked[:, player], list)
        items = entries_of(self.values(), player)
        return Rows(self.env_ids, None, lambda _: items)

    def stack(self) -> Rows:
        """Fill in `stacked`, with copies of the items, where they can be stacked; returns these rows."""
        if self.stacked is None and not self.parts:
            self.stacked = stack_rows(list(self.values()))[1]
        return self

    def tensors(self) -> Sequence[Any]:
        """The items as tensors, in order, the same at each call: float64 becomes float32, the rest shares memory."""
        if self._tensors is None:
            if self._sources is not None:
                self._tensors = [(source._tensors or source.tensors())[row] for source, row in self._sources]
            elif type(self.stacked) is np.ndarray and self.stacked.ndim > 1:
                self._tensors = tensor_rows(self.stacked)
            else:
                self._tensors = [as_tensor(item) for item in self.values()]
        return self._tensors


def _have_parts(items: Sequence[Any]) -> bool:
    """Whether the items are alike lists (or tuples) of arrays, tensors or dicts."""
    first = items[0]
    return (
        type(first) in (list, tuple)
        and bool(first)
        and all(type(x) is type(first) and len(x) == len(first) for x in items)
        and all(isinstance(part, np.ndarray | torch.Tensor | dict) for part in first)
    )


def entry_of(item: Any, player: int) -> Any:
    """What `item` holds for this player, see `entries_of`."""
    return entries_of([item], player)[0]


def entries_of(items: Iterable[Any], player: int) -> list[Any]:
    """What each item holds for this player, by index.

    Raises:
        ValueError: an item holds nothing for this player.
    """
    items = list(items)
    try:
        return [item[player] for item in items]
    except (IndexError, KeyError, TypeError) as e:
        raise ValueError(
            f"an env returned nothing for player {player} in one of {items!r}; obs, reward and info must hold one "
            "entry for each policy"
        ) from e
