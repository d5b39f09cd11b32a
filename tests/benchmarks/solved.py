"""Seconds from the command to its end for DQN that solves CartPole-v1 in parallel, against RLlib's DQN.

Ours is `python -m ding.example.cartpole_dqn_parallel`, with processes on this machine, or on a Ray that it starts.
RLlib has as many env runners and the same learning rate, batches, n-step returns and capacity of the replay buffer. It
ends when the mean of its training episodes reaches the return, or after `PEER_S` seconds, which then count as its time.
`python -m tests.benchmarks.solved`; RLlib comes with the extra `rllib`, best in an environment of its own.
"""

import contextlib
import logging
import statistics
import subprocess
import sys
import time
import warnings
from typing import Any

from tests.benchmarks.harness import Report, in_new_process, run

RUNS, RAY_RUNS, PEER_S, SOLVED = 10, 3, 400.0, 195.0


def our_seconds(platform: str, runs: int) -> float:
    """The median of so many runs.

    Raises:
        CalledProcessError: a run has not solved the task.
    """
    times = []
    for seed in range(runs):
        command = ("-m", "ding.example.cartpole_dqn_parallel", "--seed", str(seed), "--platform", platform)
        start = time.perf_counter()
        subprocess.run([sys.executable, *command], check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def peer_seconds() -> float:
    """RLlib's seconds from the import to the end, in this process."""
    warnings.simplefilter("ignore")
    start = time.perf_counter()
    import ray
    from ray.rllib.algorithms.dqn import DQNConfig

    ray.init(num_cpus=4, log_to_driver=False, include_dashboard=False, logging_level=logging.ERROR)
    buffer = {"type": "PrioritizedEpisodeReplayBuffer", "capacity": 20_000}
    new_config: Any = DQNConfig
    config = new_config().environment("CartPole-v1").framework("torch")
    config = config.env_runners(num_env_runners=2, num_envs_per_env_runner=4, rollout_fragment_length=4)
    config = config.training(
        lr=1e-3,
        train_batch_size_per_learner=32,
        gamma=0.97,
        n_step=3,
        target_network_update_freq=100,
        double_q=True,
        dueling=False,
        replay_buffer_config=buffer,
        num_steps_sampled_before_learning_starts=500,
    )
    algorithm = config.debugging(seed=0, log_level="ERROR").build_algo()
    try:
        while (seconds := time.perf_counter() - start) < PEER_S:
            if algorithm.train()["env_runners"].get("episode_return_mean", 0.0) >= SOLVED:
                break
    finally:
        algorithm.stop()
        ray.shutdown()
    return seconds


def measure(report: Report) -> None:
    peer: float | None = None
    with contextlib.suppress(ImportError):
        peer = in_new_process(peer_seconds)
    local, on_ray = our_seconds("local", RUNS), our_seconds("ray", RAY_RUNS)
    report.line(f"DQN on CartPole-v1 until solved, median of {RUNS}", "s", local, "allowed", 12.0, at_most=1.0)
    report.line(f"DQN on CartPole-v1 until solved, median of {RUNS}", "s", local, "RLlib", peer, at_most=0.08)
    report.line(f"DQN on CartPole-v1 until solved, Ray, median of {RAY_RUNS}", "s", on_ray, "RLlib", peer, at_most=0.12)


if __name__ == "__main__":
    sys.exit(run(measure))
