"""The base of all env managers: many envs behind one interface, stepped one after the other in this process."""

from __future__ import annotations

import copy
import inspect
import logging
import math
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum, unique
from functools import lru_cache, partial
from typing import Any, ClassVar, NoReturn

import numpy as np
from easydict import EasyDict

from ding.envs.common.gym_compat import gymnasium_space, library_of
from ding.envs.env.base_env import EnvOutputError
from ding.envs.env_manager.block import (
    BlockStep,
    BoolArray,
    DictBlocks,
    Ready,
    StackedFormat,
    block_of_list,
    is_done,
)
from ding.envs.env_manager.env_state import (
    EnvSeeds,
    Seeds,
    load_space_state,
    restore_env,
    save_env,
    space_state,
)
from ding.envs.env_manager.normalization import ENV_CALLS, Normalization, attribute_of
from ding.utils.config_helper import (
    NO_DEFAULT,
    Configurable,
    Setting,
    Settings,
    anything,
    boolean,
    check_section,
    integer,
    number,
    one_of,
)
from ding.utils.data.nested import own_copy
from ding.utils.data.samples import Column, IntArray, Kind, Node
from ding.utils.import_helper import import_module
from ding.utils.log_helper import shown, warn_once
from ding.utils.msgpack_helper import can_pack
from ding.utils.object_state import SavedAttributes
from ding.utils.references import resolved
from ding.utils.registry_factory import ENV_MANAGER_REGISTRY
from ding.utils.time_helper import WatchDog

_logger = logging.getLogger("ding")
ResetParam = Mapping[int, "dict[str, Any] | None"]
_ADAPT = "put it into a DingEnvWrapper: DingEnvWrapper(env), or DingEnvWrapper(cfg={'env_id': id})"


@unique
class EnvState(IntEnum):
    """State of one env of a manager.

    VOID -launch-> INIT -reset-> RESET -> RUN; the end of an episode leads back to RESET (auto reset), to NEED_RESET
    (without it) or to DONE (no episodes left); a failure leads to ERROR, `close` to VOID.
    """

    VOID = 0
    INIT = 1
    RUN = 2
    RESET = 3
    DONE = 4
    ERROR = 5
    NEED_RESET = 6


# Plain numbers, because numpy looks for array attributes of an enum member, which takes longer than the comparison.
VOID, INIT, RUN, RESET, DONE, ERROR, NEED_RESET = map(int, EnvState)


class ManagerStateError(AssertionError):
    """The manager is closed and must be open for this call, or the other way round."""


class EnvNotReadyError(AssertionError):
    """An action was given for an env that does not wait for one."""


class UnknownEnvError(RuntimeError, KeyError):
    """No env of the manager has this id."""

    __str__ = Exception.__str__  # that of KeyError shows the repr


