"""State of envs: their seeds, and what their running episodes continue from."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from operator import index
from typing import Any, NamedTuple

import numpy as np

from ding.utils.log_helper import shown
from ding.utils.msgpack_helper import can_pack
from ding.utils.object_state import generator_state, set_generator_state

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
        >>> seeds.count_episode(1)
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
        if env_id not in self._pending:
            return False
        self._seeds[env_id].apply(env)
        self.mark_seeded(env_id)
        return True

    def pending(self, env_id: int) -> EnvSeed | None:
        """Return the seed that the caller must give env `env_id` before `mark_seeded`; None if it is seeded."""
        return self._seeds[env_id] if env_id in self._pending else None

    def mark_seeded(self, env_id: int) -> None:
        """Note that the env was given the seed of `pending`."""
        self._pending.discard(env_id)

    def current(self, env_id: int) -> EnvSeed | None:
        """Return the current seed of env `env_id` with the number of its next episode; None if it was given none."""
        return self._seeds.get(env_id)

    def count_episode(self, env_id: int) -> None:
        """Note that an env has begun its next episode."""
        seed = self._seeds.get(env_id)
        if seed is not None:
            self._seeds[env_id] = EnvSeed(*seed[:-1], seed.episode + 1)

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


def save_env(env: Any) -> dict[str, Any]:
    """Return the result of `env.get_state()` as `state`; or as `problem` the reason why there is none."""
    # Of its own class: a wrapper that forwards these methods would leave its own state out.
    if not all(callable(getattr(type(env), name, None)) for name in ("get_state", "set_state")):
        return {"problem": f"{type(env).__name__} has no get_state and set_state"}
    try:
        state = env.get_state()
    except Exception as e:  # code of the env
        return {"problem": f"get_state() fails with {type(e).__name__}: {e}"}
    if not can_pack(state):
        return {"problem": f"get_state() of {shown(env)} must return plain values, arrays and tensors"}
    return {"state": copy.deepcopy(state)}


def restore_env(env: Any, saved: Mapping[str, Any], seed: EnvSeed | None) -> str:
    """Put `env`, which was reset, into a state of `save_env`, and return why that is not possible, "" if it is.

    Args:
        seed: the current seed, with the number of the env's next episode.
    """
    if "problem" in saved:
        problem: str = saved["problem"]
        return problem
    try:
        if seed is not None and hasattr(env, "seed_episodes"):
            seed.apply(env)  # so that the next reset begins the right episode
        env.set_state(saved["state"])
    except Exception as e:  # code of the env
        return f"set_state() fails with {type(e).__name__}: {e}"
    return ""


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
