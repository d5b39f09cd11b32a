"""Replay buffers against those of Tianshou, cpprb and Stable-Baselines3: draws to tensors, updates, pushes, bytes.

Transitions of CartPole. A batch counts when it is tensors, on both sides. Blocks of rounds of ours and of the peers
take turns, so they are loaded the same. `python -m tests.benchmarks.buffer`; the peers come with the extra `bench`.
"""

import gc
import logging
import statistics
import sys
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from easydict import EasyDict

from ding.policy.dqn import DQNPolicy
from ding.utils.data.collate_fn import collate_columns, default_collate
from ding.utils.data.samples import Column, Kind, Samples, Table
from ding.worker import BaseLearner
from ding.worker.replay_buffer import AdvancedReplayBuffer, DequeBufferWrapper, IBuffer, NaiveReplayBuffer
from tests.benchmarks.harness import Report, in_new_process, medians, milliseconds, run

BATCH, BLOCKS, BLOCK, LIST, ENVS = 256, 60, 20, 64, 8
KEYS = ("obs", "next_obs", "action", "reward", "done", "IS")
Round = Callable[[], Any]


class NoTb:
    """Takes scalars and drops them."""

    def add_scalar(self, *args: Any) -> None:
        """Drop it."""

    def flush(self) -> None:
        """Nothing is kept."""


def transitions(count: int) -> Samples:
    """What a round of a collector with 8 envs brings: a fragment of each env."""
    length = count // ENVS
    obs = np.random.default_rng(0).random((ENVS * (length + 1), 4), np.float32)
    rows = (np.arange(ENVS)[:, None] * (length + 1) + np.arange(length)).ravel()
    return Samples(
        Table(
            {
                "obs": Column(Kind.TENSOR, obs, rows),
                "next_obs": Column(Kind.TENSOR, obs, rows + 1),
                "action": Column(Kind.TENSOR, np.ones((count, 1), np.int64)),
                "reward": Column(Kind.TENSOR, np.ones((count, 1), np.float32)),
                "done": Column(Kind.BOOL, np.zeros(count, np.bool_)),
                "collect_iter": Column(Kind.INT, np.zeros(count, np.int64)),
            }
        )
    )


