"""Seeds of a manager's envs: which env has which, and which envs must still be seeded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from typing import Any, NamedTuple

import numpy as np

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
        self._seeds: dict[int, EnvSeed] = {}
        self._episodes: dict[int, int] = {}  # the number of the env's next episode
        self._pending: set[int] = set()

    def assign(self, seed: Seeds, dynamic: bool | None) -> int | None:
        """Set new seeds, for the next reset of each env. Returns the first of them, None if there are none.

        Raises:
            AssertionError: a list has another length than there are envs.
            RuntimeError: there is no env for a key of a dict.
            TypeError: `seed` is something else.
        """
        seeds = self._read(seed, dynamic)
        self._seeds.update(seeds)
        self._episodes.update(dict.fromkeys(seeds, 0))
        self._pending.update(seeds)
        return next((entry.root for entry in seeds.values()), None)

    def renew(self, env_id: int) -> None:
        """Note that the env object was made anew, and so must be seeded again."""
        if env_id in self._seeds:
            self._pending.add(env_id)

    def apply(self, env_id: int, env: Any) -> bool:
        """Seed `env` unless that was done before; return whether it was necessary."""
        if env_id not in self._pending:
            return False
        self._seed_now(env_id).apply(env)
        self._pending.discard(env_id)
        return True

    def pending(self, env_id: int) -> EnvSeed | None:
        """The seed that the caller must apply to env `env_id` before `mark_seeded`; None if the env is seeded."""
        return self._seed_now(env_id) if env_id in self._pending else None

    def mark_seeded(self, env_id: int) -> None:
        """Note that the env has the seed of `pending`."""
        self._pending.discard(env_id)

    def take(self, env_id: int) -> EnvSeed | None:
        """As `pending`, and mark the env as seeded."""
        seed = self.pending(env_id)
        self.mark_seeded(env_id)
        return seed

    def count_episode(self, env_id: int) -> None:
        """Note that an episode of the env has begun."""
        self.set_episode(env_id, self._episodes.get(env_id, 0) + 1)

    def set_episode(self, env_id: int, number: int) -> None:
        """Set the number of the next episode of an env that has a seed."""
        if env_id in self._episodes:
            self._episodes[env_id] = number

    def current(self, env_id: int) -> EnvSeed | None:
        """The seed in force of env `env_id`, with the number of its next episode; None if it was given none."""
        return self._seed_now(env_id) if env_id in self._seeds else None

    def in_force(self, env_id: int) -> tuple[EnvSeed | None, int]:
        """The seed that env `env_id` was given last, None if none, and the number of its next episode."""
        return self._seeds.get(env_id), self._episodes.get(env_id, 0)

    def state_dict(self) -> dict[str, Any]:
        """The seeds, the numbers of the next episodes, and which envs must still be seeded."""
        seeds = {env_id: list(seed) for env_id, seed in self._seeds.items()}
        return {"seeds": seeds, "episodes": dict(self._episodes), "pending": sorted(self._pending)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state of `state_dict`."""
        self._seeds = {env_id: EnvSeed(*seed) for env_id, seed in state["seeds"].items()}
        self._episodes = dict(state["episodes"])
        self._pending = set(state["pending"])

    def _seed_now(self, env_id: int) -> EnvSeed:
        return self._seeds[env_id]._replace(episode=self._episodes[env_id])

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
