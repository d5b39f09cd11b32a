"""Results of env managers: blocks of columns for the rollout, and stacked trees of the V2 managers.

A manager of this package has `begin`, `ready_block`, `act` and `end` beside its documented methods. `DictBlocks`
defines them in terms of `ready_obs` and `step`; a manager that steps whole batches defines its own.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ding.envs.env.base_env import BaseEnvTimestep
from ding.utils.data.nested import FLOAT32_MAX
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
    """

    env_ids: list[int]
    ids: IntArray
    obs: Node


NO_ENVS = Ready([], np.zeros(0, np.int64), Column(Kind.OBJECT, []))


@dataclass(eq=False)
class InfoColumns(Sequence[dict[str, Any]]):
    """The infos of the K envs of a step; their dicts are made when they are accessed.

    Attributes:
        columns: `{key: array or list}`; an entry of a one-dimensional array is a Python number in the info.
        size: K.
        rows_of: for some keys, a mask of the rows that have an entry; the others lack the key.
        rows: the rows of `columns` and `rows_of` that belong to the K envs; None for all in order.
    """

    columns: Mapping[str, Any]
    size: int
    rows_of: Mapping[str, BoolArray]
    rows: IntArray | None = None

    def of_rows(self, rows: IntArray) -> InfoColumns:
        """Return the infos of some of the envs."""
        return InfoColumns(self.columns, len(rows), self.rows_of, rows if self.rows is None else self.rows[rows])

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return [self[i] for i in range(*row.indices(self.size))]
        if not -self.size <= row < self.size:
            raise IndexError(row)
        at = row if self.rows is None else self.rows[row]
        return {
            key: _entry(values, at)
            for key, values in self.columns.items()
            if key not in self.rows_of or self.rows_of[key][at]
        }


def _entry(values: Any, row: int) -> Any:
    if isinstance(values, Mapping):
        return {key: _entry(part, row) for key, part in values.items()}
    value = values[row]
    return value.item() if isinstance(value, np.generic) else value


@dataclass(eq=False, slots=True)
class BlockStep:
    """The results of a step of K envs. The receiver owns the arrays: nobody else writes into them.

    Attributes:
        env_ids, ids: the envs that answered, as a list and as an array [K].
        obs: the returned observations, K rows; of terminal steps the terminal ones.
        reward: the rewards, K rows.
        dones: the `done` of each: an array [K] of bools, or a list of flags or arrays (a flag for each player).
        infos: the infos.
        codes: the end flags of the infos, an array [K]; see `end_code`.
        ends: an array [K] of bools, whether each episode has ended.
        any_ends: whether any episode has ended.
        ready: the envs after the step, if all that were acted in have answered and wait for an action again; else None,
            and `ready_block` has to be called.
        raw: the timesteps as envs returned them, if there are any.
        abnormal: the rows of the envs that flag their step as invalid.
        active: an array [K] of bools, which envs have made a step; the others have begun an episode. None for all.
        returns: an array [K] of the returns of the episodes that ended, by row; None if only the infos have them.
    """

    env_ids: list[int]
    ids: IntArray
    obs: Node
    reward: Node
    dones: BoolArray | list[Any]
    infos: Sequence[Any]
    codes: Codes
    ends: BoolArray
    any_ends: bool
    ready: Ready | None = None
    raw: list[Any] | None = None
    abnormal: Sequence[int] = ()
    active: BoolArray | None = None
    returns: np.ndarray | None = None

    def of_rows(self, rows: Sequence[int] | IntArray) -> BlockStep:
        """Return the step of some of the envs."""
        index = np.asarray(rows, np.int64)

        def part(node: Node) -> Node:
            return map_node(_repacked if len(index) else Column.compact, map_node(lambda c: c.take(index), node))

        infos, ends = self.infos, self.ends[index]
        return BlockStep(
            env_ids=self.ids[index].tolist(),
            ids=self.ids[index],
            obs=part(self.obs),
            reward=part(self.reward),
            dones=self.dones[index] if isinstance(self.dones, np.ndarray) else [self.dones[row] for row in rows],
            infos=infos.of_rows(index) if isinstance(infos, InfoColumns) else [infos[row] for row in rows],
            codes=self.codes[index],
            ends=ends,
            any_ends=bool(ends.any()),
            raw=None if self.raw is None else [self.raw[row] for row in rows],
            abnormal=[place for place, row in enumerate(index.tolist()) if row in self.abnormal],
            returns=None if self.returns is None else self.returns[index],
        )

    def timesteps(self) -> list[Any]:
        """Return a list of timesteps, of the class that the envs use, with the rows of `obs` and `reward`."""
        pairs = zip(node_rows(self.obs), node_rows(self.reward), strict=True)
        if self.raw is not None:
            return [step._replace(obs=obs, reward=reward) for step, (obs, reward) in zip(self.raw, pairs, strict=True)]
        dones = self.dones.tolist() if isinstance(self.dones, np.ndarray) else self.dones
        return [BaseEnvTimestep(*pair, done, info) for pair, done, info in zip(pairs, dones, self.infos, strict=True)]


def no_step() -> BlockStep:
    """Return a step without envs."""
    empty = Column(Kind.OBJECT, [])
    return BlockStep([], NO_ENVS.ids, empty, empty, [], [], np.zeros(0, np.uint8), np.zeros(0, np.bool_), False, raw=[])


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


class ManagerInUseError(RuntimeError):
    """The envs belong to a collector or evaluator until its call returns."""


