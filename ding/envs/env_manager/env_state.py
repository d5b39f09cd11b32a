"""State of envs: their seeds, and their running episodes.

A running episode continues in another process by the result of `get_state` if the env has `get_state` and `set_state`;
else by its pickle, if pickles are trusted; else by its seed, the random generators that it held before its reset, and
the actions since then, which are replayed in a new env. All of this runs in the process of the env.
"""

from __future__ import annotations

import copy
import logging
import pickle
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import index
from typing import Any, NamedTuple

import numpy as np
import torch

from ding.envs.env_manager.normalization import ENV_CALLS, attribute_of, env_layers
from ding.envs.env_wrappers.normalize_wrappers import RunningNormWrapper
from ding.utils.data.plain_columns import from_plain, to_plain
from ding.utils.data.samples import Node, Table, columns_of, node_items, pack
from ding.utils.log_helper import shown
from ding.utils.msgpack_helper import can_pack
from ding.utils.object_state import (
    generator_state,
    global_generators_state,
    load_global_generators_state,
    set_generator_state,
)
from ding.utils.random_generators import held_generators_state, load_held_generators_state

_logger = logging.getLogger("ding")
# Actions kept singly before they become a column, which takes longer than copying them.
RECENT = 1024

# One for all, one for each env (None for an env that keeps its seed), or `{env_id: seed}`.
Seeds = int | Sequence["int | None"] | Mapping[int, int]


class EnvSeed(NamedTuple):
    """The seed of one env, for an env object in this process or another.

    Envs with `seed_episodes` derive a seed for each episode from (`root`, `env_id`, episode), beginning with `episode`;
    others get `env.seed(plain)`, or `env.seed(plain, dynamic)` where `dynamic` is not None.
    """

    root: int
    plain: int
    dynamic: bool | None
    env_id: int
    episode: int = 0

    def apply(self, env: Any) -> None:
        """Seed `env`."""
        if hasattr(env, "seed_episodes"):
            env.seed_episodes(self.root, self.env_id, self.episode)
        elif self.dynamic is None:
            env.seed(self.plain)
        else:
            env.seed(self.plain, self.dynamic)


