"""Many envs behind one interface, stepped one after the other in this process; the base of the other managers."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

import numpy as np
from easydict import EasyDict

from ding.envs.env_manager.attempts import attempt_again, call_with_timeout, exhausted
from ding.envs.env_manager.env_state import EnvState
from ding.envs.env_manager.manager_view import ManagerView
from ding.envs.env_manager.stacked_format import StackedFormat
from ding.utils.import_helper import import_module
from ding.utils.registry_factory import ENV_MANAGER_REGISTRY

_logger = logging.getLogger("ding")
ResetParam = Mapping[int, "dict[str, Any] | None"]


@ENV_MANAGER_REGISTRY.register("base")
class BaseEnvManager(ManagerView):
    """Steps envs one after the other in this process.

    Args:
        env_fn: one function without arguments for each env. The first is also called at once, for an env that tells
            the spaces and is kept for life.
        cfg: what is missing is filled from `default_config()`.

    Observations and timesteps hold the arrays the envs returned; only a terminal timestep that an auto reset follows is
    a copy, since the reset may write into the same arrays. A step that failed is tried again on the same env, whatever
    state it is in. One thread may use a manager at a time.

    Example:
        >>> from ding.envs import GymnasiumEnv
        >>> manager = BaseEnvManager([lambda: GymnasiumEnv({"env_id": "CartPole-v1"})] * 2, {"episode_num": 1})
        >>> manager.seed(0)
        >>> manager.launch()
        >>> timesteps = manager.step({env_id: 0 for env_id in manager.ready_obs})
        >>> {env_id: timestep.done for env_id, timestep in timesteps.items()}
        {0: False, 1: False}
        >>> manager.close()
    """

    def __init__(self, env_fn: list[Callable[[], Any]], cfg: Mapping[str, Any] = EasyDict()) -> None:
        super().__init__(env_fn, cfg)
        self._envs: dict[int, Any] = {}
        self._reset_param: dict[int, dict[str, Any] | None] = {}
        self._env_episode_count: dict[int, int] = {}

    @property
    def ready_imgs(self) -> dict[int, Any]:
        """`{env_id: image}`, what `render('rgb_array')` of the envs in `ready_obs` returns."""
        return {env_id: self._call_env(env_id, "render", "rgb_array") for env_id in self.ready_obs_id}

    def launch(self, reset_param: ResetParam | None = None) -> None:
        """Make the envs and reset them all.

        Args:
            reset_param: as for `reset`, for every env.

        Raises:
            AssertionError: the manager is open, or `reset_param` is not for every env.
            RuntimeError: an env cannot be reset.
        """
        if not self._closed:
            raise AssertionError("the env manager is open already; close() it before another launch()")
        if reset_param is not None and len(reset_param) != self._env_num:
            raise AssertionError(f"reset_param is for {len(reset_param)} envs, but there are {self._env_num}")
        _log_once(f"spaces: {self._observation_space}, {self._action_space}, {self._reward_space}")
        self._closed = False
        self._seeds.forget_told()
        try:
            for env_id in range(self._env_num):
                self._env_states[env_id] = EnvState.INIT
                self._env_episode_count[env_id] = 0
                self._reset_param[env_id] = None
                self._create_env(env_id)
            self.reset(reset_param)
        except Exception:
            self._close_after_failure()
            raise

    def reset(self, reset_param: ResetParam | None = None) -> None:
        """Begin a new episode in all envs, or in those of `reset_param`.

        Args:
            reset_param: `{env_id: keyword arguments of its reset}`; None for none. They stay in force for later resets.

        Raises:
            AssertionError: the manager is closed.
            RuntimeError: an env id is unknown, or an env cannot be reset; then the manager is closed.
        """
        self._check_open()
        self._reset_count += 1
        if reset_param is not None:
            self._check_ids(reset_param)
            self._reset_param.update(reset_param)
        self._reset_envs(list(range(self._env_num) if reset_param is None else reset_param))

    def step(self, actions: Mapping[int, Any]) -> dict[int, Any]:
        """Act in the envs of `actions`; return `{env_id: timestep}`.

        A timestep that ends an episode has the terminal observation; the first one of the next is in `ready_obs`.

        Raises:
            AssertionError: the manager is closed.
            RuntimeError: an env id is unknown (then no env was stepped), or a step failed in every attempt (then that
                env is in the state ERROR until its next reset).
        """
        if self._closed:
            self._check_open()
        if not actions.keys() <= self._env_states.keys():
            self._check_ids(actions)
        timesteps = {}
        envs, ready_obs, timeout = self._envs, self._ready_obs, self._step_timeout
        for env_id, action in actions.items():
            step = envs[env_id].step
            try:
                timestep = step(action) if timeout is None else call_with_timeout(timeout, step, action)
            except Exception as e:
                timestep = self._step_again(env_id, action, e)
            done = timestep.done
            if done is True or (done is not False and np.all(done)):
                timestep = self._end_episode(env_id, timestep)
            else:
                ready_obs[env_id] = timestep.obs
            timesteps[env_id] = timestep
        return timesteps

    def close(self) -> None:
        """Close the envs; a second call does nothing, and `launch` may follow.

        Raises:
            Exception: the first error of an env's close, after all have been closed.
        """
        if self._closed:
            return
        self._closed = True
        self._ready_obs.clear()
        errors = self._close_envs()
        self._env_states.update(dict.fromkeys(range(self._env_num), EnvState.VOID))
        if errors:
            raise errors[0]

    def enable_save_figure(self, env_id: int, figure_path: str) -> None:
        """Have the env save figures in the folder `figure_path`."""
        self._check_open()
        self._call_env(env_id, "enable_save_figure", figure_path)

    def reward_shaping(self, env_id: int, transitions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The transitions with rewards as the env shapes them, which may write into those it is given."""
        self._check_open()
        shaped: list[dict[str, Any]] | None = self._call_env(env_id, "reward_shaping", transitions)
        return transitions if shaped is None else shaped

    def __enter__(self) -> BaseEnvManager:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _end_episode(self, env_id: int, timestep: Any) -> Any:
        self._env_episode_count[env_id] += 1
        if self._env_episode_count[env_id] >= self._episode_num:
            self._env_states[env_id] = EnvState.DONE
        elif not self._auto_reset:
            self._env_states[env_id] = EnvState.NEED_RESET
        else:
            # What `_replace` does, at a third of its cost; obs and reward are the first two fields of a timestep.
            obs, reward, *rest = timestep
            timestep = tuple.__new__(type(timestep), (_copy(obs), _copy(reward), *rest))
            self._reset_env(env_id)
        return timestep

    def _reset_envs(self, env_ids: list[int]) -> None:
        for env_id in env_ids:
            if self._env_replay_path is not None and self._env_states[env_id] is EnvState.RUN:
                _logger.warning("env %s is recorded and runs: it is not reset before its episode ends", env_id)
            else:
                self._reset_env(env_id)

    def _close_envs(self) -> list[Exception]:
        """Close all envs; return the errors of those that failed to."""
        errors = []
        for env_id in list(self._envs):
            try:
                self._close_env(env_id)
            except Exception as e:
                errors.append(e)
        return errors

    def _reset_env(self, env_id: int) -> None:
        self._env_states[env_id] = EnvState.RESET
        self._seeds.tell(env_id, self._envs[env_id])
        try:
            obs = self._attempt_reset(env_id)
        except Exception as e:
            obs = self._reset_again(env_id, e)
        self._seeds.count_reset(env_id)
        self._ready_obs[env_id] = obs
        self._env_states[env_id] = EnvState.RUN

    def _reset_again(self, env_id: int, error: Exception) -> Any:
        attempt = self._renew_and_reset if self._retry_type == "renew" else self._attempt_reset
        try:
            return attempt_again(error, partial(attempt, env_id), self._max_retry - 1, self._retry_waiting_time)
        except Exception as e:
            self._env_states[env_id] = EnvState.ERROR
            self._close_after_failure()
            raise exhausted(env_id, "reset", self._max_retry, e) from e

    def _step_again(self, env_id: int, action: Any, error: Exception) -> Any:
        attempt = partial(call_with_timeout, self._step_timeout, self._envs[env_id].step, action)
        try:
            return attempt_again(error, attempt, self._max_retry - 1, self._retry_waiting_time)
        except Exception as e:
            self._env_states[env_id] = EnvState.ERROR
            raise exhausted(env_id, "step", self._max_retry, e) from e

    def _close_after_failure(self) -> None:
        try:
            self.close()
        except Exception:
            _logger.exception("closing the envs of a failed env manager failed too")

    # One env: what a manager that keeps its envs elsewhere replaces.

    def _create_env(self, env_id: int) -> None:
        self._envs[env_id] = self._env_fn[env_id]()
        if self._env_replay_path is not None:
            self._envs[env_id].enable_save_replay(self._env_replay_path[env_id])

    def _close_env(self, env_id: int) -> None:
        self._envs.pop(env_id).close()

    def _env_attributes(self, key: str) -> list[Any]:
        return [getattr(self._envs[env_id], key, None) for env_id in range(self._env_num)]

    def _call_env(self, env_id: int, method: str, *args: Any) -> Any:
        return getattr(self._envs[env_id], method)(*args)

    def _attempt_reset(self, env_id: int) -> Any:
        param = self._reset_param[env_id] or {}
        reset = self._envs[env_id].reset
        return reset(**param) if self._reset_timeout is None else call_with_timeout(self._reset_timeout, reset, **param)

    def _renew_and_reset(self, env_id: int) -> Any:
        if env_id in self._envs:
            try:
                self._close_env(env_id)
            except Exception:
                _logger.exception("env %s, which is to be made anew, failed to close", env_id)
        self._create_env(env_id)
        self._seeds.tell_new(env_id, self._envs[env_id])
        return self._attempt_reset(env_id)


