"""Results of env managers: blocks of columns for the rollout, and stacked trees of the V2 managers.

A manager of this package has `version`, `ready_block` and `step_block` beside its documented methods. `DictBlocks`
defines the last two in terms of `ready_obs` and `step`; a manager that steps whole batches defines its own.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ding.envs.env.base_env import BaseEnvTimestep
from ding.utils.data.samples import Column, IntArray, Kind, Node, map_node, node_rows, pack
from ding.utils.default_helper import make_key_as_identifier, remove_illegal_item

if TYPE_CHECKING:
    from ding.envs.env_manager.normalization import Normalization

BoolArray = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.uint8]

# What the info of a step tells about the end of the episode, as the bits of a small number.
TERMINATED_TOLD, TERMINATED, TRUNCATED_TOLD, TRUNCATED = 1, 2, 4, 8
TOLD = TERMINATED_TOLD | TRUNCATED_TOLD

_BOOLS = {bool}


class Ready(NamedTuple):
    """Envs that wait for an action.

    Attributes:
        env_ids: their ids.
        ids: the same as an array [K].
        obs: their observations, K rows that nobody writes into.
        episodes: an array [K] of the numbers of their episodes; a reset begins another one.
    """

    env_ids: list[int]
    ids: IntArray
    obs: Node
    episodes: IntArray


NO_ENVS = Ready([], np.zeros(0, np.int64), Column(Kind.OBJECT, []), np.zeros(0, np.int64))


class InfoColumns(Sequence[dict[str, Any]]):
    """The infos of the K envs of a step; their dicts are made when they are accessed.

    Args:
        columns: `{key: array or list [K]}`; an entry of a one-dimensional array is a Python number in the info.
        rows_of: for some keys, a mask of the rows that have an entry; the others lack the key.
        rows: the rows of `columns` and `rows_of` that belong to the K envs; None for all in order.
    """

    def __init__(
        self,
        columns: Mapping[str, Any],
        count: int,
        rows_of: Mapping[str, BoolArray] | None = None,
        rows: IntArray | None = None,
    ) -> None:
        self._all = columns
        self._count = count
        self._rows_of = rows_of or {}
        self._rows = rows

    @property
    def columns(self) -> Mapping[str, Any]:
        """The columns `{key: array or list [K]}`."""
        return self._all if self._rows is None else _RowsOf(self._all, self._rows)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return [self[i] for i in range(*row.indices(self._count))]
        if not -self._count <= row < self._count:
            raise IndexError(row)
        at = row if self._rows is None else self._rows[row]
        return {
            key: _entry(values, at)
            for key, values in self._all.items()
            if key not in self._rows_of or self._rows_of[key][at]
        }


class _RowsOf(Mapping[str, Any]):
    """Some rows of columns, gathered for a column when it is accessed."""

    def __init__(self, columns: Mapping[str, Any], rows: IntArray) -> None:
        self._all, self._rows = columns, rows

    def __getitem__(self, key: str) -> Any:
        values = self._all[key]
        if isinstance(values, Mapping):
            return _RowsOf(values, self._rows)
        return values[self._rows] if isinstance(values, np.ndarray) else [values[row] for row in self._rows.tolist()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)


def _entry(values: Any, row: int) -> Any:
    if isinstance(values, Mapping):
        return {key: _entry(part, row) for key, part in values.items()}
    value = values[row]
    return value.item() if isinstance(value, np.generic) else value


class BlockStep:
    """The results of a step of K envs. The receiver owns the arrays: nobody else writes into them.

    Args:
        env_ids, ids: the envs that answered, as a list and as an array [K].
        obs: the returned observations, K rows; of terminal steps the terminal ones.
        reward: the rewards, K rows.
        dones: the `done` of each: an array [K] of bools, or a list of flags or arrays (a flag for each player).
        infos: the infos.
        ready: the envs after the step, if all that were acted in have answered and wait for an action again; else None,
            and `ready_block` has to be called.
        raw: the timesteps as envs returned them, if there are any.
        codes: the end flags of the infos, an array [K]; see `end_code`.

    Attributes:
        ends: an array [K] of bools, whether each episode has ended.
        any_ends: whether any episode has ended.
    """

    __slots__ = ("any_ends", "codes", "dones", "ends", "env_ids", "ids", "infos", "obs", "raw", "ready", "reward")

    def __init__(
        self,
        env_ids: list[int],
        ids: IntArray,
        obs: Node,
        reward: Node,
        dones: BoolArray | list[Any],
        infos: Sequence[Any],
        ready: Ready | None,
        raw: list[Any] | None,
        codes: Codes,
    ) -> None:
        self.env_ids, self.ids = env_ids, ids
        self.obs, self.reward, self.dones, self.infos = obs, reward, dones, infos
        self.ready, self.raw, self.codes = ready, raw, codes
        if isinstance(dones, np.ndarray):
            self.ends = dones
            self.any_ends = bool(np.count_nonzero(dones))
        else:
            ends = list(map(is_done, dones))
            self.ends, self.any_ends = np.array(ends, np.bool_), True in ends

    def abnormal_rows(self) -> list[int]:
        """Return the rows of the envs that flag their step as invalid."""
        infos = self.infos
        if isinstance(infos, InfoColumns):
            if "abnormal" not in infos._all:
                return []
            infos = list(infos)
        rows = []
        for row, info in enumerate(infos):  # most need no call
            if (type(info) is not dict or "abnormal" in info) and is_abnormal(info):
                rows.append(row)
        return rows

    def of_rows(self, rows: Sequence[int]) -> BlockStep:
        """Return the step of some of the envs."""
        index = np.array(rows, np.int64)

        def part(node: Node) -> Node:
            return map_node(_repacked if len(index) else Column.compact, map_node(lambda c: c.take(index), node))

        return BlockStep(
            [self.env_ids[row] for row in rows],
            self.ids[index],
            part(self.obs),
            part(self.reward),
            self.dones[index] if isinstance(self.dones, np.ndarray) else [self.dones[row] for row in rows],
            [self.infos[row] for row in rows],
            None,
            None if self.raw is None else [self.raw[row] for row in rows],
            self.codes[index],
        )

    def timesteps(self) -> list[Any]:
        """Return a list of timesteps, of the class that the envs use, with the rows of `obs` and `reward`."""
        pairs = zip(node_rows(self.obs), node_rows(self.reward), strict=True)
        if self.raw is not None:
            # Obs and reward are the first two fields of a timestep. This is `_replace` at a third of its cost.
            return [
                tuple.__new__(type(step), (obs, reward, *step[2:]))
                for step, (obs, reward) in zip(self.raw, pairs, strict=True)
            ]
        dones = self.dones.tolist() if isinstance(self.dones, np.ndarray) else self.dones
        return [BaseEnvTimestep(*pair, done, info) for pair, done, info in zip(pairs, dones, self.infos, strict=True)]


def no_step() -> BlockStep:
    """Return a step without envs."""
    empty = Column(Kind.OBJECT, [])
    return BlockStep([], NO_ENVS.ids, empty, empty, [], [], None, [], np.zeros(0, np.uint8))


def _repacked(column: Column) -> Node:
    """Return the same rows repacked: objects that are alike without those of other envs become one array."""
    return pack(column.items()) if column.kind is Kind.OBJECT else column.compact()


def end_code(info: Any) -> int:
    """Return the flags `terminated` and `truncated` of an info, and whether it has them, as one small number."""
    code = 0
    if "terminated" in info:
        code = TERMINATED_TOLD | TERMINATED if info["terminated"] else TERMINATED_TOLD
    if "truncated" in info:
        code |= TRUNCATED_TOLD | TRUNCATED if info["truncated"] else TRUNCATED_TOLD
    return code


def wrong_info(info: Any, where: str) -> TypeError:
    """Return the error for an info of the wrong type; `where` names the env."""
    return TypeError(
        f"{where} returned info = {info!r:.200} of type {type(info).__name__}; it must be a dict, which may be empty "
        "until the episode ends, or, for several players, a list with a dict for each"
    )


def end_codes(terminated: BoolArray, truncated: BoolArray) -> Codes:
    """Return the codes [K] of steps that report both flags."""
    codes: Codes = TOLD + TERMINATED * terminated.view(np.uint8)
    if np.count_nonzero(truncated):
        codes += TRUNCATED * truncated.view(np.uint8)
    return codes


def is_done(done: Any) -> bool:
    """Return whether the `done` of a timestep, a flag or an array with one for each player, ends the episode."""
    return done is True or (done is not False and bool(np.all(done)))


def is_abnormal(info: Any) -> bool:
    """Return whether the env flags its step as invalid by `info['abnormal']`, or by that of any player."""
    if isinstance(info, (dict, Mapping)):  # the check for dict alone is quick
        return bool(info.get("abnormal", False))
    return any(isinstance(player, Mapping) and player.get("abnormal", False) for player in info or ())


def stacked(items: Sequence[Any]) -> Node:
    """Copy `items`, one or more, into columns."""
    first = items[0]
    if type(first) is np.ndarray and first.dtype.kind in "biufc":  # what `pack` does, at a third of its cost
        try:
            data = np.array(items)
        except ValueError:  # ragged shapes
            data = first
        if data.dtype == first.dtype and data.ndim == first.ndim + 1:
            return Column(Kind.ARRAY, data)
    return map_node(_owned, pack(list(items)))


def _owned(column: Column) -> Column:
    """Return a column whose objects are copies."""
    return Column(Kind.OBJECT, copy.deepcopy(column.data)) if column.kind is Kind.OBJECT else column


class DictBlocks:
    """Mixin that defines `ready_block` and `step_block` of a manager by its documented `ready_obs` and `step`.

    Attributes:
        moves: an array [E], how often each env was reset or sent an action since the manager was made. It reveals what
            other callers did: if the number of an env is unexpected, it was reset if its episode number is, too;
            otherwise it was stepped.
        normalization: what rollouts normalize the observations and rewards of the envs by; None for nothing.
    """

    moves: IntArray
    normalization: Normalization | None = None

    if TYPE_CHECKING:

        @property
        def ready_obs(self) -> Any: ...

        def step(self, actions: Any) -> Any: ...

    def episodes_of(self, env_ids: Sequence[int]) -> IntArray:
        """Return the numbers of the episodes that these envs are in."""
        raise NotImplementedError

    def wait_another(self) -> bool:
        """Wait until another env is ready; return False at once if none will be."""
        return False

    def ready_block(self, env_ids: Sequence[int] | None = None) -> Ready:
        """Return the envs that wait for an action, or those of `env_ids` that do."""
        return self.ready_of(self.ready_obs, env_ids)

    def ready_of(self, ready_obs: Mapping[int, Any], env_ids: Sequence[int] | None = None) -> Ready:
        """Copy these observations of envs that wait for an action, or those of `env_ids`, into a block."""
        if env_ids is not None:
            ready_obs = {env_id: ready_obs[env_id] for env_id in env_ids if env_id in ready_obs}
        ids = list(ready_obs)
        obs = stacked(list(ready_obs.values())) if ids else Column(Kind.OBJECT, [])
        return Ready(ids, np.array(ids, np.int64), obs, self.episodes_of(ids))

    def step_block(self, actions: Sequence[Any], env_ids: list[int]) -> BlockStep:
        """Act in the envs `env_ids`, and return the step of those that have answered, which may be others.

        Args:
            actions: one for each env: a list or an array [K, ...] whose rows the envs may keep.
        """
        return self.block_of(self.step(dict(zip(env_ids, actions, strict=True))), env_ids)

    def block_of(self, timesteps: Mapping[int, Any], env_ids: list[int]) -> BlockStep:
        """Convert timesteps to a block.

        Args:
            env_ids: the envs that were acted in.

        Raises:
            TypeError: an info is neither a dict nor a list of them.
        """
        answered, raw = list(timesteps), list(timesteps.values())
        if not raw:
            return no_step()
        obs, rewards, dones, infos, codes = [], [], [], [], []
        for timestep in raw:
            obs.append(timestep.obs)
            rewards.append(timestep.reward)
            dones.append(timestep.done)
            info = timestep.info
            infos.append(info)
            # Most steps of most envs need no call.
            is_usual = type(info) is dict and info.get("terminated") is False and info.get("truncated") is False
            try:
                codes.append(TOLD if is_usual else end_code(info))
            except TypeError as e:
                raise wrong_info(info, f"env {answered[len(codes)]}") from e
        step = BlockStep(
            answered,
            np.array(answered, np.int64),
            stacked(obs),
            stacked(rewards),
            np.frombuffer(bytearray(dones), np.bool_) if set(map(type, dones)) == _BOOLS else dones,
            infos,
            None,
            raw,
            np.frombuffer(bytearray(codes), np.uint8),
        )
        if answered == env_ids:
            step.ready = self._ready_after(step)
        return step

    def _ready_after(self, step: BlockStep) -> Ready | None:
        """Return the ready envs after a step that all envs have answered."""
        env_ids = step.env_ids
        if not step.any_ends:
            return Ready(env_ids, step.ids, step.obs, self.episodes_of(env_ids))
        ready = self.ready_block()
        return ready if ready.env_ids == env_ids else None


def overrides_dicts(env: Any) -> bool:
    """Return whether an instance, or a subclass of the class with `step_block`, overrides `step` or `ready_obs`."""
    if "step" in vars(env):
        return True
    for cls in type(env).__mro__:
        if "step_block" in vars(cls):
            return False
        if "step" in vars(cls) or "ready_obs" in vars(cls):
            return True
    return True


class Tree(dict[str, Any]):
    """A dict of arrays and further such dicts, whose keys are also attributes.

    Example:
        >>> tree = Tree(obs=Tree(image=np.zeros(2)), done=np.array(True))
        >>> tree.obs.image.shape, tree["done"].item()
        ((2,), True)
    """

    def __getattr__(self, key: str) -> Any:
        try:
            return self[key]
        except KeyError:
            raise AttributeError(f"this tree has no {key!r}, only {sorted(self)}") from None


class StackedFormat:
    """Mixin before a manager class that stacks what comes from the envs and splits what goes to them.

    A tree is a `treetensor.numpy` array where DI-treetensor is installed, else a `Tree`.
    """

    _served: list[int] | None = None  # whose observations were read last, in order

    @property
    def ready_obs(self) -> Any:
        """The observations of the envs that wait for an action, stacked: [E, *obs_shape], or a tree of such arrays.

        Raises:
            IndexError: no env waits for an action.
        """
        obs = super().ready_obs  # type: ignore[misc]
        self._served = list(obs)
        if not obs:
            raise IndexError(
                "no env waits for an action: the manager is closed, or its envs have played their episodes"
            )
        return _stack(list(obs.values()))

    def reset(self, reset_param: Mapping[int, dict[str, Any] | None] | None = None) -> None:
        """Begin a new episode in all envs, or in those of `reset_param`; see `BaseEnvManager.reset`."""
        self._served = None
        super().reset(reset_param)  # type: ignore[misc]

    def step(self, actions: Any) -> Any:
        """Act in the envs whose observations `ready_obs` showed last, and return a list with a tree for each.

        Args:
            actions: one for each of these envs, in order: in a list, or stacked along the first axis of an array, a
                tensor or a dict of them. `{env_id: action}` acts in the named envs only.

        Returns:
            Trees of `obs`, `reward`, `done`, `info` and `env_id`, in the order of the actions. In `info`, keys are
            converted to identifiers, and strings are left out.

        Raises:
            ValueError: there are more or fewer actions than envs.
        """
        served = super().ready_obs_id if self._served is None else self._served  # type: ignore[misc]
        chosen = self._by_env(actions, served)
        timesteps = super().step(chosen)  # type: ignore[misc]
        self._served = None
        return [_as_tree(env_id, timestep) for env_id, timestep in timesteps.items()]

    def _by_env(self, actions: Any, env_ids: list[int]) -> dict[int, Any]:
        if isinstance(actions, Mapping) and all(isinstance(key, (int, np.integer)) for key in actions):
            return {int(env_id): action for env_id, action in actions.items()}
        rows = _rows(actions)
        if len(rows) != len(env_ids):
            raise ValueError(f"{len(rows)} actions were given for the {len(env_ids)} envs {env_ids}")
        return dict(zip(env_ids, rows, strict=True))


def _rows(actions: Any) -> list[Any]:
    if hasattr(actions, "json"):  # a tree of treetensor
        actions = actions.json()
    if isinstance(actions, Mapping):
        columns = {key: _rows(value) for key, value in actions.items()}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if not isinstance(actions, Iterable):
        raise ValueError(f"actions = {actions!r} are not one for each env")
    return list(actions)


def _stack(items: list[Any]) -> Any:
    first = items[0]
    if isinstance(first, Mapping):
        return _tree({key: _stack([item[key] for item in items]) for key in first})
    return np.array(items)


def _as_tree(env_id: int, timestep: Any) -> Any:
    info = timestep.info
    return _tree(
        {
            "obs": timestep.obs,
            "reward": timestep.reward,
            "done": timestep.done,
            "info": _legible(info) if isinstance(info, Mapping) else info,
            "env_id": env_id,
        }
    )


def _legible(info: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the info without strings, under keys that can be attributes."""
    return {
        _identifier(str(key)): _legible(value) if isinstance(value, (dict, Mapping)) else value
        for key, value in remove_illegal_item(info).items()
    }


@lru_cache(maxsize=1024)
def _identifier(key: str) -> str:
    return next(iter(make_key_as_identifier({key: None})))


def _tree(data: dict[str, Any]) -> Any:
    trees = _treetensor()
    return _nested(data, Tree) if trees is None else trees.array(_nested(data, dict))


def _nested(data: Mapping[str, Any], make: Callable[[dict[str, Any]], Any]) -> Any:
    """Return the dict as a tree with an array at every leaf; the check for an array comes first, since most are one."""
    return make(
        {
            key: value
            if type(value) is np.ndarray
            else _nested(value, make)
            if isinstance(value, (dict, Mapping))
            else np.asarray(value)
            for key, value in data.items()
        }
    )


@lru_cache(maxsize=1)
def _treetensor() -> Any:
    try:
        import treetensor.numpy
    except ImportError:
        return None
    return treetensor.numpy