class EnvSeeds:
    """Seeds of the envs 0 to `env_num` - 1; a seed stays in force until it is replaced.

    Example:
        >>> class Env:
        ...     def seed_episodes(self, seed, env_index, first_episode):
        ...         print(seed, env_index, first_episode)
        >>> seeds = EnvSeeds(env_num=2)
        >>> root = seeds.assign(7, dynamic=None)
        >>> seeds.apply(1, Env())
        7 1 0
        True
        >>> seeds.apply(1, Env())  # does nothing: it is seeded
        False
        >>> seeds.set_episode(1, seeds.next_episode(1) + 1)
        >>> seeds.renew(1)
        >>> seeds.apply(1, Env())
        7 1 1
        True
    """

    def __init__(self, env_num: int) -> None:
        self._env_num = env_num
        self._seeds: dict[int, EnvSeed] = {}  # with the number of the env's next episode
        self._pending: set[int] = set()

    def assign(self, seed: Seeds, dynamic: bool | None) -> int | None:
        """Set new seeds for the next reset of each env, and return the first of them, or None if there are none.

        Raises:
            AssertionError: a list has another length than there are envs.
            RuntimeError: there is no env for a key of a dict.
            TypeError: `seed` is of another type.
        """
        seeds = self._read(seed, dynamic)
        self._seeds.update(seeds)
        self._pending.update(seeds)
        return next((entry.root for entry in seeds.values()), None)

    def renew(self, env_id: int) -> None:
        """Note that the env object was replaced, and so must be seeded again."""
        if env_id in self._seeds:
            self._pending.add(env_id)

    def apply(self, env_id: int, env: Any) -> bool:
        """Seed `env` unless it is seeded already, and return whether that was necessary."""
        seed = self.pending(env_id)
        if seed is not None:
            seed.apply(env)
            self.mark_seeded(env_id)
        return seed is not None

    def pending(self, env_id: int) -> EnvSeed | None:
        """Return the seed that the caller must give env `env_id` before `mark_seeded`; None if it is seeded."""
        return self._seeds[env_id] if env_id in self._pending else None

    def mark_seeded(self, env_id: int) -> None:
        """Note that the env was given the seed of `pending`."""
        self._pending.discard(env_id)

    def current(self, env_id: int) -> EnvSeed | None:
        """Return the current seed of env `env_id` with the number of its next episode; None if it was given none."""
        return self._seeds.get(env_id)

    def next_episode(self, env_id: int) -> int:
        """Return the number of the next episode of an env; 0 if it was given no seed."""
        seed = self._seeds.get(env_id)
        return 0 if seed is None else seed.episode

    def set_episode(self, env_id: int, number: int) -> None:
        """Set the number of the next episode of an env that has a seed."""
        if env_id in self._seeds:
            self._seeds[env_id] = EnvSeed(*self._seeds[env_id][:-1], number)

    def state_dict(self) -> dict[str, Any]:
        """Return the seeds with the numbers of the next episodes, and which envs must still be seeded."""
        return {"seeds": {i: list(seed) for i, seed in self._seeds.items()}, "pending": sorted(self._pending)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state of `state_dict`."""
        self._seeds = {env_id: EnvSeed(*seed) for env_id, seed in state["seeds"].items()}
        self._pending = set(state["pending"])

    def _read(self, seed: Seeds, dynamic: bool | None) -> dict[int, EnvSeed]:
        if isinstance(seed, (int, np.integer)):
            root = int(seed)
            return {env_id: EnvSeed(root, root + env_id, dynamic, env_id) for env_id in range(self._env_num)}
        if isinstance(seed, (list, tuple)):
            if len(seed) != self._env_num:
                raise AssertionError(f"{len(seed)} seeds were given for {self._env_num} envs: {seed!r}")
            given = {env_id: value for env_id, value in enumerate(seed) if value is not None}
        elif isinstance(seed, Mapping):
            given = dict(seed)
            unknown = given.keys() - set(range(self._env_num))
            if unknown:
                raise RuntimeError(f"there are no envs {unknown}; the env ids are 0 to {self._env_num - 1}")
        else:
            raise TypeError(f"seed = {seed!r} is not allowed; give an int, a list of them or {{env_id: int}}")
        return {env_id: EnvSeed(index(value), index(value), dynamic, env_id) for env_id, value in given.items()}


class ReplayError(Exception):
    """The recorded actions of an env cannot be replayed."""


class _Part:
    """The input of an env from one reset to the next.

    Attributes:
        seed: the seed at the reset, with the number of the episode that began; None without a seed.
        generators: the states of the global generators before the reset, if the env may draw from them.
        own: the states of the generators that the env holds, before the reset.
        is_reset: whether the env object had been reset before.
        is_seeded: whether it was seeded since its last reset.
        param: the keyword arguments of the reset.
        recent: copies of the latest actions, to which callers may append; earlier ones are in columns.
        calls: `(number of actions before it, name in ENV_CALLS, arguments)`.
    """

    __slots__ = (*("_columns", "calls", "generators", "is_reset", "is_seeded", "own", "param", "recent", "seed"),)

    def __init__(self, seed: EnvSeed | None, generators: dict[str, Any] | None) -> None:
        self.seed, self.generators = seed, generators
        self.own: list[dict[str, Any]] = []
        self.is_reset = self.is_seeded = False
        self.param: Mapping[str, Any] = {}
        self.recent: list[Any] = []
        self.calls: list[tuple[int, str, tuple[Any, ...]]] = []
        self._columns: list[Node] = []

    @property
    def stream(self) -> EnvSeed | None:
        """The seed without the number of the episode."""
        return self.seed and self.seed._replace(episode=0)

    def __len__(self) -> int:
        return len(self.recent) + sum(len(next(columns_of(column))) for column in self._columns)

    def actions(self) -> Iterator[Any]:
        """Yield copies of the actions."""
        for column in self._columns:
            yield from map(copy.deepcopy, node_items(column))
        yield from map(copy.deepcopy, self.recent)

    def compact(self) -> None:
        """Move the latest actions into a column."""
        if self.recent:
            self._columns.append(pack(self.recent[:]))
            self.recent.clear()

    def state_dict(self) -> dict[str, Any]:
        # The latest actions stay single: with a state at each round, there would be as many columns as actions.
        columns = [*self._columns, pack(self.recent[:])] if self.recent else self._columns
        return {
            "seed": None if self.seed is None else list(self.seed),
            "generators": self.generators,
            "own": self.own,
            "is_reset": self.is_reset,
            "is_seeded": self.is_seeded,
            "param": dict(self.param),
            "actions": [to_plain(Table({"action": column})) for column in columns],
            "calls": [[number, name, _plain_moments(args)] for number, name, args in self.calls],
        }

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> _Part:
        seed = None if state["seed"] is None else EnvSeed(*state["seed"])
        part = cls(seed, state["generators"])
        part.own, part.param = state["own"], state["param"]
        part.is_reset, part.is_seeded = state["is_reset"], state["is_seeded"]
        for plain in state["actions"]:
            part.recent += [item["action"] for item in from_plain(plain)]
            part.compact()
        part.calls = [(number, name, tuple(args)) for number, name, args in state["calls"]]
        return part


class EpisodeLog:
    """The input of an env since its running episode began, for a replay.

    If a wrapper such as `episodic_life` reports that the game continues after a reset, the log reaches back to the
    beginning of the game. The log of an env that was running before is empty until its next reset.

    Args:
        is_reset: whether the env has been reset before.

    Attributes:
        recent: the list to which copies of actions are appended before the env gets them; a new list after each reset.
        is_seeded: whether the env was seeded since its last reset; the caller sets it.
    """

    def __init__(self, is_reset: bool = False) -> None:
        self._is_reset, self.is_seeded = is_reset, False
        self.recent: list[Any] = []
        self._parts: list[_Part] = []
        self._next: _Part | None = None
        self._goes_on = False
        self._normalized: list[dict[str, Any]] = []  # states of the wrappers that normalize, at the beginning
        # Layers of the env that count here; looked up once, when it is open.
        self._normalizers: list[RunningNormWrapper] | None = None
        self._games: list[Any] = []

    def prepare(self, env: Any, seed: EnvSeed | None) -> None:
        """Record the state before a reset.

        Args:
            seed: the current seed, with the number of the episode that begins; None for none.
        """
        follows_seed = seed is not None and hasattr(env, "seed_episodes")
        part = self._next = _Part(seed, None if follows_seed else global_generators_state())
        part.own = held_generators_state(env)
        part.is_reset, part.is_seeded = self._is_reset, self.is_seeded
        self._goes_on = bool(self._games and self._parts) and not all(game.was_real_done for game in self._games)
        if self._normalizers and not self._goes_on:
            self._normalized = [wrapper.state_dict() for wrapper in self._normalizers]

    def begin(self, env: Any, param: Mapping[str, Any]) -> list[Any]:
        """Note that the prepared reset was done, and return `recent`."""
        part = self._next
        assert part is not None, "prepare() comes first"
        part.param = dict(param) if param else {}
        self._parts = [*self._parts, part] if self._goes_on else [part]
        self._is_reset, self.is_seeded = True, False
        self.recent = part.recent
        if self._normalizers is None:
            self._look_at(env)
        return part.recent

    def act(self, action: Any) -> None:
        """Note an action before the env gets it; callers may append copies to `recent` instead, and then `compact`."""
        self.recent.append(own_copy(action))
        if len(self.recent) >= RECENT:
            self.compact()

    def compact(self) -> None:
        """Move the latest actions into a column."""
        if self._parts:
            self._parts[-1].compact()
        else:
            self.recent.clear()

    def call(self, name: str, args: tuple[Any, ...]) -> None:
        """Note a call of one of `ENV_CALLS`."""
        if self._parts and self._normalizers:
            part = self._parts[-1]
            part.calls.append((len(part), name, args))

    def state_dict(self) -> dict[str, Any] | None:
        """Return the log in plain values, or None while it is empty."""
        if not self._parts:
            return None
        parts = [part.state_dict() for part in self._parts]
        return {"parts": parts, "normalized": self._normalized, "steps": sum(map(len, self._parts))}

    @classmethod
    def of_state(cls, state: Mapping[str, Any], env: Any) -> EpisodeLog:
        """Return the log of a state of `state_dict`, for the open `env` that continues with it."""
        log = cls(is_reset=True)
        log._parts = [_Part.of_state(part) for part in state["parts"]]
        log.recent = log._parts[-1].recent
        log._normalized = state["normalized"]
        log._look_at(env)
        return log

    def _look_at(self, env: Any) -> None:
        self._normalizers, self._games = _normalizers(env), _games(env)


def _normalizers(env: Any) -> list[RunningNormWrapper]:
    return [layer for layer in env_layers(env) if isinstance(layer, RunningNormWrapper)]


def _games(env: Any) -> list[Any]:
    """Return the wrappers, such as `episodic_life`, that begin a game at some resets only."""
    return [layer for layer in env_layers(env) if attribute_of(layer, "was_real_done") is not None]


def own_copy(item: Any) -> Any:
    """Return a copy of an observation, reward or action that shares no memory with it."""
    return item.copy() if type(item) is np.ndarray and not item.dtype.hasobject else copy.deepcopy(item)


def replay(state: Mapping[str, Any], env: Any) -> tuple[Any, bool]:
    """Replay a state of `EpisodeLog.state_dict` in the new env `env`.

    Returns:
        `(observation, whether the last step has ended the episode)`.

    Raises:
        ReplayError: an episode ends too early.
        Exception: an error of the env.
    """
    parts = [_Part.of_state(part) for part in state["parts"]]
    obs, is_done = None, False
    generators = global_generators_state()
    try:
        last = _prepare(env, parts[0], state["normalized"])
        for part in parts:
            if part.generators is not None:
                load_global_generators_state(part.generators)
            stream = part.stream
            if stream != last:  # an env counts its episodes itself
                _seed(env, part)
            last = stream
            load_held_generators_state(env, part.own)
            obs, is_done = _play(env, part)
    finally:
        load_global_generators_state(generators)
    return obs, is_done


def _prepare(env: Any, part: _Part, normalized: Sequence[Mapping[str, Any]]) -> EnvSeed | None:
    """Bring a new env to the state before the first reset of the replay, and return the seed that it follows then.

    An env that had played episodes is reset once: this makes its inner env and its wrappers, and uses up a seed that
    an env uses at its first reset only.
    """
    if not normalized and not (part.is_reset and part.own):
        return None
    _seed(env, part)
    env.reset(**part.param)
    for game in _games(env):
        game.was_real_done = True  # so that the next reset begins a game
    for wrapper, own in zip(_normalizers(env) if normalized else (), normalized, strict=True):
        wrapper.load_state_dict(own)
    is_to_seed = part.is_seeded or not part.is_reset or hasattr(env, "seed_episodes")
    return None if is_to_seed else part.stream


def _seed(env: Any, part: _Part) -> None:
    if part.seed is not None:
        part.seed.apply(env)


def _play(env: Any, part: _Part) -> tuple[Any, bool]:
    obs, is_done = env.reset(**part.param), False
    calls = deque(part.calls)
    for number, action in enumerate(part.actions()):
        while calls and calls[0][0] <= number:
            _, name, args = calls.popleft()
            ENV_CALLS[name](env, *args)
        if is_done:
            raise ReplayError("it ends before all recorded actions are replayed")
        timestep = env.step(action)
        obs, is_done = timestep.obs, bool(np.all(timestep.done))
    for _, name, args in calls:
        ENV_CALLS[name](env, *args)
    return obs, is_done


def save_env(env: Any, log: EpisodeLog | None, trust_pickle: bool) -> dict[str, Any]:
    """Return the state of `env` in plain values, for `restore_env`."""
    state: dict[str, Any] = {"action_space": space_state(attribute_of(env, "action_space"))}
    if _has_own_state(env):
        own = env.get_state()
        if not can_pack(own):
            raise TypeError(
                f"get_state() of {shown(env)} must return plain values, arrays and tensors; it returned {shown(own)}"
            )
        state["told"] = copy.deepcopy(own)
    elif trust_pickle:
        pickled = _pickled(env)
        if pickled is not None:
            state["pickled"] = pickled
    episode = None if log is None else log.state_dict()
    if can_pack(episode):
        state["episode"] = episode
        state["generators_held"] = held_generators_state(env)
    return state


class Restored(NamedTuple):
    """An env after `restore_env`.

    Attributes:
        log: its input since the reset; None if that is not known.
        obs: its observation after a replay.
        is_replayed: whether there was a replay; otherwise the earlier observation still holds.
        is_done: whether the replay has ended the episode.
        problem: the reason why the env cannot continue and must be reset; "" if it can.
    """

    env: Any
    log: EpisodeLog | None
    obs: Any = None
    is_replayed: bool = False
    is_done: bool = False
    problem: str = ""


def restore_env(
    env: Any, state: Mapping[str, Any], seed: EnvSeed | None, make: Callable[[], Any], trust_pickle: bool
) -> Restored:
    """Put `env`, which was reset, or a replacement, into a state of `save_env`.

    Args:
        seed: the current seed, with the number of the env's next episode.
        make: a function that makes the same env.
    """
    episode = state.get("episode")
    errors = []
    for key, restore in (("told", _restore_own), ("pickled", _restore_pickled)):
        if key not in state or (key == "pickled" and not trust_pickle):
            continue
        try:
            own = restore(env, state[key], seed)
            log = None if episode is None else EpisodeLog.of_state(episode, own)
        except Exception as e:  # code of the env
            errors.append(f"{_NAMES[key]} fails with {e!r}")
            continue
        load_space_state(attribute_of(own, "action_space"), state["action_space"])
        return Restored(own, log)
    if episode is None:
        why = ", ".join(errors) or "neither its state nor its actions since the reset are known"
        return Restored(env, None, problem=why)
    _close(env)
    env = make()
    try:
        obs, is_done = replay(episode, env)
        log = EpisodeLog.of_state(episode, env)
        # Others than the env may have drawn since, as for random actions.
        load_held_generators_state(env, state.get("generators_held", []))
    except Exception as e:  # code of the env
        return Restored(env, None, problem=", ".join([*errors, f"replaying its episode fails with {e!r}"]))
    load_space_state(attribute_of(env, "action_space"), state["action_space"])
    return Restored(env, log, obs, True, is_done)


_NAMES = {"told": "set_state()", "pickled": "unpickling it"}


def _restore_own(env: Any, own: Any, seed: EnvSeed | None) -> Any:
    env.set_state(own)
    if seed is not None and hasattr(env, "seed_episodes"):
        seed.apply(env)  # so that its next reset begins the right episode
    return env


def _restore_pickled(env: Any, pickled: bytes, seed: EnvSeed | None) -> Any:
    own = pickle.loads(pickled)
    _close(env)
    return own


def _close(env: Any) -> None:
    try:
        env.close()
    except Exception:  # code of the env
        _logger.exception("%s, which is replaced by another, failed to close", shown(env))


def _has_own_state(env: Any) -> bool:
    # Of its own class: a wrapper that forwards these methods would leave its own state out.
    return all(callable(getattr(type(env), name, None)) for name in ("get_state", "set_state"))


def _pickled(env: Any) -> bytes | None:
    """Return the env pickled, or None if it cannot be."""
    for library in ("gymnasium", "gym"):
        rebuilt = getattr(sys.modules.get(f"{library}.utils"), "EzPickle", ())
        if any(isinstance(layer, rebuilt) for layer in env_layers(env)):
            return None  # its pickle has the arguments that it was made with, and no state
    try:
        return pickle.dumps(env)
    except Exception as e:  # an env may hold anything
        _logger.debug("%s cannot be pickled: %r", shown(env), e)
        return None


def space_state(space: Any) -> dict[str, Any]:
    """Return the states of the generators from which a space and its parts draw samples."""
    generator = getattr(space, "np_random", None)
    own = generator_state(generator) if isinstance(generator, _GENERATORS) else None
    return {"own": own, "parts": [space_state(part) for part in _parts_of(space)]}


def load_space_state(space: Any, state: Mapping[str, Any]) -> None:
    """Put the generators of a space into states of `space_state`."""
    if state["own"] is not None:
        set_generator_state(space.np_random, state["own"])
    for part, own in zip(_parts_of(space), state["parts"], strict=True):
        load_space_state(part, own)


_GENERATORS = (np.random.Generator, np.random.RandomState)


def _parts_of(space: Any) -> list[Any]:
    spaces = getattr(space, "spaces", ())
    parts = list(spaces.values() if isinstance(spaces, Mapping) else spaces)
    others = (getattr(space, name, None) for name in ("feature_space", "node_space", "edge_space"))
    return parts + [part for part in others if part is not None]


def is_equal(one: Any, other: Any) -> bool:
    """Return whether two observations have the same types and content; NaN is equal to NaN."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.dtype == other.dtype and is_equal(one.numpy(force=True), other.numpy(force=True))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(is_equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(is_equal, one, other))
    if type(one) is not type(other):
        return False
    a, b = np.asarray(one), np.asarray(other)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return bool(np.all((a == b) | ((a != a) & (b != b))))


def _plain_moments(args: tuple[Any, ...]) -> list[Any]:
    return [{name: list(m) for name, m in arg.items()} if isinstance(arg, Mapping) else arg for arg in args]
