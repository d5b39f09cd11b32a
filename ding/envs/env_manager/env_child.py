"""The process of one env: it makes the env and answers one request after the other until the request `close`.

A request is `(method, args)`, an answer `(is_good, value or Failure, reset_follows)`. Each request has one answer; with
`reset_follows` the answer of a reset comes after it: a step has ended an episode.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from ding.envs.common.gym_compat import members_of, space_kind
from ding.envs.env.base_env import BaseEnvTimestep, EnvOutputError
from ding.envs.env_manager.base_env_manager import call_with_timeout, no_timestep
from ding.envs.env_manager.block import is_abnormal, is_done
from ding.envs.env_manager.env_state import EnvSeed, restore_env, save_env
from ding.envs.env_manager.normalization import ENV_CALLS
from ding.utils.child_helper import (
    KILL,
    allow_children,
    die_with,
    leave_sigterm_to_parent,
    reset_inherited,
    set_death_signal,
)
from ding.utils.shm_buffer import ShmBuffer

# How long an env may take to close once its manager's process is gone.
_FAREWELL_S = 2.0

# The step that ends an episode writes two observations, a terminal one and the first of the next episode, while a
# caller without copies may still hold the one that was acted on.
_BUFFERS = 3
# Stands, within what goes through the pipe, for a part that is in shared memory.
_ELSEWHERE = ...

# How an observation goes through the pipe: the number of the buffer that holds it, and the parts that are not there.
# With the number NOT_SHARED the second item is the observation.
ObsMessage = tuple[int, Any]
NOT_SHARED = -1


class SharedObs:
    """Shared memory for the observations of one env, written by its process and read by the manager's.

    Arrays of a fixed shape and dtype are shared, on any level of dict and tuple spaces. Three buffers are used in turn,
    so an observation is valid until three further ones are written.

    Args:
        space: the space of the observations; nothing is shared if it is None.

    Example:
        >>> from gymnasium.spaces import Box
        >>> shared = SharedObs(Box(0, 1, (2,)))
        >>> message = shared.write(np.array([0.5, 1], np.float32))
        >>> message, shared.read(message)
        ((1, Ellipsis), array([0.5, 1. ], dtype=float32))
        >>> shared.write("anything else")
        (-1, 'anything else')
    """

    def __init__(self, space: Any) -> None:
        self._trees = [_buffers(space) for _ in range(_BUFFERS)]
        self._next = 0

    @property
    def is_used(self) -> bool:
        """Whether any part of an observation has a fixed shape and dtype."""
        return self._trees[0] is not None

    def write(self, obs: Any) -> ObsMessage:
        """Write `obs`, and return the message for `read`. An `obs` that does not fit the space is not shared."""
        self._next = index = (self._next + 1) % _BUFFERS
        tree = self._trees[index]
        try:
            return (NOT_SHARED, obs) if tree is None else (index, _fill(tree, obs))
        except _MisfitError:
            return NOT_SHARED, obs

    def read(self, message: ObsMessage) -> Any:
        """Return the observation given to `write`, whose arrays are in shared memory."""
        index, rest = message
        return rest if index == NOT_SHARED else _gather(self._trees[index], rest)


def _buffers(space: Any) -> Any:
    """Return a ShmBuffer for an array of fixed shape, or dicts and tuples of them as in the space, else None."""
    kind = space_kind(space)
    if kind in ("Dict", "Tuple"):
        tree = {key: _buffers(part) for key, part in members_of(space).items()}
        if all(part is None for part in tree.values()):
            return None
        return tree if kind == "Dict" else tuple(tree.values())
    shape, dtype = getattr(space, "shape", None), getattr(space, "dtype", None)
    # Without a dimension it is a number.
    if not isinstance(shape, tuple) or not shape or dtype is None or np.dtype(dtype).hasobject:
        return None
    return ShmBuffer(dtype, shape, copy_on_get=False)


class _MisfitError(Exception):
    """An observation does not have the form of its space."""


def _fill(tree: Any, obs: Any) -> Any:
    match tree:
        case None:
            return obs
        case ShmBuffer() if tree.fits(obs):
            tree.array[...] = obs
            return _ELSEWHERE
        case dict() if type(obs) is dict and obs.keys() == tree.keys():
            return {key: _fill(tree[key], part) for key, part in obs.items()}
        case tuple() if type(obs) is tuple and len(obs) == len(tree):
            return tuple(map(_fill, tree, obs))
    raise _MisfitError


def _gather(tree: Any, rest: Any) -> Any:
    if rest is _ELSEWHERE:
        return tree.get()
    match tree:
        case dict():
            return {key: _gather(tree[key], part) for key, part in rest.items()}
        case tuple():
            return tuple(map(_gather, tree, rest))
    return rest


def pack_array(value: Any) -> tuple[Any, ...]:
    """Return an array of numbers as (dtype, shape, bytes), pickled in 2 us instead of 13 us; else return `(value,)`."""
    if type(value) is np.ndarray and value.dtype.kind in "biuf":
        return value.dtype.str, value.shape, bytearray(value.tobytes())
    return (value,)


def unpack_array(packed: tuple[Any, ...]) -> Any:
    """Return the argument of `pack_array`; an array is a new one, in C order."""
    if len(packed) == 1:
        return packed[0]
    dtype, shape, data = packed
    return np.frombuffer(data, dtype).reshape(shape)


class EnvProcessError(RuntimeError):
    """An env raised, in its own process, an exception that cannot be raised again in this one.

    Attributes:
        env_id: the env.
        method: the requested method.
    """

    def __init__(self, text: str, env_id: int, method: str) -> None:
        super().__init__(text)
        self.env_id = env_id
        self.method = method

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.env_id, self.method)


class EnvDiedError(EnvProcessError):
    """The process of an env ended while a request was under way."""


class Failure(NamedTuple):
    """An exception on its way from the env's process to the manager's.

    Attributes:
        method: the method of the env that failed; `make` for the function that makes it.
        class_name: class of the exception.
        text: its traceback.
        pickled: the exception, or None if it does not survive pickling.
    """

    method: str
    class_name: str
    text: str
    pickled: bytes | None

    @classmethod
    def of(cls, error: BaseException, method: str) -> Failure:
        """Return the failure of `method` with `error`, which may be impossible to pickle."""
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        pickled = None
        # SystemExit and the like were meant for the env's process, not for the manager's.
        if isinstance(error, Exception):
            try:
                pickled = encode(error.with_traceback(None))
                pickle.loads(pickled)  # classes with constructors of their own fail only here
            except Exception:  # it may hold anything
                pickled = None
        return cls(method, type(error).__name__, text, pickled)

    def to_exception(self, env_id: int) -> Exception:
        """Return an exception, if possible of the original class, whose only argument says what failed where."""
        head = f"env {env_id} failed in {self.method} with {self.class_name}"
        text = f"{head}\n\nIn the process of env {env_id}:\n{self.text}"
        try:
            error = pickle.loads(self.pickled) if self.pickled is not None else None
        except Exception:  # its class cannot be imported here
            error = None
        if isinstance(error, EnvOutputError):  # which needs no traceback
            return EnvOutputError(f"env {env_id}: {error}")
        own = EnvProcessError(text, env_id, self.method)
        if not isinstance(error, Exception):
            return own
        error.args = (text,)
        try:
            has_text = text in str(error)
        except Exception:  # its text needs the arguments it had
            return own
        if not has_text:  # it has a text of its own
            error.__cause__ = own
        return error


def encode(message: Any) -> bytes:
    """Pickle `message`; classes that are local to a function are pickled by value."""
    try:
        return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    except Exception:  # each kind of failure is worth the other way
        import cloudpickle

        data: bytes = cloudpickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        return data


def is_abnormal_timestep(timestep: Any) -> bool:
    """Return whether the env flags a step as invalid by `info['abnormal']`, for several players in any info.

    Raises:
        TypeError: the info is neither a dict, a sequence of them nor None.
    """
    info = timestep.info
    if info is not None and not isinstance(info, (dict, Mapping, list, tuple)):
        raise TypeError(f"the info of a timestep must be a dict, or a list of them, not {type(info).__name__}")
    return is_abnormal(info)


@dataclass(frozen=True)
class ChildPlan:
    """The arguments of the process of an env.

    Attributes:
        env_fn: the function that makes the env; bytes if it was pickled by value.
        shared_obs: the shared memory for observations.
        parent_pid: the id of the manager's process.
        random_words: the seed of the global generators.
    """

    env_id: int
    env_fn: Callable[[], Any] | bytes
    shared_obs: SharedObs
    replay_path: str | None
    step_timeout: float | None
    reset_timeout: float | None
    parent_pid: int
    random_words: tuple[int, ...] = ()


def run_child(plan: ChildPlan, source: Connection, sink: Connection, inherited: Iterable[Connection]) -> None:
    """Run the process of an env until its manager closes it or ends.

    Args:
        source, sink: the connections for requests and answers.
        inherited: connections of the parent that a forked process must not hold open.
    """
    reset_inherited()
    leave_sigterm_to_parent()
    for connection in inherited:
        connection.close()
    _release_fork_server()
    die_with(plan.parent_pid, farewell_s=_FAREWELL_S)
    allow_children()
    seed_globals(plan.random_words)
    # Without the manager's process there is nothing to answer to.
    with contextlib.suppress(EOFError, ConnectionError):
        EnvServer(plan, source, sink).serve()


_released_pipe: int | None = None


def _release_fork_server() -> None:
    """Let the fork server of `multiprocessing`, if it has forked this process, end before this process does.

    It ends when no process holds a certain pipe, which each process that it forks inherits. The pipe is closed only
    once: an env may fork envs of its own, which inherit its file descriptor, which may belong to another file by then.
    """
    global _released_pipe
    import multiprocessing.forkserver

    server: Any = multiprocessing.forkserver._forkserver
    pipe = getattr(server, "_forkserver_alive_fd", None)
    if pipe not in (None, _released_pipe) and getattr(server, "_forkserver_pid", 0) is None:
        os.close(pipe)
        _released_pipe = pipe


class EnvServer:
    """Server in the process of an env: makes the env, and answers the requests of the manager, in order.

    If the parent process dies while the env is working, the kernel kills this process at once, since code of the env
    may hold the interpreter lock forever. An env that waits for a request is closed first. A fork server also ends with
    the manager's process, once none of the processes that it has forked holds its pipe.

    Args:
        plan: the arguments of the process.
        source, sink: the connections for requests and answers.
    """

    def __init__(self, plan: ChildPlan, source: Connection, sink: Connection) -> None:
        self._plan, self._source, self._sink = plan, source, sink
        self._parent_pid = os.getppid()  # a fork server, or the manager's process
        self._env: Any = None  # before the request `make` and after `close`
        self._failed = ""  # the method of the env that was called last, for error messages
        self._reset_follows = False  # whether the last step ended an episode, so that `begin_episode` must follow
        self._reset_param: dict[str, Any] = {}
        self._seed: EnvSeed | None = None  # to be applied before the next reset
        self._handlers: dict[str, Callable[..., Any]] = {
            "make": self._make,
            "step": self._step,
            "reset": self._reset,
            "begin_episode": self._begin_episode,
            "close": self._close,
            "save_state": self._save_state,
            "restore": self._restore,
        }

    def serve(self) -> None:
        """Make the env and answer until the request `close`, or until the env cannot be made.

        Raises:
            EOFError, OSError: the manager's process is gone.
        """
        use_one_thread()
        self._answer("make")
        try:
            while self._env is not None:
                data = self._source.recv_bytes()
                try:
                    with self._at_work():
                        method, args = pickle.loads(data)
                except Exception as e:  # its class cannot be imported here
                    self._sink.send_bytes(encode((False, Failure.of(e, "reading a request"), False)))
                    continue
                self._answer(method, *args)
                if self._reset_follows:
                    self._reset_follows = False
                    self._answer("begin_episode")
        finally:
            if self._env is not None:
                self._close()

    @contextlib.contextmanager
    def _at_work(self) -> Iterator[None]:
        set_death_signal(KILL)
        if os.getppid() != self._parent_pid:
            raise EOFError("the manager's process has ended")
        try:
            yield
        finally:
            set_death_signal(0)

    def _answer(self, method: str, *args: Any) -> None:
        """Send the result of a request, or its failure: of a method of this class, or else of the env."""
        self._failed = "reset" if method == "begin_episode" else method
        with self._at_work():
            try:
                handler = self._handlers.get(method)
                result = self._call(method, *args) if handler is None else handler(*args)
                data = encode((True, result, self._reset_follows))
            except BaseException as e:  # any failure of the env is an answer, SystemExit too
                self._reset_follows = False
                data = encode((False, Failure.of(e, self._failed), False))
        self._sink.send_bytes(data)  # who has read it finds an env that waits

    def _call(self, method: str, *args: Any) -> Any:
        if method == "attribute":
            return getattr(self._env, args[0], None)
        if method in ENV_CALLS:
            return ENV_CALLS[method](self._env, *args)
        result = getattr(self._env, method)(*args)
        if method == "reward_shaping" and result is None:
            return args[0]  # which the env has changed
        return result

    def _close(self) -> None:
        env, self._env = self._env, None
        env.close()

    def _make(self) -> None:
        plan = self._plan
        env_fn = pickle.loads(plan.env_fn) if isinstance(plan.env_fn, bytes) else plan.env_fn
        env = env_fn()
        if plan.replay_path is not None:
            env.enable_save_replay(plan.replay_path)
        self._env = env
        use_one_thread()

    def _step(self, packed_action: Any, auto_reset: bool, seed: EnvSeed | None) -> tuple[ObsMessage, Any]:
        """Step the env, and return the message of the observation and the rest of the timestep."""
        if seed is not None:
            self._seed = seed
        action = unpack_array(packed_action)
        timestep = call_with_timeout(self._plan.step_timeout, "step_timeout", self._env.step, action)
        if not hasattr(timestep, "done"):
            raise no_timestep(self._env, timestep)
        self._reset_follows = not is_abnormal_timestep(timestep) and auto_reset and is_done(timestep.done)
        obs = self._plan.shared_obs.write(timestep.obs)
        if type(timestep) is BaseEnvTimestep:
            return obs, (pack_array(timestep.reward), timestep.done, timestep.info)
        return obs, timestep._replace(obs=None)

    def _reset(self, param: dict[str, Any] | None, seed: EnvSeed | None) -> ObsMessage:
        if seed is not None:
            self._seed = seed
        self._reset_param = param or {}
        return self._begin_episode()

    def _begin_episode(self) -> ObsMessage:
        seed, self._seed = self._seed, None
        if seed is not None:
            self._failed = "seed"
            seed.apply(self._env)
            self._failed = "reset"
        obs = call_with_timeout(self._plan.reset_timeout, "reset_timeout", self._env.reset, **self._reset_param)
        return self._plan.shared_obs.write(obs)

    def _save_state(self) -> dict[str, Any]:
        """Return the state of the env, and the seed that it is given before its next reset."""
        return {**save_env(self._env), "seed": None if self._seed is None else list(self._seed)}

    def _restore(self, state: Mapping[str, Any], seed: EnvSeed | None, param: dict[str, Any] | None) -> str:
        """Put the env into a state of `_save_state`; see `restore_env`."""
        self._seed = None if state["seed"] is None else EnvSeed(*state["seed"])
        self._reset_param = param or {}
        return restore_env(self._env, state, seed)


def use_one_thread() -> None:
    """Use one thread, to leave the other cores to the other envs; call it again after imports."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


def seed_globals(words: Sequence[int]) -> None:
    """Seed the global generators from `words`; otherwise forked processes would all draw the same numbers."""
    state = np.random.SeedSequence(words).generate_state(8)
    np.random.seed(state)
    random.seed(state.tobytes())
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(int(state[0]))