@ENV_MANAGER_REGISTRY.register("base")
class BaseEnvManager(SavedAttributes, DictBlocks, Configurable):
    """Env manager that steps envs one after the other in this process.

    Args:
        env_fn: one function without arguments for each env. The first is also called at once, for an env that
            states the spaces and is kept until the manager is deleted.
        cfg: missing values are filled from `default_config()`.

    Raises:
        ConfigError: a config value is not allowed.
        IndexError: `env_fn` is empty.
        TypeError: `env_fn` makes envs of gymnasium or gym without a wrapper of this package.

    Observations and timesteps hold the arrays the envs returned; only a terminal timestep that an auto reset follows is
    a copy, since the reset may write into the same arrays. A failed step is retried on the same env, in whatever state
    that is. Only one thread at a time may use a manager.

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

    _saved: ClassVar[tuple[str, ...]] = ("_seeds", "_env_episode_count", "_episodes")
    settings = Settings(
        {
            "episode_num": Setting(math.inf, number(1), "Maximum number of episodes of each env."),
            "max_retry": Setting(1, integer(0), "Number of attempts of a failing step or reset."),
            "retry_waiting_time": Setting(0.1, number(0), "Seconds between two attempts."),
            "retry_type": Setting(
                "reset",
                one_of("reset", "renew"),
                "What a retry does: `reset` starts the episode again, `renew` creates the env again.",
            ),
            "auto_reset": Setting(True, boolean, "Whether the next episode begins in the step that ends one."),
            "step_timeout": Setting(
                None, number(1e-6, 1e9, optional=True), "Time limit of a step in seconds; None for no limit."
            ),
            "reset_timeout": Setting(
                None, number(1e-6, 1e9, optional=True), "Time limit of a reset in seconds; None for no limit."
            ),
            # A config may switch between managers by `type` alone.
            **dict.fromkeys(
                (
                    *("shared_memory", "copy_on_get", "context", "wait_num", "step_wait_timeout", "connect_timeout"),
                    "reset_inplace",
                ),
                Setting(NO_DEFAULT, anything, "Setting of managers with processes; has no effect here."),
            ),
        }
    )

    def __init__(self, env_fn: list[Callable[[], Any]], cfg: Mapping[str, Any] = EasyDict()) -> None:
        self._cfg = self.default_config()
        self._cfg.update(cfg)
        check_section(self._cfg, type(self))
        self._env_fn = list(env_fn)
        self._env_num = len(self._env_fn)
        self._ids = range(self._env_num)
        self._episode_num = self._cfg.episode_num
        self._max_retry = max(int(self._cfg.max_retry), 1)
        self._retry_waiting_time = self._cfg.retry_waiting_time
        self._retry_type = self._cfg.retry_type
        self._auto_reset = self._cfg.auto_reset
        self._step_timeout = self._cfg.step_timeout
        self._reset_timeout = self._cfg.reset_timeout

        self._closed = True
        self._states = np.full(self._env_num, VOID, np.int8)
        self._ready_obs: dict[int, Any] = {}
        self._env_replay_path: list[str] | None = None
        self._first_obs: dict[int, Any] = {}  # of running episodes that are recorded
        self._timesteps: list[Any] = []  # of the current or last step
        self._episodes = np.zeros(self._env_num, np.int64)
        self.touched = np.zeros(self._env_num, np.int64)
        self._seeds = EnvSeeds(self._env_num)
        self._reset_param: dict[int, dict[str, Any] | None] = {}
        self._env_episode_count = np.zeros(self._env_num, np.int64)
        self._may_normalize = True  # assumed until the envs are queried, once for each launch
        if not self._env_fn:
            raise IndexError(
                "an env manager needs at least one env, got an empty env_fn; set env.collector_env_num >= 1"
            )
        self._env_ref = self._env_fn[0]()
        self._observation_space, self._action_space, self._reward_space = _spaces_of(self._env_ref)
        self._envs = self._stand_ins()
        section = attribute_of(self._env_ref, "rollout_normalization")
        self._normalization = Normalization(section, self._env_num)
        if self._normalization.is_for_rollouts:
            self.normalization = self._normalization

    @property
    def env_num(self) -> int:
        """Number of envs."""
        return self._env_num

    @property
    def env_ref(self) -> Any:
        """The env that states the spaces; it is never stepped."""
        return self._env_ref

    @property
    def frame_stack(self) -> int:
        """Number C of frames that an observation [C, ...] is a stack of, newest last; 1 if that is unknown."""
        return 1 if self._normalization.is_for_rollouts else self._declared_stack()

    def _declared_stack(self) -> int:
        return attribute_of(self._env_ref, "frame_stack") or 1

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
        """Observations `{env_id: obs}` of the envs that wait for an action; empty if there are none."""
        obs = self._ready_obs
        return {env_id: obs[env_id] for env_id in (self._states == RUN).nonzero()[0].tolist()}

    @property
    def stepped_count(self) -> int:
        """Number of envs that the current or last call of `step` has stepped so far, one after another."""
        return len(self._timesteps)

    @property
    def episodes(self) -> IntArray:
        """The numbers of the episodes [E] that the envs are in; every reset begins another one."""
        return self._episodes

    @property
    def ready_obs_id(self) -> list[int]:
        """Ids of the envs that wait for an action."""
        env_ids: list[int] = np.flatnonzero(self._states == RUN).tolist()
        return env_ids

    @property
    def done(self) -> bool:
        """Whether all envs have played their episodes."""
        return bool((self._states == DONE).all())

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
        """Return whether the env has played its episodes."""
        return bool(self._states[env_id] == DONE)

    @property
    def _env_states(self) -> dict[int, EnvState]:
        return dict(enumerate(map(EnvState, self._states.tolist())))

    def random_action(self) -> dict[int, Any]:
        """Return `{env_id: sample of the action space}` for the envs in `ready_obs`.

        Raises:
            TypeError: the envs have no action space.
        """
        if self._action_space is None:
            raise TypeError(f"{shown(self._env_ref)} has no action_space to draw random actions from; define it")
        return {env_id: self._action_space.sample() for env_id in self.ready_obs_id}

    def seed(self, seed: Seeds, dynamic_seed: bool | None = None) -> None:
        """Seed the envs from their next reset on; seeds survive `close` and `launch`, and the replacement of an env.

        Envs with `seed_episodes` (`GymnasiumEnv`) play episode k, counted from here, from a seed derived from (seed,
        env id, k). Others get `seed + env id`, or their own entry of a list or dict, through `env.seed`.

        Args:
            seed: one for all, or one for each env in a list (None keeps the seed of an env), or `{env_id: seed}`.
            dynamic_seed: second argument for `env.seed`; None leaves it out.

        Raises:
            AssertionError: a list has another length than there are envs.
            RuntimeError: there is no env for a key of a dict.
            TypeError: `seed` is of another type.
        """
        first = self._seeds.assign(seed, dynamic_seed)
        if first is None:
            return
        try:
            self._action_space.seed(first)
        except Exception as e:  # it only draws random_action; envs may have any object here, or None
            _logger.debug("the action space %s cannot be seeded: %r", shown(self._action_space), e)

    def enable_save_replay(self, replay_path: str | list[str]) -> None:
        """Record videos, in one folder for all envs or one for each; call it before `launch`.

        Raises:
            AssertionError: a list has another length than there are envs.
        """
        paths = [replay_path] * self._env_num if isinstance(replay_path, str) else list(replay_path)
        if len(paths) != self._env_num:
            raise AssertionError(f"{len(paths)} replay paths were given for {self._env_num} envs: {paths!r}")
        self._env_replay_path = paths

    def __getattr__(self, key: str) -> Any:
        """Return the attribute `key` of each env, as a list; None for an env that lacks it.

        Raises:
            AttributeError: the env of the manager that never runs, whose spaces it shows, has no such attribute.
            RuntimeError: it is a method other than those of `method_name_list`.
            AssertionError: the manager is closed.
        """
        # `copy` and `pickle` look up attributes before the object has any.
        env_ref = self.__dict__.get("_env_ref")
        if env_ref is None or (key.startswith("__") and key.endswith("__")) or not hasattr(env_ref, key):
            # `hasattr` ends here, too, so the error does not contain the text of the env, which may be slow.
            raise AttributeError(f"neither {type(self).__name__} nor {type(env_ref).__name__} has an attribute {key!r}")
        if inspect.ismethod(getattr(env_ref, key)) and key not in self.method_name_list:
            raise RuntimeError(
                f"env method {key!r} cannot be reached through the manager, only {self.method_name_list}"
            )
        self._check_open()
        return self._env_attributes(key)

    @property
    def ready_imgs(self) -> dict[int, Any]:
        """Images `{env_id: image}` that `render('rgb_array')` returns of the envs in `ready_obs`."""
        return {env_id: self._call_env(env_id, "render", "rgb_array") for env_id in self.ready_obs_id}

    def launch(self, reset_param: ResetParam | None = None) -> None:
        """Make the envs and reset them all.

        Args:
            reset_param: as for `reset`, for every env.

        Raises:
            AssertionError: the manager is open, or `reset_param` lacks an env.
            RuntimeError: an env cannot be reset.
        """
        if not self._closed:
            raise ManagerStateError("the env manager is open already; close() it before another launch()")
        if reset_param is not None and len(reset_param) != self._env_num:
            raise AssertionError(f"reset_param is for {len(reset_param)} envs, but there are {self._env_num}")
        spaces = self._observation_space, self._action_space, self._reward_space
        _log_once(f"spaces: {', '.join(shown(space, str) for space in spaces)}")
        self._closed = False
        self._may_normalize = True
        self._envs = {}
        try:
            for env_id in range(self._env_num):
                self._states[env_id] = INIT
                self._env_episode_count[env_id] = 0
                self._reset_param[env_id] = None
                self._seeds.renew(env_id)
                self._create_env(env_id)
            self.reset(reset_param)
        except BaseException:
            self._close_after_failure()
            raise

    def reset(self, reset_param: ResetParam | None = None) -> None:
        """Begin a new episode in all envs, or in those of `reset_param`.

        Args:
            reset_param: `{env_id: keyword arguments of its reset}`; None for none. They stay in force for later resets.

        Raises:
            AssertionError: the manager is closed.
            RuntimeError: an env id is unknown; a collector or evaluator is stepping the envs; or an env cannot be
                reset, then the manager is closed.
        """
        self._check_open()
        self.check_free()
        if reset_param is not None:
            self._check_ids(reset_param)
            self._reset_param.update(reset_param)
        self._reset_envs(list(range(self._env_num) if reset_param is None else reset_param))

    def step(self, actions: Mapping[int, Any]) -> dict[int, Any]:
        """Act in the envs of `actions`, and return `{env_id: timestep}`.

        A timestep that ends an episode has the terminal observation; the first one of the next is in `ready_obs`.
        Whether an env waits for an action is not checked, unlike in managers with processes or batches.

        Raises:
            AssertionError: the manager is closed.
            RuntimeError: an env id is unknown, or a collector or evaluator is stepping the envs (then no env was
                stepped); or a step failed in every attempt (then that env is in the state ERROR until its next reset).
            TypeError: an env returned something other than a timestep.
        """
        if self._closed:
            self._check_open()
        self.check_free()
        if not actions.keys() <= self._envs.keys():
            self._check_ids(actions)
        env_ids = list(actions)
        self.touched[env_ids] += 1
        raw, ended = self._step_each(env_ids, actions.values())
        timesteps = dict(zip(env_ids, raw, strict=True))
        for env_id in ended:
            timestep = timesteps[env_id]
            timesteps[env_id] = timestep._replace(obs=own_copy(timestep.obs), reward=own_copy(timestep.reward))
            self._reset_env(env_id)
        return timesteps

    def act(self, actions: Sequence[Any], env_ids: list[int]) -> BlockStep:
        """Act in the envs `env_ids`, and return the step of those that have answered; see `step`."""
        if self._closed:
            self._check_open()
        raw, ended = self._step_each(env_ids, actions)
        try:
            step = block_of_list(env_ids, raw)
        finally:
            for env_id in ended:  # once the observations are copied, as a reset may write into them
                self._reset_env(env_id)
        if not step.any_ends:
            step.ready = Ready(env_ids, step.ids, step.obs)
        elif len(ended) == np.count_nonzero(step.ends):
            obs = _with_rows(step.obs, step.ends, [self._ready_obs[env_id] for env_id in ended])
            step.ready = None if obs is None else Ready(env_ids, step.ids, obs)
        return step

    def _step_each(self, env_ids: Sequence[int], actions: Iterable[Any]) -> tuple[list[Any], list[int]]:
        """Step these envs, and return their timesteps, and the envs that have to be reset, as their episodes ended."""
        raw: list[Any] = []
        ended: list[int] = []
        self._timesteps = raw
        envs, ready_obs, timeout = self._envs, self._ready_obs, self._step_timeout
        try:
            for env_id, action in zip(env_ids, actions, strict=True):
                step = envs[env_id].step
                try:
                    timestep = (
                        step(action) if timeout is None else call_with_timeout(timeout, "step_timeout", step, action)
                    )
                except Exception as e:  # code of the env
                    attempt = partial(call_with_timeout, timeout, "step_timeout", step, action)
                    timestep = self._attempt_again(env_id, "step", attempt, e)
                try:
                    done = timestep.done
                except AttributeError:
                    raise no_timestep(envs[env_id], timestep) from None
                raw.append(timestep)
                if done is False or (done is not True and not is_done(done)):
                    ready_obs[env_id] = timestep.obs
                elif self._count_end(env_id):
                    ended.append(env_id)
        except BaseException:
            for env_id in ended:
                self._reset_env(env_id)
            raise
        return raw, ended

    def sync_normalization(self) -> None:
        """Give the wrappers `obs_norm` and `reward_norm` of all envs the statistics of all of them.

        Between two calls each env updates its own. The statistics survive `close` and `launch`. Without such wrappers,
        or if their statistics are frozen, nothing happens.

        Raises:
            AssertionError: the manager is closed.
        """
        self._check_open()
        if not self._may_normalize or self._normalization.is_frozen:
            return
        gathered = self._call_each("take_moments")
        self._may_normalize = any(gathered)
        if self._may_normalize:
            self._normalization.merge(gathered)
            self._call_each("put_moments", self._normalization.moments, False)

    def normalization_state(self) -> dict[str, Any]:
        """Return the statistics that `sync_normalization` or rollouts have gathered, as tensors; maybe none."""
        return self._normalization.state_dict()

    def load_normalization(self, state: Mapping[str, Any], is_frozen: bool = False) -> None:
        """Let the envs normalize with statistics of `normalization_state` of this or another manager.

        Args:
            is_frozen: whether the statistics no longer change, as is right for evaluations.

        Raises:
            AssertionError: the manager is closed.
            ConfigError: the statistics are of observations that are not normalized here.
        """
        self._check_open()
        self._normalization.adopt(state, is_frozen)
        if state:
            self._call_each("put_moments", self._normalization.moments, is_frozen)

    def take_normalization(self) -> dict[str, Any]:
        """Return the statistics since the last call, in plain values, to be added to those of other managers.

        They are kept from the first call on.

        Raises:
            AssertionError: the manager is closed.
        """
        self.sync_normalization()
        return self._normalization.take_gathered()

    @property
    def why_inexact(self) -> str:
        """Reason why no run with these envs resumes exactly; "" if the manager does not prevent it."""
        return ""

    def state_dict(self) -> dict[str, Any]:
        """Return seeds, counts, statistics and running episodes in plain values, after waiting for busy envs.

        An episode continues by `get_state` and `set_state` of its env, unless a step of it is pending.

        Raises:
            AssertionError: the manager is closed.
        """
        self._check_open()
        envs = self._save_envs()
        return {
            **super().state_dict(),
            "env_num": self._env_num,
            "envs": envs,
            "under_way": sorted(self._under_way()),
            "states": [state.name for state in self._env_states.values()],
            "obs": {env_id: copy.deepcopy(obs) for env_id, obs in self._ready_obs.items() if can_pack(obs)},
            "reset_param": {i: param for i, param in self._reset_param.items() if can_pack(param)},
            "normalization": self._normalization.running_state(),
            "action_space": space_state(self._action_space),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        """Restore a state that `state_dict` of a manager of the same envs returned; this manager must be open.

        An env that cannot continue is reset, and begins the episode after the one it ran.

        Returns:
            The reasons why envs do not continue exactly, each as `envs 0, 1: cause`.

        Raises:
            AssertionError: the manager is closed.
            RuntimeError: a collector or evaluator is stepping the envs.
            ValueError: the state has another number of envs.
        """
        self._check_open()
        self.check_free()
        if state["env_num"] != self._env_num:
            raise ValueError(f"the state is of {state['env_num']} envs, but there are {self._env_num}")
        super().load_state_dict(state)
        self.touched += 1
        self._reset_param.update(state["reset_param"])
        self._normalization.load_running_state(state["normalization"])
        load_space_state(self._action_space, state["action_space"])
        causes = []
        for env_id, problem in self._restore_envs(state["envs"]).items():
            env_state = EnvState[state["states"][env_id]]
            if env_id in state["under_way"]:
                problem = "a step of it was under way"
            elif env_state is EnvState.RUN and env_id not in state["obs"]:
                problem = problem or "its observation does not consist of plain values"
            self._ready_obs.pop(env_id, None)
            if problem:
                causes.append((env_id, f"{problem}; its running episode is dropped"))
                self._drop_episode(env_id, env_state)
                continue
            self._states[env_id] = env_state
            if env_state is EnvState.RUN:
                self._ready_obs[env_id] = state["obs"][env_id]
        lost_param = [env_id for env_id in range(self._env_num) if env_id not in state["reset_param"]]
        causes += [(env_id, "the arguments of its resets are no plain values") for env_id in lost_param]
        return _one_line_a_cause(causes)

    def close(self) -> None:
        """Close the envs; a second call does nothing, and `launch` may follow.

        Raises:
            Exception: the first error of an env's close, after all have been closed.
        """
        if self._closed:
            return
        self._closed = True
        self._ready_obs = {}
        self._states[:] = VOID
        errors = self._close_envs()
        if errors:
            raise errors[0]

    def enable_save_figure(self, env_id: int, figure_path: str) -> None:
        """Let the env save figures in the folder `figure_path`."""
        self._check_open()
        self._call_env(env_id, "enable_save_figure", figure_path)

    def reward_shaping(self, env_id: int, transitions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the transitions with rewards shaped by the env, which may modify the given ones in place."""
        self._check_open()
        shaped: list[dict[str, Any]] | None = self._call_env(env_id, "reward_shaping", transitions)
        return transitions if shaped is None else shaped

    def __enter__(self) -> BaseEnvManager:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ManagerStateError("the env manager is closed: call launch() first")

    def _check_ids(self, env_ids: Iterable[int]) -> None:
        unknown = [env_id for env_id in env_ids if env_id not in self._ids]
        if unknown:
            raise UnknownEnvError(f"there are no envs {unknown}; the env ids are 0 to {self._env_num - 1}")

    def _refuse(self, env_ids: Iterable[int], ready: list[int]) -> NoReturn:
        states = {env_id: state.name for env_id, state in self._env_states.items()}
        raise EnvNotReadyError(
            f"actions are for envs {list(env_ids)}, but only {ready} are ready; current env state are: {states}"
        )

    def _count_end(self, env_id: int) -> bool:
        """Count the end of an episode, set the state of its env, and return whether an auto reset follows."""
        self._env_episode_count[env_id] += 1
        if self._env_episode_count[env_id] >= self._episode_num:
            self._states[env_id] = DONE
            return False
        self._states[env_id] = RESET if self._auto_reset else NEED_RESET
        return bool(self._auto_reset)

    def _reset_envs(self, env_ids: list[int]) -> None:
        for env_id in env_ids:
            if self._env_replay_path is not None and self._states[env_id] == RUN:
                if self._ready_obs[env_id] is not self._first_obs.get(env_id):  # it has made a step
                    _logger.warning("env %s is recorded and runs: it is not reset before its episode ends", env_id)
            else:
                self._reset_env(env_id)

    def _close_envs(self) -> list[Exception]:
        """Close all envs, and return the errors of those that failed to close."""
        errors = []
        envs, self._envs = self._envs, self._stand_ins()
        for env in envs.values():
            try:
                env.close()
            except Exception as e:  # code of the env; the others are closed, too
                errors.append(e)
        return errors

    def _reset_env(self, env_id: int) -> None:
        self._states[env_id] = RESET
        self._seeds.apply(env_id, self._envs[env_id])
        try:
            obs = self._attempt_reset(env_id)
        except Exception as e:  # code of the env
            attempt = self._renew_and_reset if self._retry_type == "renew" else self._attempt_reset
            obs = self._attempt_again(env_id, "reset", partial(attempt, env_id), e)
        self._seeds.count_episode(env_id)
        self._episodes[env_id] += 1
        self._ready_obs[env_id] = obs
        if self._env_replay_path is not None:
            self._first_obs[env_id] = obs
        self._states[env_id] = RUN

    def _attempt_again(self, env_id: int, method: str, attempt: Callable[[], Any], error: Exception) -> Any:
        """Return the result of `attempt()`, which is called until `max_retry` attempts have failed, one with `error`.

        Raises:
            RuntimeError: every attempt failed; the env is in the state ERROR then, and the manager closed by a reset.
        """
        for _ in range(self._max_retry - 1):
            time.sleep(self._retry_waiting_time)
            try:
                return attempt()
            except Exception as e:  # code of the env
                error = e
        self._states[env_id] = ERROR
        if method == "reset":
            self._close_after_failure()
        raise exhausted(env_id, method, self._max_retry, error)

    def _close_after_failure(self) -> None:
        try:
            self.close()
        except Exception:  # the failure that led here is raised
            _logger.exception("closing the envs of a failed env manager failed too")

    def _drop_episode(self, env_id: int, env_state: EnvState) -> None:
        """Begin the next episode of an env that cannot continue, unless it would have waited for a reset."""
        self._seeds.renew(env_id)
        self._states[env_id] = NEED_RESET if env_state is EnvState.RUN else env_state
        if env_state is EnvState.RUN:
            self._reset_envs([env_id])
            if self._normalization.moments:
                self._call_env(env_id, "put_moments", self._normalization.moments, self._normalization.is_frozen)

    def _under_way(self) -> set[int]:
        """Return the envs whose steps were not returned yet."""
        return set()

    def _stand_ins(self) -> dict[int, Any]:
        """Return what `_envs` holds while the manager is closed: the reference env for each."""
        return dict.fromkeys(range(self._env_num), self._env_ref)

    # One env: what a manager that keeps its envs elsewhere replaces.

    def _create_env(self, env_id: int) -> None:
        env = self._envs[env_id] = self._env_fn[env_id]()
        if self._env_replay_path is not None:
            env.enable_save_replay(self._env_replay_path[env_id])

    def _save_envs(self) -> dict[int, dict[str, Any]]:
        """Return the state of each env by id; see `save_env`."""
        return {env_id: save_env(env) for env_id, env in self._envs.items()}

    def _restore_envs(self, states: Mapping[int, Mapping[str, Any]]) -> dict[int, str]:
        """Return by id why an env cannot continue, "" if it can; see `restore_env`."""
        return {
            env_id: restore_env(self._envs[env_id], state, self._seeds.current(env_id))
            for env_id, state in states.items()
        }

    def _env_attributes(self, key: str) -> list[Any]:
        return [getattr(self._envs[env_id], key, None) for env_id in range(self._env_num)]

    def _call_env(self, env_id: int, method: str, *args: Any) -> Any:
        if method not in ENV_CALLS:
            return getattr(self._envs[env_id], method)(*args)
        return ENV_CALLS[method](self._envs[env_id], *args)

    def _call_each(self, name: str, *args: Any) -> list[Any]:
        """Return the results of a function of `ENV_CALLS` for all envs."""
        return [self._call_env(env_id, name, *args) for env_id in self._envs]

    def _attempt_reset(self, env_id: int) -> Any:
        reset, param, timeout = self._envs[env_id].reset, self._reset_param[env_id] or {}, self._reset_timeout
        return reset(**param) if timeout is None else call_with_timeout(timeout, "reset_timeout", reset, **param)

    def _renew_and_reset(self, env_id: int) -> Any:
        if env_id in self._envs:  # else the last attempt could not make it
            try:
                self._envs.pop(env_id).close()
            except Exception:  # code of the env
                _logger.exception("env %s, which is replaced by a new one, failed to close", env_id)
        self._create_env(env_id)
        self._seeds.renew(env_id)
        self._seeds.apply(env_id, self._envs[env_id])
        return self._attempt_reset(env_id)


