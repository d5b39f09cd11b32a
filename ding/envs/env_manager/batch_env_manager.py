"""Base of the env managers whose envs are stepped as one batch by a simulator."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from easydict import EasyDict

from ding.envs.common.gym_compat import bounds_of, first_choice, space_kind
from ding.envs.env.gymnasium_env import NORMALIZATION, SETTINGS
from ding.envs.env.gymnasium_spaces import action_scaler, float32_space, policy_space, reward_space_of, to_float32
from ding.envs.env_manager.base_env_manager import (
    DONE,
    ERROR,
    NEED_RESET,
    RESET,
    RUN,
    BaseEnvManager,
    EnvState,
    ResetParam,
)
from ding.envs.env_manager.block import (
    NO_ENVS,
    TERMINATED,
    TOLD,
    TRUNCATED,
    BlockStep,
    BoolArray,
    InfoColumns,
    Ready,
    is_abnormal,
    no_step,
)
from ding.envs.env_manager.env_state import Seeds
from ding.utils.config_helper import ConfigError, Setting, Settings, check_values, instance_of, integer, settings_of
from ding.utils.data.nested import is_mapping, map_leaves
from ding.utils.data.samples import Column, IntArray, Kind, Node, map_node, node_rows
from ding.utils.default_helper import one_time_warning
from ding.utils.references import plain

# Settings of an env section that make an env other than the one the simulator makes.
_FOREIGN = ("env", "kwargs", "wrappers", "channels_first", "act_bins", "env_wrapper")
# Settings of an env manager whose envs are stepped and may fail each by itself.
_OF_SINGLE_ENVS = ("max_retry", "retry_waiting_time", "retry_type", "step_timeout", "reset_timeout")
_NOTHING: Mapping[str, Any] = MappingProxyType({})
# The codes of steps that report both flags, by `terminated + 2 * truncated`; see `end_code`.
_CODES = np.array([TOLD, TOLD | TERMINATED, TOLD | TRUNCATED, TOLD | TERMINATED | TRUNCATED], np.uint8)
_FLOAT32 = np.dtype(np.float32)


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
        self._size = math.prod(space.shape)
        self._highest = None if space_kind(space) == "Box" else bounds[1] - self._first
        self._limit = np.array(0 if self._highest is None else self._highest, np.uint64)
        self._is_shifted = self._space is not space
        self.idle = np.clip(np.zeros(space.shape), *bounds).astype(space.dtype)

    def stack(self, actions: Sequence[Any] | np.ndarray, env_ids: Sequence[int]) -> np.ndarray:
        """Return the actions of these envs as an array [K, *shape] of the dtype of the space.

        Raises:
            TypeError: they are not integers, as the space requires.
            ValueError: an action does not have the shape of the space, or is outside of it.
        """
        count = len(env_ids)
        if type(actions) is not np.ndarray:
            actions = np.stack([np.asarray(action).reshape(-1) for action in actions])
        if actions.size != count * self._size:
            raise ValueError(f"actions of shape {actions.shape} do not fit {count} x the action space {self._space}")
        batch = actions.reshape(count, *self._shape)
        if self._highest is not None:
            if batch.dtype.kind not in "iub":
                raise TypeError(f"actions of dtype {batch.dtype} do not fit the action space {self._space}")
            if batch.dtype == np.int64:  # without their sign, numbers below 0 are the largest
                wrong = batch.view(np.uint64) > self._limit
            else:
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


class SimStep(NamedTuple):
    """A step of all E envs of a simulator, in arrays that nobody writes into again.

    Attributes:
        obs: the observations that the step has returned; of episodes that have ended the terminal ones.
        reward: the rewards, [E] numbers.
        terminated, truncated: arrays [E] of bools, which episodes have ended, and how.
        infos: further entries of the infos, `{key: array or list [E]}`.
        info_rows: for some keys of `infos`, a mask [E] of the envs that have an entry.
        shown: what the envs show now, where the simulator itself has begun the next episodes; else None.
        counted: the rewards that sum up to the return of an episode, if they are not `reward`.
    """

    obs: Node
    reward: np.ndarray
    terminated: BoolArray
    truncated: BoolArray
    infos: Mapping[str, Any] = _NOTHING
    info_rows: Mapping[str, BoolArray] = _NOTHING
    shown: Node = None
    counted: np.ndarray | None = None


class BatchEnvManager(BaseEnvManager):
    """Env manager that steps all envs at once, without a Python object or Python code for each env.

    A subclass defines `prepare`, `make_simulator`, `begin_episodes` and `step_all`; `docs/guides/env_manager.md` has
    an example. Where a step leaves out a running env, its episode is dropped, as the simulator steps it nevertheless.
    States of running episodes cannot be saved, so a resumed run begins new ones.

    Args:
        cfg: missing values are filled from `default_config()`.
        env_fn: one function for each env, which sets the number of envs; without it, `cfg.env_num` does.

    Attributes:
        simulator_name: what messages call the simulator.
        idles: whether the simulator begins the next episode of an env in the step after the end of one, whose action it
            ignores. Otherwise `begin_episodes` is called within the step, unless `SimStep.shown` tells that it has.
        new_seeds: what `seed` was given since `begin_episodes` was last called for all envs, None for nothing: a number
            of which env i gets `seed + i`, or a list with one for each env.
    """

    simulator_name = "the simulator"
    idles = False
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
        self.simulator: Any = None
        self._sent_seeds: int | list[int] | None = None
        self.new_seeds: int | list[int] | None = None
        section: Any = getattr(env_fn[0], "keywords", {}).get("cfg") if env_fn else None
        section = section if is_mapping(section) else {}
        check_values({key: section[key] for key in NORMALIZATION if key in section}, "env", SETTINGS.rules())
        act_scale = bool(section.get("act_scale", False))
        try:
            name, shown, action_space = self.prepare(merged, section)
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
        self._is_wide = False  # whether the rounds are of all envs; `_states` is brought up to date at their end
        self._obs: Node = None  # what all envs show; never written into
        self._begins: BoolArray | None = None  # a mask of the envs that the next step begins an episode in, if any
        self._returns = np.zeros(count)

    @abstractmethod
    def prepare(self, cfg: Mapping[str, Any], env_cfg: Mapping[str, Any]) -> tuple[str, Any, Any]:
        """Read the config, and return the name of the env, its observation space and its action space.

        Args:
            env_cfg: the config of the first env function; empty if there is none.
        """

    @abstractmethod
    def make_simulator(self) -> Any:
        """Make the simulator, which has `close`; called by `launch`."""

    @abstractmethod
    def begin_episodes(self, ids: IntArray) -> Node:
        """Begin episodes in the K envs `ids`, in ascending order, and return copies of what they show, K rows."""

    @abstractmethod
    def step_all(self, actions: np.ndarray) -> SimStep:
        """Act in all envs, whether it matters or not, with actions [E, *shape] of the action space."""

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
        self.new_seeds = self._sent_seeds

    def enable_save_replay(self, replay_path: str | list[str]) -> None:
        """Raise NotImplementedError: no videos are recorded."""
        raise NotImplementedError(
            f"{self.simulator_name} records no videos; set env.manager.type to 'base' to record one"
        )

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
                f"{self.simulator_name} takes no parameters of a reset, got {given}; use env.manager.kwargs for options"
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
        if self._is_wide:
            return Ready(self._every, self._all_ids, self._obs)
        ids = self._ready_ids()
        if not np.count_nonzero(self._states == RUN) and self.wait_another():
            ids = self._ready_ids()
        if env_ids is not None:
            ids = np.array([env_id for env_id in env_ids if env_id in ids], np.int64)
        elif len(ids) == self._env_num:
            return Ready(self._every, self._all_ids, self._obs)
        return Ready(ids.tolist(), ids, copied_rows(self._obs, ids)) if len(ids) else NO_ENVS

    def _ready_ids(self) -> IntArray:
        return np.flatnonzero(self._states == RUN)

    def wait_another(self) -> bool:
        """Wait until another env is ready; return False at once if none will be."""
        waiting = self._states == RESET
        if not waiting.any():
            return False
        if self._begins is not None and (self._begins & waiting).any():
            self._step_some(self._idle, self._all_ids[:0])
        else:
            self._begin(waiting.nonzero()[0])
        return True

    def step(self, actions: Mapping[int, Any]) -> dict[int, Any]:
        """Act in the envs of `actions`, and return the timesteps `{env_id: timestep}` of those that have answered.

        A timestep that ends an episode has the terminal observation; the first one of the next is in `ready_obs`.

        Raises:
            AssertionError: the manager is closed, or an env is not ready for an action (no env was stepped then).
            RuntimeError: an env id is unknown (no env was stepped then).
            ValueError: an action is outside of the action space (no env was stepped then).
        """
        self.check_free()
        step = self.act(list(actions.values()), list(actions))
        self.touched[list(actions)] += 1
        return dict(zip(step.env_ids, step.timesteps(), strict=True))

    # Rounds of all envs.

    @property
    def can_idle(self) -> bool:  # type: ignore[override]
        others = self._states != RUN
        if self._begins is not None:
            others &= ~self._begins
        return self._never_stops and not np.count_nonzero(others)

    def begin(self, is_wide: bool = False) -> None:
        super().begin(is_wide)
        self._is_wide = is_wide

    def end(self) -> None:
        if self._is_wide:
            self._is_wide = False
            if not self._closed:
                self._states[:] = RUN
                if self._begins is not None:
                    self._states[self._begins] = RESET
        super().end()

    def act(self, actions: Sequence[Any] | np.ndarray, env_ids: list[int]) -> BlockStep:
        """Act in the envs `env_ids`, and return the step of those that have answered; see `step`."""
        if not self._is_wide:
            return self._act_in(env_ids, actions)
        if self._closed:
            self._check_open()
        begun, batch = self._begins, self._actions.stack(actions, self._every)
        try:
            step = self._block_of(self.step_all(batch))
        except BaseException:
            self._lose_envs()
            raise
        if begun is not None:
            step.active = ~begun
            self._episodes += begun
        if step.any_ends and not self.idles:
            self._episodes += step.ends
        step.ready = Ready(self._every, self._all_ids, self._obs)
        return step  # episodes are not counted, as these rounds have no limit of them

    def _lose_envs(self) -> None:
        """Note that a step has failed: nobody knows how far it came, so all envs must be reset."""
        self._states[:] = ERROR
        self._is_wide = False

    def _block_of(self, sim_step: SimStep) -> BlockStep:
        """Return the step of all envs, some of which may have begun an episode instead, and note what they show."""
        obs, reward, terminated, truncated, infos, info_rows, shown, counted = sim_step
        returns, begun, self._begins = self._returns, self._begins, None
        returns += reward if counted is None else counted
        if begun is not None:
            returns[begun] = 0.0
        ends: BoolArray = terminated | truncated
        infos = {**infos, "terminated": terminated, "truncated": truncated}
        codes, final_returns = self._all_told, None
        any_ends = bool(np.count_nonzero(ends))
        if any_ends:
            codes, final_returns = _CODES[terminated + 2 * truncated], returns.copy()
            infos["eval_episode_return"] = final_returns
            info_rows = {**info_rows, "eval_episode_return": ends}
            if self.idles:
                self._begins = ends
            else:
                returns[ends] = 0.0
                if shown is None:
                    shown = with_rows(obs, ends, self._obs_of_new(ends.nonzero()[0]))
        self._obs = obs if shown is None else shown
        rewards = Column(Kind.ARRAY, (reward if reward.dtype == _FLOAT32 else to_float32(reward))[:, None])
        info = InfoColumns(infos, self._env_num, info_rows)
        step = BlockStep(self._every, self._all_ids, obs, rewards, ends, info, codes, ends, any_ends)
        step.returns = final_returns
        if "abnormal" in infos:
            step.abnormal = [row for row in self._every if is_abnormal(info[row])]
        return step

    # Steps of some envs.

    def _act_in(self, env_ids: list[int], actions: Sequence[Any] | np.ndarray) -> BlockStep:
        self._check_open()
        self._check_ids(env_ids)
        ready = self._ready_ids().tolist()
        if not set(env_ids).issubset(ready):
            self._refuse(env_ids, ready)
        if not env_ids:
            return self._await_answers()
        ids = np.array(env_ids, np.int64)
        batch = self._idle.copy()
        batch[ids] = self._actions.stack(actions, env_ids)
        try:
            step = self._step_some(batch, ids)
        except BaseException:
            self._lose_envs()
            raise
        if step.env_ids == self._ready_ids().tolist():
            obs = copied_rows(self._obs, step.ids) if step.any_ends else step.obs
            step.ready = Ready(step.env_ids, step.ids, obs)
        return step

    def _await_answers(self) -> BlockStep:
        """Wait for envs that were acted in before, and return their step."""
        return no_step()

    def _step_some(self, actions: np.ndarray, ids: IntArray) -> BlockStep:
        """Act in the envs `ids` by their rows of the actions [E, *shape], and return the step of those that answer."""
        left_out = self._states == RUN
        left_out[ids] = False
        self._drop(left_out)
        return self._steps_of(ids, self.step_all(actions))

    def _steps_of(self, ids: IntArray, sim_step: SimStep) -> BlockStep:
        """Note the states of all envs after a step, and return that of the envs `ids`, which were acted in."""
        begun = self._begins
        step = self._block_of(sim_step)
        ended = ids[step.ends[ids]]
        counts = self._env_episode_count[ended] = self._env_episode_count[ended] + 1
        self._states[ended] = RESET if self._auto_reset else NEED_RESET
        self._states[ended[counts >= self._episode_num]] = DONE
        begun = begun if self.idles else step.ends
        if begun is not None:
            begun = begun & (self._states == RESET)
            self._states[begun] = RUN
            self._episodes += begun
        is_all = len(ids) == self._env_num and not np.count_nonzero(ids != self._all_ids)
        return step if is_all else step.of_rows(ids)

    def _drop(self, mask: BoolArray) -> None:
        """Note that the episodes of these envs are dropped, until others begin."""
        self._states[mask] = RESET
        self._episodes += mask

    def _reset_envs(self, env_ids: list[int]) -> None:
        if env_ids:
            self._begin(np.array(sorted(env_ids), np.int64))

    def _begin(self, ids: IntArray) -> None:
        """Begin episodes of these envs."""
        shown = self._obs_of_new(ids)
        self._obs = shown if len(ids) == self._env_num else with_rows(self._obs, ids, shown)
        if self._begins is not None:
            self._begins = self._begins.copy()
            self._begins[ids] = False
        self._returns[ids] = 0.0
        self._episodes[ids] += 1
        self._states[ids] = RUN

    def _obs_of_new(self, ids: IntArray) -> Node:
        shown = self.begin_episodes(ids)
        if len(ids) == self._env_num:
            self.new_seeds = None
        return shown

    def _create_env(self, env_id: int) -> None:
        self._envs[env_id] = self._env_ref
        if self.simulator is None:
            self.new_seeds = self._sent_seeds
            self.simulator = self.make_simulator()

    def _close_envs(self) -> list[Exception]:
        self._end_simulator()
        self._obs = self._begins = None
        return super()._close_envs()

    def _end_simulator(self) -> None:
        simulator, self.simulator = self.simulator, None
        if simulator is not None:
            simulator.close()

    # The simulator does not hand out the states of its envs.

    @property
    def why_inexact(self) -> str:
        return f"{self.simulator_name} saves no states of envs; its running episode is dropped"

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        problems = super().load_state_dict(state)
        dropped = (self._states == RESET).nonzero()[0]
        if len(dropped):
            self._reset_envs(dropped.tolist())
        return problems

    def _save_envs(self) -> dict[int, dict[str, Any]]:
        return {
            env_id: {"problem": f"{self.simulator_name} saves no states of envs"} for env_id in range(self._env_num)
        }

    def _drop_episode(self, env_id: int, env_state: EnvState) -> None:
        self._states[env_id] = RESET if env_state is EnvState.RUN else env_state


def copied_rows(node: Node, rows: IntArray) -> Node:
    """Return a copy of these rows of a node of arrays; float64 becomes float32."""
    if type(node) is not Column:
        return map_node(lambda column: copied_rows(column, rows), node)
    data = node.data.take(rows, axis=0)
    return Column(node.kind, to_float32(data) if data.dtype == np.float64 and node.kind is Kind.ARRAY else data)


def with_rows(node: Node, rows: IntArray | BoolArray, values: Node) -> Node:
    """Return a copy of a node of arrays with other values in these rows."""

    def replaced(column: Column, new: Column) -> Column:
        data = column.data.copy()
        data[rows] = new.data
        return Column(column.kind, data)

    return replaced(node, values) if type(node) is Column else map_node(replaced, node, values)


def as_columns(obs: Any) -> Node:
    """Return arrays [E, *shape], or dicts and tuples of them, as columns."""
    if type(obs) is np.ndarray:
        return Column(Kind.ARRAY, obs)
    return map_leaves(lambda leaf: Column(Kind.ARRAY, leaf), obs)


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
