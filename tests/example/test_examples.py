import importlib
import os
import pickle

import pytest
from easydict import EasyDict

from ding.config.config import compile_config
from ding.config.read import read_config
from ding.example import runner
from ding.torch_utils.thread_count import threads

CARTPOLE = ["dqn", "dqn_per", "rainbow", "r2d2", "impala", "a2c", "ppo"]
STOP_VALUES = {f"cartpole_{name}": 195 for name in CARTPOLE} | {
    f"pendulum_{name}": -250 for name in ("sac", "td3", "ppo")
}
PRIORITIZED = {"cartpole_dqn_per", "cartpole_rainbow", "cartpole_r2d2"}


def module(name):
    return importlib.import_module(f"ding.example.{name}")


@pytest.mark.parametrize("name", STOP_VALUES)
def test_the_file_of_an_example_is_a_config_file(name):
    example = module(name)
    main, create = read_config(example.__file__)
    assert main == example.main_config == getattr(example, f"{name}_config")
    assert create == example.create_config == getattr(example, f"{name}_create_config")
    cfg = compile_config(main, auto=True, create_cfg=create)
    assert cfg.policy.eval.evaluator.stop_value == STOP_VALUES[name] and cfg.policy.eval.evaluator.n_episode == 10
    assert cfg.policy.priority is cfg.policy.priority_IS_weight is (name in PRIORITIZED)


@pytest.mark.parametrize("name", ["pendulum_sac", "pendulum_td3"])
def test_an_example_off_policy_runs_and_says_how_it_ended(name, capsys):
    example = module(name)
    main = EasyDict(example.main_config)
    main.policy = EasyDict({**main.policy, "random_collect_size": 200, "eval": {"evaluator": {"eval_freq": 2}}})
    main.env = EasyDict({**main.env, "stop_value": -3000, "n_evaluator_episode": 5})
    with threads(1):
        assert runner.run(main, example.create_config, [], max_env_step=1000) == 0
    assert capsys.readouterr().out.startswith("solved: mean return ")


def test_an_example_that_ends_unsolved_says_so_and_returns_1(capsys):
    example = module("cartpole_dqn")
    assert runner.run(example.main_config, example.create_config, ["--seed", "7", "--max-env-step", "200"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("NOT solved: mean return ") and out.endswith("results are in ./cartpole_dqn_seed7/\n")
    assert example.main_config.exp_name == "cartpole_dqn"
    with open("cartpole_dqn_seed7/result.pkl", "rb") as f:
        assert pickle.load(f)["env_step"] >= 200
    assert "eval.jsonl" in os.listdir("cartpole_dqn_seed7")


def test_an_example_that_reaches_its_stop_value_returns_0(capsys):
    example = module("cartpole_dqn_per")
    main = example.main_config.__class__(example.main_config)
    main.env = {**main.env, "stop_value": 1}
    assert runner.run(main, example.create_config, []) == 0
    assert capsys.readouterr().out.startswith("solved: mean return ")