def _with_rows(node: Node, mask: BoolArray, items: list[Any]) -> Node:
    """Return a copy of a node of arrays with other items in some rows; None where they have another form."""
    if type(node) is not Column or node.kind is not Kind.ARRAY:
        return None
    data = node.data
    for item in items:
        if type(item) is not np.ndarray or item.dtype != data.dtype or item.shape != data.shape[1:]:
            return None
    data = data.copy()
    data[mask] = items
    return Column(Kind.ARRAY, data)


@ENV_MANAGER_REGISTRY.register("base_v2")
class BaseEnvManagerV2(StackedFormat, BaseEnvManager):
    """A `BaseEnvManager` whose observations are stacked, and whose timesteps are a list of trees."""


def _one_line_a_cause(causes: Iterable[tuple[int, str]]) -> list[str]:
    """Return a line `envs <ids>: <cause>` for each cause, from pairs (env id, cause)."""
    env_ids: dict[str, list[int]] = {}
    for env_id, cause in causes:
        env_ids.setdefault(cause, []).append(env_id)
    return [
        f"{'env' if len(ids) == 1 else 'envs'} {', '.join(map(str, ids))}: {cause}" for cause, ids in env_ids.items()
    ]


def create_env_manager(manager_cfg: Mapping[str, Any], env_fn: list[Callable[[], Any]]) -> Any:
    """Return an env manager of the type `manager_cfg.type` over `env_fn`, with the other keys as its config.

    Raises:
        KeyError: `type` is missing, or no manager is registered under it.
    """
    cfg = resolved(EasyDict(copy.deepcopy(dict(manager_cfg))), "env.manager")
    import_module(cfg.pop("import_names", []))
    return ENV_MANAGER_REGISTRY.build(cfg.pop("type"), env_fn=env_fn, cfg=cfg)


