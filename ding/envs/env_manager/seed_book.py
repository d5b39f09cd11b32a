"""The seeds of a manager's envs: who has which, who must still be told, and how far its episodes have come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from typing import Any, NamedTuple

import numpy as np

# One for all, one for each env (None for an env that is to stay as it is), or `{env_id: seed}`.
Seeds = int | Sequence["int | None"] | Mapping[int, int]


class EnvSeed(NamedTuple):
    """How one env is seeded.

    Envs with `seed_episodes` derive a seed for each episode from (`root`, env id, episode); others get
    `env.seed(plain)`, or `env.seed(plain, dynamic)` where `dynamic` is not None.
    """

    root: int
    plain: int
    dynamic: bool | None


class SeedOrder(NamedTuple):
    """What an env object is to be told, by whoever holds it."""

    seed: EnvSeed
    env_id: int
    episode: int

    def tell(self, env: Any) -> None:
        """Seed `env`."""
        if hasattr(env, "seed_episodes"):
            env.seed_episodes(self.seed.root, self.env_id, self.episode)
        elif self.seed.dynamic is None:
            env.seed(self.seed.plain)
        else:
            env.seed(self.seed.plain, self.seed.dynamic)


class SeedBook:
    """Seeds of the envs 0 to `env_num` - 1; a seed stays in force until it is replaced.

    Example:
        >>> class Env:
        ...     def seed_episodes(self, seed, env_index, first_episode):
        ...         print(seed, env_index, first_episode)
        >>> book = SeedBook(env_num=2)
        >>> root = book.assign(7, dynamic=None)
        >>> book.tell(1, Env())
        7 1 0
        >>> book.tell(1, Env())  # told already
        >>> book.count_reset(1)
        >>> book.tell_new(1, Env())
        7 1 1
    """

    def __init__(self, env_num: int) -> None:
        self._env_num = env_num
        self._seeds: dict[int, EnvSeed] = {}
        self._pending: set[int] = set()
        self._resets: dict[int, int] = {}

    def assign(self, seed: Seeds, dynamic: bool | None) -> int | None:
        """Note new seeds; the envs are told at their next reset. Return the first of them, None if there are none.

        Raises:
            AssertionError: a list has another length than there are envs.
            RuntimeError: there is no env for a key of a dict.
            TypeError: `seed` is something else.
        """
        seeds = self._read(seed, dynamic)
        self._seeds.update(seeds)
        self._pending.update(seeds)
        self._resets.update(dict.fromkeys(seeds, 0))
        return next((entry.root for entry in seeds.values()), None)

    def forget_told(self) -> None:
        """The envs were made anew: each is to be told its seed."""
        self._pending = set(self._seeds)

    def tell(self, env_id: int, env: Any) -> None:
        """Seed `env` if it has not been told its seed."""
        if env_id in self._pending:
            self.tell_new(env_id, env)

    def tell_new(self, env_id: int, env: Any) -> None:
        """Seed `env`, an object that knows nothing yet, for the episode that env `env_id` has come to."""
        if env_id in self._seeds:
            self._order(env_id).tell(env)
            self._pending.discard(env_id)

    def take_order(self, env_id: int) -> SeedOrder | None:
        """What env `env_id` must still be told, which counts as told with this; None if it has been told."""
        return self.take_order_for_new(env_id) if env_id in self._pending else None

    def take_order_for_new(self, env_id: int) -> SeedOrder | None:
        """What an object that knows nothing yet must be told as env `env_id`; None without a seed."""
        self._pending.discard(env_id)
        return self._order(env_id) if env_id in self._seeds else None

    def count_reset(self, env_id: int) -> None:
        """An episode of the env has begun."""
        if env_id in self._resets:
            self._resets[env_id] += 1

    def _order(self, env_id: int) -> SeedOrder:
        return SeedOrder(self._seeds[env_id], env_id, self._resets[env_id])

    def _read(self, seed: Seeds, dynamic: bool | None) -> dict[int, EnvSeed]:
        if isinstance(seed, (int, np.integer)):
            root = int(seed)
            return {env_id: EnvSeed(root, root + env_id, dynamic) for env_id in range(self._env_num)}
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
        return {env_id: EnvSeed(index(value), index(value), dynamic) for env_id, value in given.items()}
