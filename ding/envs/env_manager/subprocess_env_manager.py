"""Env managers whose envs run in processes of their own."""

from __future__ import annotations

import math
import multiprocessing
import multiprocessing.connection
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from easydict import EasyDict

from ding.envs.env_manager.base_env_manager import BaseEnvManager
from ding.envs.env_manager.child_failure import EnvDiedError, EnvProcessError
from ding.envs.env_manager.child_process import Limit
from ding.envs.env_manager.child_rounds import ChildRounds
from ding.envs.env_manager.env_child import is_abnormal_timestep
from ding.envs.env_manager.env_state import EnvState
from ding.envs.env_manager.stacked_format import StackedFormat
from ding.utils.config_helper import Rule, boolean, number, one_of
from ding.utils.default_helper import one_time_warning
from ding.utils.registry_factory import ENV_MANAGER_REGISTRY
from ding.utils.shm_buffer import ShmBuffer, ShmBufferContainer

__all__ = [
    "AsyncSubprocessEnvManager",
    "EnvDiedError",
    "EnvProcessError",
    "ShmBuffer",
    "ShmBufferContainer",
    "SubprocessEnvManagerV2",
    "SyncSubprocessEnvManager",
    "is_abnormal_timestep",
]


# Seconds that an env which is broken off in its own process has to say so.
_GRACE_S = 0.5