def get_env_manager_cls(cfg: Mapping[str, Any]) -> type:
    """Return the env manager class registered as `cfg.type`, after importing `cfg.import_names`.

    Raises:
        KeyError: no manager is registered under that name.
    """
    import_module(cfg.get("import_names", []))
    manager_cls: type = ENV_MANAGER_REGISTRY.get(cfg["type"])
    return manager_cls


@lru_cache(maxsize=64)
def _log_once(text: str) -> None:
    _logger.info(text)


def no_timestep(env: Any, returned: Any) -> EnvOutputError:
    """Return the exception that says what `env.step` returned in place of a timestep."""
    what = f"{len(returned)} values" if isinstance(returned, tuple) else shown(returned)
    return EnvOutputError(f"the step of {shown(env)} returned {what}, not a BaseEnvTimestep; {_ADAPT}")


def call_with_timeout(
    timeout_s: float | None, key: str, function: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    """Return `function(*args, **kwargs)`; interrupt it after `timeout_s` seconds, if that is given.

    A signal interrupts it, so there is no limit outside the main thread or on Windows.

    Raises:
        TimeoutError: the call took longer than the config value `key` allows.
    """
    can_interrupt = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if timeout_s is None or not can_interrupt:
        return function(*args, **kwargs)
    with WatchDog(timeout_s, f"it took longer than {key} = {timeout_s} s"):
        return function(*args, **kwargs)


def exhausted(env_id: int, method: str, attempts: int, error: Exception) -> RuntimeError:
    """Return the exception that says which env failed in which method, with the last error as its cause."""
    if error.__traceback__ is None:  # it comes from another process, with the traceback from there
        text = f"{type(error).__name__}: {error.args[0] if error.args else ''}"
    elif isinstance(error, EnvOutputError):  # which needs no traceback
        text = f"{type(error).__name__}: {error}"
    else:
        text = f"{error!r}\n" + "".join(traceback.format_exception(type(error), error, error.__traceback__))
    failure = RuntimeError(
        f"Env {env_id} {method} has exceeded max retries({attempts}), and the latest exception is: {text}"
    )
    failure.__cause__ = error
    return failure


def _spaces_of(env: Any) -> tuple[Any, Any, Any]:
    """Return the spaces of an env; None, with a warning, for each space that it does not define."""
    names = ("observation_space", "action_space", "reward_space")
    try:
        found = [getattr(env, name) for name in names]
    except Exception:  # an env that knows its spaces only once it has been reset
        try:
            env.reset()
        except Exception as e:  # code of the env
            if attribute_of(env, "observation_space") is None or attribute_of(env, "action_space") is None:
                raise
            warn_once(f"a reset of the env {type(env).__name__} for its reward_space", e)
        found = [_space_of(env, name) for name in names]
        env.close()
    observation_space, action_space, reward_space = map(gymnasium_space, found)
    return observation_space, action_space, reward_space


def _space_of(env: Any, name: str) -> Any:
    try:
        return getattr(env, name)
    except Exception as e:  # code of the env
        if isinstance(e, AttributeError) and library_of(type(env)) is not None:
            raise TypeError(f"env_fn made {shown(env)}, which is no BaseEnv: {e}; {_ADAPT}") from e
        warn_once(f"{name} of the env {type(env).__name__}", e)
        return None
