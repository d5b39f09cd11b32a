"""Observations, rewards and actions of the envs of a round, as columns: copies that no env writes into."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
import torch

from ding.torch_utils.data_helper import WIDE_INTEGERS, to_tensor
from ding.utils.data.env_batch import EnvBatch
from ding.utils.data.samples import Column, Kind, Node, map_node, pack

_INFO = attrgetter("info")
_NUMBERS = (Kind.SCALAR, Kind.FLOAT, Kind.INT, Kind.BOOL)


class Batch:
    """One field of the envs of a round, such as their observations.

    Attributes:
        env_ids: the envs, in order.
        node: their items as columns, see `ding.utils.data.samples`.
    """

    __slots__ = ("_players", "_rows", "env_ids", "node")

    def __init__(self, env_ids: list[int], node: Node) -> None:
        self.env_ids = env_ids
        self.node = node
        self._rows: list[Any] | None = None
        self._players: dict[int, Batch] = {}

    @classmethod
    def copied(cls, env_ids: list[int], items: Sequence[Any]) -> Batch:
        """Copies of `items`, those of the envs `env_ids`."""
        first = items[0]
        if type(first) is np.ndarray and first.dtype.kind in "biufc":  # what `pack` does, at a third of its cost
            try:
                data = np.array(items)
            except ValueError:  # ragged shapes
                data = first
            if data.dtype == first.dtype and data.ndim == first.ndim + 1:
                return cls(env_ids, Column(Kind.ARRAY, data))
        return cls(env_ids, map_node(_owned, pack(list(items))))

    @property
    def stacked(self) -> Any:
        """Arrays or tensors [E, *shape], in dicts where the items are dicts; None where items do not stack."""
        return _stacked(self.node)

    @property
    def rows(self) -> list[Any]:
        """The items one by one; arrays and tensors are views of the batch."""
        if self._rows is None:
            self._rows = node_rows(self.node)
        return self._rows

    def seen(self, as_float: bool = False, keep_integers: bool = False) -> EnvBatch:
        """The input of a policy: the items unchanged, or as float32 tensors, but for integers that are no bytes."""
        stacked = _stacked(self.node)
        if not as_float:
            return EnvBatch(self.env_ids, lambda: self.rows, stacked)
        convert = _float_tensors if keep_integers else partial(to_tensor, dtype=torch.float32)
        if stacked is None:
            return EnvBatch(self.env_ids, lambda: [convert(item) for item in self.rows])
        tensors = convert(stacked)
        return EnvBatch(self.env_ids, partial(_tensor_rows, tensors, len(self.env_ids)), tensors)

    def of_envs(self, env_ids: list[int]) -> Batch:
        """Those of these envs, in this order."""
        index = np.array([self.env_ids.index(env_id) for env_id in env_ids])
        return Batch(env_ids, map_node(lambda column: column.take(index).compact(), self.node))

    def of_player(self, player: int) -> Batch:
        """The entries of one player, if each item holds one for each player, by index; the same batch at each call.

        Raises:
            ValueError: an item holds nothing for this player.
        """
        batch = self._players.get(player)
        if batch is None:
            batch = self._players[player] = Batch(self.env_ids, _player_node(self, player))
        return batch

    def refuse_nan(self, what: str) -> None:
        """Check the batch; `what` it is goes into the message.

        Raises:
            FloatingPointError: an item holds a NaN.
        """
        node = self.node
        if type(node) is Column and node.kind is Kind.ARRAY and (node.data.dtype.kind != "f" or not has_nan(node.data)):
            return
        found = _nan_place(node)
        if found is not None:
            row, path = found
            raise FloatingPointError(f"{what}{path} of env {self.env_ids[row]} holds NaN: {self.rows[row]!r}")


class Steps:
    """The normal steps of a round. Timesteps are named tuples whose first two fields are `obs` and `reward`.

    Attributes:
        env_ids: the envs that stepped.
        raw: their timesteps as the envs returned them.
        obs: the observations that the policy acted on.
        output: the policy's output by env; it may hold further envs.
        next_obs, rewards: copies of those in the timesteps.
        ends: whether the episode of each env has ended.
    """

    __slots__ = ("_dones", "_player", "ends", "env_ids", "next_obs", "obs", "output", "raw", "rewards")

    def __init__(self, timesteps: Mapping[int, Any], obs: Batch, output: Mapping[int, Any]) -> None:
        self.env_ids = obs.env_ids
        self.raw = list(timesteps.values())
        self.obs = obs
        self.output = output
        self.next_obs = Batch.copied(self.env_ids, [step.obs for step in self.raw])
        self.rewards = Batch.copied(self.env_ids, [step.reward for step in self.raw])
        self._dones = [step.done for step in self.raw]
        self.ends = [done is not False and _is_end(done) for done in self._dones]
        self._player: int | None = None

    def of_player(self, player: int, output: Mapping[int, Any]) -> Steps:
        """The steps of one player; an episode ends for all players at once, whatever their own `done` is.

        Raises:
            ValueError: an env returned nothing for this player.
        """
        steps = copy.copy(self)
        steps.obs, steps.output = self.obs.of_player(player), output
        steps.next_obs, steps.rewards = self.next_obs.of_player(player), self.rewards.of_player(player)
        steps._player = player
        return steps

    def dones(self) -> list[Any]:
        """The field `done` of the timesteps."""
        dones, player = self._dones, self._player
        return dones if player is None else [_field_of_player(done, player) for done in dones]

    def infos(self) -> list[Any]:
        """The field `info` of the timesteps."""
        infos = list(map(_INFO, self.raw))
        return infos if self._player is None else entries_of(infos, self._player)

    def timesteps(self) -> list[Any]:
        """The timesteps with `obs` and `reward` replaced by the copies; of a player, with its own fields."""
        rest = [step[2:] for step in self.raw]
        if self._player is not None:
            rest = [tuple(_field_of_player(field, self._player) for field in fields) for fields in rest]
        return [
            tuple.__new__(type(step), (obs, reward, *fields))  # what _replace does, at a third of its cost
            for step, obs, reward, fields in zip(self.raw, self.next_obs.rows, self.rewards.rows, rest, strict=True)
        ]


def is_done(timestep: Any) -> bool:
    """Whether the episode has ended; with a flag for each player, whether it has for all."""
    return _is_end(timestep.done)


def _is_end(done: Any) -> bool:
    return done if isinstance(done, bool) else bool(np.all(done))


_OF_ALL_PLAYERS = (bool, np.generic, int, float, str, type(None))


def _field_of_player(field: Any, player: int) -> Any:
    """A field of a timestep, such as `info`, as one player sees it: single values are those of all players."""
    if isinstance(field, _OF_ALL_PLAYERS) or (isinstance(field, np.ndarray) and field.ndim == 0):
        return field
    return entry_of(field, player)


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


def _player_node(batch: Batch, player: int) -> Node:
    node = batch.node
    if not isinstance(node, Column):
        is_there = player in node if isinstance(node, dict) else player < len(node)
        if is_there:
            return node[player]
    elif node.kind is not Kind.OBJECT and node.data.ndim > 1 and player < node.data.shape[1]:
        is_number = node.kind is Kind.ARRAY and not node.steps and node.data.ndim == 2
        return Column(Kind.SCALAR if is_number else node.kind, node.data[:, player])
    return pack(entries_of(batch.rows, player))


def _owned(column: Column) -> Column:
    """A column whose objects are copies."""
    return Column(Kind.OBJECT, copy.deepcopy(column.data)) if column.kind is Kind.OBJECT else column


def _stacked(node: Node) -> Any:
    if isinstance(node, Column):
        if node.kind is Kind.ARRAY and not node.steps:
            return node.data
        if node.kind is Kind.OBJECT or node.steps:
            return None
        return torch.from_numpy(node.data) if node.kind is Kind.TENSOR else node.data
    if not isinstance(node, dict):
        return None
    parts = {key: _stacked(value) for key, value in node.items()}
    return None if any(part is None for part in parts.values()) else parts


def _tensor_rows(tensors: Any, count: int) -> list[Any]:
    if isinstance(tensors, dict):
        columns = {key: _tensor_rows(value, count) for key, value in tensors.items()}
        return [{key: column[i] for key, column in columns.items()} for i in range(count)]
    return list(tensors.unbind(0))


def _nan_place(node: Node, path: str = "") -> tuple[int, str] | None:
    """(row, path within the item) of a NaN; None if there is none."""
    if isinstance(node, Column):
        if node.kind is Kind.OBJECT:
            for row, item in enumerate(node.data):
                one = pack([item])
                found = None if isinstance(one, Column) and one.kind is Kind.OBJECT else _nan_place(one, path)
                if found is not None:
                    return row, found[1]
        elif node.data.dtype.kind == "f" and has_nan(node.data):
            rows = np.isnan(node.data.reshape(len(node.data), -1)).any(axis=1)
            return int(rows.argmax()), path
        return None
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        found = _nan_place(value, f"{path}[{key!r}]")
        if found is not None:
            return found
    return None


def has_nan(array: np.ndarray) -> bool:
    """Whether an array of floats holds a NaN."""
    # A sum of squares is NaN exactly when an element is: squares never cancel, infinite ones included.
    flat = array.reshape(-1)
    return math.isnan(flat.dot(flat))


def as_tensor(value: Any) -> Any:
    """`to_tensor` without scalars, with a shortcut for tensors."""
    return value if type(value) is torch.Tensor else to_tensor(value, transform_scalar=False)


def tensorised(node: Node) -> Node:
    """What `to_tensor` makes of each item, numbers excepted: arrays become tensors, those of float64 of float32."""
    if isinstance(node, dict):
        return {key: tensorised(value) for key, value in node.items()}
    if isinstance(node, Column):
        if node.kind is Kind.ARRAY:
            data = node.data.astype(np.float32) if node.data.dtype == np.float64 else node.data
            return Column(Kind.TENSOR, data, None, node.steps)
        if node.kind is Kind.TENSOR or (node.kind in _NUMBERS and not node.steps):
            return node
    return pack([as_tensor(item) for item in node_rows(node)])


def is_same(item: Any, other: Any) -> bool:
    """Whether two observations have the same content."""
    if isinstance(item, Mapping) and isinstance(other, Mapping):
        return item.keys() == other.keys() and all(is_same(item[key], other[key]) for key in item)
    if isinstance(item, list | tuple) and isinstance(other, list | tuple):
        return len(item) == len(other) and all(map(is_same, item, other))
    if isinstance(item, Mapping | list | tuple) or isinstance(other, Mapping | list | tuple):
        return False
    if isinstance(item, np.ndarray | torch.Tensor | np.generic | int | float):
        return np.array_equal(np.asarray(item), np.asarray(other))
    return bool(item == other)


def _float_tensors(item: Any) -> Any:
    """`item` as tensors of float32, but for integers that are no bytes: a model may look these up in an embedding."""
    return _map_tensors(to_tensor(item), lambda tensor: tensor if tensor.dtype in WIDE_INTEGERS else tensor.float())


def _map_tensors(item: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(item, torch.Tensor):
        return function(item)
    if isinstance(item, Mapping):
        return {key: _map_tensors(value, function) for key, value in item.items()}
    return [_map_tensors(value, function) for value in item] if isinstance(item, list | tuple) else item
