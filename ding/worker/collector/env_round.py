"""Observations, rewards and actions of the envs of a round, as columns: copies that no env writes into."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import torch

from ding.envs.env_manager.block import (
    TERMINATED,
    TRUNCATED,
    BlockStep,
    BoolArray,
    end_code,
    is_done,
    stacked,
    wrong_info,
)
from ding.torch_utils.data_helper import WIDE_INTEGERS, to_tensor
from ding.utils.data.collate_fn import split_output
from ding.utils.data.nested import (
    has_nan,
    is_container,
    is_finite,
    is_mapping,
    leaves_by_path,
    map_tensors,
    rebuilt,
)
from ding.utils.data.samples import Column, IntArray, Kind, Node, map_node, node_rows, pack
from ding.utils.log_helper import in_one_line

_NUMBERS = (Kind.SCALAR, Kind.FLOAT, Kind.INT, Kind.BOOL)
_NOTHING = np.zeros(0, np.float32)
# The bytes of observations from which on it matters what holds them.
MANY_BYTES = 1 << 20


@dataclass(eq=False)
class Batch:
    """One field of the envs of a round, such as their observations.

    Attributes:
        env_ids: the envs, in order.
        node: their items as columns, see `ding.utils.data.samples`.
    """

    env_ids: list[int]
    node: Node

    @classmethod
    def copied(cls, env_ids: list[int], items: Sequence[Any]) -> Batch:
        """Return a batch of copies of `items`, one for each of the envs `env_ids`."""
        return cls(env_ids, stacked(items))

    @cached_property
    def rows(self) -> list[Any]:
        """The items one by one; arrays and tensors are views of the batch."""
        return node_rows(self.node)

    def stacked_input(self, as_float: bool = False, keep_integers: bool = False) -> Any:
        """Return arrays or tensors [E, *shape], in dicts if the items are dicts; None if the items do not stack.

        Args:
            as_float: convert to float32 tensors, as some policies are given them.
            keep_integers: with `as_float`, convert no integers except bytes.
        """
        stacked = _stacked(self.node)
        return stacked if stacked is None or not as_float else _converter(keep_integers)(stacked)

    def seen(self, as_float: bool = False, keep_integers: bool = False) -> dict[int, Any]:
        """Return the items by env in the form of `stacked_input`; those that do not stack are converted one by one."""
        rows = self.rows
        if as_float:
            tensors = self.stacked_input(as_float, keep_integers)
            convert = _converter(keep_integers)
            rows = [convert(item) for item in rows] if tensors is None else _tensor_rows(tensors, len(self.env_ids))
        return dict(zip(self.env_ids, rows, strict=True))

    def of_envs(self, env_ids: list[int]) -> Batch:
        """Return the batch of these envs, in this order."""
        if env_ids == self.env_ids:
            return self
        index = np.array([self.env_ids.index(env_id) for env_id in env_ids], np.int64)
        return Batch(env_ids, map_node(lambda column: column.take(index).compact(), self.node))

    def of_player(self, player: int) -> Batch:
        """Return one player's entries, where each item holds one for each player, by index.

        Raises:
            ValueError: an item holds nothing for this player.
        """
        node = self.node
        if type(node) is not Column:
            if player in node if is_mapping(node) else player < len(node):
                return Batch(self.env_ids, node[player])
        elif node.kind is not Kind.OBJECT and node.data.ndim > 1 and player < node.data.shape[1]:
            is_number = node.kind is Kind.ARRAY and not node.steps and node.data.ndim == 2
            return Batch(self.env_ids, Column(Kind.SCALAR if is_number else node.kind, node.data[:, player]))
        return Batch(self.env_ids, pack(entries_of(self.rows, player)))


@dataclass(eq=False)
class StackedOutput:
    """The output of a policy for a batch of envs, stacked.

    Attributes:
        columns: the entries of the outputs, as tensors [E, ...] or nested dicts and lists of them.
        env_ids: the envs, in order.
    """

    columns: dict[str, Any]
    env_ids: list[int]


@dataclass(eq=False)
class PlayerOutputs:
    """The outputs of the players' policies; that of an env is a list with one for each player, None if it rests."""

    players: Sequence[PolicyOutput]


# The outputs of policies in a round: by env, or in another form, see `by_env`.
PolicyOutput = Mapping[int, Any] | StackedOutput | PlayerOutputs


def by_env(output: PolicyOutput) -> Mapping[int, Any]:
    """Return the outputs by env; a dict made of another form is a new one at each call."""
    if isinstance(output, StackedOutput):
        return dict(zip(output.env_ids, split_output(output.columns), strict=True))
    if isinstance(output, PlayerOutputs):
        players = [by_env(of_player) for of_player in output.players]
        env_ids = dict.fromkeys(env_id for of_player in players for env_id in of_player)
        return {env_id: [of_player.get(env_id) for of_player in players] for env_id in env_ids}
    return output


