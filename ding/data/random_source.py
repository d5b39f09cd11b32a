"""Random generators of the buffers: independent of each other, seeded by `set_pkg_seed`, saved with their buffer."""

from __future__ import annotations

from typing import Any

import numpy as np


def new_generator() -> np.random.Generator:
    """Returns a new generator, seeded from numpy's global state.

    SFC64 is fast, and its state is a few 64-bit words that code-free files can hold.
    """
    return np.random.Generator(np.random.SFC64(np.random.randint(0, 2**32, size=4, dtype=np.uint32)))


def generator_state(rng: np.random.Generator) -> dict[str, Any]:
    """Returns a copy of the state of `rng` in plain values and arrays."""
    state = dict(rng.bit_generator.state)
    state["state"] = {name: words.copy() for name, words in state["state"].items()}
    return state


def set_generator_state(rng: np.random.Generator, state: dict[str, Any]) -> None:
    """Set the state of `rng` to one that `generator_state` returned."""
    rng.bit_generator.state = state