class DictBlocks:
    """Mixin that defines `ready_block` and `act` of a manager by its documented `ready_obs` and `step`.

    From `begin` to `end` the envs belong to one rollout, which alone resets and steps them.

    Attributes:
        episodes: an array [E], the number of the episode that each env is in; every reset begins another one.
        is_owned: whether a rollout is between its `begin` and `end`.
        touched: an array [E], how often each env was stepped by others than the rollout that reads it between two of
            its runs; an env that was reset is in an episode of another number, too.
        continues: whether what an env shows in mid-episode is what its last step has returned.
        can_idle: whether `begin` may be given `is_wide`.
        normalization: what rollouts normalize the observations and rewards of the envs by; None for nothing.
    """

    is_owned = False
    can_idle = False
    continues = True
    touched: IntArray
    normalization: Normalization | None = None

    if TYPE_CHECKING:

        @property
        def ready_obs(self) -> Any: ...

        @property
        def episodes(self) -> IntArray: ...

        def step(self, actions: Any) -> Any: ...

    def begin(self, is_wide: bool = False) -> None:
        """Take the envs for a rollout.

        Args:
            is_wide: whether all envs are acted in in each round, those too that begin an episode instead of a step.

        Raises:
            ManagerInUseError: another rollout has them.
        """
        self.check_free()
        self.is_owned = True

    def end(self) -> None:
        """Give the envs back; what the rollout has done counts as a step of others to any other rollout."""
        self.is_owned = False
        self.touched += 1

    def check_free(self) -> None:
        """Raise a ManagerInUseError if a rollout has the envs."""
        if self.is_owned:
            raise ManagerInUseError(
                "a collector or evaluator is stepping the envs of this manager; reset or step them before or after "
                "its call, not from a policy, an env or a hook within it"
            )

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
        return Ready(ids, np.array(ids, np.int64), obs)

    def act(self, actions: Sequence[Any], env_ids: list[int]) -> BlockStep:
        """Act in the envs `env_ids`, and return the step of those that have answered, which may be others.

        Args:
            actions: one for each env: a list or an array [K, ...] whose rows the envs may keep.
        """
        return self.block_of(self.step(dict(zip(env_ids, actions, strict=True))), env_ids)

    def block_of(self, timesteps: Mapping[int, Any], env_ids: list[int]) -> BlockStep:
        """Convert timesteps to a block, with `ready` if all envs that were acted in, `env_ids`, have answered."""
        step = block_of_list(list(timesteps), list(timesteps.values())) if timesteps else no_step()
        if timesteps and step.env_ids == env_ids:
            step.ready = self._ready_after(step)
        return step

    def _ready_after(self, step: BlockStep) -> Ready | None:
        """Return the ready envs after a step that all envs have answered."""
        env_ids = step.env_ids
        if not step.any_ends:
            return Ready(env_ids, step.ids, step.obs)
        ready = self.ready_block()
        return ready if ready.env_ids == env_ids else None


def block_of_list(env_ids: list[int], timesteps: list[Any]) -> BlockStep:
    """Convert the timesteps of these envs, one or more, to a block, without `ready`.

    Raises:
        TypeError: an info is neither a dict nor a list of them.
    """
    obs, rewards, dones, infos, codes = [], [], [], [], []
    abnormal: list[int] = []
    for timestep in timesteps:
        obs.append(timestep.obs)
        rewards.append(timestep.reward)
        dones.append(timestep.done)
        info = timestep.info
        infos.append(info)
        is_dict = type(info) is dict
        terminated, truncated = (info.get("terminated"), info.get("truncated")) if is_dict else (None, None)
        if type(terminated) is bool and type(truncated) is bool:  # most steps of most envs need no call
            codes.append(TOLD | TERMINATED * terminated | TRUNCATED * truncated)
        else:
            try:
                codes.append(end_code(info))
            except TypeError as e:
                raise wrong_info(info, f"env {env_ids[len(codes)]}") from e
        if (not is_dict or "abnormal" in info) and is_abnormal(info):
            abnormal.append(len(codes) - 1)
    is_plain = set(map(type, dones)) == _BOOLS
    ends = np.frombuffer(bytearray(dones if is_plain else map(is_done, dones)), np.bool_)
    any_ends = bool(np.count_nonzero(ends))
    return BlockStep(
        env_ids=env_ids,
        ids=np.array(env_ids, np.int64),
        obs=stacked(obs),
        reward=stacked(rewards),
        dones=ends if is_plain else dones,
        infos=infos,
        codes=np.frombuffer(bytearray(codes), np.uint8),
        ends=ends,
        any_ends=any_ends,
        raw=timesteps,
        abnormal=abnormal,
        returns=_returns_of(infos, ends) if any_ends else None,
    )


def _returns_of(infos: Sequence[Any], ends: BoolArray) -> np.ndarray | None:
    """Return the returns in the last infos of episodes, by row; None if they are not plain numbers within float32."""
    returns = np.zeros(len(infos))
    for row in ends.nonzero()[0].tolist():
        info = infos[row]
        value = info.get("eval_episode_return") if type(info) is dict else None
        if type(value) is not float or not -FLOAT32_MAX <= value <= FLOAT32_MAX:
            return None
        returns[row] = value
    return returns


def overrides_dicts(env: Any) -> bool:
    """Return whether an instance, or a subclass of the class with `act`, overrides `step` or `ready_obs`."""
    if "step" in vars(env):
        return True
    for cls in type(env).__mro__:
        if "act" in vars(cls):
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