class Steps:
    """The normal steps of a round.

    Args:
        step: what the envs returned.
        obs: the observations that the policy acted on.
        output: the policy's output, see `by_env`; it may hold further envs.
        next_obs: the observations that the envs returned.
        continues: whether what envs showed in mid-episode is what their last steps have returned.
        seconds: each env's share of the duration of the round.

    Attributes:
        env_ids, ids, dones, infos, codes, ends, any_ends, active, returns: as those of `BlockStep`.
        obs, output, next_obs, continues, seconds: as given.
        reward: what the envs returned, as columns.
        record: what a recorder keeps of the steps, see `TrajectoryRecorder.on_round`.
    """

    record: Any = None
    _player: int | None = None

    def __init__(
        self,
        step: BlockStep,
        obs: Batch,
        output: PolicyOutput,
        next_obs: Batch,
        continues: bool = True,
        seconds: float = 0.0,
    ) -> None:
        self._step = step
        self.env_ids, self.ids, self.ends, self.any_ends = step.env_ids, step.ids, step.ends, step.any_ends
        self.reward, self.dones, self.infos, self.codes = step.reward, step.dones, step.infos, step.codes
        self.active, self.returns = step.active, step.returns
        self.obs, self.output, self.next_obs, self.continues = obs, output, next_obs, continues
        self.seconds = seconds

    @property
    def rewards(self) -> Batch:
        """The rewards, env by env."""
        return Batch(self.env_ids, self.reward)

    def of_player(self, player: int, output: PolicyOutput) -> Steps:
        """Return the steps of one player.

        An episode ends for all players at once, whatever their own `done` is. For one whose info tells that it was
        terminated or truncated, it ends there.

        Raises:
            ValueError: an env returned nothing for this player.
            TypeError: the info of this player is not a dict.
        """
        steps = copy.copy(self)
        steps.obs, steps.output, steps.next_obs = self.obs.of_player(player), output, self.next_obs.of_player(player)
        steps.reward = self.rewards.of_player(player).node
        if not isinstance(self.dones, np.ndarray):
            steps.dones = [_field_of_player(done, player) for done in self.dones]
        steps.infos = entries_of(self.infos, player)
        codes: list[int] = []
        for info in steps.infos:
            try:
                codes.append(end_code(info))
            except TypeError as e:
                raise wrong_info(info, f"for player {player} env {self.env_ids[len(codes)]}") from e
        steps.codes = np.array(codes, np.uint8)
        is_early = ((steps.codes & (TERMINATED | TRUNCATED)) != 0) & ~self.ends
        if is_early.any():
            dones = zip(steps.dones, is_early.tolist(), strict=True)
            steps.ends, steps.any_ends = self.ends | is_early, True
            steps.dones = np.array([early or is_done(done) for done, early in dones])
        steps._player = player
        return steps

    def of_rows(self, rows: IntArray) -> Steps:
        """Return the steps of some of the envs."""
        steps = copy.copy(self)
        env_ids = [self.env_ids[row] for row in rows]
        steps._step = self._step.of_rows(rows.tolist())
        steps.env_ids, steps.ids, steps.ends, steps.active = env_ids, self.ids[rows], self.ends[rows], None
        steps.any_ends = bool(steps.ends.any())
        steps.obs, steps.next_obs = self.obs.of_envs(env_ids), self.next_obs.of_envs(env_ids)
        steps.reward, steps.codes = self.rewards.of_envs(env_ids).node, self.codes[rows]
        steps.infos = [self.infos[row] for row in rows]
        dones = self.dones
        steps.dones = dones[rows] if isinstance(dones, np.ndarray) else [dones[row] for row in rows]
        steps.record = None
        return steps

    def begun_by(self, obs: Sequence[Any], outputs: Sequence[Any], rewards: Sequence[Any]) -> Steps:
        """Return the steps with other observations, outputs and rewards: those of actions further back."""
        steps = copy.copy(self)
        steps.obs, steps.reward = Batch.copied(self.env_ids, obs), stacked(rewards)
        steps.output = dict(zip(self.env_ids, outputs, strict=True))
        return steps

    def with_infos(self, infos: Sequence[Any]) -> Steps:
        """Return the steps with other infos."""
        steps = copy.copy(self)
        steps.infos = infos
        return steps

    def timesteps(self) -> list[Any]:
        """Return the timesteps, with arrays that are copies; those of a player have the player's own fields."""
        player, dones, timesteps = self._player, self.dones, self._step.timesteps()
        if player is None:
            return timesteps
        dones = dones.tolist() if isinstance(dones, np.ndarray) else dones
        rows = zip(timesteps, self.next_obs.rows, self.rewards.rows, dones, self.infos, strict=True)
        own = []
        for step, obs, reward, done, info in rows:
            more = {name: _field_of_player(getattr(step, name), player) for name in step._fields[4:]}
            own.append(step._replace(obs=obs, reward=reward, done=done, info=info, **more))
        return own


