"""The seeds of an env's episodes."""

from __future__ import annotations

import numpy as np


class EpisodeSeeds:
    """Episode k of env i is seeded by `SeedSequence([seed, i, k])`; without `assign` episodes have no seed.

    Example:
        >>> seeds = EpisodeSeeds()
        >>> seeds.current()
        >>> seeds.assign(0)
        >>> first = seeds.current()
        >>> seeds.advance()
        >>> first, seeds.current()
        (2968811710, 3831201730)
    """

    def __init__(self) -> None:
        self._root: tuple[int, int] | None = None  # (seed, env index)
        self._known: list[int] = []  # of the episodes from number _first_known on
        self._first_known = 0
        self._episode = 0

    def assign(self, seed: int, env_index: int = 0, first_episode: int = 0) -> None:
        """Seed the episodes from the current one on, which is number `first_episode`.

        Raises:
            ValueError: a number is negative.
        """
        if min(seed, env_index, first_episode) < 0:
            raise ValueError(f"seeds are numbers >= 0; got {seed}, env index {env_index}, episode {first_episode}")
        self._root = int(seed), int(env_index)
        self._known = []
        self._episode = int(first_episode)

    def current(self) -> int | None:
        """The seed of the current episode, None if there is none."""
        if self._root is None:
            return None
        index = self._episode - self._first_known
        if not 0 <= index < len(self._known):
            self._first_known, index = self._episode, 0
            self._known = _derive(*self._root, self._episode)
        return self._known[index]

    def advance(self) -> None:
        """The current episode has begun; the next one is the current one now."""
        self._episode += 1


def _derive(seed: int, env_index: int, first: int, count: int = 32) -> list[int]:
    """The seeds of `count` episodes; derived one by one, between steps, each would cost twice as much."""
    words = [[seed, env_index, episode] for episode in range(first, first + count)]
    # One uint32 for each number is what SeedSequence makes of a list, at twice the cost.
    entropies = np.array(words, np.uint32) if max(words[-1]) < 2**32 else words
    return [int(np.random.SeedSequence(entropy).generate_state(1)[0]) for entropy in entropies]