@ENV_MANAGER_REGISTRY.register("async_subprocess")
class AsyncSubprocessEnvManager(ChildRounds):
    """Steps each env in a process of its own, and goes on with those that are ready.

    `step` returns once enough envs have answered; the others answer to a later call. An episode that ends is followed,
    in the env's process, by the next at once; until that has begun the env is in the state RESET, not in `ready_obs`.

    What an env raises is raised here, as an exception of the same class that says which env failed in which method,
    with the traceback from its process. A failed step closes the manager. An env whose process ends is an
    `EnvDiedError`, which names the signal or the exit code. An abnormal step (`info['abnormal']`) puts its env in the
    state ERROR, until `reset({env_id: None})`.

    No process outlives the manager: `close`, the end of the program and the garbage collector end them, and they end by
    themselves when this process is killed.

    Args:
        env_fn: one function without arguments for each env; see `BaseEnvManager`. Lambdas and closures will do.
        cfg: what is missing is filled from `default_config()`.

    Raises:
        AssertionError: `reset_inplace` is asked for without `auto_reset`.
    """

    config: dict[str, Any] = {
        **BaseEnvManager.config,
        # Hand observations over in shared memory, where their space has a fixed shape.
        "shared_memory": True,
        # False: observations are the shared memory itself, and change two steps later.
        "copy_on_get": True,
        # How processes start. 'fork' takes milliseconds, and any env_fn; 'forkserver' and 'spawn' import everything
        # anew, and so copy no lock that a thread of this process may hold.
        "context": "fork" if sys.platform.startswith("linux") else "spawn",
        # How many answers a step waits for, and for how many seconds it waits for further ones; None: for all.
        "wait_num": 2,
        "step_wait_timeout": 0.01,
        # Seconds a process has to start, and to answer anything but a step.
        "connect_timeout": 60,
        # Wait for the first observation of the next episode within the step that ended one.
        "reset_inplace": False,
    }
    _config_rules: dict[str, Rule] = {
        **BaseEnvManager._config_rules,
        "shared_memory": boolean,
        "copy_on_get": boolean,
        "context": one_of(*multiprocessing.get_all_start_methods()),
        "wait_num": number(1),
        "step_wait_timeout": number(0, optional=True),
        "connect_timeout": number(1e-6, 1e9),
        "reset_inplace": boolean,
    }

    def __init__(self, env_fn: list[Callable[[], Any]], cfg: Mapping[str, Any] = EasyDict()) -> None:
        super().__init__(env_fn, cfg)
        self._shared_memory = self._cfg.shared_memory
        self._copy_on_get = self._cfg.copy_on_get
        self._context = self._cfg.context
        self._wait_num = self._cfg.wait_num
        self._step_wait_timeout = self._cfg.step_wait_timeout
        self._connect_timeout = self._cfg.connect_timeout
        self._reset_inplace = self._cfg.reset_inplace
        if self._reset_inplace and not self._auto_reset:
            raise AssertionError("reset_inplace=True is not allowed with auto_reset=False: there is no reset then")
        self._set_limits()
        self._forget_children()

    def _set_limits(self) -> None:
        self._connect_limit = connect = Limit(self._connect_timeout, f"connect_timeout = {self._connect_timeout} s")
        self._reset_limit, self._step_limit = connect, None
        if self._reset_timeout is not None:
            if self._reset_timeout > self._connect_timeout:
                one_time_warning(f"reset_timeout = {self._reset_timeout} is cut short by {connect.words}")
            own = Limit(self._reset_timeout + _GRACE_S, f"reset_timeout = {self._reset_timeout} s")
            self._reset_limit = min(own, connect)
        if self._step_timeout is not None:
            self._step_limit = Limit(self._step_timeout + _GRACE_S, f"step_timeout = {self._step_timeout} s")

    @property
    def ready_env(self) -> set[int]:
        """Ids of the envs that wait for an action now; nothing is waited for."""
        return set(self._ready_ids())

    @property
    def ready_obs_id(self) -> list[int]:
        """Ids of the envs that wait for an action; see `ready_obs`."""
        if not self._closed:
            self._settle()
        return self._ready_ids()

    @property
    def ready_obs(self) -> dict[int, Any]:
        """`{env_id: obs}` of the envs that wait for an action; empty when none does, nor will without a call.

        While there are none, it waits for a reset that is under way.

        Raises:
            RuntimeError: such a reset failed in every attempt; the manager is closed then.
        """
        if not self._closed:
            self._settle()
        obs = self._ready_obs
        return {env_id: obs[env_id] for env_id in self._ready_ids()}

    @property
    def ready_imgs(self) -> dict[int, Any]:
        """`{env_id: image}`, what `render('rgb_array')` of the envs in `ready_obs` returns."""
        env_ids = self.ready_obs_id
        return self._ask(env_ids, "render", "rgb_array") if env_ids else {}

    def step(self, actions: Mapping[int, Any]) -> dict[int, Any]:
        """Act in the envs of `actions`; return the timesteps `{env_id: timestep}` in the order in which they have come.

        It waits for `wait_num` answers, for further ones until `step_wait_timeout` is over, and in any case until an
        env goes on or all have answered. Answers may belong to an earlier call; `step({})` waits for these only.
        A timestep that ends an episode has the terminal observation; the first one of the next is in `ready_obs`.

        Raises:
            AssertionError: the manager is closed, or an env is not ready for an action (no env was stepped then).
            KeyError: an env id is unknown (no env was stepped then).
            Exception: what an env raised; the manager is closed then.
        """
        self._check_open()
        self._check_ready(actions)
        try:
            for env_id, action in actions.items():
                self._send_step(env_id, action)
            self._await_steps()
        except BaseException:
            self._lose(actions)  # unless the manager is closed now; then there is nothing to lose
            raise
        arrived, self._arrived = self._arrived, {}
        return arrived

    @staticmethod
    def wait(rest_conn: Iterable[Any], wait_num: int, timeout: float | None = None) -> tuple[list[Any], list[Any]]:
        """`(ready, rest)` of connections, once `wait_num` are ready and `timeout` is over, or all are; None: for all.

        Raises:
            AssertionError: `wait_num` is not between 1 and the number of connections.
        """
        rest = list(rest_conn)
        if not 1 <= wait_num <= len(rest):
            raise AssertionError(f"wait_num = {wait_num} is not allowed for {len(rest)} connections")
        ready: list[Any] = []
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while rest:
            left = deadline - time.monotonic()
            if len(ready) >= wait_num and left <= 0:
                break
            # Not for ever at once: a signal that comes just before a wait begins does not end it.
            patience = left if len(ready) >= wait_num and left < math.inf else 0.5
            for connection in multiprocessing.connection.wait(rest, patience):
                ready.append(connection)
                rest.remove(connection)
        return ready, rest

    def wait_another(self) -> bool:
        """Wait until another env is ready; False, at once, if none will be without a call.

        It is for who has seen `ready_obs` and will not act in any of these envs.
        """
        ready = self._ready_ids()
        self._pump_while(lambda: bool(self._resets or self._lost) and self._ready_ids() == ready)
        return self._ready_ids() != ready

    def _check_ready(self, env_ids: Iterable[int]) -> None:
        unknown = [env_id for env_id in env_ids if env_id not in self._env_states]
        if unknown:
            raise KeyError(f"there are no envs {unknown}; the env ids are 0 to {self._env_num - 1}")
        if self._resets or self._lost or self._doom is not None:
            self._pump_while(lambda: any(env_id in self._resets or env_id in self._lost for env_id in env_ids))
        ready = self._ready_ids()
        if not set(env_ids).issubset(ready):
            states = {env_id: state.name for env_id, state in self._env_states.items()}
            raise AssertionError(
                f"actions are for envs {list(env_ids)}, but only {ready} are ready; current env state are: {states}"
            )

    def _await_steps(self) -> None:
        wait_num = min(self._wait_num, len(self._stepping) - len(self._lost) + len(self._arrived))
        patience = math.inf if self._step_wait_timeout is None else self._step_wait_timeout
        deadline = time.monotonic() + patience
        while len(self._stepping) > len(self._lost):
            timeout = None
            if len(self._arrived) >= wait_num and patience < math.inf and self._is_any_going_on():
                timeout = deadline - time.monotonic()
                if timeout <= 0:
                    return
            self._pump(timeout)

    def _is_any_going_on(self) -> bool:
        return any(self._env_states[env_id] is EnvState.RUN for env_id in self._arrived)

    def _settle(self) -> None:
        """Take in what has come, and wait for an env to be ready, if one will be without a call."""
        if self._resets or self._lost:
            self._pump(0)
        self._pump_while(lambda: bool(self._resets or self._lost) and not self._ready_ids())

    def __getattr__(self, key: str) -> Any:
        if not key.startswith("__") and "_env_ref" in self.__dict__:
            self._check_open()
        return super().__getattr__(key)


