"""The benchmark on DI-engine's CartPole examples: its settings work, and its summary counts what it should."""

import copy
import json

import pytest
from easydict import EasyDict

from ding.config import compile_config
from tests.benchmarks import original_configs
from tests.benchmarks.original_tasks import ORIGINAL, TASKS, configs


def a_run(seed, env_steps, reached=True):
    return {"policy": "dqn", "seed": seed, "env_steps": env_steps, "reached": reached}


@pytest.mark.guarantees("interfaces")
@pytest.mark.parametrize("policy", TASKS)
def test_each_task_compiles_with_its_own_settings(policy):
    main, create = (EasyDict(config) for config in configs(policy))
    create.policy.type += "_command"
    cfg = compile_config(copy.deepcopy(main), seed=0, auto=True, create_cfg=create, save_cfg=False)
    assert {key: cfg.policy.learn[key] for key in main.policy.learn} == main.policy.learn
    assert cfg.policy.eval.evaluator.eval_freq == main.policy.eval.evaluator.eval_freq
    assert policy in ORIGINAL


def test_a_run_without_the_stop_value_counts_as_longer_than_any_other():
    runs = [a_run(0, 1080), a_run(1, 150000, reached=False), a_run(2, 2160)]
    row = original_configs.summary("dqn", runs)
    assert (row["seeds"], row["reached"], row["median"]) == (3, 2, 2160)
    assert row["original_median"] == 1080 and row["ratio"] == 2.0
    assert original_configs.summary("dqn", runs[1:2])["ratio"] is None


def test_seeds_that_have_a_result_are_not_trained_again(tmp_path, monkeypatch):
    results, trained = tmp_path / "results.jsonl", []
    results.write_text(json.dumps(a_run(1, 900)) + "\n")
    monkeypatch.setattr(
        original_configs, "run_seed", lambda policy, seed: trained.append(seed) or a_run(seed, 1000 + seed)
    )
    original_configs.measure(["dqn"], [0, 1, 2], 1, results)
    assert trained == [0, 2]
    assert [run["env_steps"] for run in original_configs.kept(results)] == [1000, 900, 1002]
    assert original_configs.as_seeds("0-3") == [0, 1, 2, 3] and original_configs.as_seeds("7") == [7]


def test_the_page_has_a_row_for_each_policy_with_results(tmp_path):
    results = tmp_path / "results.jsonl"
    assert original_configs.section(results) == []
    runs = [a_run(0, 1080), a_run(1, 150000, reached=False), a_run(2, 2160)]
    results.write_text("".join(json.dumps(run) + "\n" for run in runs))
    *_, row, _ = original_configs.section(results)
    assert row == "| `dqn` | 2 of 3 | 1,080 / 2,160 / missed | 5 of 5 | 1,080 / 1,080 / 1,464 | 2.0 |"
