"""Base of the env managers whose envs are stepped as one batch by a simulator."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from easydict import EasyDict

from ding.envs.common.gym_compat import bounds_of, first_choice, space_kind
from ding.envs.env.gymnasium_env import NORMALIZATION, SETTINGS
from ding.envs.env.gymnasium_spaces import action_scaler, float32_space, policy_space, reward_space_of, to_float32
from ding.envs.env_manager.base_env_manager import DONE, NEED_RESET, RESET, RUN, BaseEnvManager, ResetParam
from ding.envs.env_manager.block import NO_ENVS, TOLD, BlockStep, BoolArray, InfoColumns, Ready, end_codes, no_step
from ding.envs.env_manager.env_state import Restored, Seeds
from ding.utils.config_helper import ConfigError, Setting, Settings, check_values, instance_of, integer, settings_of
from ding.utils.data.nested import is_mapping
from ding.utils.data.samples import Column, IntArray, Kind, Node, columns_of, map_node, node_rows
from ding.utils.default_helper import one_time_warning
from ding.utils.references import plain

# Settings of an env section that make an env other than the one the simulator makes.
_FOREIGN = ("env", "kwargs", "wrappers", "channels_first", "act_bins", "env_wrapper")
# Settings of an env manager whose envs are stepped and may fail each by itself.
_OF_SINGLE_ENVS = ("max_retry", "retry_waiting_time", "retry_type", "step_timeout", "reset_timeout")
_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


class PooledEnv:
    """Stand-in for an env inside a simulator; it only states the spaces."""

    def __init__(self, name: str, observation_space: Any, action_space: Any, section: Mapping[str, Any]) -> None:
        self._name = name
        self.rollout_normalization = section
        self.observation_space = float32_space(observation_space)
        self.action_space = action_space
        self.reward_space = reward_space_of(self)

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def __repr__(self) -> str:
        return f"PooledEnv({self._name!r})"


class ActionBatches:
    """Stacking and checking of actions for a space; choices come as numbers from 0, whatever its `start`.

    Args:
        act_scale: real-valued actions come in [-1, 1] and are mapped onto the bounds.

    Attributes:
        space: the space.
        idle: a member of the space, for envs whose action has no effect.

    Raises:
        ConfigError: the space is no Box, Discrete, MultiDiscrete or MultiBinary, or has no bounds to scale to.
    """

    def __init__(self, space: Any, act_scale: bool = False) -> None:
        bounds = bounds_of(space)
        if bounds is None:
            raise ConfigError(f"envs that are stepped as a batch cannot have the action space {space}")
        self.space = space
        self._space, self._shape, self._dtype = policy_space(space, act_scale), space.shape, space.dtype
        self._scale = action_scaler(space, act_scale)
        self._first = first_choice(space)
        self._highest = None if space_kind(space) == "Box" else bounds[1] - self._first
        self._is_shifted = self._space is not space
        self.idle = np.clip(np.zeros(space.shape), *bounds).astype(space.dtype)

    def stack(self, actions: Sequence[Any] | np.ndarray, env_ids: Sequence[int]) -> np.ndarray:
        """Return the actions of these envs as an array [K, *shape] of the dtype of the space.

        Raises:
            TypeError: they are not integers, as the space requires.
            ValueError: an action does not have the shape of the space, or is outside of it.
        """
        shape = len(env_ids), *self._shape
        if not isinstance(actions, np.ndarray):
            actions = np.stack([np.asarray(action).reshape(-1) for action in actions])
        if actions.size != math.prod(shape):
            raise ValueError(f"actions of shape {actions.shape} do not fit {shape[0]} x the action space {self._space}")
        batch = actions.reshape(shape)
        if self._highest is not None:
            if batch.dtype.kind not in "iub":
                raise TypeError(f"actions of dtype {batch.dtype} do not fit the action space {self._space}")
            wrong = (batch < 0) | (batch > self._highest)
            if np.count_nonzero(wrong):
                rows = np.flatnonzero(wrong.reshape(len(batch), -1).any(axis=1)).tolist()
                bad = {env_ids[row]: batch[row].tolist() for row in rows}
                allowed = f": [0, {self._highest}]" if np.ndim(self._highest) == 0 else ""
                raise ValueError(f"the actions {bad} are outside of the action space {self._space}{allowed}")
            if self._is_shifted:
                batch = np.add(batch, self._first, dtype=np.int64)  # that of unsigned choices may be below 0
        if batch.dtype is not self._dtype:
            batch = batch.astype(self._dtype, copy=False)
        return batch if self._scale is None else self._scale(batch)


class BatchEnvManager(BaseEnvManager):
    """Env manager that steps envs in batches, without a Python object or Python code for each env.

    A subclass makes the simulator, passes the actions to it (`_exchange`) and begins episodes (`_reset_envs`). It
    passes the simulator's results on to `_step_of`, or to `_count_begun` and `_look_at`, which note which envs wait for
    an action and what they show. States of running episodes cannot be saved, so a resumed run begins new ones.

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
            **dict.fromkeys(
                _OF_SINGLE_ENVS,
                Setting(doc="Setting of managers that step env by env; warned of here, without effect."),
            ),
        },
        BaseEnvManager.settings,
    )

    def __init__(self, cfg: Mapping[str, Any] = EasyDict(), env_fn: list[Callable[[], Any]] | None = None) -> None:
        merged = plain({**self.default_config(), **cfg})
        check_values(merged, type(self).__name__, settings_of(type(self)).rules())
        unused = [f"{key} = {merged[key]!r}" for key in _OF_SINGLE_ENVS if merged[key] != self.config[key]]
        if unused:
            one_time_warning(
                f"{', '.join(unused)} has no effect: {type(self).__name__} steps all envs as one batch, without limits "
                "and retries; the env managers with processes have them"
            )
        count = int(merged["env_num"]) if env_fn is None else len(env_fn)
        self._env_num = count
        self._simulator: Any = None
        self._owed = np.zeros(count, np.int64)  # by env the number of answers that the simulator has yet to give
        self._is_owed = False  # any of them may be more than 0
        self._ready = NO_ENVS  # as of the last answer of the simulator
        self._is_asked = False  # it has been asked for another one
        self._sent_seeds: int | list[int] | None = None
        self._is_reseeded = False
        section: Any = getattr(env_fn[0], "keywords", {}).get("cfg") if env_fn else None
        section = section if is_mapping(section) else {}
        check_values({key: section[key] for key in NORMALIZATION if key in section}, "env", SETTINGS.rules())
        act_scale = bool(section.get("act_scale", False))
        try:
            name, shown, action_space = self._prepare(merged, section)
            make_env = partial(PooledEnv, name, shown, policy_space(action_space, act_scale), section)
            super().__init__([make_env] * count, cfg)
            self._actions = ActionBatches(action_space, act_scale)
        except BaseException:
            self._end_simulator()
            raise
        self._idle = np.repeat(self._actions.idle[None], count, axis=0)
        self._all_ids, self._all_told = np.arange(count), np.full(count, TOLD, np.uint8)
        self._all_ids.flags.writeable = self._all_told.flags.writeable = False
        self._every = list(range(count))
        self._never_stops = self._auto_reset and self._episode_num == math.inf  # each episode is followed by another
        self._returns = np.zeros(count)

    @abstractmethod
    def _make_simulator(self) -> Any:
        """Make the simulator, which has `close`; the seeds are in `_sent_seeds`."""

    @abstractmethod
    def _prepare(self, cfg: Mapping[str, Any], env_cfg: Mapping[str, Any]) -> tuple[str, Any, Any]:
        """Read the config, and return the name of the env, its observation space and its action space.

        Args:
            env_cfg: the config of the first env function; empty if there is none.
        """

    def seed(self, seed: Seeds, dynamic_seed: bool | None = None) -> None:
        """Seed the envs the next time they are made: at `launch`, or at the next `reset()` of all envs.

        Args:
            seed: one for all, of which env i gets `seed + i`, or a list with one for each env, or `{env_id: seed}`.
            dynamic_seed: has no effect here: every episode differs from the one before.

        Raises:
            AssertionError: a list has another length than there are envs.
            RuntimeError: an env id of a dict is unknown.
            TypeError: `seed` is of another type.
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
        """Begin a new episode in all envs, or in those of `reset_param`, which must be without parameters.

        Raises:
            AssertionError: the manager is closed.
            RuntimeError: an env id is unknown.
            ValueError: there are parameters, which cannot be passed on.
        """
        given = {env_id: param for env_id, param in (reset_param or {}).items() if param}
        if given:
            raise ValueError(
                f"{self.simulator} takes no parameters of a reset, got {given}; use env.manager.kwargs for options"
            )
        super().reset(reset_param)

    @property
    def simulator_action_space(self) -> Any:
        """The action space of the simulator: choices may count from another number than 0, actions are not scaled."""
        return self._actions.space

    @property
    def ready_obs(self) -> dict[int, Any]:
        """Observations `{env_id: obs}` of the envs that wait for an action; empty if there are none."""
        ready = self.ready_block()
        return dict(zip(ready.env_ids, node_rows(ready.obs), strict=True))

    @property
    def ready_obs_id(self) -> list[int]:
        """Ids of the envs that wait for an action."""
        return list(self.ready_block().env_ids)

    def ready_block(self, env_ids: Sequence[int] | None = None) -> Ready:
        """Return the envs that wait for an action, or those of `env_ids` that do; if none does, begin episodes."""
        ready = self._now_ready() if self._is_asked else self._ready
        if not ready.env_ids and self._begins_with_steps and self.wait_another():
            ready = self._ready
        if env_ids is None:
            return ready
        rows = np.array([ready.env_ids.index(env_id) for env_id in env_ids if env_id in ready.env_ids], np.int64)
        ids = ready.ids[rows]
        return Ready(ids.tolist(), ids, copied_rows(ready.obs, rows), ready.episodes[rows])

    def wait_another(self) -> bool:
        """Wait until another env is ready; return False at once if none will be."""
        return False

    def step(self, actions: Mapping[int, Any]) -> dict[int, Any]:
        """Act in the envs of `actions`, and return the timesteps `{env_id: timestep}` of those that have answered.

        A timestep that ends an episode has the terminal observation; the first one of the next is in `ready_obs`.

        Raises:
            AssertionError: the manager is closed, or an env is not ready for an action (no env was stepped then).
            RuntimeError: an env id is unknown (no env was stepped then).
            ValueError: an action is outside of the action space (no env was stepped then).
        """
        step = self.step_block(list(actions.values()), list(actions))
        return dict(zip(step.env_ids, step.timesteps(), strict=True))

    def step_block(self, actions: Sequence[Any] | np.ndarray, env_ids: list[int]) -> BlockStep:
        """Act in the envs `env_ids`, and return the step of those that have answered; see `step`."""
        if self._closed:
            self._check_open()
        ready = self._now_ready() if self._is_asked else self._ready
        ids = ready.ids
        if env_ids is not ready.env_ids:
            self._check_ids(env_ids)
            if not set(env_ids).issubset(ready.env_ids):
                self._refuse(env_ids, ready.env_ids)
            ids = self._known(np.array(env_ids, np.int64))
        batch = self._actions.stack(actions, env_ids) if env_ids else None
        self.version += 1
        self.moves[... if ids is self._all_ids else ids] += 1
        self._is_asked = True
        step = self._exchange(batch, ids)
        if step is None:
            return no_step()
        ready = self._ready
        if ready.env_ids == env_ids and step.env_ids == env_ids:
            step.ready = ready
        return step

    def _known(self, ids: IntArray) -> IntArray:
        """Return the array of all env ids itself if `ids` is equal to it, so that later checks by identity are free."""
        is_all = len(ids) == self._env_num and not np.count_nonzero(ids != self._all_ids)
        return self._all_ids if is_all else ids

    @abstractmethod
    def _exchange(self, actions: np.ndarray | None, ids: IntArray) -> BlockStep | None:
        """Act in these envs (None: in none), and return the step of those that have answered, or None if none has."""

    def _now_ready(self) -> Ready:
        """Return the envs that wait for an action, after whatever has happened to the simulator."""
        self._look_at(self._all_ids[:0], None)
        return self._ready

    # What comes from the simulator: G rows, of the envs `ids`.

    def _step_of(
        self,
        ids: IntArray,
        rows: IntArray | None,
        obs: Node,
        rewards: np.ndarray,
        terminated: BoolArray,
        truncated: BoolArray,
        infos: tuple[dict[str, Any], dict[str, BoolArray]],
        begun: IntArray | None,
        is_borrowed: bool = False,
        returned: Node = None,
        counted: np.ndarray | None = None,
    ) -> BlockStep | None:
        """Process a step of the simulator, and return the step of the envs that were acted in, or None without any.

        Args:
            rows: the rows of the envs that were acted in; None for all.
            obs: what the envs show now.
            infos: the columns of `InfoColumns`, and the rows that have an entry.
            begun: the envs whose episodes begin with `obs`, if they are not to wait for a reset.
            is_borrowed: the simulator will write into `obs` again.
            returned: the observations that the steps have returned, if they are not `obs`.
            counted: the rewards that sum up to the return of an episode, if they are not `rewards`.
        """
        if counted is None:
            counted = rewards
        columns, rows_of = infos
        columns["terminated"], columns["truncated"] = terminated, truncated
        ended: BoolArray = terminated | truncated
        acted, dones = ids, ended
        if ids is self._all_ids:  # an env that was not acted in begins another episode before its return matters
            self._returns += counted
        if rows is not None:
            acted, dones, rewards = ids.take(rows), ended.take(rows), rewards.take(rows)
        if ids is not self._all_ids:
            self._returns[acted] += counted if rows is None else counted.take(rows)
        codes = self._all_told[: len(acted)]
        if np.count_nonzero(dones):
            codes = end_codes(terminated, truncated)[... if rows is None else rows]
            columns["eval_episode_return"], rows_of["eval_episode_return"] = self._returns[ids], ended
            last = acted[dones]
            counts = self._env_episode_count[last] = self._env_episode_count[last] + 1
            self._states[last] = RESET if self._auto_reset else NEED_RESET
            if not self._never_stops:
                self._states[last[counts >= self._episode_num]] = DONE
        if begun is not None:
            self._count_begun(begun if self._never_stops else begun[self._states[begun] == RESET])
        own = obs if returned is None else returned
        if rows is not None or (is_borrowed and returned is None):
            own = copied_rows(own, rows)
        env_ids = self._every if acted is self._all_ids else acted.tolist()
        self._look_at(ids, obs, is_borrowed, None if returned is not None else (env_ids, acted, own))
        if not env_ids:
            return None
        rewards = rewards if rewards.dtype == _FLOAT32 else to_float32(rewards)
        reward = Column(Kind.ARRAY, rewards[:, None])
        info = InfoColumns(columns, len(env_ids), rows_of, rows)
        return BlockStep(env_ids, acted, own, reward, dones, info, None, None, codes)

    def _count_begun(self, ids: IntArray) -> None:
        """Note that episodes of these envs have begun."""
        self._returns[ids] = 0.0
        self._episodes[ids] += 1
        self.moves[ids] += 1
        self._states[ids] = RUN

    def _look_at(
        self,
        ids: IntArray,
        obs: Node,
        is_borrowed: bool = False,
        acted: tuple[list[int], IntArray, Node] | None = None,
    ) -> None:
        """Note which envs wait for an action; those of `ids` show `obs`, others the same as before.

        Args:
            acted: the envs that were acted in, as a list and as an array, with a copy of what they show; used if
                exactly these wait.
        """
        mask = self._states == RUN
        if self._is_owed:
            mask &= self._owed == 0
        waiting = mask.nonzero()[0]
        self._is_asked = False
        if not len(waiting):
            self._ready = NO_ENVS
            return
        if acted is not None and len(waiting) == len(acted[1]) and not np.count_nonzero(waiting != acted[1]):
            env_ids, waiting, node = acted
        else:
            waiting = self._all_ids if len(waiting) == self._env_num else waiting
            env_ids = self._every if waiting is self._all_ids else waiting.tolist()
            rows, node = waiting, obs
            if ids is not self._all_ids:
                place = np.full(self._env_num, -1)
                place[ids] = np.arange(len(ids))
                if np.count_nonzero(place[waiting] < 0):
                    kept = (place[self._ready.ids] < 0).nonzero()[0]
                    place[self._ready.ids[kept]] = len(ids) + np.arange(len(kept))
                    node, is_borrowed = joined(obs, copied_rows(self._ready.obs, kept)), False
                    # There was an interrupt between the start of an episode and this check.
                    self._states[waiting[place[waiting] < 0]] = NEED_RESET
                    waiting = waiting[place[waiting] >= 0]
                    env_ids = waiting.tolist()
                rows = place[waiting]
            if rows is not self._all_ids:
                node = copied_rows(node, rows)
            elif is_borrowed:
                node = copied_rows(node)
        self._ready = Ready(env_ids, waiting, node, self._episodes[waiting])

    def _create_env(self, env_id: int) -> None:
        self._envs[env_id] = self._env_ref
        if self._simulator is None:
            self._is_reseeded = self._sent_seeds is not None
            self._simulator = self._make_simulator()

    def _close_envs(self) -> list[Exception]:
        self._end_simulator()
        return super()._close_envs()

    def _end_simulator(self) -> None:
        simulator, self._simulator = self._simulator, None
        self._owed[:], self._is_owed = 0, False
        self._ready, self._is_asked = NO_ENVS, False
        if simulator is not None:
            simulator.close()

    # The simulator does not hand out the states of its envs.

    @property
    def why_inexact(self) -> str:
        return f"{self.simulator} saves no states of envs; its running episode is dropped"

    def _save_envs(self) -> dict[int, dict[str, Any]]:
        return {env_id: {} for env_id in range(self._env_num)}

    def _restore_envs(self, states: Mapping[int, Mapping[str, Any]]) -> dict[int, Restored]:
        problem = f"{self.simulator} saves no states of envs"
        return {env_id: Restored(self._env_ref, None, problem=problem) for env_id in states}


def copied_rows(node: Node, rows: IntArray | None = None) -> Node:
    """Return a copy of these rows of a node of arrays, None for all; float64 becomes float32."""
    if type(node) is not Column:
        return map_node(lambda column: copied_rows(column, rows), node)
    data = node.data
    if rows is not None:
        data = data.take(rows, axis=0)
    if data.dtype == _FLOAT64 and node.kind is Kind.ARRAY:
        data = to_float32(data)
    elif rows is None:
        data = data.copy()
    return Column(node.kind, data)


def joined(node: Node, other: Node) -> Node:
    """Return the rows of two nodes of arrays, one after the other; either may be None."""
    if node is None or other is None:
        return other if node is None else node

    def join(one: Column, two: Column) -> Column:
        return Column(two.kind, np.concatenate([one.data, two.data], dtype=two.data.dtype))

    return map_node(join, node, other)


def put_rows(node: Node, rows: BoolArray, values: Node) -> None:
    """Write `values` into these rows of a node of arrays, which the caller owns."""
    for column, new in zip(columns_of(node), columns_of(values), strict=True):
        column.data[rows] = new.data


def refuse_foreign(env_cfg: Mapping[str, Any], manager: str, advice: str, keys: Sequence[str] = _FOREIGN) -> None:
    """Check that an env section requests nothing that the simulator cannot do.

    Raises:
        ConfigError: one of `keys` is set.
    """
    foreign = [key for key in keys if env_cfg.get(key)]
    if foreign:
        raise ConfigError(
            f"env.{foreign[0]} has no meaning for the env manager {manager}, as the envs are made elsewhere; remove "
            f"it{advice}"
        )
