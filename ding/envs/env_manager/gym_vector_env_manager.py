"""An env manager over gymnasium's `AsyncVectorEnv`: a process for each env, a batch of observations for each step."""

from __future__ import annotations

import inspect
import logging
import multiprocessing
import os
import pickle
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
from easydict import EasyDict

from ding.envs.env.base_env import BaseEnvTimestep
from ding.envs.env_manager.base_env_manager import (
    BaseEnvManager,
    EnvNotReadyError,
    EnvState,
    is_done,
)
from ding.envs.env_manager.block import DictBlocks
from ding.envs.env_manager.data_formats import SharedObs, pack_array, unpack_array
from ding.envs.env_manager.env_child import ChildPlan, EnvDiedError, Failure, is_abnormal_timestep
from ding.envs.env_manager.env_process import DEFAULT_CONTEXT, describe_exit, preload_fork_server, words_of_numpy
from ding.envs.env_manager.env_state import Restored, copy_of
from ding.utils.config_helper import Setting, Settings, boolean, number, one_of
from ding.utils.registry_factory import ENV_MANAGER_REGISTRY
from ding.utils.showing import shown

_logger = logging.getLogger("ding")
# Seconds that an env has to report that it was too slow, to close, and to end.
_GRACE_S = 0.5
_CLOSE_S = 5.0
_END_S = 1.0
# The members have no buffers of their own: gymnasium hands the observations over.
_NO_BUFFERS = SharedObs.for_space(None, copy_on_get=True)


