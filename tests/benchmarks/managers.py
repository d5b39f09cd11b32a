"""Env steps/s of the managers with processes against what the cores allow: 4 envs of 1 ms a step.

The ideal follows from what the steps cost the envs themselves in the same run. Envs that compute can use each core
once: min(envs, cores) / CPU time of a step. Envs that wait, as those of a simulator elsewhere do, can all wait at once:
envs / duration of a step. `python -m tests.benchmarks.managers`
"""

import math
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from ding.envs.env.base_env import BaseEnv, BaseEnvTimestep
from ding.envs.env_manager import (
    AsyncSubprocessEnvManager,
    SubprocessEnvManagerV2,
    SyncSubprocessEnvManager,
)
from tests.benchmarks.harness import Report

ENVS, STEP_S, ROUNDS, STEPS = 4, 0.001, 5, 1000
SHAPES = {"vector": (4,), "image": (4, 84, 84)}
MANAGERS: dict[str, Any] = {
    "subprocess": SyncSubprocessEnvManager,
    "async_subprocess": AsyncSubprocessEnvManager,
    "subprocess_v2": SubprocessEnvManagerV2,
}


def burn(loops: int) -> None:
    total = 0
    for i in range(loops):
        total += i


def loops_of(seconds: float) -> int:
    """How many loops `burn` makes in that time, alone on a core."""
    loops = 10_000
    for _ in range(5):
        durations = []
        for _ in range(5):
            start = time.thread_time()
            burn(loops)
            durations.append(time.thread_time() - start)
        loops = math.ceil(loops * seconds / min(durations))
    return loops


class TimedEnv(BaseEnv):
    """A step takes its time, and adds up what of it is the env's own."""

    reward_space = None

    def __init__(self, work: Callable[[], None], shape: tuple[int, ...]) -> None:
        self.observation_space = Box(0, 255, shape, np.uint8 if len(shape) > 1 else np.float32)
        self.action_space = Box(0, 1, (1,), np.int64)
        self._work = work
        self.steps, self.cpu_s, self.wall_s = 0, 0.0, 0.0

    def _observe(self) -> np.ndarray:
        return np.zeros(self.observation_space.shape, self.observation_space.dtype)

    def reset(self) -> np.ndarray:
        return self._observe()

    def step(self, action: Any) -> BaseEnvTimestep:
        cpu_s, wall_s = time.thread_time(), time.perf_counter()
        self._work()
        obs, reward = self._observe(), np.ones(1, np.float32)
        self.steps += 1
        self.cpu_s += time.thread_time() - cpu_s
        self.wall_s += time.perf_counter() - wall_s
        return BaseEnvTimestep(obs, reward, False, {"terminated": False, "truncated": False})

    def seed(self, seed: int) -> None:
        """Nothing is drawn."""

    def close(self) -> None:
        """Nothing is open."""

    def __repr__(self) -> str:
        return "TimedEnv"


def make_round(manager: Any) -> Callable[[], int]:
    """A function that steps all ready envs, and returns how many answered."""
    action = np.array([1])
    if isinstance(manager, SubprocessEnvManagerV2):
        return lambda: len(manager.step([action] * len(manager.ready_obs)))
    return lambda: len(manager.step(dict.fromkeys(manager.ready_obs, action)))


def own_costs(manager: Any) -> np.ndarray:
    """Steps of the envs, and the CPU time and duration of these, in all."""
    return np.array([sum(manager.steps), sum(manager.cpu_s), sum(manager.wall_s)])


def rate_and_ideal(manager: Any, is_busy: bool) -> tuple[float, float]:
    """Env steps/s of one round, and the most that its steps would have allowed."""
    one_round = make_round(manager)
    for _ in range(20):
        one_round()
    before = own_costs(manager)
    count, start = 0, time.perf_counter()
    while count < STEPS:
        count += one_round()
    rate = count / (time.perf_counter() - start)
    steps, cpu_s, wall_s = (own_costs(manager) - before).tolist()
    if is_busy:
        return rate, min(ENVS, os.cpu_count() or 1) * steps / cpu_s
    return rate, ENVS * steps / wall_s


def best(name: str, work: Callable[[], None], shape: tuple[int, ...], is_busy: bool) -> tuple[float, float]:
    """The rate and the ideal of the round in which they were closest: other programs can only get in between."""
    with MANAGERS[name]([partial(TimedEnv, work, shape)] * ENVS) as manager:
        manager.launch()
        rounds = [rate_and_ideal(manager, is_busy) for _ in range(ROUNDS)]
    return max(rounds, key=lambda pair: pair[0] / pair[1])


def main() -> int:
    report = Report()
    kinds = {"computing": partial(burn, loops_of(STEP_S)), "waiting": partial(time.sleep, STEP_S)}
    for kind, work in kinds.items():
        for name in MANAGERS:
            for form, shape in SHAPES.items():
                rate, ideal = best(name, work, shape, is_busy=kind == "computing")
                what = f"{name}: {ENVS} {kind} envs of 1 ms, {form} observations"
                report.line(what, "env steps/s", rate, "ideal", ideal, at_least=0.8)
    return report.exit_status()


if __name__ == "__main__":
    sys.exit(main())
