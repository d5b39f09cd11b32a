"""The process of one env: it makes the env, and answers one request after the other until it is told to close."""

from __future__ import annotations

import contextlib
import pickle
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ding.envs.env.base_env import BaseEnvTimestep
from ding.envs.env_manager.child_failure import Failure
from ding.envs.env_manager.child_guard import Alarm, seed_globals, use_one_thread
from ding.envs.env_manager.child_plan import ChildPlan
from ding.envs.env_manager.obs_slots import SentObs
from ding.envs.env_manager.seed_book import SeedOrder
from ding.envs.env_manager.wire import Channel, encode, pack_array, unpack_array
from ding.utils.child_helper import die_with, settle_in

# How long an env may take to close once its manager's process is gone.
_FAREWELL_S = 2.0
# What became of an episode with a step.
GOES_ON, ENDED, ABNORMAL = range(3)


def is_abnormal_timestep(timestep: Any) -> bool:
    """Whether the env flags a step as void, through `info['abnormal']`, for several players through any info.

    Raises:
        TypeError: the info is neither a dict, a sequence of them nor None.
    """
    info = timestep.info
    if isinstance(info, (dict, Mapping)):  # the check for dict alone is quick
        return bool(info.get("abnormal", False))
    if isinstance(info, (list, tuple)):
        return any(isinstance(player, Mapping) and bool(player.get("abnormal", False)) for player in info)
    if info is None:
        return False
    raise TypeError(f"the info of a timestep must be a dict, or a list of them, not {type(info).__name__}")


def run_child(plan: ChildPlan, source: socket.socket, sink: socket.socket, inherited: Iterable[Any]) -> None:
    """Be the process of an env.

    Args:
        source, sink: this process's end of the connection.
        inherited: connections of the parent that a forked process must not hold open.
    """
    settle_in()
    for connection in inherited:
        connection.close()
    die_with(plan.parent_pid, farewell_s=_FAREWELL_S)
    seed_globals(plan.random_words)
    # Without the manager's process nobody is left to tell.
    with contextlib.suppress(EOFError, ConnectionError):
        EnvServer(plan, Channel(source, sink)).serve()


class _Failed(Exception):
    """Carries which method of the env failed; the failure is its cause."""

    def __init__(self, method: str) -> None:
        super().__init__(method)
        self.method = method


class EnvServer:
    """Answers the requests `(method, *args)` of a manager with `(is_good, what, more)`, in order and by number.

    With `more` the answer of a reset that nobody asked for follows, under the next number: a step has ended an episode.
    """

    def __init__(self, plan: ChildPlan, channel: Channel) -> None:
        self._plan = plan
        self._channel = channel
        self._env: Any = None
        self._alarm = Alarm() if plan.step_timeout is not None or plan.reset_timeout is not None else None
        self._reset_param: dict[str, Any] = {}
        self._seed_order: SeedOrder | None = None
        self._reset_follows = False

    def serve(self) -> None:
        """Make the env and answer until the request `close`, or until the env cannot be made.

        Raises:
            EOFError, OSError: the manager's process is gone.
        """
        use_one_thread()
        self._channel.write(self._answer(0, "make", self._make))
        try:
            while self._env is not None:
                self._serve_one()
        finally:
            env, self._env = self._env, None
            if env is not None:
                env.close()

    def _serve_one(self) -> None:
        seq, body = self._channel.receive()
        try:
            method, *args = pickle.loads(body)
        except Exception as e:  # its class cannot be imported here
            self._channel.write(encode(seq, (False, Failure.of(e, "reading a request"), False)))
            return
        if method == "step":
            self._step(seq, *args)
        else:
            self._channel.write(self._answer(seq, method, self._call, method, args))

    def _answer(self, seq: int, method: str, function: Callable[..., Any], *args: Any) -> bytes:
        """What `function` returns, or how it fails, as it is sent."""
        try:
            what = function(*args)
            return encode(seq, (True, what, self._reset_follows))
        except BaseException as e:
            self._reset_follows = False
            failure = Failure.of(e.__cause__ or e, e.method) if isinstance(e, _Failed) else Failure.of(e, method)
            return encode(seq, (False, failure, False))

    def _call(self, method: str, args: list[Any]) -> Any:
        if method == "reset":
            return self._reset(*args)
        if method == "attribute":
            return getattr(self._env, args[0], None)
        if method == "close":
            env, self._env = self._env, None
            return env.close()
        result = getattr(self._env, method)(*args)
        if method == "reward_shaping" and result is None:
            return args[0]  # which the env has changed
        return result

    def _make(self) -> None:
        self._env = self._plan.make_env()
        use_one_thread()

    def _step(self, seq: int, action: tuple[Any, ...], auto_reset: bool, order: SeedOrder | None) -> None:
        if order is not None:
            self._seed_order = order
        self._channel.write(self._answer(seq, "step", self._act, action, auto_reset))
        if self._reset_follows:
            self._reset_follows = False
            self._channel.write(self._answer(seq + 1, "reset", self._begin_episode))

    def _act(self, packed_action: tuple[Any, ...], auto_reset: bool) -> tuple[int, SentObs, Any]:
        """Step; return what became of the episode, the observation as it is sent, and the rest of the timestep."""
        action = unpack_array(packed_action)
        timeout = self._plan.step_timeout
        if timeout is None:
            timestep = self._env.step(action)
        else:
            assert self._alarm is not None
            timestep = self._alarm.call(timeout, "step_timeout", self._env.step, action)
        outcome = _outcome(timestep)
        self._reset_follows = auto_reset and outcome == ENDED
        sent = self._plan.slots.put(timestep.obs)
        if type(timestep) is BaseEnvTimestep:
            return outcome, sent, (pack_array(timestep.reward), timestep.done, timestep.info)
        return outcome, sent, timestep._replace(obs=None)

    def _reset(self, param: dict[str, Any] | None, order: SeedOrder | None) -> SentObs:
        if order is not None:
            self._seed_order = order
        self._reset_param = param or {}
        return self._begin_episode()

    def _begin_episode(self) -> SentObs:
        order, self._seed_order = self._seed_order, None
        if order is not None:
            try:
                order.tell(self._env)
            except Exception as e:
                raise _Failed("seed") from e
        timeout = self._plan.reset_timeout
        if timeout is None:
            return self._plan.slots.put(self._env.reset(**self._reset_param))
        assert self._alarm is not None
        return self._plan.slots.put(self._alarm.call(timeout, "reset_timeout", self._env.reset, **self._reset_param))


def _outcome(timestep: Any) -> int:
    if is_abnormal_timestep(timestep):
        return ABNORMAL
    done = timestep.done
    return ENDED if done is True or (done is not False and np.all(done)) else GOES_ON
