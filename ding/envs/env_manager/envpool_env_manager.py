"""An env manager over EnvPool, which steps many envs in threads of compiled code."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np

from ding.envs.env.gymnasium_env import without_warnings
from ding.envs.env_manager.base_env_manager import RESET, RUN, EnvState
from ding.envs.env_manager.batch_env_manager import BatchEnvManager, refuse_foreign
from ding.envs.env_manager.block import BlockStep
from ding.utils.config_helper import ConfigError, Setting, Settings, instance_of, integer
from ding.utils.data.nested import map_leaves
from ding.utils.data.samples import Column, IntArray, Kind, Node
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

    simulator = "EnvPool"
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

    def _prepare(self, cfg: Mapping[str, Any], env_cfg: Mapping[str, Any]) -> tuple[str, Any, Any]:
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
        self._all_numbers = np.arange(self._env_num, dtype=np.int32).tobytes()  # `env_id` of all envs in order
        self._is_sync = self._begins_with_steps = self._batch_size == self._env_num
        reserved = sorted({"num_envs", "batch_size", "seed"} & self._options.keys())
        if reserved:
            raise ConfigError(
                f"env.manager.kwargs has {', '.join(reserved)}, which the env manager passes itself; set env_num, "
                "batch_size or the seed of the run"
            )
        try:
            with without_warnings():  # of bounds that EnvPool has as float64
                spec = self._library.make_spec(self._task_id, **self._options)
                return self._task_id, spec.gymnasium_observation_space, spec.gymnasium_action_space
        except (KeyError, TypeError, ValueError) as e:  # it says neither which id nor whose options
            raise ConfigError(
                f"EnvPool cannot make the env {self._task_id!r} with the options {self._options}: {e!r}; "
                "`envpool.list_all_envs()` lists its ids"
            ) from e

    def wait_another(self) -> bool:
        """Wait until another env is ready; return False at once if none will be without a further call."""
        ready = self._now_ready().env_ids
        if self._is_sync:
            ended = np.flatnonzero(self._states == RESET)
            if not self._is_owed and len(ended):  # else a step was interrupted: its answer would come now
                self._send(self._idle[ended], ended)
                self._receive()
        else:
            while self._now_ready().env_ids == ready and self._owed.sum() >= self._batch_size:
                self._receive()
        return self._now_ready().env_ids != ready

    # What EnvPool is given and returns. It answers every action and reset of an env once, in arrays of its own. Any
    # action resets an env whose episode has ended.

    def _exchange(self, actions: np.ndarray | None, ids: IntArray) -> BlockStep | None:
        if actions is not None:
            if self._is_sync and len(ids) < self._env_num:  # the envs whose episodes have ended begin others
                ended = (self._states == RESET).nonzero()[0]
                if len(ended):
                    batch = self._idle.copy()
                    batch[ids] = actions
                    is_all = len(ids) + len(ended) == self._env_num
                    ids = self._all_ids if is_all else np.sort(np.concatenate([ids, ended]))
                    actions = batch if is_all else batch[ids]
            self._send(actions, ids)
        if self._is_sync:
            return self._receive() if self._is_owed else None
        step = None
        while step is None and np.count_nonzero(self._owed[self._states == RUN]):
            step = self._receive()
        return step

    def _send(self, actions: np.ndarray, ids: IntArray) -> None:
        self._owed[... if ids is self._all_ids else ids] += 1
        self._is_owed = True
        self._simulator.send(actions, ids.astype(np.int32))

    def _receive(self) -> BlockStep | None:
        """Receive the next batch and return the step of its envs, or None if it has only first observations."""
        if not self._is_sync and self._owed.sum() < self._batch_size:
            raise RuntimeError(
                f"env.manager.batch_size = {self._batch_size}, but only the envs {np.flatnonzero(self._owed).tolist()} "
                f"are working, so EnvPool would never answer; set batch_size to the number of envs, {self._env_num}"
            )
        raw_obs, rewards, terminated, truncated, infos = self._simulator.recv()
        infos.pop("players", None)
        ids, obs = infos["env_id"], _node(raw_obs)
        ids = self._all_ids if ids.tobytes() == self._all_numbers else ids.astype(np.int64)
        is_step = self._states[... if ids is self._all_ids else ids] == RUN
        if self._is_sync:  # these are the answers to all actions and resets
            self._owed[:], self._is_owed = 0, False
            is_first = ~is_step
        else:  # an answer to a step before a reset of its env does not count, and may arrive together with the reset's
            np.subtract.at(self._owed, ids, 1)
            places, last = np.arange(len(ids)), np.zeros(self._env_num, np.int64)
            last[ids] = places
            in_force = (self._owed[ids] == 0) & (last[ids] == places)
            is_first = in_force & (self._states[ids] == RESET)
            is_step &= in_force
        all_step = np.count_nonzero(is_step) == len(ids)
        rows, begun = (None, None) if all_step else (is_step.nonzero()[0], ids[is_first])
        counted = infos["reward"] if self._has_clipped else None
        step = self._step_of(ids, rows, obs, rewards, terminated, truncated, (infos, {}), begun, counted=counted)
        if step is not None and step.any_ends and not self._is_sync:
            ended = step.ids[self._states[step.ids] == RESET]
            self._send(self._idle[ended], ended)
        return step

    def _reset_envs(self, env_ids: list[int]) -> None:
        is_all = len(env_ids) == self._env_num
        if not (is_all or self._is_sync):
            raise RuntimeError(
                f"EnvPool cannot reset only the envs {env_ids} with env.manager.batch_size = {self._batch_size}; set "
                f"batch_size to the number of envs, {self._env_num}"
            )
        is_interrupted = self._is_sync and bool(self._owed.any())  # between a step and its answer, which would come now
        if is_interrupted and not is_all:
            raise RuntimeError(f"a step was interrupted, so the envs {env_ids} cannot be reset alone; reset() all envs")
        if is_all and (self._is_reseeded or is_interrupted):
            self._end_simulator()
            self._simulator = self._make_simulator()
        ids = np.array(env_ids, np.int64)
        self._states[ids] = RESET
        if not self._is_sync:
            self._owed += 1
            self._is_owed = True
            self._simulator.async_reset()
            while self._owed.sum() >= self._batch_size:
                self._receive()
        elif len(ids):
            obs, _ = self._simulator.reset(ids.astype(np.int32))
            self._count_begun(ids)
            self._look_at(self._known(ids), _node(obs))

    def _make_simulator(self) -> Any:
        self._is_reseeded = False
        with without_warnings():
            pool = self._library.make_gymnasium(
                self._task_id,
                num_envs=self._env_num,
                batch_size=self._batch_size,
                seed=0 if self._sent_seeds is None else self._sent_seeds,
                **self._options,
            )
            getattr(pool, "observation_space", None)  # EnvPool makes it, with its warnings, at the first access
        return pool

    def _drop_episode(self, env_id: int, env_state: EnvState) -> None:
        if env_state not in (EnvState.RUN, EnvState.RESET):
            super()._drop_episode(env_id, env_state)
        elif self._is_sync:  # an env of EnvPool in mid-episode would not be reset by the next step
            super()._drop_episode(env_id, EnvState.RUN)
        else:  # it has just been reset, or is about to be
            self._episodes[env_id] += 1


def _node(obs: Any) -> Node:
    """Return observations of EnvPool as columns; those without a dimension are Python numbers."""
    return map_leaves(_column, obs)


def _column(obs: np.ndarray) -> Column:
    with np.errstate(over="ignore"):  # as `to_float32`, without a call
        array = obs.astype(np.float32) if obs.dtype == np.float64 else obs
    if array.ndim > 1:
        return Column(Kind.ARRAY, array)
    kind, dtype = _NUMBERS[array.dtype.kind]
    return Column(kind, array.astype(dtype))


def _envpool() -> ModuleType:
    try:
        import envpool
    except ImportError as e:
        raise missing_package("the env manager env_pool", "envpool") from e
    library: ModuleType = envpool
    return library
