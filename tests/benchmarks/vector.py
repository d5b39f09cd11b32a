"""Env steps/s of collecting and storing from vectorised envs, against a bare loop of the same env and network.

The bare loop steps the env, acts eps-greedily, and writes what it sees into arrays: for CartPole observations and next
observations, for images only the newest of the four frames. Steps that only reset an env do not count. The peak of
memory is that of all Python and numpy memory (tracemalloc) while a collector fills a buffer of frames that are stored
once. `env_pool` steps EnvPool, `vector_env` gymnasium's own vectorised CartPole, and images that need no ROM.
`python -m tests.benchmarks.vector`; EnvPool comes with the extra `envpool`.
"""

import contextlib
import sys
import tracemalloc
from collections.abc import Mapping
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from easydict import EasyDict
from torch import nn

from ding.envs import GymnasiumEnv, create_env_manager
from ding.model import DQN
from ding.worker import NaiveReplayBuffer
from tests.benchmarks import frames  # noqa: F401 registers the env of FRAMES
from tests.benchmarks.collect import EPS, LENGTH, copy_weights, dqn_collector, our_work, q_network
from tests.benchmarks.harness import Report, Work, in_new_process, rates, run

CARTPOLE = {"env_id": "CartPole-v1", "shape": (4,), "actions": 2, "widths": [64, 64], "capacity": 20_000}
FRAMES = {"env_id": "Frames-v0", "shape": (4, 84, 84), "actions": 6, "widths": [16, 32, 32, 128], "capacity": 4096}
PONG = {**FRAMES, "env_id": "Pong-v5"}
FRAME_BYTES, PEAK_CAPACITY = 84 * 84, 20_480


# ---- ours


def network(task: Mapping[str, Any]) -> DQN:
    shape = task["shape"] if len(task["shape"]) > 1 else task["shape"][0]
    return q_network(shape, task["actions"], task["widths"])


def manager_of(kind: str, task: Mapping[str, Any], env_num: int) -> Any:
    env_fn = partial(GymnasiumEnv, cfg=EasyDict(env_id=task["env_id"]))
    cfg = {"type": kind, **({"batch_size": env_num} if kind == "env_pool" else {})}
    manager = create_env_manager(EasyDict(cfg), [env_fn] * env_num)
    manager.seed(0)
    return manager


def storing_work(manager: Any, task: Mapping[str, Any], env_num: int) -> Work:
    cfg = {"replay_buffer_size": task["capacity"], "share_frames": len(task["shape"]) > 1}
    return our_work(dqn_collector(manager, network(task)), env_num, NaiveReplayBuffer(cfg, exp_name="vector"))


# ---- the bare loop


class ToFloat(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.float()


def bare_net(task: Mapping[str, Any]) -> nn.Module:
    widths, actions = task["widths"], task["actions"]
    if len(task["shape"]) == 1:
        first, second = nn.Linear(*task["shape"], widths[0]), nn.Linear(*widths)
        return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Linear(widths[-1], actions))
    layers: list[nn.Module] = [ToFloat()]
    for before, after, kernel, stride in zip((4, *widths), widths[:3], (8, 4, 3), (4, 2, 1), strict=False):
        layers += [nn.Conv2d(before, after, kernel, stride), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(49 * widths[2], widths[3]), nn.Linear(widths[3], actions))


class BareLoop:
    """The floor: a vector env that resets an env in the step after the end of its episode, a network, and arrays."""

    def __init__(self, env: Any, task: Mapping[str, Any], env_num: int) -> None:
        self._env, self._net, self._env_num, self._actions = env, bare_net(task), env_num, task["actions"]
        copy_weights(network(task), self._net)
        self._is_frames = len(task["shape"]) > 1
        self._size = task["capacity"] // env_num
        shape = (self._size, env_num)
        self._obs = np.zeros((*shape, *task["shape"][-2:]), np.uint8 if self._is_frames else np.float32)
        self._next_obs = None if self._is_frames else np.zeros_like(self._obs)
        self._action, self._reward = np.zeros(shape, np.int64), np.zeros(shape, np.float32)
        self._done, self._is_reset = np.zeros((2, *shape), np.bool_)
        self._rng, self._at = np.random.default_rng(0), 0
        self._now, self._resets = env.reset()[0], np.zeros(env_num, np.bool_)

    def __call__(self) -> int:
        count = 0
        for _ in range(LENGTH):
            at, obs, resets = self._at, self._now, self._resets
            with torch.no_grad():
                best = self._net(torch.from_numpy(obs)).argmax(1).numpy()
            explores = self._rng.random(self._env_num) < EPS
            action = np.where(explores, self._rng.integers(0, self._actions, self._env_num), best)
            self._now, self._reward[at], terminated, truncated, _ = self._env.step(action)
            self._obs[at] = obs[:, -1] if self._is_frames else obs
            if self._next_obs is not None:
                self._next_obs[at] = self._now
            self._action[at], self._done[at], self._is_reset[at] = action, terminated, resets
            self._resets = terminated | truncated
            self._at = (at + 1) % self._size
            count += self._env_num - int(resets.sum())
        return count


# ---- measures


def bare_env(kind: str, task: Mapping[str, Any], env_num: int) -> Any:
    if kind == "vector_env":
        return gymnasium.make_vec(task["env_id"], env_num, "vector_entry_point")
    import envpool

    return envpool.make_gymnasium(task["env_id"], num_envs=env_num, seed=0)


def compare(report: Report, kind: str, task: Mapping[str, Any], env_num: int, goal: float) -> None:
    """A line with the ratio to the bare loop on the same envs."""
    found: dict[str, float | None] = {"ours": None, "bare": None}
    with contextlib.suppress(ImportError), manager_of(kind, task, env_num) as manager:
        bare = BareLoop(bare_env(kind, task, env_num), task, env_num)
        found = rates({"ours": storing_work(manager, task, env_num), "bare": bare})
    what = f"collect and push, {kind}, {env_num} {task['env_id']}"
    report.line(what, "env steps/s", found["ours"], "bare loop", found["bare"], at_least=goal)


def measure_peak(report: Report, kind: str, task: Mapping[str, Any], env_num: int) -> None:
    each: float | None = None
    with contextlib.suppress(ImportError):
        each = in_new_process(peak_bytes, kind, {**task, "capacity": PEAK_CAPACITY}, env_num)
    what = f"peak of memory by env step in the buffer, {kind}, {env_num} {task['env_id']}"
    report.line(what, "B", each, "one frame", float(FRAME_BYTES), at_most=1.1)


def peak_bytes(kind: str, task: Mapping[str, Any], env_num: int) -> float:
    """Return the peak of the memory that it takes to fill a buffer, by env step between its oldest and newest."""
    torch.set_num_threads(1)
    with manager_of(kind, task, env_num) as manager:
        work, steps, kept = storing_work(manager, task, env_num), 0, 0
        tracemalloc.start()
        while kept < task["capacity"] * 5 // 4:
            steps, kept = steps + work(), kept + LENGTH * env_num
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak / (task["capacity"] * steps / kept)


def measure(report: Report) -> None:
    for env_num, goal in ((8, 0.75), (64, 0.75), (256, 0.7)):
        compare(report, "env_pool", CARTPOLE, env_num, goal)
    for env_num in (8, 64):
        compare(report, "vector_env", CARTPOLE, env_num, 0.75)
    for kind, task in (("vector_env", FRAMES), ("env_pool", PONG)):
        compare(report, kind, task, 32, 0.85)
        measure_peak(report, kind, task, 32)


if __name__ == "__main__":
    sys.exit(run(measure))
