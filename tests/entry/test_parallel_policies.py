"""Each off-policy policy, A2C and PPO train in processes of their own: collect-only, learn-only and eval-only."""

import json

import pytest
import torch
from easydict import EasyDict

from ding.entry.parallel_run import run_parallel
from tests.benchmarks.learning_tasks import TASKS

POLICIES = [
    "dqn", "c51", "qrdqn", "iqn", "fqf", "rainbow", "mdqn", "sql", "sqn", "bdq", "r2d2", "a2c", "ppo", "ppo_offpolicy",
    "impala", "acer", "sac", "td3", "ddpg", "d4pg", "discrete_sac",
]  # fmt: skip
ITERATIONS = 20


def parallel_configs(name):
    """The configs of a policy's learning task for one learner and two collectors."""
    main, create = TASKS[name].configs()
    main.exp_name = "exp"
    main.env.update(collector_env_num=2, evaluator_env_num=2, collector_episode_num=2, evaluator_episode_num=1)
    main.env.stop_value = 10**9
    policy = main.policy
    policy.pop("random_collect_size", None)
    policy.learn.batch_size = 8
    policy.collect.n_sample = 16
    for section in (policy.collect, policy.eval):
        if "env_num" in section:
            section.env_num = 2
    policy.eval.pop("evaluator", None)
    policy.collect.collector = {"collector_num": 2, "update_policy_second": 0.2}
    policy.setdefault("other", {}).setdefault("replay_buffer", {"replay_buffer_size": 1000})
    policy.other.commander = {"collector_task_space": 2, "learner_task_space": 1, "eval_interval": 10**6}
    create.pop("replay_buffer", None)
    create.update(
        learner={"type": "base"},
        collector={"type": "zergling"},
        commander={"type": "solo"},
        comm_learner={"type": "flask_fs"},
        comm_collector={"type": "flask_fs"},
    )
    return main, create, EasyDict(coordinator={}, communication_mode="auto", learner_gpu_num=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_trains_in_processes_of_its_own(name, tmp_path, set_env):
    set_env(OMP_NUM_THREADS="1")
    outcome = run_parallel(parallel_configs(name), seed=0, max_train_iter=ITERATIONS, max_seconds=60)
    reached = outcome.progress.train_iter
    assert reached >= ITERATIONS if name == "ppo" else reached == ITERATIONS  # PPO learns several batches in one call
    evaluations = [json.loads(line) for line in (tmp_path / "exp" / "eval.jsonl").read_text().splitlines()]
    assert evaluations[-1]["train_iter"] == reached and evaluations[-1]["returns"]
    first, last = (
        torch.load(tmp_path / "exp" / "ckpt" / f"iteration_{at}.pth.tar", weights_only=True)["model"]
        for at in (0, reached)
    )
    assert any(not torch.equal(first[key], last[key]) for key in last)
