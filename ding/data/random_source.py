"""Random generators of the buffers: seeded by `set_pkg_seed`, independent of each other, saved with the buffer."""

from __future__ import annotations

from typing import Any

import numpy as np


def new_generator() -> np.random.Generator:
    """A generator of its own, seeded from numpy's global state, so the global seed decides what it draws.

    SFC64 is fast and its state is a few 64-bit words, which code-free files can hold.
    """
    return np.random.Generator(np.random.SFC64(np.random.randint(0, 2**32, size=4, dtype=np.uint32)))


def generator_state(rng: np.random.Generator) -> dict[str, Any]:
    """A snapshot of `rng` in plain values and arrays."""
    state = dict(rng.bit_generator.state)
    state["state"] = {name: words.copy() for name, words in state["state"].items()}
    return state


def set_generator_state(rng: np.random.Generator, state: dict[str, Any]) -> None:
    """Put `rng` back to a snapshot of `generator_state`."""
    rng.bit_generator.state = state
