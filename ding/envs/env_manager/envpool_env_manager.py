"""An env manager over EnvPool, which steps many envs in threads of compiled code."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from ding.envs.env.gymnasium_spaces import to_float32
from ding.envs.env_manager.base_env_manager import RESET, RUN, ResetParam
from ding.envs.env_manager.batch_env_manager import BatchEnvManager, SimStep, refuse_foreign, with_rows
from ding.envs.env_manager.block import BlockStep, no_step
from ding.utils.config_helper import ConfigError, Setting, Settings, instance_of, integer
from ding.utils.data.nested import map_leaves
from ding.utils.data.samples import Column, IntArray, Kind, Node, map_node
from ding.utils.import_helper import missing_package
from ding.utils.registry_factory import ENV_MANAGER_REGISTRY

# Options of the Atari envs of EnvPool; other options are in `kwargs`.
_ATARI_OPTIONS = ("episodic_life", "reward_clip", "stack_num", "gray_scale", "frame_skip")
# What the items of an array of one dimension are as Python numbers, by the kind of its dtype.
_NUMBERS: dict[str, tuple[Kind, Any]] = {
    "b": (Kind.BOOL, np.bool_),
    "i": (Kind.INT, np.int64),
    "u": (Kind.INT, np.int64),
    "f": (Kind.FLOAT, np.float64),
}


@ENV_MANAGER_REGISTRY.register("env_pool")
class PoolEnvManager(BatchEnvManager):
    """Env manager that steps envs of EnvPool in threads of this process, without Python code in between.

    The env is `env_id`, an id of EnvPool such as `Pong-v5` or `CartPole-v1`, by default the `env_id` in the config of
    `env_fn`. EnvPool makes the env itself, so an env section with wrappers is refused.

    Unless `batch_size` is below the number of envs, `step` returns all timesteps of the envs that were acted in, and an
    env whose episode has ended begins the next one during the next step, so it is ready again one step later. While no
    env is ready, `ready_obs` begins episodes. With a smaller `batch_size`, `step` returns the `batch_size` envs that
    are ready first, and an env whose episode has ended is ready again some steps later. At least `batch_size` envs must
    be working then, so use it with a collector of samples, which acts in all ready envs. `step({})` waits for envs that
    were acted in before.

    Env i is seeded with `seed + i`, or its own entry of a list, when the pool is made: at `launch`, or at the next
    `reset()` after `seed`. EnvPool draws the episodes that follow from that seed. `info` has `env_id`, the bools
    `terminated` and `truncated`, what EnvPool reports of the env, and at the last step `eval_episode_return`, the sum
    of the rewards before `reward_clip`.

    Args:
        cfg: missing values are filled from `default_config()`.
        env_fn: one function for each env, which sets the number of envs; without it, `cfg.env_num` does.

    Raises:
        ImportError: envpool is not installed.
        ConfigError: a config value is not allowed, or there is no `env_id`.
    """

    simulator_name = "EnvPool"
    idles = True
    settings = Settings(
        {
            "batch_size": Setting(
                None,
                integer(1, optional=True),
                "Number of timesteps that a step returns, at most those of all envs; None for all.",
            ),
            **dict.fromkeys(
                _ATARI_OPTIONS, Setting(None, None, "Option of the Atari envs of EnvPool; None for its default.")
            ),
            "kwargs": Setting(
                {}, instance_of(dict), "Further options of the env, such as `max_episode_steps`, and `num_threads`."
            ),
        },
        BatchEnvManager.settings,
    )

    def prepare(self, cfg: Mapping[str, Any], env_cfg: Mapping[str, Any]) -> tuple[str, Any, Any]:
        refuse_foreign(env_cfg, "env_pool", ", and put options of EnvPool into env.manager.kwargs")
        self._task_id = env_cfg.get("env_id") if cfg["env_id"] is None else cfg["env_id"]
        if not isinstance(self._task_id, str):
            raise ConfigError(
                f"env.manager.env_id = {self._task_id!r} is not allowed; give the id of an env of EnvPool"
            )
        options = {key: cfg[key] for key in _ATARI_OPTIONS if cfg[key] is not None}
        limit = env_cfg.get("max_episode_steps")
        self._options = {**options, **({} if limit is None else {"max_episode_steps": limit}), **cfg["kwargs"]}
        self._has_clipped = bool(self._options.get("reward_clip"))  # `info` has the rewards themselves
        self._library = _envpool()
        self._batch_size = min(int(cfg["batch_size"] or self._env_num), self._env_num)
        self._is_sync = self._batch_size == self._env_num
        self._owed = np.zeros(self._env_num, np.int64)  # by env the number of answers that are yet to come
        self._all_int32 = np.arange(self._env_num, dtype=np.int32)
        self._all_numbers = self._all_int32.tobytes()  # `env_id` of all envs in order
        reserved = sorted({"num_envs", "batch_size", "seed"} & self._options.keys())
        if reserved:
            raise ConfigError(
                f"env.manager.kwargs has {', '.join(reserved)}, which the env manager passes itself; set env_num, "
                "batch_size or the seed of the run"
            )
        try:
            with _without_warnings():
                spec = self._library.make_spec(self._task_id, **self._options)
                self._stack_num = int(getattr(spec.config, "stack_num", 1))
                return self._task_id, spec.gymnasium_observation_space, spec.gymnasium_action_space
        except (KeyError, TypeError, ValueError) as e:  # it says neither which id nor whose options
            raise ConfigError(
                f"EnvPool cannot make the env {self._task_id!r} with the options {self._options}: {e!r}; "
                "`envpool.list_all_envs()` lists its ids"
            ) from e

    def _declared_stack(self) -> int:
        return self._stack_num

    # Any action begins an episode in an env whose last one has ended. EnvPool answers each action and reset once.

    def step_all(self, actions: np.ndarray) -> SimStep:
        self.simulator.send(actions, self._all_int32)
        ids, step = self._receive()
        if ids.tobytes() != self._all_numbers:
            step = self._of_all(ids, step)
        return step

    def _receive(self) -> tuple[np.ndarray, SimStep]:
        """Return the next batch of answers, and the envs that they are of."""
        obs, rewards, terminated, truncated, infos = self.simulator.recv()
        infos.pop("players", None)
        counted = infos["reward"] if self._has_clipped else None
        # The usual case needs no call.
        is_array = type(obs) is np.ndarray and obs.ndim > 1 and obs.dtype != np.float64
        node = Column(Kind.ARRAY, obs) if is_array else _node(obs)
        return infos["env_id"], SimStep(node, rewards, terminated, truncated, infos, {}, None, counted)

    def _of_all(self, ids: np.ndarray, step: SimStep) -> SimStep:
        """Return the answers of the envs `ids` as a step of all; the others show what they did, and earn nothing."""

        def spread(part: np.ndarray) -> np.ndarray:
            whole = np.zeros((self._env_num, *part.shape[1:]), part.dtype)
            whole[ids] = part
            return whole

        flags = spread(step.terminated), spread(step.truncated)
        counted = None if step.counted is None else spread(step.counted)
        infos = map_leaves(spread, step.infos)
        if self._obs is None:
            obs = map_node(lambda column: Column(column.kind, spread(column.data)), step.obs)
        else:
            obs = with_rows(self._obs, ids, step.obs)
        return SimStep(obs, spread(step.reward), *flags, infos, {}, None, counted)

    def begin_episodes(self, ids: IntArray) -> Node:
        if len(ids) == self._env_num:
            self._renew()
        obs, _ = self.simulator.reset(ids.astype(np.int32))
        return _node(obs)

    def _step_some(self, actions: np.ndarray, ids: IntArray) -> BlockStep:
        if not self._is_sync:
            self._send(actions[ids], ids)
            return self._await_answers()
        begun = self._states == RESET
        self._begins = begun if begun.any() else None
        sent = begun.copy()
        sent[ids] = True
        if sent.all():
            return self._steps_of(ids, self.step_all(actions))
        self.simulator.send(actions[sent], sent.nonzero()[0].astype(np.int32))
        return self._steps_of(ids, self._of_all(*self._receive()))

    # With a smaller batch, envs answer when they are ready.

    @property
    def can_idle(self) -> bool:  # type: ignore[override]
        return self._is_sync and super().can_idle

    def _ready_ids(self) -> IntArray:
        return np.flatnonzero((self._states == RUN) & (self._owed == 0))

    def reset(self, reset_param: ResetParam | None = None) -> None:
        """Begin a new episode in all envs, or in those of `reset_param`, which must be without parameters.

        Raises:
            RuntimeError: some envs are to be reset, but `batch_size` is below their number.
        """
        if not self._is_sync and reset_param is not None and len(reset_param) < self._env_num:
            raise RuntimeError(
                f"EnvPool cannot reset only the envs {list(reset_param)} with env.manager.batch_size = "
                f"{self._batch_size}; set batch_size to the number of envs, {self._env_num}"
            )
        super().reset(reset_param)

    def _reset_envs(self, env_ids: list[int]) -> None:
        if self._is_sync:
            super()._reset_envs(env_ids)
            return
        self._renew()
        self._states[env_ids] = RESET
        self._episodes += 1
        self._owed += 1
        self.simulator.async_reset()
        while self._owed.sum() >= self._batch_size:
            self._receive_some()

    def wait_another(self) -> bool:
        """Wait until another env is ready; return False at once if none will be without a further call."""
        if self._is_sync:
            return super().wait_another()
        ready = self._ready_ids()
        while np.array_equal(self._ready_ids(), ready) and self._owed.sum() >= self._batch_size:
            self._receive_some()
        return not np.array_equal(self._ready_ids(), ready)

    def _send(self, actions: np.ndarray, ids: IntArray) -> None:
        self._owed[ids] += 1
        self.simulator.send(actions, ids.astype(np.int32))

    def _await_answers(self) -> BlockStep:
        step = no_step()
        while not step.env_ids and np.count_nonzero(self._owed[self._states == RUN]):
            step = self._receive_some()
        return step

    def _receive_some(self) -> BlockStep:
        """Receive the next batch, and return the step of the envs in it that were acted in."""
        if self._owed.sum() < self._batch_size:
            raise RuntimeError(
                f"env.manager.batch_size = {self._batch_size}, but only the envs {np.flatnonzero(self._owed).tolist()} "
                f"are working, so EnvPool would never answer; set batch_size to the number of envs, {self._env_num}"
            )
        ids, sim_step = self._receive()
        np.subtract.at(self._owed, ids, 1)
        # An answer to a step before a reset of its env does not count, and may arrive together with the reset's.
        places, last = np.arange(len(ids)), np.zeros(self._env_num, np.int64)
        last[ids] = places
        counts = (self._owed[ids] == 0) & (last[ids] == places)
        self._begins = np.zeros(self._env_num, np.bool_)
        self._begins[ids[counts & (self._states[ids] == RESET)]] = True
        stepped = ids[counts & (self._states[ids] == RUN)].astype(np.int64)
        step = self._steps_of(stepped, self._of_all(ids, sim_step))
        if step.any_ends:
            ended = step.ids[self._states[step.ids] == RESET]
            self._send(self._idle[ended], ended)
        return step

    # Making the pool.

    def _renew(self) -> None:
        """Make another pool if there are new seeds."""
        if self.new_seeds is not None:
            self._end_simulator()
            self.simulator = self.make_simulator()

    def make_simulator(self) -> Any:
        self._owed[:], self.new_seeds = 0, None
        with _without_warnings():
            pool = self._library.make_gymnasium(
                self._task_id,
                num_envs=self._env_num,
                batch_size=self._batch_size,
                seed=0 if self._sent_seeds is None else self._sent_seeds,
                **self._options,
            )
            getattr(pool, "observation_space", None)  # EnvPool makes it, with its warnings, at the first access
        return pool


def _node(obs: Any) -> Node:
    """Return observations of EnvPool as columns; those without a dimension are Python numbers."""
    return _column(obs) if type(obs) is np.ndarray else map_leaves(_column, obs)


def _column(obs: np.ndarray) -> Column:
    array = to_float32(obs) if obs.dtype == np.float64 else obs
    if array.ndim > 1:
        return Column(Kind.ARRAY, array)
    kind, dtype = _NUMBERS[array.dtype.kind]
    return Column(kind, array.astype(dtype))


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Suppress what gymnasium says of spaces whose bounds EnvPool has as float64."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*precision lowered")
        yield


def _envpool() -> ModuleType:
    try:
        import envpool
    except ImportError as e:
        raise missing_package("the env manager env_pool", "envpool") from e
    library: ModuleType = envpool
    return library
