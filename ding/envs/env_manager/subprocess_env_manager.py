"""Env managers whose envs each run in their own process."""

from __future__ import annotations

import inspect
import logging
import math
import multiprocessing
import multiprocessing.connection
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from multiprocessing.util import Finalize
from typing import Any

import numpy as np
from easydict import EasyDict

from ding.envs.env.base_env import BaseEnvTimestep
from ding.envs.env_manager.base_env_manager import (
    DONE,
    ERROR,
    NEED_RESET,
    RESET,
    RUN,
    BaseEnvManager,
    BaseEnvManagerV2,
    ManagerStateError,
    exhausted,
)
from ding.envs.env_manager.block import BlockStep, Ready, StackedFormat, is_done
from ding.envs.env_manager.env_child import (
    NOT_SHARED,
    ChildPlan,
    EnvDiedError,
    EnvProcessError,
    ObsMessage,
    SharedObs,
    is_abnormal_timestep,
    pack_array,
    unpack_array,
)
from ding.envs.env_manager.env_process import (
    DEFAULT_CONTEXT,
    EnvProcess,
    Limit,
    Reply,
    close_all,
    portable,
    wait_for_replies,
    words_of_numpy,
)
from ding.utils.config_helper import Setting, Settings, boolean, number, one_of
from ding.utils.data.nested import own_copy
from ding.utils.default_helper import one_time_warning
from ding.utils.log_helper import shown
from ding.utils.registry_factory import ENV_MANAGER_REGISTRY
from ding.utils.shm_buffer import ShmBuffer, ShmBufferContainer

__all__ = [
    "AsyncSubprocessEnvManager",
    "EnvDiedError",
    "EnvProcessError",
    "GymVectorEnvManager",
    "ShmBuffer",
    "ShmBufferContainer",
    "SubprocessEnvManagerV2",
    "SyncSubprocessEnvManager",
    "is_abnormal_timestep",
    "setup_ding_env_manager",
]

_logger = logging.getLogger("ding")

# Seconds in which an env whose method was interrupted in its own process must report that.
_GRACE_S = 0.5


class _Processes(dict[int, EnvProcess]):
    """Dict `{env_id: process}`; ids are checked before, so one is missing only if another thread closed the manager."""

    def __missing__(self, env_id: int) -> EnvProcess:
        raise ManagerStateError(f"the env manager was closed while env {env_id} was in use")