def filled(cls: type, capacity: int) -> Any:
    buffer = cls({"replay_buffer_size": capacity}, NoTb(), "bench", f"{cls.__name__}{capacity}")
    part = transitions(1000)
    for _ in range(capacity // 1000 + 1):
        buffer.push(part, 0)
    return buffer


# ---- rounds: each ends with tensors, and with new priorities where there are any


def advanced_round(buffer: Any, rng: np.random.Generator) -> Round:
    def one_round() -> Any:
        samples = buffer.sample(BATCH, 5)
        batch = collate_columns(samples.table.columns, KEYS)
        info = {key: samples.table.columns[key].values() for key in ("replay_unique_id", "replay_buffer_idx")}
        buffer.update({**info, "priority": rng.random(BATCH)})
        return batch

    return one_round


class NoMaths(DQNPolicy):
    """Prepares batches as DQN does, and reports priorities instead of learning."""

    def _forward_learn(self, data: list[dict[str, Any]]) -> dict[str, Any]:
        self._prepare(data)
        return {"cur_lr": 1e-3, "total_loss": 0.0, "priority": torch.rand(BATCH).tolist()}


def learner_round(buffer: Any) -> Round:
    cfg = DQNPolicy.default_config()
    cfg.priority = cfg.priority_IS_weight = True
    cfg.model = EasyDict(obs_shape=4, action_shape=2)
    cfg.learn.batch_size = BATCH
    policy = NoMaths(cfg, enable_field=["learn"])
    learner = BaseLearner(BaseLearner.default_config(), policy.learn_mode, exp_name="bench")
    learner.call_hook("before_run")

    def one_round() -> Any:
        learner.train(buffer.sample(BATCH, learner.train_iter), 0)
        buffer.update(learner.priority_info)

    return one_round


def advanced_list_round(buffer: Any, rng: np.random.Generator) -> Round:
    """The same for who looks at the dicts."""

    def one_round() -> Any:
        samples = list(buffer.sample(BATCH, 5))
        info = {key: [item[key] for item in samples] for key in ("replay_unique_id", "replay_buffer_idx")}
        buffer.update({**info, "priority": rng.random(BATCH).tolist()})

    return one_round


def tianshou_buffer(capacity: int, prioritized: bool) -> Any:
    from tianshou.data import Batch, PrioritizedReplayBuffer, ReplayBuffer

    rng = np.random.default_rng(0)
    buffer: Any = PrioritizedReplayBuffer(capacity, alpha=0.6, beta=0.4) if prioritized else ReplayBuffer(capacity)
    obs, obs_next = rng.random(4).astype("f4"), rng.random(4).astype("f4")
    item = Batch(obs=obs, act=1, rew=1.0, terminated=False, truncated=False, obs_next=obs_next)
    for _ in range(capacity):
        buffer.add(item)
    return buffer


def tianshou_round(capacity: int, rng: np.random.Generator, prioritized: bool) -> Round:
    buffer = tianshou_buffer(capacity, prioritized)
    keys = ("obs", "obs_next", "act", "rew", "terminated", *(("weight",) if prioritized else ()))

    def one_round() -> Any:
        samples, indices = buffer.sample(BATCH)
        batch = [torch.from_numpy(np.asarray(samples[key])) for key in keys]
        if prioritized:
            buffer.update_weight(indices, rng.random(BATCH))
        return batch

    return one_round


def cpprb_round(capacity: int, rng: np.random.Generator) -> Round:
    from cpprb import PrioritizedReplayBuffer

    fields = {"obs": {"shape": 4}, "act": {"dtype": np.int64}, "rew": {}, "next_obs": {"shape": 4}, "done": {}}
    buffer = PrioritizedReplayBuffer(capacity, fields, alpha=0.6)
    for _ in range(capacity // 1000):
        obs, ones = rng.random((2, 1000, 4)), np.ones(1000)
        buffer.add(obs=obs[0], next_obs=obs[1], act=ones, rew=ones, done=np.zeros(1000))

    def one_round() -> Any:
        samples = buffer.sample(BATCH, beta=0.4)
        batch = [torch.from_numpy(value) for key, value in samples.items() if key != "indexes"]
        buffer.update_priorities(samples["indexes"], rng.random(BATCH))
        return batch

    return one_round


def sb3_round(capacity: int) -> Round:
    from gymnasium import spaces
    from stable_baselines3.common.buffers import ReplayBuffer

    buffer = ReplayBuffer(capacity, spaces.Box(-1, 1, (4,), np.float32), spaces.Discrete(2), device="cpu")
    buffer.observations[:], buffer.next_observations[:], buffer.full = 0.5, 0.5, True
    return lambda: buffer.sample(BATCH)


# ---- measures


def medians_us(rounds: dict[str, Round]) -> dict[str, float]:
    """Median microseconds of each, in blocks of rounds that take turns."""

    def block_us(one_round: Round) -> float:
        for _ in range(2):  # the caches are the peer's before
            one_round()
        return 1e3 * milliseconds(one_round, BLOCK)

    gc.collect()
    return medians({name: partial(block_us, one_round) for name, one_round in rounds.items()}, BLOCKS)


def against(
    report: Report, what: str, ours: Round, peers: dict[str, Callable[[], Round]], at_most: float = 1.0
) -> None:
    """A line with the ratio to the faster of the peers that are installed."""
    rounds = {"ours": ours}
    for name, make in peers.items():
        try:
            rounds[name] = make()
        except ImportError:
            continue
    found = medians_us(rounds)
    mine = found.pop("ours")
    fastest = min(found, key=found.__getitem__, default=" or ".join(peers))
    report.line(what, "us", mine, fastest, found.get(fastest), at_most=at_most)


def push_us(buffer: IBuffer, items: list[Any], count: int = 400) -> float:
    """Median microseconds an item."""
    times = [milliseconds(partial(buffer.push, items, 0), 1) for _ in range(count)]
    return statistics.median(times) / len(items) * 1e3


def resident_bytes() -> int:
    import psutil

    gc.collect()
    return int(psutil.Process().memory_info().rss)


def measure_prioritized(report: Report) -> None:
    rng = np.random.default_rng(0)
    what = f"prioritized sample {BATCH} -> tensors -> update {BATCH}, capacity"
    small, large = filled(AdvancedReplayBuffer, 100_000), filled(AdvancedReplayBuffer, 1_000_000)
    peers = {
        "tianshou": lambda: tianshou_round(100_000, rng, True),
        "cpprb": lambda: cpprb_round(100_000, rng),
    }
    against(report, f"{what} 100000", advanced_round(small, rng), peers)
    trained = f"prioritized sample {BATCH} -> learner.train without maths -> update {BATCH}, capacity 100000"
    against(report, trained, learner_round(small), peers, at_most=1.2)
    found = medians_us({"small": advanced_round(small, rng), "large": advanced_round(large, rng)})
    report.line(f"{what} 1000000", "us", found["large"], "at 100000", found["small"], at_most=1.7)
    listed = medians_us({"list": advanced_list_round(small, rng)})["list"]
    report.line(f"{what} 100000, as a list of dicts", "us", listed, "allowed", 2000.0, at_most=1.0)
    for buffer in (small, large):
        buffer.close()


def measure_uniform(report: Report) -> None:
    rng = np.random.default_rng(0)
    buffer = filled(NaiveReplayBuffer, 1_000_000)
    peers = {
        "stable-baselines3": lambda: sb3_round(1_000_000),
        "tianshou": lambda: tianshou_round(1_000_000, rng, False),
    }
    ours = lambda: collate_columns(buffer.sample(BATCH, 0).table.columns, KEYS[:-1])  # noqa: E731
    against(report, f"uniform sample {BATCH} of 1000000 -> tensors", ours, peers)
    buffer.close()
    deque = filled(DequeBufferWrapper, 100_000)
    found = medians_us({"dicts": lambda: default_collate(deque.sample(BATCH, 0))})
    what = f"deque: uniform sample {BATCH} of 100000 -> tensors"
    report.line(what, "us", found["dicts"], "allowed", 1000.0, at_most=1.0)
    deque.close()


def measure_bytes(report: Report) -> None:
    for cls in (NaiveReplayBuffer, AdvancedReplayBuffer):
        what = f"{cls.__name__}: resident bytes of a transition of 48"
        each = in_new_process(resident_bytes_of, cls, 1_000_000)
        report.line(what, "B", each, "allowed", 120.0, at_most=1.0)
    for length in (100, LIST // ENVS):
        measure_frames(report, length)


def resident_bytes_of(cls: type, capacity: int) -> float:
    """Resident bytes of a transition in a full buffer."""
    logging.getLogger("ding").setLevel(logging.ERROR)
    before = resident_bytes()
    buffer = cls({"replay_buffer_size": capacity}, NoTb(), "bench", "bytes")
    for _ in range(capacity // 1000):
        buffer.push(transitions(1000), 0)
    each = (resident_bytes() - before) / capacity
    buffer.close()
    return each


def measure_frames(report: Report, length: int) -> None:
    """Images of 4 stacked frames, in rounds of a fragment of `length` steps of each env, which goes on in the next."""
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (ENVS, length + 4, 84, 84), np.uint8)
    rows = (np.arange(ENVS)[:, None] * (length + 1) + np.arange(length)).ravel()
    tracemalloc.start()  # numpy tells it of its arrays; memory that is freed late by others does not count
    before = tracemalloc.get_traced_memory()[0]
    buffer = NaiveReplayBuffer({"replay_buffer_size": 20_000, "share_frames": True}, NoTb(), "bench", "frames")
    for at in range(22_000 // len(rows)):
        steps = at * length + np.arange(length + 1)[:, None] + np.arange(4)
        numbers = (10**6 * np.arange(ENVS)[:, None, None] + steps).reshape(-1, 4)
        stacks = np.lib.stride_tricks.sliding_window_view(frames, 4, axis=1).transpose(0, 1, 4, 2, 3)
        obs = stacks.reshape(-1, 4, 84, 84)
        columns = {
            "obs": Column(Kind.TENSOR, obs, rows, False, numbers),
            "next_obs": Column(Kind.TENSOR, obs, rows + 1, False, numbers),
            "done": Column(Kind.BOOL, np.zeros(len(rows), np.bool_)),
        }
        buffer.push(Samples(Table(columns)), 0)
        frames[:, :4] = frames[:, -4:]
        frames[:, 4:] = rng.integers(0, 256, (ENVS, length, 84, 84), np.uint8)
    del stacks, obs, columns
    each = (tracemalloc.get_traced_memory()[0] - before) / 20_000
    tracemalloc.stop()
    what = f"share_frames: bytes of a transition of 84x84x4, in fragments of {length}"
    report.line(what, "B", each, "one frame", 84.0 * 84, at_most=1.3)
    buffer.close()


def measure_pushes(report: Report) -> None:
    samples, items = transitions(LIST), list(transitions(LIST))
    for name, cls, allowed in (
        ("advanced", AdvancedReplayBuffer, 2.0),
        ("naive", NaiveReplayBuffer, 2.0),
        ("deque", DequeBufferWrapper, 3.0),
    ):
        buffer = cls({"replay_buffer_size": 100_000}, NoTb(), "bench", name)
        us = push_us(buffer, items)
        report.line(f"{name}: push of a list of {LIST} dicts, an item", "us", us, "allowed", allowed, at_most=1.0)
        as_columns = push_us(buffer, samples)
        if name == "deque":
            report.line(f"{name}: push of {LIST} samples, an item", "us", as_columns, "allowed", 3.0, at_most=1.0)
        else:
            report.line(f"{name}: push of {LIST} samples, an item", "us", as_columns, "as dicts", us, at_most=0.5)
        buffer.close()


def measure(report: Report) -> None:
    measure_bytes(report)
    measure_prioritized(report)
    measure_uniform(report)
    measure_pushes(report)


if __name__ == "__main__":
    sys.exit(run(measure))