@ENV_MANAGER_REGISTRY.register("base_v2")
class BaseEnvManagerV2(StackedFormat, BaseEnvManager):
    """A `BaseEnvManager` whose observations are stacked, and whose timesteps are a list of trees."""


def _copy(item: Any) -> Any:
    return item.copy() if type(item) is np.ndarray and not item.dtype.hasobject else copy.deepcopy(item)


def create_env_manager(manager_cfg: Mapping[str, Any], env_fn: list[Callable[[], Any]]) -> Any:
    """An env manager of the type `manager_cfg.type` over `env_fn`, with the other keys as its config.

    Raises:
        KeyError: `type` is missing, or no manager is registered under it.
    """
    cfg = EasyDict(copy.deepcopy(dict(manager_cfg)))
    import_module(cfg.pop("import_names", []))
    return ENV_MANAGER_REGISTRY.build(cfg.pop("type"), env_fn=env_fn, cfg=cfg)


def get_env_manager_cls(cfg: Mapping[str, Any]) -> type:
    """The env manager class registered as `cfg.type`, after importing `cfg.import_names`.

    Raises:
        KeyError: no manager is registered under that name.
    """
    import_module(cfg.get("import_names", []))
    manager_cls: type = ENV_MANAGER_REGISTRY.get(cfg["type"])
    return manager_cls


@lru_cache(maxsize=64)
def _log_once(text: str) -> None:
    _logger.info(text)