@ENV_MANAGER_REGISTRY.register("async_subprocess")
class AsyncSubprocessEnvManager(BaseEnvManager):
    """Env manager that steps each env in its own process, and returns the envs that are ready first.

    `step` returns once enough envs have answered; the others answer to a later call. After the end of an episode, the
    env's process begins the next one at once; until then the env is in the state RESET, and not in `ready_obs`.

    An exception of an env is raised here as one of the same class that says which env failed in which method, with the
    traceback from its process. A failed step closes the manager. If the process of an env ends, an `EnvDiedError` names
    the signal or the exit code. An abnormal step (`info['abnormal']`) puts its env in the state ERROR, until
    `reset({env_id: None})`.

    No process outlives the manager: `close`, the end of the program and the garbage collector end them, and they end by
    themselves when this process is killed. Another thread may `close` it: calls that wait for envs then raise an error.

    Args:
        env_fn: one function without arguments for each env; see `BaseEnvManager`. It may be a lambda or closure.
        cfg: missing values are filled from `default_config()`.

    Raises:
        AssertionError: `reset_inplace` is set without `auto_reset`.
    """

    settings = Settings(
        {
            "max_retry": Setting(doc="Number of attempts of a failing reset; a failing step is not tried again."),
            "shared_memory": Setting(
                True, boolean, "Transfer observations through shared memory, where their space has a fixed shape."
            ),
            "copy_on_get": Setting(
                True,
                boolean,
                "Copy observations out of shared memory; otherwise they are that memory, and change two steps later.",
            ),
            # 'fork' takes milliseconds and accepts any env_fn. The others import all modules again, and so copy no lock
            # that a thread of this process may hold.
            "context": Setting(
                DEFAULT_CONTEXT, one_of(*multiprocessing.get_all_start_methods()), "How processes start."
            ),
            "wait_num": Setting(2, number(1), "Minimum number of envs to wait for in each step."),
            "step_wait_timeout": Setting(
                0.01, number(0, optional=True), "Seconds to wait for more envs; None to wait for all."
            ),
            "connect_timeout": Setting(
                60, number(1e-6, 1e9), "Seconds a process has to start, and to answer anything but a step."
            ),
            "reset_inplace": Setting(
                False, boolean, "Wait for the first observation of an episode in the step that ended the one before."
            ),
        },
        BaseEnvManager.settings,
    )

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
        self._connect_limit = connect = Limit(self._connect_timeout, f"connect_timeout = {self._connect_timeout} s")
        self._reset_limit, self._step_limit = connect, None
        if self._reset_timeout is not None:
            own = Limit(self._reset_timeout + _GRACE_S, f"reset_timeout = {self._reset_timeout} s")
            self._reset_limit = min(own, connect)
        if self._step_timeout is not None:
            self._step_limit = Limit(self._step_timeout + _GRACE_S, f"step_timeout = {self._step_timeout} s")
        self._clear()

    def _clear(self) -> None:
        """Forget the processes and all their requests."""
        self._processes = _Processes()
        self._finalizer: Finalize | None = None
        self._starts = dict.fromkeys(range(self._env_num), 0)  # of its process; each has its own random numbers
        self._shared_obs: dict[int, SharedObs] = {}
        self._uncopied: set[int] = set()  # envs whose `_ready_obs` may be in shared memory
        self._awaited: set[int] = set()  # envs whose timesteps step() waits for; those of others are ignored
        self._held: dict[int, Any] = {}  # timesteps that are kept back until the reset that follows is over
        self._arrived: dict[int, Any] = {}  # timesteps that step() has not returned yet
        self._attempts: dict[int, int] = {}  # so far, at the resets that are under way
        self._retry_at: dict[int, float] = {}  # when to make the next attempt
        self._discarded: set[int] = set()  # envs that are reset even if their step fails
        self._answers: dict[int, Reply] = {}  # to the calls that are under way
        # An error that is raised only after everything that came with it, such as timesteps, was returned.
        self._failure: Exception | None = None
        # An RLock while there are processes; reading from them, starting and closing them takes it.
        self._lock: AbstractContextManager[Any] = nullcontext()

    @property
    def ready_env(self) -> set[int]:
        """Ids of the envs that wait for an action now, without waiting for others."""
        return set(self._ready_ids())

    @property
    def ready_obs_id(self) -> list[int]:
        """Ids of the envs that wait for an action; see `ready_obs`."""
        if not self._closed:
            self._settle()
        return self._ready_ids()

    @property
    def ready_obs(self) -> dict[int, Any]:
        """Observations `{env_id: obs}` of the envs that wait for an action; empty if none will without a further call.

        While there are none, this waits for pending resets.

        Raises:
            RuntimeError: such a reset failed in every attempt; the manager is closed then.
        """
        return {env_id: self._owned(env_id, obs) for env_id, obs in self._seen_obs().items()}

    def ready_block(self, env_ids: Sequence[int] | None = None) -> Ready:
        """Return the envs that wait for an action, or those of `env_ids` that do; see `ready_obs`."""
        return self.ready_of(self._seen_obs(), env_ids)

    def _seen_obs(self) -> dict[int, Any]:
        """Return `ready_obs` without copying it from shared memory, which changes two steps of the env later."""
        if not self._closed:
            self._settle()
        obs = self._ready_obs
        return {env_id: obs[env_id] for env_id in self._ready_ids()}

    def _owned(self, env_id: int, obs: Any) -> Any:
        """Return an observation for a caller: one copy of shared memory, unless `copy_on_get` is off."""
        if obs is not self._ready_obs.get(env_id):
            return self._own_obs(env_id, obs)
        if env_id in self._uncopied:
            self._uncopied.discard(env_id)
            self._ready_obs[env_id] = self._own_obs(env_id, obs)
        return self._ready_obs[env_id]

    def _own_obs(self, env_id: int, obs: Any) -> Any:
        shared = self._shared_obs.get(env_id)  # None once another thread has closed the manager
        return own_copy(obs) if self._copy_on_get and (shared is None or shared.is_used) else obs

    def _show(self, env_id: int, obs: Any) -> None:
        """Note that this env waits for an action and shows `obs`, which may be in shared memory."""
        self._ready_obs[env_id] = obs
        self._uncopied.add(env_id)

    @property
    def ready_imgs(self) -> dict[int, Any]:
        """Images `{env_id: image}` that `render('rgb_array')` returns of the envs in `ready_obs`."""
        env_ids = self.ready_obs_id
        return self._ask(env_ids, "render", "rgb_array") if env_ids else {}

    def step(self, actions: Mapping[int, Any]) -> dict[int, Any]:
        """Act in the envs of `actions`, and return the timesteps `{env_id: timestep}` in the order of their arrival.

        This waits for `wait_num` answers, for further ones until `step_wait_timeout` is over, and in any case until an
        env continues or all have answered. Answers may belong to an earlier call; `step({})` waits for these only.
        A timestep that ends an episode has the terminal observation; the first one of the next is in `ready_obs`.

        Raises:
            AssertionError: the manager is closed, or an env is not ready for an action (no env was stepped then).
            KeyError: an env id is unknown (no env was stepped then).
            Exception: an exception of an env; the manager is closed then.
        """
        self.check_free()
        timesteps = self._step(actions)
        self.touched[list(actions)] += 1
        return {env_id: step._replace(obs=self._owned(env_id, step.obs)) for env_id, step in timesteps.items()}

    def act(self, actions: Sequence[Any], env_ids: list[int]) -> BlockStep:
        """Act in the envs `env_ids`, and return the step of those that have answered; see `step`.

        Observations are copied from shared memory into the block at once.
        """
        return self.block_of(self._step(dict(zip(env_ids, actions, strict=True))), env_ids)

    def _step(self, actions: Mapping[int, Any]) -> dict[int, Any]:
        """Act like `step`, and return timesteps whose observations may be in shared memory."""
        self._check_open()
        self._check_ids(actions)
        self._wait_while(lambda: any(self._is_busy(i) and i not in self._awaited for i in actions))
        ready = self._ready_ids()
        if not actions.keys() <= set(ready):
            self._refuse(actions, ready)
        try:
            for env_id, action in actions.items():
                self._send_step(env_id, action)
            self._await_steps()
            self._check_open()  # another thread may have closed the manager
            arrived, self._arrived = self._arrived, {}
            return arrived
        except BaseException:
            self._ignore_steps(actions)
            raise

    def _ready_after(self, step: BlockStep) -> Ready | None:
        """Return the ready envs after a step that all envs answered; None if others became ready meanwhile."""
        if not step.any_ends and self._ready_ids() != step.env_ids:
            return None
        return super()._ready_after(step)

    @staticmethod
    def wait(rest_conn: Iterable[Any], wait_num: int, timeout: float | None = None) -> tuple[list[Any], list[Any]]:
        """Wait for connections, and return `(ready, rest)`.

        It returns once `wait_num` are ready and `timeout` seconds are over, or once all are ready; without a timeout,
        only then.

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
        """Wait until another env is ready; return False at once if none will be without a further call.

        It is meant for callers that have read `ready_obs` and will not act in any of these envs.
        """
        ready = self._ready_ids()
        self._wait_while(lambda: self._ready_ids() == ready and self._is_any_unsettled())
        return self._ready_ids() != ready

    # When to wait for which env.

    def _ready_ids(self) -> list[int]:
        processes, arrived = self._processes, self._arrived
        running = np.flatnonzero(self._states == RUN).tolist()
        return [env_id for env_id in running if env_id not in arrived and processes[env_id].request is None]

    def _is_busy(self, env_id: int) -> bool:
        """Return whether the env works on a request, or is about to be reset again."""
        return self._processes[env_id].request is not None or env_id in self._attempts

    def _is_any_unsettled(self) -> bool:
        """Return whether an env is busy with something that no step() waits for, mostly a reset."""
        return any(self._is_busy(env_id) and env_id not in self._awaited for env_id in self._processes)

    def _settle(self) -> None:
        """Process replies that have arrived, and wait until an env is ready, if one will be without a further call."""
        if self._is_any_unsettled():
            self._take_in_replies(0)
        self._wait_while(lambda: not self._ready_ids() and self._is_any_unsettled())

    def _await_steps(self) -> None:
        wait_num = min(self._wait_num, len(self._awaited) + len(self._arrived))
        patience = math.inf if self._step_wait_timeout is None else self._step_wait_timeout
        deadline = time.monotonic() + patience
        while self._awaited:
            timeout = None
            continues = any(self._states[env_id] == RUN for env_id in self._arrived)
            if len(self._arrived) >= wait_num and patience < math.inf and continues:
                timeout = deadline - time.monotonic()
                if timeout <= 0:
                    return
            self._take_in_replies(timeout)

    def _wait_while(self, is_waiting: Callable[[], bool]) -> None:
        while True:
            if self._failure is not None:
                failure = self._failure
                self._close_after_failure()
                raise failure
            if not is_waiting():
                return
            self._take_in_replies(None)

    def _take_in_replies(self, timeout_s: float | None) -> None:
        """Process the replies that have arrived, after waiting up to `timeout_s` seconds; see `wait_for_replies`."""
        if self._retry_at:
            left = max(0.0, min(self._retry_at.values()) - time.monotonic())
            timeout_s = left if timeout_s is None else min(timeout_s, left)
        with self._lock:
            self._check_open()
            for reply in wait_for_replies(self._processes.values(), timeout_s):
                self._take_in(reply)
            if self._attempts:
                self._send_due_resets()

    def _take_in(self, reply: Reply) -> None:
        """Update the state of an env from its reply."""
        env_id, method, error = reply.env_id, reply.method, reply.error
        if method == "step":
            if error is None:
                self._end_step(reply)
            elif env_id not in self._discarded:
                self._fail(env_id, error)
            else:
                _logger.warning("env %s is reset after a step that failed: %s", env_id, error)
        elif method == "reset":
            if error is None:
                self._end_reset(env_id, reply.value)
            else:
                self._fail_reset(env_id, error, reply.failed)
        elif method not in ("make", "close"):
            self._answers[env_id] = reply
        elif method == "make" and error is not None:
            self._processes[env_id].end(at_once=True)
            if self._attempts.get(env_id, 1) == 1:
                self._fail(env_id, error)
            self._fail_reset(env_id, error, "make")

    def _fail(self, env_id: int, error: Exception) -> None:
        """Close the manager, and raise an env's error."""
        self._states[env_id] = ERROR
        self._close_after_failure()
        raise error

    # Steps

    def _send_step(self, env_id: int, action: Any) -> None:
        is_last = self._env_episode_count[env_id] + 1 >= self._episode_num
        seed = self._seeds.pending(env_id)
        self._processes[env_id].send(
            "step",
            pack_array(action),
            self._auto_reset and not is_last,
            seed,
            limit=self._step_limit,
            reset_limit=self._reset_limit,
        )
        self._awaited.add(env_id)
        if seed is not None:
            self._seeds.mark_seeded(env_id)

    def _end_step(self, reply: Reply) -> None:
        env_id = reply.env_id
        message, fields = reply.value
        obs = self._read_obs(env_id, message)
        if reply.reset_follows:  # a reset that is attempted again may write over it
            obs = self._own_obs(env_id, obs)
        if type(fields) is tuple:
            reward, done, info = fields
            timestep: Any = BaseEnvTimestep(obs, unpack_array(reward), done, info)
        else:
            timestep = fields._replace(obs=obs)
        if is_abnormal_timestep(timestep):
            self._states[env_id] = ERROR
        elif not is_done(timestep.done):
            self._show(env_id, obs)
        else:
            self._env_episode_count[env_id] += 1
            if self._env_episode_count[env_id] >= self._episode_num:
                self._states[env_id] = DONE
            elif not reply.reset_follows:
                self._states[env_id] = NEED_RESET
            else:
                self._states[env_id] = RESET
                self._attempts[env_id] = 1
                if self._reset_inplace:
                    self._held[env_id] = timestep
                    return
        self._deliver(env_id, timestep)

    def _deliver(self, env_id: int, timestep: Any) -> None:
        if env_id in self._awaited:
            self._arrived[env_id] = timestep
            self._awaited.discard(env_id)

    def _ignore_steps(self, env_ids: Iterable[int]) -> None:
        """Drop the pending timesteps of these envs; they still update the states of the envs."""
        with self._lock:
            for env_id in env_ids:
                self._arrived.pop(env_id, None)
                self._awaited.discard(env_id)
                process = self._processes.get(env_id)
                if process is not None:
                    process.set_limit(self._connect_limit)

    def _read_obs(self, env_id: int, message: ObsMessage) -> Any:
        shared = self._shared_obs[env_id]
        if message[0] == NOT_SHARED and shared.is_used:
            one_time_warning(
                f"observations do not have the form of the observation space {shown(self._observation_space)}, and so "
                "do not go through shared memory, which is faster: let the env return observations that fit its space"
            )
        return shared.read(message)

    # Resets

    def _reset_envs(self, env_ids: list[int]) -> None:
        self._discarded = set(env_ids)
        try:
            self._ignore_steps(env_ids)
            self._wait_while(lambda: any(self._is_busy(i) and not self._is_being_made(i) for i in env_ids))
        finally:
            self._discarded = set()
        for env_id in env_ids:
            self._attempts[env_id] = 1
            self._states[env_id] = RESET
            if not self._is_being_made(env_id):
                self._send_reset(env_id)
        self._wait_while(lambda: any(env_id in self._attempts for env_id in env_ids))

    def _is_being_made(self, env_id: int) -> bool:
        return self._processes[env_id].request == "make"

    def _send_reset(self, env_id: int) -> None:
        param, seed = self._reset_param[env_id], self._seeds.pending(env_id)
        self._processes[env_id].send("reset", param, seed, limit=self._reset_limit)
        self._seeds.mark_seeded(env_id)

    def _end_reset(self, env_id: int, message: ObsMessage) -> None:
        self._seeds.count_episode(env_id)
        self._episodes[env_id] += 1
        self._show(env_id, self._read_obs(env_id, message))
        self._states[env_id] = RUN
        self._end_attempts(env_id)

    def _end_attempts(self, env_id: int) -> None:
        """Note that the reset of an env is over, and deliver the timestep that was kept back for that."""
        if env_id in self._held:
            self._deliver(env_id, self._held.pop(env_id))
        self._retry_at.pop(env_id, None)
        self._attempts.pop(env_id, None)

    def _fail_reset(self, env_id: int, error: Exception, failed: str) -> None:
        """Schedule another attempt of a reset, or give up if it was the last one."""
        attempts = self._attempts.get(env_id, 1)
        if failed == "seed" or attempts >= self._max_retry:
            self._states[env_id] = ERROR
            self._failure = error if failed == "seed" else exhausted(env_id, "reset", attempts, error)
            self._end_attempts(env_id)
            return
        _logger.warning("attempt %s of %s to reset env %s failed: %s", attempts, self._max_retry, env_id, error)
        self._attempts[env_id] = attempts + 1
        self._retry_at[env_id] = time.monotonic() + self._retry_waiting_time

    def _send_due_resets(self) -> None:
        """Request the resets that are due; that of an env without `_retry_at` is due as soon as its process is idle."""
        now = time.monotonic()
        for env_id in list(self._attempts):
            if self._retry_at.get(env_id, now) > now:
                continue
            process = self._processes[env_id]
            if process.request is None:
                try:
                    if env_id not in self._retry_at or (self._retry_type == "reset" and not process.is_dead):
                        self._send_reset(env_id)
                    else:
                        process.end()
                        self._start_process(env_id)
                except Exception as e:  # code of `env_fn`
                    self._fail_reset(env_id, e, "make")
                    continue
            self._retry_at.pop(env_id, None)

    # Processes, and calls to single envs

    def _create_env(self, env_id: int) -> None:
        if self._finalizer is None:
            # At exit this comes before multiprocessing ends the processes itself, which would not close the envs.
            self._finalizer = Finalize(self, _close_forgotten, (self._processes,), exitpriority=10)
            self._random_words = words_of_numpy()
            self._lock = threading.RLock()
        space = self._observation_space if self._shared_memory else None
        with self._lock:
            self._check_open()
            self._shared_obs[env_id] = SharedObs(space)
            self._start_process(env_id)

    def _start_process(self, env_id: int) -> None:
        env_fn = self._env_fn[env_id]
        plan = ChildPlan(
            env_id=env_id,
            env_fn=env_fn if self._context == "fork" else portable(env_fn, env_id),
            shared_obs=self._shared_obs[env_id],
            replay_path=self._env_replay_path[env_id] if self._env_replay_path is not None else None,
            step_timeout=self._step_timeout,
            reset_timeout=self._reset_timeout,
            parent_pid=os.getpid(),
            random_words=(*self._random_words, env_id, self._starts[env_id]),
        )
        self._starts[env_id] += 1
        self._seeds.renew(env_id)
        context = multiprocessing.get_context(self._context)
        self._processes[env_id] = EnvProcess(plan, context, self._connect_limit, self._processes.values())

    def _close_envs(self) -> list[Exception]:
        with self._lock:  # a waiting thread releases it soon, and then finds the manager closed
            processes, finalizer = self._processes, self._finalizer
            self._clear()
            if finalizer is not None:
                finalizer.cancel()
            return close_all(processes.values())

    def _ask(self, env_ids: Iterable[int], method: str, *args: Any) -> dict[int, Any]:
        """Return the results of a method of these envs, called after their pending requests."""
        return self._ask_each(method, dict.fromkeys(env_ids, args), self._connect_limit)

    def _ask_each(self, method: str, args: Mapping[int, tuple[Any, ...]], limit: Limit | None) -> dict[int, Any]:
        """Return the results of a method like `_ask`, with arguments `{env_id: args}`."""
        env_ids = list(args)
        self._wait_while(lambda: any(map(self._is_busy, env_ids)))
        self._answers = {}
        for env_id in env_ids:
            self._processes[env_id].send(method, *args[env_id], limit=limit)
        self._wait_while(lambda: not self._answers.keys() >= args.keys())
        answers, self._answers = self._answers, {}
        for env_id in env_ids:
            error = answers[env_id].error
            if error is not None:
                if self._processes[env_id].is_dead:
                    self._fail(env_id, error)
                raise error
        return {env_id: answers[env_id].value for env_id in env_ids}

    def _call_env(self, env_id: int, method: str, *args: Any) -> Any:
        return self._ask([env_id], method, *args)[env_id]

    def _call_each(self, name: str, *args: Any) -> list[Any]:
        return list(self._ask(self._alive(), name, *args).values())

    def _alive(self) -> list[int]:
        return [env_id for env_id, process in self._processes.items() if not process.is_dead]

    @property
    def why_inexact(self) -> str:
        return "it serves envs in the order in which they answer, so even undisturbed runs differ"

    def _under_way(self) -> set[int]:
        return {*self._arrived, *self._held}

    def _save_envs(self) -> dict[int, dict[str, Any]]:
        return self._ask(self._alive(), "save_state")

    def _restore_envs(self, states: Mapping[int, Mapping[str, Any]]) -> dict[int, str]:
        seeds = {env_id: self._seeds.current(env_id) for env_id in states}
        args = {env_id: (state, seeds[env_id], self._reset_param[env_id]) for env_id, state in states.items()}
        return self._ask_each("restore", args, None)  # a replay takes as long as an episode

    def _env_attributes(self, key: str) -> list[Any]:
        if inspect.ismethod(getattr(self._env_ref, key)):
            return [partial(self._call_env, env_id, key) for env_id in range(self._env_num)]
        return list(self._ask(range(self._env_num), "attribute", key).values())

    def __getattr__(self, key: str) -> Any:
        if not key.startswith("__") and "_env_ref" in self.__dict__:
            self._check_open()
        return super().__getattr__(key)