@ENV_MANAGER_REGISTRY.register("subprocess")
class SyncSubprocessEnvManager(AsyncSubprocessEnvManager):
    """Steps each env in a process of its own, and waits for all that it stepped.

    `ready_obs` waits for every reset that is under way. So which envs are stepped together does not depend on time, and
    envs that are seeded alike play the same episodes as in a `BaseEnvManager`.

    In all else it is as `AsyncSubprocessEnvManager`; `wait_num` and `step_wait_timeout` have no meaning here.

    Example:
        >>> from ding.envs import GymnasiumEnv
        >>> manager = SyncSubprocessEnvManager([lambda: GymnasiumEnv({"env_id": "CartPole-v1"})] * 2)
        >>> manager.seed(0)
        >>> manager.launch()
        >>> timesteps = manager.step({env_id: 0 for env_id in manager.ready_obs})
        >>> {env_id: timestep.done for env_id, timestep in timesteps.items()}
        {0: False, 1: False}
        >>> manager.close()
    """

    config: dict[str, Any] = {**AsyncSubprocessEnvManager.config, "wait_num": math.inf, "step_wait_timeout": None}

    def step(self, actions: Mapping[int, Any]) -> dict[int, Any]:
        """Act in the envs of `actions`; return `{env_id: timestep}`.

        A timestep that ends an episode has the terminal observation; the first one of the next is in `ready_obs`.

        Raises:
            AssertionError: the manager is closed, or an env is not ready for an action (no env was stepped then).
            KeyError: an env id is unknown (no env was stepped then).
            Exception: what an env raised; the manager is closed then.
        """
        timesteps = super().step(actions)
        return {env_id: timesteps[env_id] for env_id in actions}

    def _await_steps(self) -> None:
        while len(self._stepping) > len(self._lost):
            self._pump(None)

    def _settle(self) -> None:
        if self._resets or self._lost or self._doom is not None:
            self._pump_while(lambda: bool(self._resets or self._lost))


@ENV_MANAGER_REGISTRY.register("subprocess_v2")
class SubprocessEnvManagerV2(StackedFormat, SyncSubprocessEnvManager):
    """A `SyncSubprocessEnvManager` whose observations are stacked, and whose timesteps are a list of trees."""