class RoundBlock:
    """T rounds, one or more, of the same K envs.

    Attributes:
        steps: the rounds.
        ids: the envs, an array [K].
        any_ends: whether any episode has ended.
        ends: an array [T, K], which episodes have ended in which rounds.
        active: an array [T, K], which envs have made a step in which rounds; None for all.
    """

    def __init__(self, steps: Sequence[Steps]) -> None:
        self.steps = steps
        self.ids = steps[0].ids
        shape = len(steps), len(self.ids)
        self.any_ends = False
        self.active: BoolArray | None = None
        ends, active = [], []
        for each in steps:
            ends.append(each.ends)
            active.append(each.active)
            self.any_ends = self.any_ends or each.any_ends
        self.ends: BoolArray = np.concatenate(ends).reshape(shape)
        if np.ndarray in map(type, active):
            everyone = np.ones(len(self.ids), np.bool_)
            self.active = np.concatenate([everyone if mask is None else mask for mask in active]).reshape(shape)


class Ended(NamedTuple):
    """The episodes that ended in one or several rounds, P of them in the order of their ends.

    Attributes:
        rounds: the rounds.
        at: an array [P] of the numbers of their rounds among these.
        rows: an array [P] of their rows in these.
        ids, steps, seconds: arrays [P] of their envs, their numbers of steps, and their shares of the duration of the
            rounds that they took part in.
        pairs: see `pairs_of_same`: episodes of one env that have followed each other.
    """

    rounds: RoundBlock
    at: IntArray
    rows: IntArray
    ids: IntArray
    steps: IntArray
    seconds: np.ndarray
    pairs: tuple[IntArray, IntArray]

    @property
    def env_ids(self) -> list[int]:
        """Their envs."""
        env_ids: list[int] = self.ids.tolist()
        return env_ids

    @property
    def infos(self) -> list[Any]:
        """The infos of their last steps."""
        return [self.rounds.steps[at].infos[row] for at, row in zip(self.at.tolist(), self.rows.tolist(), strict=True)]

    @property
    def returns(self) -> np.ndarray | None:
        """An array [P] of their returns; None if only the infos have them."""
        rounds, nothing = self.rounds.steps, np.zeros(len(self.rounds.ids))
        lacking = [steps for steps in rounds if steps.any_ends and steps.returns is None]
        if lacking:
            return None
        known = np.concatenate([nothing if steps.returns is None else steps.returns for steps in rounds])
        returns: np.ndarray = known.reshape(len(rounds), -1)[self.at, self.rows]
        return returns


def pairs_of_same(ids: IntArray) -> tuple[IntArray, IntArray]:
    """Return the places of those with an equal one after them, and of these next ones.

    Example:
        >>> pairs_of_same(np.array([3, 5, 3, 3]))
        (array([0, 2]), array([2, 3]))
    """
    order = ids.argsort(kind="stable")
    is_same = ids[order[1:]] == ids[order[:-1]]
    return order[:-1][is_same], order[1:][is_same]


_OF_ALL_PLAYERS = (bool, np.generic, int, float, str, type(None))


def _field_of_player(field: Any, player: int) -> Any:
    """Return a field of a timestep, such as `info`, as one player sees it; single values belong to all players."""
    if isinstance(field, _OF_ALL_PLAYERS) or (isinstance(field, np.ndarray) and field.ndim == 0):
        return field
    return entry_of(field, player)


def entry_of(item: Any, player: int) -> Any:
    """Return what `item` holds for this player, see `entries_of`."""
    return entries_of([item], player)[0]


