"""The side of an env manager that shows it and sets it up; stepping is its subclasses' part."""

from __future__ import annotations

import inspect
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from easydict import EasyDict

from ding.envs.env_manager.env_state import EnvState
from ding.envs.env_manager.seed_book import SeedBook, Seeds
from ding.utils.config_helper import (
    Rule,
    anything,
    boolean,
    check_config,
    default_config_of,
    integer,
    number,
    one_of,
)

_logger = logging.getLogger("ding")


class ManagerView(ABC):
    """Config, spaces, states and seeds of the envs of a manager.

    Args:
        env_fn: one function without arguments for each env. The first is also called at once, for an env that tells
            the spaces and is kept for life.
        cfg: what is missing is filled from `default_config()`.

    Raises:
        ConfigError: a config value is not allowed.
        IndexError: `env_fn` is empty.
    """

    config: dict[str, Any] = {
        # Episodes each env plays before it is done for good.
        "episode_num": math.inf,
        # Attempts at a reset or step in all, and the seconds between them.
        "max_retry": 1,
        "retry_waiting_time": 0.1,
        # Before a further attempt at a reset: 'reset' does nothing, 'renew' makes the env anew.
        "retry_type": "reset",
        # Begin the next episode within the step that ended one.
        "auto_reset": True,
        # Seconds a step or reset may take; None for any time.
        "step_timeout": None,
        "reset_timeout": None,
    }
    _config_rules: dict[str, Rule] = {
        "episode_num": number(1),
        "max_retry": integer(0),
        "retry_waiting_time": number(0),
        "retry_type": one_of("reset", "renew"),
        "auto_reset": boolean,
        "step_timeout": number(1e-6, 1e9, optional=True),
        "reset_timeout": number(1e-6, 1e9, optional=True),
        # Keys of the managers with processes: a config may switch between managers by `type` alone.
        "shared_memory": anything,
        "copy_on_get": anything,
        "context": anything,
        "wait_num": anything,
        "step_wait_timeout": anything,
        "connect_timeout": anything,
        "reset_inplace": anything,
    }

    @classmethod
    def default_config(cls) -> EasyDict:
        """A fresh copy of the default config."""
        return default_config_of(cls)

    def __init__(self, env_fn: list[Callable[[], Any]], cfg: Mapping[str, Any] = EasyDict()) -> None:
        self._cfg = self.default_config()
        self._cfg.update(cfg)
        check_config(self._cfg, type(self).__name__, self._config_rules)
        self._env_fn = list(env_fn)
        self._env_num = len(self._env_fn)
        self._episode_num = self._cfg.episode_num
        self._max_retry = max(int(self._cfg.max_retry), 1)
        self._retry_waiting_time = self._cfg.retry_waiting_time
        self._retry_type = self._cfg.retry_type
        self._auto_reset = self._cfg.auto_reset
        self._step_timeout = self._cfg.step_timeout
        self._reset_timeout = self._cfg.reset_timeout

        self._closed = True
        self._env_states = dict.fromkeys(range(self._env_num), EnvState.VOID)
        self._ready_obs: dict[int, Any] = {}
        self._env_replay_path: list[str] | None = None
        self._reset_count = 0
        self._seeds = SeedBook(self._env_num)
        if not self._env_fn:
            raise IndexError(
                "an env manager needs at least one env, got an empty env_fn; set env.collector_env_num >= 1"
            )
        self._env_ref = self._env_fn[0]()
        self._observation_space, self._action_space, self._reward_space = _spaces_of(self._env_ref)

    @property
    def env_num(self) -> int:
        """Number of envs."""
        return self._env_num

    @property
    def env_ref(self) -> Any:
        """The env that tells the spaces; it is never stepped."""
        return self._env_ref

    @property
    def observation_space(self) -> Any:
        """Space of the observations of each env."""
        return self._observation_space

    @property
    def action_space(self) -> Any:
        """Space of the actions of each env."""
        return self._action_space

    @property
    def reward_space(self) -> Any:
        """Space of the rewards of each env."""
        return self._reward_space

    @property
    def closed(self) -> bool:
        """Whether there are no envs: before `launch` and after `close`."""
        return self._closed

    @property
    def ready_obs(self) -> dict[int, Any]:
        """`{env_id: obs}` of the envs that wait for an action; empty when there are none."""
        obs, run = self._ready_obs, EnvState.RUN
        return {env_id: obs[env_id] for env_id, state in self._env_states.items() if state is run}

    @property
    def reset_count(self) -> int:
        """How often `reset` was called; the resets after finished episodes do not count."""
        return self._reset_count

    @property
    def ready_obs_id(self) -> list[int]:
        """Ids of the envs that wait for an action."""
        return [env_id for env_id, state in self._env_states.items() if state is EnvState.RUN]

    @property
    def done(self) -> bool:
        """Whether all envs have played their episodes."""
        return all(state is EnvState.DONE for state in self._env_states.values())

    @property
    def method_name_list(self) -> list[str]:
        """The methods of an env that may be reached through the manager."""
        return [
            "reset",
            "step",
            "seed",
            "close",
            "enable_save_replay",
            "render",
            "reward_shaping",
            "enable_save_figure",
        ]

    def env_state_done(self, env_id: int) -> bool:
        """Whether the env has played its episodes."""
        return self._env_states[env_id] is EnvState.DONE

    def random_action(self) -> dict[int, Any]:
        """`{env_id: sample of the action space}` for the envs in `ready_obs`."""
        return {env_id: self._action_space.sample() for env_id in self.ready_obs_id}

    def seed(self, seed: Seeds, dynamic_seed: bool | None = None) -> None:
        """Seed the envs from their next reset on; seeds are kept over `close`, `launch` and the making anew of an env.

        Envs with `seed_episodes` (`GymnasiumEnv`) play episode k, counted from here, from a seed derived from (seed,
        env id, k). Others are told `seed + env id`, or their own entry of a list or dict, through `env.seed`.

        Args:
            seed: one for all, or one for each env in a list (None leaves an env as it is), or `{env_id: seed}`.
            dynamic_seed: second argument for `env.seed`; None leaves it out.

        Raises:
            AssertionError: a list has another length than there are envs.
            RuntimeError: there is no env for a key of a dict.
            TypeError: `seed` is something else.
        """
        first = self._seeds.assign(seed, dynamic_seed)
        if first is not None:
            _seed_space(self._action_space, first)

    def enable_save_replay(self, replay_path: str | list[str]) -> None:
        """Record videos, in one folder for all envs or one for each; to be called before `launch`.

        Raises:
            AssertionError: a list has another length than there are envs.
        """
        paths = [replay_path] * self._env_num if isinstance(replay_path, str) else list(replay_path)
        if len(paths) != self._env_num:
            raise AssertionError(f"{len(paths)} replay paths were given for {self._env_num} envs: {paths!r}")
        self._env_replay_path = paths

    def __getattr__(self, key: str) -> Any:
        """The attribute `key` of each env, as a list; None for an env that lacks it.

        Raises:
            AttributeError: envs have no such attribute.
            RuntimeError: it is a method other than those of `method_name_list`.
            AssertionError: the manager is closed.
        """
        # A copy or an unpickled object is asked for attributes before it has any.
        env_ref = self.__dict__.get("_env_ref")
        if env_ref is None or (key.startswith("__") and key.endswith("__")) or not hasattr(env_ref, key):
            raise AttributeError(f"neither {type(self).__name__} nor its env {env_ref!r} has an attribute {key!r}")
        if inspect.ismethod(getattr(env_ref, key)) and key not in self.method_name_list:
            raise RuntimeError(
                f"env method {key!r} cannot be reached through the manager, only {self.method_name_list}"
            )
        self._check_open()
        return self._env_attributes(key)

    @abstractmethod
    def _env_attributes(self, key: str) -> list[Any]:
        """The attribute `key` of each env, None for one that lacks it."""

    def _check_open(self) -> None:
        if self._closed:
            raise AssertionError("the env manager is closed: call launch() first")

    def _check_ids(self, env_ids: Iterable[int]) -> None:
        unknown = [env_id for env_id in env_ids if env_id not in self._env_states]
        if unknown:
            raise RuntimeError(f"there are no envs {unknown}; the env ids are 0 to {self._env_num - 1}")


def _spaces_of(env: Any) -> tuple[Any, Any, Any]:
    try:
        return env.observation_space, env.action_space, env.reward_space
    except Exception:  # an env that knows its spaces only once it has been reset
        env.reset()
        spaces = env.observation_space, env.action_space, env.reward_space
        env.close()
        return spaces


def _seed_space(space: Any, seed: int) -> None:
    try:
        space.seed(seed)
    except Exception as e:  # it only draws random_action; envs may have any object here, or None
        _logger.debug("the action space %r cannot be seeded: %r", space, e)
