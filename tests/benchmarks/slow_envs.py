"""Samples a second from an env of 20 ms a step: four collectors of eight envs against one serial run of eight.

All envs have a process of their own, and DQN trains meanwhile, on each sample as often as in the serial run. The steps
sleep, so that the figures hardly depend on the number of cores. A collecting task plays many episodes, as envs that
have played theirs wait for the others. `python -m tests.benchmarks.slow_envs`
"""

from __future__ import annotations

import math
import sys
import time
from typing import Any

from ding.config import compile_config_parallel
from ding.entry import serial_pipeline
from ding.entry.experiment import with_command_mode
from ding.entry.parallel_run import make_workers
from ding.worker import Coordinator
from ding.worker.collector.sample_serial_collector import SampleSerialCollector
from tests.benchmarks.harness import Report, run
from tests.benchmarks.learning_slow import ENVS, configs
from tests.benchmarks.parallel import wait_for

STEP_S, SECONDS, WARM_UP_STEPS, COLLECTORS, EPISODES, GOAL = 0.02, 15.0, 500, 4, 16, 3.0


def prepared(way: str) -> tuple[Any, Any, Any]:
    main, create, system = configs(way, STEP_S)
    main.env.collector_env_num, main.env.stop_value = ENVS, math.inf
    return main, create, system


def serial_rate() -> float:
    """Samples a second of a serial run, after the first ones."""
    main, create, _ = prepared("subprocess")
    main.policy.eval.evaluator.eval_freq = 10**9
    marks: list[tuple[float, int]] = []
    collect = SampleSerialCollector.collect

    def timed(collector: SampleSerialCollector, *args: Any, **kwargs: Any) -> Any:
        samples = collect(collector, *args, **kwargs)
        if collector.envstep >= WARM_UP_STEPS:
            marks.append((time.perf_counter(), collector.envstep))
        return samples

    SampleSerialCollector.collect = timed  # type: ignore[method-assign]
    most = WARM_UP_STEPS + int(SECONDS * ENVS / STEP_S)
    serial_pipeline((main, create), seed=0, max_env_step=most)
    (begin, first), (end, last) = marks[0], marks[-1]
    return (last - first) / (end - begin)


def parallel_rate() -> float:
    """Samples a second of a parallel run, after the first ones."""
    main, create, system = prepared(f"parallel, {COLLECTORS} collectors")
    main.env.collector_episode_num = EPISODES
    main.policy.other.commander.eval_interval_env_step = None
    cfg = compile_config_parallel(main, with_command_mode(create), system, seed=0)
    workers = make_workers(cfg.system)
    try:
        workers.start()
        coordinator = Coordinator(cfg)
        try:
            coordinator.start()
            wait_for(coordinator, lambda: coordinator.progress().samples >= COLLECTORS * WARM_UP_STEPS)
            begin, first = time.perf_counter(), coordinator.progress().samples
            if coordinator.wait(SECONDS):
                raise RuntimeError(f"the run has ended: {coordinator.failure}")
            return (coordinator.progress().samples - first) / (time.perf_counter() - begin)
        finally:
            coordinator.close()
    finally:
        workers.end()


def measure(report: Report) -> None:
    parallel, serial = parallel_rate(), serial_rate()
    what = f"{COLLECTORS} collectors of {ENVS} envs of {1e3 * STEP_S:.0f} ms a step, with training"
    report.line(what, "samples/s", parallel, "one serial run", serial, at_least=GOAL)


if __name__ == "__main__":
    sys.exit(run(measure))