def entries_of(items: Iterable[Any], player: int) -> list[Any]:
    """Return what each item holds for this player, by index.

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


def _converter(keep_integers: bool) -> Callable[[Any], Any]:
    return _float_tensors if keep_integers else partial(to_tensor, dtype=torch.float32)


def _stacked(node: Node) -> Any:
    if type(node) is Column:
        if node.kind is Kind.OBJECT or node.steps:
            return None
        return torch.from_numpy(node.data) if node.kind is Kind.TENSOR else node.data
    parts = {key: _stacked(value) for key, value in node.items()} if is_mapping(node) else {"": None}
    return None if any(part is None for part in parts.values()) else parts


def _tensor_rows(tensors: Any, count: int) -> list[Any]:
    if not is_mapping(tensors):
        return list(tensors.unbind(0))
    columns = (_tensor_rows(part, count) for part in tensors.values())
    return [rebuilt(tensors, row) for row in zip(*columns, strict=True)]


def check_finite(env_ids: Sequence[int], step_of: Callable[[int], int], obs: Node, reward: Node = None) -> None:
    """Check that all numbers are finite in float32; in an action mask minus infinity is allowed.

    Args:
        step_of: returns the number of the step of an env's episode; 0 after a reset.

    Raises:
        FloatingPointError: an item holds a NaN or an infinity.
    """
    for what, node in (("the observation", obs), ("the reward", reward)):
        for row, path, leaf in () if node is None or are_finite([node]) else _not_finite(node):
            env_id = env_ids[row]
            raise FloatingPointError(
                f"{what}{path} of env {env_id} holds {not_finite_name(leaf)} at step {step_of(env_id)} of its episode: "
                f"{in_one_line(node_rows(node)[row])}"
            )


def are_finite(nodes: Sequence[Node]) -> bool:
    """Return whether all numbers are finite in float32; False also for nodes that only `check_finite` can judge."""
    floats = [_NOTHING]
    for node in nodes:
        if type(node) is not Column or node.kind is not Kind.ARRAY:
            return False
        if node.data.dtype == np.float32:
            floats.append(node.data)
        elif node.data.dtype.kind not in "iub":
            return False
    return bool(np.isfinite(np.concatenate(floats, axis=None)).all())


def is_finite_node(node: Node) -> bool:
    """Return whether `check_finite` would find nothing."""
    return are_finite([node]) or next(_not_finite(node), None) is None


def not_finite_name(leaf: Any) -> str:
    """Return the name of what is wrong with a leaf that is not finite."""
    return "NaN" if has_nan(leaf) else "inf (float32 ends at 3.4e38)"


def _not_finite(node: Node) -> Iterator[tuple[int, str, Any]]:
    """Yield (row, path within the item, leaf) of the leaves that are not finite."""
    for path, column in leaves_by_path(node):
        if column.kind is not Kind.OBJECT and is_finite(column.data):
            continue
        for row, item in enumerate(column.data):
            for at, leaf in leaves_by_path(item, path):
                is_mask = at.endswith("['action_mask']")  # it may be added to logits
                if not is_finite(leaf) and not (is_mask and bool((torch.as_tensor(leaf) < math.inf).all())):
                    yield row, at, leaf


def as_tensor(value: Any) -> Any:
    """Convert arrays to tensors by `to_tensor`, but leave scalars; there is a shortcut for tensors."""
    return value if type(value) is torch.Tensor else to_tensor(value, transform_scalar=False)


def tensorised(node: Node) -> Node:
    """Return the node with tensors for its arrays, as `to_tensor` makes them; float64 becomes float32."""
    if is_mapping(node):
        return {key: tensorised(value) for key, value in node.items()}
    if type(node) is Column:
        if node.kind is Kind.ARRAY:
            data = node.data.astype(np.float32) if node.data.dtype == np.float64 else node.data
            return Column(Kind.TENSOR, data, None, node.steps)
        if node.kind is Kind.TENSOR or (node.kind in _NUMBERS and not node.steps):
            return node
    return pack([as_tensor(item) for item in node_rows(node)])


def is_same(item: Any, other: Any) -> bool:
    """Return whether two observations have the same content."""
    if is_mapping(item) and is_mapping(other):
        return item.keys() == other.keys() and all(is_same(item[key], other[key]) for key in item)
    if is_container(item) or is_container(other):
        is_alike = is_container(item) and is_container(other) and not (is_mapping(item) or is_mapping(other))
        return is_alike and len(item) == len(other) and all(map(is_same, item, other))
    if isinstance(item, np.ndarray) and isinstance(other, np.ndarray) and item.dtype == other.dtype == object:
        return item.shape == other.shape and all(map(is_same, item.flat, other.flat))
    numbers = np.ndarray | torch.Tensor | np.generic | int | float
    if isinstance(item, numbers) or isinstance(other, numbers):
        return np.array_equal(np.asarray(item), np.asarray(other))
    return bool(item == other)


def _float_tensors(item: Any) -> Any:
    """Return `item` as float32 tensors, except for integers other than bytes, which an embedding may look up."""
    return map_tensors(lambda tensor: tensor if tensor.dtype in WIDE_INTEGERS else tensor.float(), to_tensor(item))
