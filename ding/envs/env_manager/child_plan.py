"""What the process of an env needs to know."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ding.envs.env_manager.obs_slots import ObsSlots


@dataclass(frozen=True)
class ChildPlan:
    """What the process of an env is started with.

    Attributes:
        env_fn: makes the env, or such a function made `portable`.
        slots: where observations are handed over.
        parent_pid: the manager's process.
        random_words: what the global generators are seeded from.
    """

    env_id: int
    env_fn: Callable[[], Any] | bytes
    slots: ObsSlots
    replay_path: str | None
    step_timeout: float | None
    reset_timeout: float | None
    parent_pid: int
    random_words: tuple[int, ...] = ()

    def make_env(self) -> Any:
        """The env."""
        env_fn = pickle.loads(self.env_fn) if isinstance(self.env_fn, bytes) else self.env_fn
        env = env_fn()
        if self.replay_path is not None:
            env.enable_save_replay(self.replay_path)
        return env


def portable(env_fn: Callable[[], Any], env_id: int) -> bytes:
    """A function as bytes that another interpreter can load, lambdas and closures included.

    Raises:
        TypeError: it holds what cannot be pickled.
    """
    import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(env_fn)
    except Exception as e:
        raise TypeError(
            f"env_fn[{env_id}] cannot be sent to a new process: {e!r}; "
            "use the context 'fork', or make what it holds when it is called"
        ) from e
    return data


def words_of_numpy() -> tuple[int, ...]:
    """Numbers that follow from the state of numpy's global generator, which is left as it is."""
    generator = np.random.RandomState()
    generator.set_state(np.random.get_state())
    return tuple(generator.randint(0, 2**32, 4, dtype=np.uint32).tolist())
