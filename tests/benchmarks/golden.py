"""Golden runs: hashes of the weights, evaluations and buffers of short trainings, to compare before and after a change.

Equal seeds give equal bits on one machine, so a change that is only about structure or speed leaves every hash equal.
Hashes of different machines or torch builds cannot be compared.

`python -m tests.benchmarks.golden record FILE [NAME ...]` writes the hashes, a line for each run, and
`python -m tests.benchmarks.golden compare BEFORE AFTER` names the runs that differ; its exit status is 1 if any does.
"""

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from easydict import EasyDict

from ding import entry
from ding.envs import BaseEnvManager, GymnasiumEnv
from ding.policy import DQNPolicy
from ding.utils import set_pkg_seed
from ding.worker import BattleEpisodeSerialCollector, BattleSampleSerialCollector, EpisodeSerialCollector
from ding.worker.replay_buffer.base_buffer import ColumnBuffer
from tests.benchmarks.learning_tasks import TASKS as LEARNING
from tests.worker.collector.battles import BattleManager, Player

ITERATIONS, SEED = 40, 1
# Tasks of `learning_tasks` by the env managers they run on.
TASKS = {
    **dict.fromkeys(("dqn", "rainbow", "ppo", "sac", "r2d2", "impala"), ("base", "subprocess")),
    **dict.fromkeys(
        (
            *("c51", "qrdqn", "iqn", "fqf", "mdqn", "sql", "sqn", "bdq", "a2c", "pg", "ppo_offpolicy", "acer"),
            *("ddpg", "td3", "d4pg", "discrete_sac"),
        ),
        ("base",),
    ),
}


def digest(*items: Any) -> str:
    """Return a hash of nested dicts and sequences of tensors, arrays and plain values."""
    found = hashlib.sha256()

    def add(item: Any) -> None:
        if isinstance(item, Mapping):
            found.update(b"{%d:" % len(item))
            for key in sorted(item, key=str):
                add(str(key))
                add(item[key])
        elif isinstance(item, (list, tuple)):
            found.update(b"[%d:" % len(item))
            for part in item:
                add(part)
        elif isinstance(item, (torch.Tensor, np.ndarray)):
            array = np.ascontiguousarray(item.detach().cpu().numpy() if isinstance(item, torch.Tensor) else item)
            kind = "tensor" if isinstance(item, torch.Tensor) else "array"
            found.update(f"{kind} {array.dtype} {array.shape}:".encode())
            found.update(array.tobytes())
        else:
            found.update(f"{item!r};".encode())

    add(items)
    return found.hexdigest()[:16]


@contextmanager
def closed_buffers() -> Iterator[list[str]]:
    """Yield a list that gets the hash of the items of each buffer when it is closed."""
    hashes: list[str] = []
    close = ColumnBuffer.close

    def close_and_tell(buffer: ColumnBuffer) -> None:
        if not buffer._closed:
            hashes.append(digest([item for item in buffer._data if item is not None], buffer.push_count))
        close(buffer)

    ColumnBuffer.close = close_and_tell  # type: ignore[method-assign]
    try:
        yield hashes
    finally:
        ColumnBuffer.close = close  # type: ignore[method-assign]


def task_run(name: str, manager: str) -> dict[str, Any]:
    """Train a task of `learning_tasks` for a few iterations."""
    main_config, create_config = LEARNING[name].configs()
    main_config["exp_name"], main_config["env"]["stop_value"] = "golden", 1e9
    create_config["env_manager"] = {"type": manager}
    pipeline = getattr(entry, LEARNING[name].pipeline)
    with closed_buffers() as buffers:
        policy = pipeline((main_config, create_config), seed=SEED, max_train_iter=ITERATIONS)
    evaluations = [json.loads(line) for line in Path("golden/eval.jsonl").read_text().splitlines()]
    return {
        "weights": digest(policy._model.state_dict()),
        "evaluations": [
            [row["train_iter"], row["env_step"], digest(row["returns"], row["lengths"])] for row in evaluations
        ],
        "buffers": buffers,
    }


