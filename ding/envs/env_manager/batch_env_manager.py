"""Base of the env managers whose envs are stepped as one batch, by a simulator that keeps them to itself."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from easydict import EasyDict

from ding.envs.common.gym_compat import spaces_like
from ding.envs.env.gymnasium_spaces import float32_space, reward_space_of
from ding.envs.env_manager.base_env_manager import BaseEnvManager, EnvNotReadyError, EnvState, ResetParam
from ding.envs.env_manager.block import TOLD, BlockStep, BoolArray, InfoColumns, Ready, end_codes
from ding.envs.env_manager.env_seeds import Seeds
from ding.envs.env_manager.env_state import Restored
from ding.utils.config_helper import ConfigError, Setting, Settings, check_values, instance_of, integer, settings_of
from ding.utils.data.samples import Column, IntArray, Kind, Node, map_node, node_rows

_STATES = tuple(EnvState)
# As plain numbers: numpy asks a member of an enum for attributes of arrays, which takes longer than the comparison.
RUN, RESET, DONE, NEED_RESET = (
    int(state) for state in (EnvState.RUN, EnvState.RESET, EnvState.DONE, EnvState.NEED_RESET)
)
# Settings of an env section that make an env other than the one the simulator makes.
_FOREIGN = ("env", "kwargs", "wrappers", "act_scale", "norm_obs", "env_wrapper")


class PooledEnv:
    """Stands for an env that a simulator keeps to itself: it only states the spaces."""

    def __init__(self, name: str, observation_space: Any, action_space: Any) -> None:
        self._name = name
        self.observation_space = float32_space(observation_space)
        self.action_space = action_space
        self.reward_space = reward_space_of(self)

    def close(self) -> None:
        """Nothing is open."""

    def __repr__(self) -> str:
        return f"PooledEnv({self._name!r})"


class EnvStates(MutableMapping[int, EnvState]):
    """`{env_id: state}` over an array.

    Attributes:
        numbers: the states as an array [E].
    """

    def __init__(self, count: int) -> None:
        self.numbers = np.full(count, EnvState.VOID, np.int8)

    def __getitem__(self, env_id: int) -> EnvState:
        if not 0 <= env_id < len(self.numbers):
            raise KeyError(env_id)
        state: EnvState = _STATES[self.numbers[env_id]]
        return state

    def __setitem__(self, env_id: int, state: EnvState) -> None:
        self.numbers[env_id] = state

    def __delitem__(self, env_id: int) -> None:
        raise TypeError("every env has a state")

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.numbers)))

    def __len__(self) -> int:
        return len(self.numbers)


class ActionBatches:
    """Stacks and checks actions for a space.

    Attributes:
        idle: a member of the space, for envs whose action has no effect.

    Raises:
        ConfigError: the space is no Box, Discrete, MultiDiscrete or MultiBinary.
    """

    def __init__(self, space: Any) -> None:
        spaces = spaces_like(space)
        self._space = space
        self._range: tuple[Any, Any] | None = None  # the least integers, and those that are just too large
        if isinstance(space, spaces.Discrete):
            self._range = space.start, space.start + space.n
        elif isinstance(space, spaces.MultiDiscrete):
            start = getattr(space, "start", 0)
            self._range = start, start + space.nvec
        elif isinstance(space, spaces.MultiBinary):
            self._range = 0, 2
        elif not isinstance(space, spaces.Box):
            raise ConfigError(f"envs that are stepped as a batch cannot have the action space {space}")
        low, high = (space.low, space.high) if self._range is None else (self._range[0], np.inf)
        self.idle = np.clip(np.zeros(space.shape), low, high).astype(space.dtype)

    def stack(self, actions: Sequence[Any] | np.ndarray, env_ids: Sequence[int]) -> np.ndarray:
        """The actions of these envs as an array [K, *shape] of the dtype of the space.

        Raises:
            TypeError: they are not integers, but the space has no others.
            ValueError: an action does not have the shape of the space, or is outside of it.
        """
        shape = len(env_ids), *self._space.shape
        if not isinstance(actions, np.ndarray):
            actions = np.stack([np.asarray(action).reshape(-1) for action in actions])
        if actions.size != math.prod(shape):
            raise ValueError(f"actions of shape {actions.shape} do not fit {shape[0]} x the action space {self._space}")
        batch = actions.reshape(shape)
        if self._range is not None:
            first, stop = self._range
            if batch.dtype.kind not in "iub":
                raise TypeError(f"actions of dtype {batch.dtype} do not fit the action space {self._space}")
            if np.count_nonzero((batch < first) | (batch >= stop)):
                self._refuse(batch, env_ids, first, stop)
        return batch.astype(self._space.dtype, copy=False)

    def _refuse(self, batch: np.ndarray, env_ids: Sequence[int], first: Any, stop: Any) -> None:
        wrong = ((batch < first) | (batch >= stop)).reshape(len(batch), -1).any(axis=1)
        bad = {env_ids[row]: batch[row].tolist() for row in np.flatnonzero(wrong).tolist()}
        allowed = f": [{first}, {stop - 1}]" if np.ndim(stop) == 0 else ""
        raise ValueError(f"the actions {bad} are outside of the action space {self._space}{allowed}")


class BatchEnvManager(BaseEnvManager):
    """Steps envs in batches; there is no Python object for an env, nor Python code that runs for each of them.

    A subclass makes the simulator, gives it the actions (`_exchange`) and begins episodes (`_reset_envs`).
    States of running episodes cannot be saved, so a resumed run begins new ones.

    Args:
        cfg: missing values are filled from `default_config()`.
        env_fn: one function for each env, which sets the number of envs; without it, `cfg.env_num` does.
    """

    simulator = "the simulator"  # in messages
    _begins_with_steps = False  # envs whose episodes have ended begin others during steps, or in `wait_another`
    settings = Settings(
        {
            "env_id": Setting(
                None, instance_of(str, optional=True), "Id of the env; None for the `env_id` of the env section."
            ),
            "env_num": Setting(8, integer(1), "Number of envs, if the manager is made without env functions."),
        },
        BaseEnvManager.settings,
    )

    def __init__(self, cfg: Mapping[str, Any] = EasyDict(), env_fn: list[Callable[[], Any]] | None = None) -> None:
        merged = {**self.default_config(), **cfg}
        check_values(merged, type(self).__name__, settings_of(type(self)).rules())
        count = int(merged["env_num"]) if env_fn is None else len(env_fn)
        self._env_num = count
        stand_in = partial(PooledEnv, *self._prepare(merged, _env_section(env_fn)))
        super().__init__([stand_in] * count, cfg)
        self._env_states = EnvStates(count)
        self._state_numbers = self._env_states.numbers
        self._actions = ActionBatches(self._action_space)
        self._idle = np.repeat(self._actions.idle[None], count, axis=0)
        self._all_ids = np.arange(count)
        self._all_ids.flags.writeable = False
        self._told: tuple[Ready, int] | None = None  # what was ready last, and as of which version
        self._returns = np.zeros(count)
        self._shown: Node = None  # E rows: what each env returned last
        self._is_shown_shared = False  # somebody else has these rows
        self._sent_seeds: int | list[int] | None = None
        self._is_reseeded = False

    @abstractmethod
    def _prepare(self, cfg: Mapping[str, Any], env_cfg: Mapping[str, Any]) -> tuple[str, Any, Any]:
        """Read the config; return the name of the env, its observation and its action space."""

    def seed(self, seed: Seeds, dynamic_seed: bool | None = None) -> None:
        """Seed the envs when they are made next: at `launch`, or at the next `reset()` of all envs.

        Args:
            seed: one for all, of which env i gets `seed + i`, or a list with one for each env, or `{env_id: seed}`.
            dynamic_seed: has no meaning here: every episode differs from the one before.

        Raises:
            AssertionError: a list has another length than there are envs.
            RuntimeError: an env id of a dict is unknown.
            TypeError: `seed` is something else.
        """
        super().seed(seed, dynamic_seed)
        entries = [self._seeds.current(env_id) for env_id in range(self._env_num)]
        self._sent_seeds = [env_id if entry is None else entry.plain for env_id, entry in enumerate(entries)]
        if isinstance(seed, (int, np.integer)):
            self._sent_seeds = int(seed)
        self._is_reseeded = True

    def enable_save_replay(self, replay_path: str | list[str]) -> None:
        """Raise NotImplementedError: no videos are recorded."""
        raise NotImplementedError(f"{self.simulator} records no videos; set env.manager.type to 'base' to record one")

    def reset(self, reset_param: ResetParam | None = None) -> None:
        """Begin a new episode in all envs, or in those of `reset_param`, which may hold no parameters.

        Raises:
            AssertionError: the manager is closed.
            RuntimeError: an env id is unknown.
            ValueError: there are parameters, which cannot be handed on.
        """
        given = {env_id: param for env_id, param in (reset_param or {}).items() if param}
        if given:
            raise ValueError(
                f"{self.simulator} takes no parameters of a reset, got {given}; use env.manager.kwargs for options"
            )
        super().reset(reset_param)

    @property
    def ready_obs(self) -> dict[int, Any]:
        """`{env_id: obs}` of the envs that wait for an action; empty if there are none."""
        ready = self.ready_block()
        return dict(zip(ready.env_ids, node_rows(ready.obs), strict=True))

    @property
    def ready_obs_id(self) -> list[int]:
        """Ids of the envs that wait for an action."""
        env_ids: list[int] = np.flatnonzero(self._waiting()).tolist()
        return env_ids

    def ready_block(self, env_ids: Sequence[int] | None = None) -> Ready:
        """The envs that wait for an action, or those of `env_ids` that do."""
        mask = self._waiting()
        ids = np.flatnonzero(mask) if env_ids is None else np.array([i for i in env_ids if mask[i]], np.int64)
        if len(ids) == self._env_num:
            ids = self._known(ids)
            obs = self._rows(ids)
        else:
            obs = rows_of_node(self._shown, ids) if len(ids) else Column(Kind.OBJECT, [])
        ready = Ready(ids.tolist(), ids, obs, self._episodes[ids])
        self._told = ready, self.version
        return ready

    def step(self, actions: Mapping[int, Any]) -> dict[int, Any]:
        """Act in the envs of `actions`; return the timesteps `{env_id: timestep}` of those that have answered.

        A timestep that ends an episode has the terminal observation; the first one of the next is in `ready_obs`.

        Raises:
            AssertionError: the manager is closed, or an env is not ready for an action (no env was stepped then).
            RuntimeError: an env id is unknown (no env was stepped then).
            ValueError: an action is outside of the action space (no env was stepped then).
        """
        step = self.step_block(list(actions.values()), list(actions))
        return dict(zip(step.env_ids, step.timesteps(), strict=True))

    def step_block(self, actions: Sequence[Any] | np.ndarray, env_ids: list[int]) -> BlockStep:
        """Act in the envs `env_ids`; return the step of those that have answered; see `step`."""
        if self._closed:
            self._check_open()
        ids = self._checked_ids(env_ids)
        batch = self._actions.stack(actions, env_ids) if env_ids else None
        self.version += 1
        self.moves[... if ids is self._all_ids else ids] += 1
        step = self._exchange(batch, ids)
        if step is None:
            empty = Column(Kind.OBJECT, [])
            return BlockStep([], np.zeros(0, np.int64), empty, empty, [], [], None, [], np.zeros(0, np.uint8))
        mask = self._ready_mask()
        is_as_before = np.count_nonzero(mask) == len(ids) == np.count_nonzero(mask[ids])  # no other env waits
        if is_as_before and step.env_ids == env_ids:
            obs = self._rows(ids) if step.any_ends else step.obs
            step.ready = Ready(step.env_ids, ids, obs, self._episodes[ids])
            self._told = step.ready, self.version  # a step of just these envs need not be checked
        return step

    def _checked_ids(self, env_ids: list[int]) -> IntArray:
        """Check that these envs wait for an action; return them as an array."""
        if self._told is not None and env_ids is self._told[0].env_ids and self.version == self._told[1]:
            return self._told[0].ids
        ids = np.array(env_ids, np.int64)
        if env_ids:
            if min(env_ids) < 0 or max(env_ids) >= self._env_num:
                self._check_ids(env_ids)
            if not self._ready_mask()[ids].all():
                self._refuse(env_ids)
        return self._known(ids)

    def _known(self, ids: IntArray) -> IntArray:
        """The array of all envs, if `ids` is equal to it: to recognise it again takes no time."""
        is_all = len(ids) == self._env_num and bool((ids == self._all_ids).all())
        return self._all_ids if is_all else ids

    @abstractmethod
    def _exchange(self, actions: np.ndarray | None, ids: IntArray) -> BlockStep | None:
        """Act in these envs, None for none; return the step of those that have answered, None if none has."""

    def _ready_mask(self) -> BoolArray:
        """Which envs wait for an action."""
        ready: BoolArray = self._state_numbers == RUN
        return ready

    def _waiting(self) -> BoolArray:
        """Which envs wait for an action; if none does, episodes are begun."""
        mask = self._ready_mask()
        if self._begins_with_steps and not np.count_nonzero(mask) and self.wait_another():
            mask = self._ready_mask()
        return mask

    def wait_another(self) -> bool:
        """Wait until another env is ready; False, at once, if none will be."""
        return False

    def _refuse(self, env_ids: list[int]) -> None:
        ready = np.flatnonzero(self._ready_mask()).tolist()
        states = {env_id: state.name for env_id, state in self._env_states.items()}
        raise EnvNotReadyError(
            f"actions are for envs {env_ids}, but only {ready} are ready; current env state are: {states}"
        )

    def _block(
        self,
        ids: IntArray,
        obs: Node,
        rewards: np.ndarray,
        terminated: BoolArray,
        truncated: BoolArray,
        infos: tuple[dict[str, Any], dict[str, BoolArray]],
    ) -> BlockStep:
        """The step of these envs, which is counted.

        Args:
            rewards: an array [K].
            infos: the columns of `InfoColumns`, and the rows that have an entry.
        """
        dones: BoolArray = terminated | truncated
        columns, rows_of = infos
        columns["terminated"], columns["truncated"] = terminated, truncated
        self._returns[... if ids is self._all_ids else ids] += rewards
        any_ends = np.count_nonzero(dones) > 0
        if any_ends:
            columns["eval_episode_return"], rows_of["eval_episode_return"] = self._returns[ids], dones
            ended = ids[dones]
            self._env_episode_count[ended] += 1
            is_last = self._env_episode_count[ended] >= self._episode_num
            follows = RESET if self._auto_reset else NEED_RESET
            self._state_numbers[ended] = np.where(is_last, DONE, follows)
        reward = Column(Kind.ARRAY, rewards.astype(np.float32, copy=False)[:, None])
        info = InfoColumns(columns, len(ids), rows_of)
        codes = end_codes(terminated, truncated) if any_ends else np.full(len(ids), TOLD, np.uint8)
        return BlockStep(ids.tolist(), ids, obs, reward, dones, info, None, None, codes)

    def _begin(self, ids: IntArray) -> None:
        """Note that episodes of these envs have begun."""
        self._returns[ids] = 0.0
        self._episodes[ids] += 1
        self.moves[ids] += 1
        self._state_numbers[ids] = RUN

    # What each env shows: a batch of all envs is kept as it is, and copied before rows of it are replaced.

    def _show(self, ids: IntArray, obs: Node) -> None:
        if ids is self._all_ids:
            self._shown, self._is_shown_shared = obs, True
            return
        if self._shown is None:
            self._shown = map_node(lambda column: _like(column, self._env_num), obs)
        self._shown = with_rows_put(self._shown, ids, obs, in_place=not self._is_shown_shared)
        self._is_shown_shared = False

    def _rows(self, ids: IntArray) -> Node:
        if ids is self._all_ids:
            self._is_shown_shared = True
            return self._shown
        return rows_of_node(self._shown, ids)

    # The simulator does not hand out the states of its envs.

    def _save_envs(self) -> dict[int, dict[str, Any]]:
        return {env_id: {} for env_id in range(self._env_num)}

    def _restore_envs(self, states: Mapping[int, Mapping[str, Any]]) -> dict[int, Restored]:
        problem = f"{self.simulator} saves no states of envs"
        return {env_id: Restored(self._env_ref, None, problem=problem) for env_id in states}


def rows_of_node(node: Node, rows: IntArray | BoolArray) -> Node:
    """Copies of these rows of a node of arrays."""
    rows = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
    if type(node) is Column:  # most are
        return Column(node.kind, node.data.take(rows, axis=0))
    return map_node(lambda column: Column(column.kind, column.data.take(rows, axis=0)), node)


def with_rows_put(node: Node, rows: IntArray | BoolArray, values: Node, in_place: bool = False) -> Node:
    """A copy of a node of arrays, or that node `in_place`, with `values` in these rows."""

    def put(column: Column, new: Column) -> Column:
        if not in_place:
            column = Column(column.kind, column.data.copy())
        column.data[rows] = new.data
        return column

    return map_node(put, node, values)


def _like(column: Column, count: int) -> Column:
    """A column of `count` zeros for values as those of `column`."""
    return Column(column.kind, np.zeros((count, *column.data.shape[1:]), column.data.dtype))


def _env_section(env_fn: list[Callable[[], Any]] | None) -> Mapping[str, Any]:
    """The config that the first of the env functions was given; empty if there is none."""
    cfg = getattr(env_fn[0], "keywords", {}).get("cfg") if env_fn else None
    return cfg if isinstance(cfg, Mapping) else {}


def refuse_foreign(env_cfg: Mapping[str, Any], manager: str, advice: str, keys: Sequence[str] = _FOREIGN) -> None:
    """Check that an env section asks for nothing that the simulator cannot do.

    Raises:
        ConfigError: it does.
    """
    foreign = [key for key in keys if env_cfg.get(key)]
    if foreign:
        raise ConfigError(
            f"env.{foreign[0]} has no meaning for the env manager {manager}, as the envs are made elsewhere; remove "
            f"it{advice}"
        )
