import importlib
import os
import pickle

import pytest

from ding.config.config import compile_config
from ding.config.read import read_config
from ding.example import runner

NAMES = ["cartpole_dqn", "cartpole_dqn_per", "cartpole_rainbow", "cartpole_r2d2", "cartpole_impala"]


def module(name):
    return importlib.import_module(f"ding.example.{name}")


@pytest.mark.parametrize("name", NAMES)
def test_the_file_of_an_example_is_a_config_file(name):
    example = module(name)
    main, create = read_config(example.__file__)
    assert main == example.main_config == getattr(example, f"{name}_config")
    assert create == example.create_config == getattr(example, f"{name}_create_config")
    cfg = compile_config(main, auto=True, create_cfg=create)
    assert cfg.policy.eval.evaluator.stop_value == 195 and cfg.policy.eval.evaluator.n_episode == 10
    assert cfg.policy.priority is cfg.policy.priority_IS_weight is (name not in ("cartpole_dqn", "cartpole_impala"))


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