def battle_run(by_episode: bool) -> dict[str, Any]:
    """Collect what two scripted players see in envs of different lengths."""
    cls = BattleEpisodeSerialCollector if by_episode else BattleSampleSerialCollector
    envs = BattleManager([3, 5, 2])
    collector = cls(cls.default_config(), envs, [Player(), Player()], exp_name="golden")
    rounds = [digest(collector.collect(8, train_iter=i)) for i in range(3)]
    collector.close()
    return {"rounds": rounds, "envstep": collector.envstep}


def episode_run(get_train_sample: bool) -> dict[str, Any]:
    """Collect whole episodes of CartPole with a DQN policy."""
    set_pkg_seed(SEED, use_cuda=False)
    envs = BaseEnvManager([partial(GymnasiumEnv, {"env_id": "CartPole-v1"})] * 4)
    envs.seed(SEED)
    cfg = DQNPolicy.default_config()
    cfg.model = {"obs_shape": 4, "action_shape": 2}
    cfg.nstep = 3
    policy = DQNPolicy(cfg, enable_field=["collect"])
    own = EasyDict(EpisodeSerialCollector.default_config(), get_train_sample=get_train_sample)
    collector = EpisodeSerialCollector(own, envs, policy.collect_mode, exp_name="golden")
    episodes = [collector.collect(n_episode=6, train_iter=i, policy_kwargs={"eps": 0.5}) for i in range(3)]
    collector.close()
    return {"rounds": [digest(found) for found in episodes], "envstep": collector.envstep}


def offline_run() -> dict[str, Any]:
    """Train discrete CQL on random steps."""
    draw, steps = np.random.default_rng(SEED), 512
    obs = draw.standard_normal((steps, 4)).astype(np.float32)
    done = np.arange(steps) % 32 == 31
    arrays = {"obs": obs, "next_obs": np.roll(obs, -1, 0), "action": draw.integers(0, 2, steps), "done": done}
    np.savez("steps.npz", reward=draw.standard_normal(steps).astype(np.float32), **arrays)
    main_config, create_config = LEARNING["discrete_cql"].configs()
    main_config["exp_name"], main_config["policy"]["collect"]["data_path"] = "golden", "steps.npz"
    main_config["policy"]["learn"]["train_epoch"] = 4
    policy, _ = entry.serial_pipeline_offline((main_config, create_config), SEED)
    return {"weights": digest(policy._model.state_dict())}


def runs() -> dict[str, Callable[[], dict[str, Any]]]:
    """Return all runs by name."""
    of_tasks = {f"{name}/{manager}": partial(task_run, name, manager) for name in TASKS for manager in TASKS[name]}
    return {
        **of_tasks,
        "offline/discrete_cql": offline_run,
        "battle/samples": partial(battle_run, False),
        "battle/episodes": partial(battle_run, True),
        "episodes": partial(episode_run, False),
        "episodes/samples": partial(episode_run, True),
    }


def record(file: str, names: Sequence[str]) -> None:
    """Do the runs, and write their hashes.

    Args:
        names: the beginnings of the names of the runs; empty for all.
    """
    wanted = {name: run for name, run in runs().items() if not names or name.startswith(tuple(names))}
    path, home = Path(file).resolve(), os.getcwd()
    found = {}
    for name, run in wanted.items():
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                found[name] = run()
            finally:
                os.chdir(home)
    path.write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in found.items()) + "\n}\n")


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return a line for each run that differs, or that only one of the two records has."""
    lines = []
    for name in dict.fromkeys([*before, *after]):
        if name not in before or name not in after:
            lines.append(f"{name}: only in the {'second' if name in after else 'first'} record")
        elif before[name] != after[name]:
            changed = [key for key in before[name] if before[name][key] != after[name].get(key)]
            lines.append(f"{name}: {', '.join(changed)} differ")
    return lines


def main(argv: Sequence[str]) -> int:
    torch.set_num_threads(1)
    match argv:
        case ["record", file, *names]:
            record(file, names)
            return 0
        case ["compare", before, after]:
            lines = differences(*(json.loads(Path(file).read_text()) for file in (before, after)))
            print("\n".join(lines) or "all runs are equal")
            return int(bool(lines))
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
