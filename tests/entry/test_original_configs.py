"""The benchmark on DI-engine's CartPole examples: its settings work, and its summary counts what it should."""

import copy

import pytest

from ding.config import compile_config
from tests.benchmarks.original_configs import ORIGINAL, TASKS, configs


@pytest.mark.guarantees("interfaces")
@pytest.mark.parametrize("policy", TASKS)
def test_each_task_compiles_with_its_own_settings(policy):
    main, create = configs(policy)
    create.policy.type += "_command"
    cfg = compile_config(copy.deepcopy(main), seed=0, auto=True, create_cfg=create, save_cfg=False)
    assert {key: cfg.policy.learn[key] for key in main.policy.learn} == main.policy.learn
    assert cfg.policy.eval.evaluator.eval_freq == main.policy.eval.evaluator.eval_freq
    assert policy in ORIGINAL
