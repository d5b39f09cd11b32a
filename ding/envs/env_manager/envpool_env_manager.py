"""An env manager over EnvPool, which steps many envs in threads of compiled code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
from easydict import EasyDict

from ding.envs.env.base_env import BaseEnvTimestep
from ding.envs.env.gymnasium_spaces import as_observation, float32_space, reward_space_of
from ding.envs.env_manager.base_env_manager import BaseEnvManager, EnvNotReadyError, EnvState, ResetParam
from ding.envs.env_manager.env_seeds import Seeds
from ding.envs.env_manager.env_state import Restored
from ding.utils.config_helper import ConfigError, Setting, Settings, instance_of, integer
from ding.utils.registry_factory import ENV_MANAGER_REGISTRY

# Options of the Atari envs of EnvPool; other options are in `kwargs`.
_ATARI_OPTIONS = ("episodic_life", "reward_clip", "stack_num", "gray_scale", "frame_skip")
# Settings of an env section that make an env other than the one EnvPool makes.
_FOREIGN = ("env", "kwargs", "wrappers", "act_scale", "norm_obs", "env_wrapper")


class PooledEnv:
    """Stands for an env that EnvPool keeps to itself: it only states the spaces."""

    def __init__(self, name: str, observation_space: Any, action_space: Any) -> None:
        self._name = name
        self.observation_space = observation_space
        self.action_space = action_space
        self.reward_space = reward_space_of(self)

    def close(self) -> None:
        """Nothing is open."""

    def __repr__(self) -> str:
        return f"PooledEnv({self._name!r})"


@ENV_MANAGER_REGISTRY.register("env_pool")
class PoolEnvManager(BaseEnvManager):
    """Steps envs of EnvPool, in threads of this process, without Python code in between.

    The env is `env_id`, an id of EnvPool such as `Pong-v5` or `CartPole-v1`; without it, the `env_id` in the config of
    `env_fn`. EnvPool makes the env itself, so an env section with wrappers or `act_scale` is refused.

    With `batch_size` equal to the number of envs, `step` returns all timesteps of the envs that were acted in, and an
    env whose episode has ended is reset within the step. With a smaller `batch_size`, `step` returns the `batch_size`
    envs that are ready first, and an env whose episode has ended is ready again some steps later; at least `batch_size`
    envs must be working then, so it is for a collector of samples, which acts in all envs that are ready.

    Env i is seeded with `seed + i`, or its own entry of a list, when the pool is made: at `launch`, or at the next
    `reset()` after `seed`. EnvPool draws the episodes that follow from that seed. `info` has `env_id`, the bools
    `terminated` and `truncated`, what EnvPool reports of the env, and at the last step `eval_episode_return`.
    States of running episodes cannot be saved, so a resumed run begins new ones.

    Args:
        cfg: missing values are filled from `default_config()`.
        env_fn: one function for each env, which sets the number of envs; without it, `cfg.env_num` does.

    Raises:
        ImportError: envpool is not installed.
        ConfigError: a config value is not allowed, or there is no `env_id`.
    """

    settings = Settings(
        {
            "env_id": Setting(
                None, instance_of(str, optional=True), "Id of the env in EnvPool; None for that of the env section."
            ),
            "env_num": Setting(8, integer(1), "Number of envs, if the manager is made without env functions."),
            "batch_size": Setting(8, integer(1), "Number of timesteps that a step returns, at most those of all envs."),
            **dict.fromkeys(
                _ATARI_OPTIONS, Setting(None, None, "Option of the Atari envs of EnvPool; None for its default.")
            ),
            "kwargs": Setting(
                {}, instance_of(dict), "Further options of the env, such as `max_episode_steps`, and `num_threads`."
            ),
        },
        BaseEnvManager.settings,
    )

    def __init__(self, cfg: Mapping[str, Any] = EasyDict(), env_fn: list[Callable[[], Any]] | None = None) -> None:
        merged = {**self.default_config(), **cfg}
        env_cfg = _env_section(env_fn)
        self._task_id = _task_id(merged["env_id"], env_cfg)
        options = {key: merged[key] for key in _ATARI_OPTIONS if merged[key] is not None}
        limit = env_cfg.get("max_episode_steps")
        self._options = {**options, **({} if limit is None else {"max_episode_steps": limit}), **merged["kwargs"]}
        self._library = _envpool()
        count = int(merged["env_num"]) if env_fn is None else len(env_fn)
        spec = self._library.make_spec(self._task_id, **self._options)
        stand_in = partial(PooledEnv, self._task_id, spec.gymnasium_observation_space, spec.gymnasium_action_space)
        super().__init__([stand_in] * count, cfg)
        self._observation_space = float32_space(self._observation_space)
        self._batch_size = min(int(merged["batch_size"]), count)
        self._is_sync = self._batch_size == count
        self._pool: Any = None
        self._pool_seeds: int | list[int] = 0
        self._is_reseeded = False
        self._owed = dict.fromkeys(range(count), 0)  # by env the number of answers that EnvPool has yet to return
        self._returns = np.zeros(count)

    def seed(self, seed: Seeds, dynamic_seed: bool | None = None) -> None:
        """Seed the envs when the pool is made next: at `launch`, or at the next `reset()` of all envs.

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
        self._pool_seeds = [env_id if entry is None else entry.plain for env_id, entry in enumerate(entries)]
        if isinstance(seed, (int, np.integer)):
            self._pool_seeds = int(seed)
        self._is_reseeded = True

    def enable_save_replay(self, replay_path: str | list[str]) -> None:
        """Raise NotImplementedError: EnvPool records no videos."""
        raise NotImplementedError("EnvPool records no videos; set env.manager.type to 'base' to record one")

    def reset(self, reset_param: ResetParam | None = None) -> None:
        """Begin a new episode in all envs, or in those of `reset_param`, which may hold no parameters.

        Raises:
            AssertionError: the manager is closed.
            RuntimeError: an env id is unknown.
            ValueError: there are parameters, which EnvPool does not take.
        """
        given = {env_id: param for env_id, param in (reset_param or {}).items() if param}
        if given:
            raise ValueError(f"EnvPool takes no parameters of a reset, got {given}; use env.manager.kwargs for options")
        super().reset(reset_param)

    @property
    def ready_obs(self) -> dict[int, Any]:
        """`{env_id: obs}` of the envs that wait for an action; empty if there are none."""
        return {env_id: self._ready_obs[env_id] for env_id in self.ready_obs_id}

    @property
    def ready_obs_id(self) -> list[int]:
        """Ids of the envs that wait for an action."""
        run, owed = EnvState.RUN, self._owed
        return [env_id for env_id, state in self._env_states.items() if state is run and not owed[env_id]]

    def step(self, actions: Mapping[int, Any]) -> dict[int, Any]:
        """Act in the envs of `actions`; return the timesteps `{env_id: timestep}` of those that are ready.

        A timestep that ends an episode has the terminal observation. `step({})` waits for envs that were acted in
        before.

        Raises:
            AssertionError: the manager is closed, or an env is not ready for an action (no env was stepped then).
            RuntimeError: an env id is unknown (no env was stepped then), or fewer than `batch_size` envs are working.
            ValueError: an action is outside of the action space (no env was stepped then).
        """
        self._check_open()
        self._check_ready(actions)
        self._version += 1
        if actions:
            self._send(self._batch_of(actions), list(actions))
        timesteps: dict[int, Any] = {}
        while not timesteps and any(self._owed[env_id] and self._is_running(env_id) for env_id in self._owed):
            timesteps = self._receive()
        return timesteps

    def wait_another(self) -> bool:
        """Wait until another env is ready; False, at once, if none will be without a call."""
        ready = self.ready_obs_id
        while self.ready_obs_id == ready and sum(self._owed.values()) >= self._batch_size:
            self._receive()
        return self.ready_obs_id != ready

    def _is_running(self, env_id: int) -> bool:
        return self._env_states[env_id] is EnvState.RUN

    def _check_ready(self, env_ids: Iterable[int]) -> None:
        self._check_ids(env_ids)
        ready = self.ready_obs_id
        if not set(env_ids).issubset(ready):
            states = {env_id: state.name for env_id, state in self._env_states.items()}
            raise EnvNotReadyError(
                f"actions are for envs {list(env_ids)}, but only {ready} are ready; current env state are: {states}"
            )

    def _batch_of(self, actions: Mapping[int, Any]) -> np.ndarray:
        space = self._action_space
        batch = np.stack([np.reshape(action, space.shape) for action in actions.values()])
        n = getattr(space, "n", None)
        if n is None:
            return batch.astype(space.dtype, copy=False)
        first = int(getattr(space, "start", 0))
        wrong = (batch < first) | (batch >= first + n)
        if wrong.any():  # EnvPool does not check
            bad = {env_id: batch[row].item() for row, env_id in enumerate(actions) if wrong[row]}
            raise ValueError(f"the actions {bad} are outside of the action space {space}: [{first}, {first + n - 1}]")
        return batch

    # What EnvPool is given and returns. It answers every action and reset of an env once.

    def _send(self, actions: np.ndarray, env_ids: list[int]) -> None:
        self._pool.send(actions, np.array(env_ids, np.int32))
        for env_id in env_ids:
            self._owed[env_id] += 1

    def _receive(self) -> dict[int, Any]:
        """Take in the next batch and return its timesteps; first observations go to `ready_obs`."""
        working = sorted(env_id for env_id, number in self._owed.items() if number)
        if not self._is_sync and sum(self._owed.values()) < self._batch_size:
            raise RuntimeError(
                f"env.manager.batch_size = {self._batch_size}, but only the envs {working} are working, so EnvPool "
                f"would never answer; set batch_size to the number of envs, {self._env_num}"
            )
        obs, rewards, terminated, truncated, infos = self._pool.recv()
        obs, rewards = as_observation(obs), rewards.astype(np.float32, copy=False)
        timesteps, ended = {}, []
        for row, env_id in self._rows_in_force(infos):
            own_obs = _row(obs, row)
            if self._env_states[env_id] is EnvState.RESET:
                self._begin(env_id, own_obs)
                continue
            info = _row({key: value for key, value in infos.items() if key != "players"}, row)
            info["terminated"], info["truncated"] = bool(terminated[row]), bool(truncated[row])
            done = info["terminated"] or info["truncated"]
            self._returns[env_id] += rewards[row]
            if done:
                info["eval_episode_return"] = float(self._returns[env_id])
                if self._count_end(env_id):
                    ended.append(env_id)
            else:
                self._ready_obs[env_id] = own_obs
            timesteps[env_id] = BaseEnvTimestep(own_obs, rewards[row : row + 1], done, info)
        if ended:
            self._begin_next(ended)
        return timesteps

    def _rows_in_force(self, infos: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
        """`(row, env id)` of the received rows, without those of before a reset."""
        for row, env_id in enumerate(infos["env_id"].tolist()):
            self._owed[env_id] -= 1
            if not self._owed[env_id]:
                yield row, env_id

    def _begin(self, env_id: int, obs: Any) -> None:
        self._returns[env_id] = 0.0
        self._seeds.count_episode(env_id)
        self._episodes[env_id] += 1
        self._ready_obs[env_id] = obs
        self._env_states[env_id] = EnvState.RUN

    def _begin_next(self, env_ids: list[int]) -> None:
        """Begin the next episodes of envs whose episodes have ended."""
        if self._is_sync:
            self._reset_some(env_ids)
        else:  # any action resets an env whose episode has ended
            self._send(self._batch_of({env_id: self._action_space.sample() for env_id in env_ids}), env_ids)

    def _reset_some(self, env_ids: list[int]) -> None:
        for env_id in env_ids:
            self._env_states[env_id] = EnvState.RESET
            self._owed[env_id] += 1
        obs, infos = self._pool.reset(np.array(env_ids, np.int32))
        obs = as_observation(obs)
        for row, env_id in self._rows_in_force(infos):
            self._begin(env_id, _row(obs, row))

    def _reset_all(self) -> None:
        for env_id in range(self._env_num):
            self._env_states[env_id] = EnvState.RESET
            self._owed[env_id] += 1
        self._pool.async_reset()
        while sum(self._owed.values()) >= self._batch_size:
            self._receive()

    def _reset_envs(self, env_ids: list[int]) -> None:
        is_all = len(env_ids) == self._env_num
        if not (is_all or self._is_sync):
            raise RuntimeError(
                f"EnvPool cannot reset only the envs {env_ids} with env.manager.batch_size = {self._batch_size}; set "
                f"batch_size to the number of envs, {self._env_num}"
            )
        if is_all and self._is_reseeded:
            self._make_pool()
        if is_all and not self._is_sync:
            self._reset_all()
        else:
            self._reset_some(env_ids)

    def _make_pool(self) -> None:
        self._close_pool()
        self._pool = self._library.make_gymnasium(
            self._task_id,
            num_envs=self._env_num,
            batch_size=self._batch_size,
            seed=self._pool_seeds,
            **self._options,
        )
        self._is_reseeded = False
        self._owed = dict.fromkeys(range(self._env_num), 0)

    def _close_pool(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def _create_env(self, env_id: int) -> None:
        self._envs[env_id] = self._env_ref
        if self._pool is None:
            self._make_pool()

    def _close_envs(self) -> list[Exception]:
        self._close_pool()
        self._owed = dict.fromkeys(range(self._env_num), 0)
        return super()._close_envs()

    # EnvPool does not hand out the states of its envs.

    def _save_envs(self) -> dict[int, dict[str, Any]]:
        return {env_id: {} for env_id in range(self._env_num)}

    def _restore_envs(self, states: Mapping[int, Mapping[str, Any]]) -> dict[int, Restored]:
        return {env_id: Restored(self._env_ref, None, problem="EnvPool saves no states of envs") for env_id in states}

    def _drop_episode(self, env_id: int, env_state: EnvState) -> None:
        if self._is_sync or env_state not in (EnvState.RUN, EnvState.RESET):
            super()._drop_episode(env_id, env_state)
        else:  # it has just been reset, or is about to be
            self._episodes[env_id] += 1


def _row(batch: Any, row: int) -> Any:
    if isinstance(batch, Mapping):
        return {key: _row(value, row) for key, value in batch.items()}
    value = batch[row]
    return value if isinstance(value, np.ndarray) else value.item()


def _envpool() -> ModuleType:
    try:
        import envpool
    except ImportError as e:
        raise ImportError(
            "the env manager env_pool needs the package envpool, which is not installed: pip install envpool"
        ) from e
    library: ModuleType = envpool
    return library


def _env_section(env_fn: list[Callable[[], Any]] | None) -> Mapping[str, Any]:
    """The config that the first of the env functions was given; empty if there is none."""
    cfg = getattr(env_fn[0], "keywords", {}).get("cfg") if env_fn else None
    return cfg if isinstance(cfg, Mapping) else {}


def _task_id(env_id: str | None, env_cfg: Mapping[str, Any]) -> str:
    foreign = [key for key in _FOREIGN if env_cfg.get(key)]
    if foreign:
        raise ConfigError(
            f"env.{foreign[0]} has no meaning for the env manager env_pool, as EnvPool makes the env itself; remove "
            "it, and put options of EnvPool into env.manager.kwargs"
        )
    found = env_cfg.get("env_id") if env_id is None else env_id
    if not isinstance(found, str):
        raise ConfigError(f"env.manager.env_id = {found!r} is not allowed; give the id of an env of EnvPool")
    return found