@ENV_MANAGER_REGISTRY.register("gym_vector")
class GymVectorEnvManager(BaseEnvManager):
    """Steps each env in a process of a `gymnasium.vector.AsyncVectorEnv`, and waits for all of them.

    The envs are those of the other managers, made by `env_fn`, and need a gymnasium observation space; observations
    take its dtype. Only the envs of `actions` are stepped. The vector env never resets an env on its own
    (`AutoresetMode.DISABLED`): the envs whose episodes have ended are reset together within the same `step`, so no
    step is lost and a terminal timestep has the terminal observation. Seeds, states of running episodes and
    time limits are as in `SyncSubprocessEnvManager`, and so are errors: an exception of an env is raised here, names
    the env and closes the manager; a failed reset is retried as `max_retry` and `retry_type` say.

    Args:
        env_fn: one function without arguments for each env; see `BaseEnvManager`. Lambdas and closures will do.
        cfg: missing values are filled from `default_config()`.

    Raises:
        ImportError: gymnasium is older than 1.1.
        TypeError: the observation space of the envs is not one of gymnasium.

    Example:
        >>> from ding.envs import GymnasiumEnv
        >>> manager = GymVectorEnvManager([lambda: GymnasiumEnv({"env_id": "CartPole-v1"})] * 2)
        >>> manager.seed(0)
        >>> manager.launch()
        >>> timesteps = manager.step({env_id: 0 for env_id in manager.ready_obs})
        >>> {env_id: timestep.done for env_id, timestep in timesteps.items()}
        {0: False, 1: False}
        >>> manager.close()
    """

    settings = Settings(
        {
            "shared_memory": Setting(
                False,
                boolean,
                "Transfer observations through shared memory; their space must be one of gymnasium's own kinds then.",
            ),
            "copy_on_get": Setting(
                True, boolean, "Copy observations; otherwise they are views, and change with the next step."
            ),
            "context": Setting(
                DEFAULT_CONTEXT, one_of(*multiprocessing.get_all_start_methods()), "How processes start."
            ),
            "connect_timeout": Setting(60, number(1e-6, 1e9), "Seconds an env has to answer anything but a step."),
        },
        BaseEnvManager.settings,
    )

    def __init__(self, env_fn: list[Callable[[], Any]], cfg: Mapping[str, Any] = EasyDict()) -> None:
        super().__init__(env_fn, cfg)
        import gymnasium

        from ding.envs.env_manager import vector_member

        if not isinstance(self._observation_space, gymnasium.Space):
            raise TypeError(
                f"the env manager gym_vector needs a gymnasium observation space, {shown(self._env_ref)} has "
                f"{shown(self._observation_space)}; set env.manager.type to 'subprocess'"
            )
        self._library = vector_member
        self._vector: Any = None
        self._is_broken = False  # a process has not answered, so the vector env cannot be used any more

    def step(self, actions: Mapping[int, Any]) -> dict[int, Any]:
        """Act in the envs of `actions`; return `{env_id: timestep}`.

        A timestep that ends an episode has the terminal observation; the first one of the next is in `ready_obs`.

        Raises:
            AssertionError: the manager is closed, or an env is not ready for an action (no env was stepped then).
            RuntimeError: an env id is unknown (no env was stepped then), or a reset failed in every attempt.
            Exception: what an env raised; the manager is closed then.
        """
        self._check_open()
        self._check_ready(actions)
        if not actions:
            return {}
        self.version += 1
        orders: list[Any] = [None] * self._env_num
        for env_id, action in actions.items():
            orders[env_id] = pack_array(action)
        timeout_s = None if self._step_timeout is None else self._step_timeout + _GRACE_S
        send = partial(self._vector.step_async, orders)
        observations, *_, infos = self._exchange("step", send, self._vector.step_wait, timeout_s)
        del send  # an exception below would keep the vector env, with its semaphores, by this frame
        rows, answers = self._library.rows_of(self._vector, observations), infos[self._library.ANSWER]
        timesteps = {env_id: self._timestep(env_id, rows[env_id], answers[env_id]) for env_id in actions}
        ended = [env_id for env_id, timestep in timesteps.items() if self._advance(env_id, timestep)]
        if ended:
            if not self._cfg.copy_on_get:  # the reset writes into the same memory
                for env_id in ended:
                    timesteps[env_id] = timesteps[env_id]._replace(obs=copy_of(timesteps[env_id].obs))
            self._begin_episodes(ended)
        return timesteps

    step_block = DictBlocks.step_block

    def _check_ready(self, env_ids: Iterable[int]) -> None:
        self._check_ids(env_ids)
        states = self._env_states
        if any(states[env_id] is not EnvState.RUN for env_id in env_ids):
            raise EnvNotReadyError(
                f"actions are for envs {list(env_ids)}, but only {self.ready_obs_id} are ready; current env state are: "
                f"{ {env_id: state.name for env_id, state in states.items()} }"
            )

    def _timestep(self, env_id: int, obs: Any, answer: bytes) -> Any:
        fields = self._result(env_id, answer)
        if isinstance(fields, Exception):
            self._env_states[env_id] = EnvState.ERROR
            self._close_after_failure()
            raise fields
        if type(fields) is not tuple:
            return fields._replace(obs=obs)
        reward, done, info = fields
        return BaseEnvTimestep(obs, unpack_array(reward), done, info)

    def _advance(self, env_id: int, timestep: Any) -> bool:
        """Set the state of an env after a step; return whether an auto reset follows."""
        if is_abnormal_timestep(timestep):
            self._env_states[env_id] = EnvState.ERROR
            return False
        if timestep.done is not False and is_done(timestep.done):
            return self._count_end(env_id)
        self._ready_obs[env_id] = timestep.obs
        return False

    @staticmethod
    def _result(env_id: int, answer: bytes) -> Any:
        """What a member answered; of a failure the exception."""
        is_good, value = pickle.loads(answer)
        if is_good:
            return value
        failure: Failure = value
        return failure.to_exception(env_id)

    # Resets

    def _reset_envs(self, env_ids: list[int]) -> None:
        self._begin_episodes(env_ids)

    def _begin_episodes(self, env_ids: list[int]) -> None:
        for env_id in env_ids:
            self._env_states[env_id] = EnvState.RESET
        for env_id, obs in self._request_resets(env_ids).items():
            if isinstance(obs, Exception):
                obs = self._reset_again(env_id, obs)
            self._seeds.count_episode(env_id)
            self._episodes[env_id] += 1
            self._ready_obs[env_id] = obs
            self._env_states[env_id] = EnvState.RUN

    def _request_resets(self, env_ids: list[int]) -> dict[int, Any]:
        """`{env_id: first observation, or the exception of the reset}`."""
        self._check_open()  # a process that died in an earlier attempt has closed the manager
        mask = np.zeros(self._env_num, np.bool_)
        mask[env_ids] = True
        orders = {env_id: (self._reset_param[env_id], self._seeds.take(env_id)) for env_id in env_ids}
        send = partial(self._vector.reset_async, options={"reset_mask": mask, "orders": orders})
        observations, infos = self._exchange("reset", send, self._vector.reset_wait, self._connect_timeout_s)
        rows, answers = self._library.rows_of(self._vector, observations), infos[self._library.ANSWER]
        errors = {env_id: self._result(env_id, answers[env_id]) for env_id in env_ids}
        return {env_id: rows[env_id] if errors[env_id] is None else errors[env_id] for env_id in env_ids}

    def _attempt_reset(self, env_id: int) -> Any:
        obs = self._request_resets([env_id])[env_id]
        if isinstance(obs, Exception):
            raise obs
        return obs

    def _renew_and_reset(self, env_id: int) -> Any:
        try:
            self._call_env(env_id, "close")
        except Exception:
            _logger.exception("env %s, which is replaced by a new one, failed to close", env_id)
        self._call_env(env_id, "make")
        self._seeds.renew(env_id)
        return self._attempt_reset(env_id)

    # Processes, and calls of single envs

    @property
    def _connect_timeout_s(self) -> float:
        return float(self._cfg.connect_timeout)

    def _create_env(self, env_id: int) -> None:
        if self._vector is None:  # all are started together
            words = words_of_numpy()
            plans = [self._plan(each, words) for each in range(self._env_num)]
            cfg = self._cfg
            self._is_broken = False
            if cfg.context == "forkserver":
                preload_fork_server()
            self._vector = self._library.open_vector(
                plans, self._observation_space, cfg.context, cfg.shared_memory, cfg.copy_on_get
            )
            self._ask(dict.fromkeys(range(self._env_num), ("make", ())))

    def _plan(self, env_id: int, words: tuple[int, ...]) -> ChildPlan:
        return ChildPlan(
            env_id=env_id,
            env_fn=self._env_fn[env_id],
            shared_obs=_NO_BUFFERS,
            replay_path=None if self._env_replay_path is None else self._env_replay_path[env_id],
            step_timeout=self._step_timeout,
            reset_timeout=self._reset_timeout,
            parent_pid=os.getpid(),
            random_words=(*words, env_id),
            trust_pickle=self._trust_pickle,
        )

    def _exchange(self, method: str, send: Callable[[], Any], wait: Callable[..., Any], timeout_s: float | None) -> Any:
        """Ask all processes and wait for their answers; the manager is closed if one of them does not come."""
        try:
            send()
            return wait(timeout_s)
        except BaseException as e:
            late = self._silent() if isinstance(e, multiprocessing.TimeoutError) else []
            self._is_broken = True
            dead = self._dead() if isinstance(e, EOFError | OSError) else {}
            self._close_after_failure()
            for env_id, exitcode in dead.items():
                raise EnvDiedError(f"env {env_id} died in {method}: {describe_exit(exitcode)}", env_id, method) from e
            if isinstance(e, multiprocessing.TimeoutError):
                raise TimeoutError(f"envs {late} did not answer to {method} within {timeout_s} s") from e
            raise

    def _silent(self) -> list[int]:
        return [env_id for env_id, pipe in enumerate(self._vector.parent_pipes) if not pipe.poll()]

    def _dead(self) -> dict[int, int | None]:
        """`{env_id: exit code}` of the processes that have ended, or are about to."""
        for process in self._vector.processes:
            process.join(_END_S / self._env_num)
        processes = enumerate(self._vector.processes)
        return {env_id: process.exitcode for env_id, process in processes if process.exitcode is not None}

    def _ask(self, orders: Mapping[int, tuple[str, tuple[Any, ...]]], timeout_s: float | None = None) -> dict[int, Any]:
        """`{env_id: result}` of the orders `{env_id: (method, arguments)}`; the first error is raised."""
        send = partial(self._vector.call_async, "request", orders)
        method = next(iter(orders.values()))[0]
        answers = self._exchange(method, send, self._vector.call_wait, timeout_s or self._connect_timeout_s)
        results = {env_id: self._result(env_id, answers[env_id]) for env_id in orders}
        for result in results.values():
            if isinstance(result, Exception):
                raise result
        return results

    def _call_env(self, env_id: int, method: str, *args: Any) -> Any:
        return self._ask({env_id: (method, args)})[env_id]

    def _call_each(self, name: str, *args: Any) -> list[Any]:
        return list(self._ask(dict.fromkeys(range(self._env_num), (name, args))).values())

    def _env_attributes(self, key: str) -> list[Any]:
        if inspect.ismethod(getattr(self._env_ref, key)):
            return [partial(self._call_env, env_id, key) for env_id in range(self._env_num)]
        return self._call_each("attribute", key)

    def _note_episodes(self) -> None:
        self._call_each("enable_states", self._trust_pickle)

    def _save_envs(self) -> dict[int, dict[str, Any]]:
        return dict(enumerate(self._call_each("save_state")))

    def _restore_envs(self, states: Mapping[int, Mapping[str, Any]]) -> dict[int, Restored]:
        orders = {
            env_id: ("restore", (state, self._seeds.current(env_id), self._reset_param[env_id]))
            for env_id, state in states.items()
        }
        steps = max((state["episode"]["steps"] for state in states.values() if state.get("episode")), default=0)
        restored = {}
        for env_id, (result, message) in self._ask(orders, self._connect_timeout_s + steps).items():
            restored[env_id] = result if message is None else result._replace(obs=message[1])
        return restored

    def _close_envs(self) -> list[Exception]:
        vector, self._vector = self._vector, None
        if vector is None:
            return []
        errors = [] if self._is_broken else self._close_members(vector)
        if not self._is_broken:
            vector.close()
            return errors
        _kill(vector)
        return errors

    def _close_members(self, vector: Any) -> list[Exception]:
        """Close all envs within a few seconds; return the errors of envs that failed to close."""
        try:
            vector.call_async("request", dict.fromkeys(range(self._env_num), ("close", ())))
            answers = vector.call_wait(_CLOSE_S)
        except (EOFError, OSError, multiprocessing.TimeoutError) as e:
            self._is_broken = True
            _logger.warning("an env does not close, so its process is killed: %r", e)
            return []
        results = [self._result(env_id, answer) for env_id, answer in enumerate(answers)]
        return [result for result in results if isinstance(result, Exception)]


def _kill(vector: Any) -> None:
    vector.closed = True  # nothing is left for its own `close`, which would wait for answers
    for process in vector.processes:
        process.kill()
    for pipe in vector.parent_pipes:
        if pipe is not None:
            pipe.close()
    for process in vector.processes:
        process.join(_END_S)
        if process.exitcode is None:
            _logger.error("the process %s does not end", process.pid)
