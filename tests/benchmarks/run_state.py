"""What the state of a run costs: seconds to save and to load a buffer of a million CartPole steps, and its size.

`python -m tests.benchmarks.run_state`. What there is to compare with are the limits that were set.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from ding.utils.state_folder import StateFolder
from ding.worker.replay_buffer import AdvancedReplayBuffer
from tests.benchmarks.buffer import NoTb, transitions
from tests.benchmarks.report import Report

SIZE, LIST, ROUNDS = 1_000_000, 8192, 5


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def save(folder: StateFolder, buffer: Any) -> None:
    folder.write({"buffer": buffer.live_state()}, {})


def load(folder: StateFolder, buffer: Any) -> None:
    found = folder.read()
    assert found is not None
    buffer.load_state_dict(found[0]["buffer"])


def filled(folder: str) -> Any:
    cfg = AdvancedReplayBuffer.default_config()
    cfg.replay_buffer_size = SIZE
    buffer = AdvancedReplayBuffer(cfg, tb_logger=NoTb(), exp_name=folder)
    for _ in range(SIZE // LIST + 1):
        buffer.push(transitions(LIST), 0)
    return buffer


def main() -> int:
    """Print a line for each measure; returns the exit status."""
    logging.disable(logging.INFO)
    report = Report()
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        buffer = filled("exp")
        folders = [StateFolder(f"states{i}") for i in range(ROUNDS)]
        saves, loads = [], []
        for folder in folders:
            saves.append(seconds(partial(save, folder, buffer)))
            loads.append(seconds(partial(load, folder, buffer)))
        size = max(saved.size_bytes for saved in folders[0].states())
        report.line("save 1e6 steps", "s", min(saves), "limit", 2.0, at_most=1.0)
        report.line("the slowest save", "s", max(saves), "2 % of 300 s", 6.0, at_most=1.0)
        report.line("load 1e6 steps", "s", min(loads), "limit", 5.0, at_most=1.0)
        report.line("a state of 1e6 steps", "bytes a step", size / SIZE, "limit", 120.0, at_most=1.0)
        buffer.close()
    return report.exit_status()


if __name__ == "__main__":
    sys.exit(main())