@ENV_MANAGER_REGISTRY.register("subprocess")
class SyncSubprocessEnvManager(AsyncSubprocessEnvManager):
    """Env manager that steps each env in its own process, and waits for all that it stepped.

    `ready_obs` waits for every pending reset. So which envs are stepped together does not depend on timing, and envs
    with the same seeds play the same episodes as in a `BaseEnvManager`.

    Otherwise it is like `AsyncSubprocessEnvManager`; `wait_num` and `step_wait_timeout` have no effect here.

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

    settings = Settings({"wait_num": math.inf, "step_wait_timeout": None}, AsyncSubprocessEnvManager.settings)
    why_inexact = ""

    def _step(self, actions: Mapping[int, Any]) -> dict[int, Any]:
        timesteps = super()._step(actions)
        return {env_id: timesteps[env_id] for env_id in actions}

    def _await_steps(self) -> None:
        while self._awaited:
            self._take_in_replies(None)

    def _settle(self) -> None:
        self._wait_while(self._is_any_unsettled)


@ENV_MANAGER_REGISTRY.register("gym_vector")
class GymVectorEnvManager(SyncSubprocessEnvManager):
    """`SyncSubprocessEnvManager` under another name; `VectorEnvManager` steps the vector envs of gymnasium."""


@ENV_MANAGER_REGISTRY.register("subprocess_v2")
class SubprocessEnvManagerV2(StackedFormat, SyncSubprocessEnvManager):
    """A `SyncSubprocessEnvManager` whose observations are stacked, and whose timesteps are a list of trees."""


def _close_forgotten(processes: dict[int, EnvProcess]) -> None:
    """Close the envs of a manager that was not closed."""
    for error in close_all(processes.values()):
        _logger.error("an env that was never closed failed to close: %s", error)


def setup_ding_env_manager(
    env: Any, env_num: int, context: str | None = None, debug: bool = False, caller: str = "collector"
) -> BaseEnvManager:
    """Return a V2 manager over `env_num` envs that `env.clone(caller)` makes.

    Args:
        context: how the processes of the envs start; None for the default.
        debug: whether the envs run in this process.
        caller: 'collector' or 'evaluator'.
    """
    manager_cls: Any = BaseEnvManagerV2 if debug else SubprocessEnvManagerV2
    cfg = manager_cls.default_config()
    if context is not None:
        cfg.context = context
    manager: BaseEnvManager = manager_cls([partial(env.clone, caller)] * env_num, cfg)
    return manager
