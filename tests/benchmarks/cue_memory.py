"""An environment that only an agent with memory can solve."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

ENV_ID = "CueMemory-v0"


class CueMemory(gymnasium.Env[np.ndarray, np.int64]):
    """Remember a cue for `delay` steps, then act on it.

    An observation is (cue, is it time to answer, noise). The cue, -1 or 1 at equal odds, is shown in the first one
    only; the last one asks for the answer: action 0 for cue -1, action 1 for cue 1. It is rewarded with 1 if right and
    -1 if wrong, all else with 0. What is observed then does not depend on the cue, so an agent without memory has a
    mean return of 0.
    """

    observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, delay: int = 10) -> None:
        self.delay = delay
        self._steps = 0
        self._cue = 1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._steps = 0
        self._cue = int(self.np_random.choice((-1, 1)))
        return self._observe(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        is_answer = self._steps == self.delay
        is_right = (int(action) == 1) == (self._cue == 1)
        self._steps += 1
        return self._observe(), float(2 * is_right - 1) if is_answer else 0.0, is_answer, False, {}

    def _observe(self) -> np.ndarray:
        cue = self._cue if self._steps == 0 else 0
        noise = self.np_random.uniform(-1, 1)
        return np.array([cue, self._steps == self.delay, noise], np.float32)


if ENV_ID not in gymnasium.registry:
    gymnasium.register(ENV_ID, CueMemory)
