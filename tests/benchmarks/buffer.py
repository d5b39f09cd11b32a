"""Replay buffers: prioritized sample + update, push, plain sample, each against a goal.

Items are transitions of CartPole, each with tensors of its own. The floor is what no list of dicts can avoid: copying
256 scattered dicts and writing their bookkeeping into the copies. It is measured in turn with ours, so it is loaded
the same. `python -m tests.benchmarks.buffer`
"""

from __future__ import annotations

import gc
import logging
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ding.worker.replay_buffer import AdvancedReplayBuffer, DequeBufferWrapper, IBuffer, NaiveReplayBuffer
from tests.benchmarks.report import Report

BATCH, ROUNDS, LIST = 256, 300, 64


class NoTb:
    """Takes scalars and drops them."""

    def add_scalar(self, *args: Any) -> None:
        """Drop it."""

    def flush(self) -> None:
        """Nothing is kept."""


def transitions(count: int) -> list[dict[str, Any]]:
    rows = torch.rand(count, 4)
    action, reward = torch.tensor([1]), torch.tensor([1.0])
    return [
        {"obs": a, "next_obs": b, "action": action, "reward": reward, "done": False, "collect_iter": 0}
        for a, b in zip(rows.unbind(0), (rows + 1).unbind(0), strict=True)
    ]


def push_us(buffer: IBuffer, items: list[dict[str, Any]]) -> float:
    """Median microseconds an item, in lists of 64."""
    times = []
    for start in range(0, len(items), LIST):
        chunk = items[start : start + LIST]
        begin = time.perf_counter()
        buffer.push(chunk, cur_collector_envstep=start)
        times.append((time.perf_counter() - begin) / len(chunk))
    return statistics.median(times) * 1e6


def prioritized_round(buffer: IBuffer, rng: np.random.Generator) -> Callable[[], float]:
    """One sample and one update as a learner does them; the seconds of the two calls."""
    keys = ("replay_unique_id", "replay_buffer_idx")

    def one_round() -> float:
        priorities = rng.random(BATCH).tolist()
        begin = time.perf_counter()
        batch = buffer.sample(BATCH, 5)
        sampled = time.perf_counter()
        assert batch is not None
        info: dict[str, Any] = {key: [item.get(key) for item in batch] for key in keys}
        resumed = time.perf_counter()
        buffer.update({**info, "priority": priorities})
        return time.perf_counter() - resumed + sampled - begin

    return one_round


def copies_of(items: list[dict[str, Any]], rng: np.random.Generator) -> Callable[[], float]:
    """The floor of a sample: fill copies of scattered dicts."""

    def one_round() -> float:
        picked = np.sort(rng.integers(0, len(items), BATCH)).tolist()
        begin = time.perf_counter()
        batch = []
        for slot in picked:
            item = items[slot].copy()
            item["replay_unique_id"] = f"buffer_{slot}"
            item["replay_buffer_idx"] = item["staleness"] = item["use"] = slot
            item["priority"] = item["IS"] = 1.0
            batch.append(item)
        return time.perf_counter() - begin

    return one_round


def timed(call: Callable[[], Any]) -> Callable[[], float]:
    def one_round() -> float:
        begin = time.perf_counter()
        call()
        return time.perf_counter() - begin

    return one_round


def medians_us(*rounds: Callable[[], float]) -> list[float]:
    """Median microseconds of each, run in turn."""
    for one_round in rounds * 10:
        one_round()
    gc.collect()
    times = [[one_round() for one_round in rounds] for _ in range(ROUNDS)]
    return [statistics.median(column) * 1e6 for column in zip(*times, strict=True)]


def measure_advanced(report: Report, capacity: int, items: list[dict[str, Any]]) -> float:
    rng = np.random.default_rng(0)
    begin = time.perf_counter()
    buffer = AdvancedReplayBuffer({"replay_buffer_size": capacity}, NoTb(), "bench", "buffer")
    report.line(f"advanced {capacity}: construct", "s", time.perf_counter() - begin, "allowed", 1.0, at_most=1.0)
    push = push_us(buffer, items)
    report.line(f"advanced {capacity}: push, an item in lists of {LIST}", "us", push, "allowed", 3.0, at_most=1.0)
    ours, floor = medians_us(prioritized_round(buffer, rng), copies_of(items, rng))
    label = f"advanced {capacity}: sample {BATCH} + update {BATCH}"
    report.line(label, "us", ours, "filled copies of 256 dicts", floor, at_most=4.0)
    if capacity == 100_000:
        report.line(label, "us", ours, "allowed", 600.0, at_most=1.0)
        single = statistics.median(timed(lambda: buffer.push(items[0], 0))() for _ in range(2000)) * 1e6
        report.line(f"advanced {capacity}: push of a single item", "us", single, "allowed", 20.0, at_most=1.0)
    buffer.close()
    return ours


def measure_others(report: Report, items: list[dict[str, Any]]) -> None:
    rng, size = np.random.default_rng(0), {"replay_buffer_size": len(items)}
    naive = NaiveReplayBuffer(size, NoTb(), "bench", "naive")
    plain = DequeBufferWrapper(size, NoTb())
    prioritized = DequeBufferWrapper({**size, "priority": True, "priority_IS_weight": True}, NoTb())
    for name, buffer, allowed in (("naive", naive, 3.0), ("deque", plain, 3.0), ("deque priority", prioritized, 10.0)):
        push = push_us(buffer, items)
        report.line(
            f"{name} {len(items)}: push, an item in lists of {LIST}", "us", push, "allowed", allowed, at_most=1.0
        )
    rounds = [timed(lambda b=b: b.sample(BATCH, 5)) for b in (naive, plain)]  # type: ignore[misc]
    *plain_us, priority_us = medians_us(*rounds, prioritized_round(prioritized, rng))
    for name, ours, allowed in zip(("naive", "deque"), plain_us, (150.0, 300.0), strict=True):
        report.line(f"{name} {len(items)}: sample {BATCH}", "us", ours, "allowed", allowed, at_most=1.0)
    label = f"deque priority {len(items)}: sample {BATCH} + update {BATCH}"
    report.line(label, "us", priority_us, "allowed", 2000.0, at_most=1.0)
    naive.close()


def main() -> int:
    torch.set_num_threads(1)
    logging.getLogger("ding").setLevel(logging.ERROR)
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        items = transitions(1_000_000)
        small = measure_advanced(report, 100_000, items[:100_000])
        large = measure_advanced(report, 1_000_000, items)
        report.line(f"advanced 1000000: sample {BATCH} + update {BATCH}", "us", large, "at 100000", small, at_most=1.7)
        measure_others(report, items[:100_000])
        os.chdir("/")
    return report.exit_status()


if __name__ == "__main__":
    sys.exit(main())
