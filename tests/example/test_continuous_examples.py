"""The examples of continuous control off policy."""

import importlib

import pytest
from easydict import EasyDict

from ding.config.config import compile_config
from ding.config.read import read_config
from ding.example import runner
from ding.torch_utils.thread_count import threads

NAMES = ["pendulum_sac", "pendulum_td3"]


@pytest.fixture(autouse=True)
def in_tmp_on_one_thread():
    with threads(1):
        yield


def module(name):
    return importlib.import_module(f"ding.example.{name}")


@pytest.mark.parametrize("name", NAMES)
def test_the_file_of_an_example_is_a_config_file(name):
    example = module(name)
    main, create = read_config(example.__file__)
    assert main == example.main_config == getattr(example, f"{name}_config")
    assert create == example.create_config == getattr(example, f"{name}_create_config")
    cfg = compile_config(main, auto=True, create_cfg=create)
    assert cfg.policy.eval.evaluator.stop_value == -250 and cfg.policy.eval.evaluator.n_episode == 10
    assert cfg.policy.type == name.removeprefix("pendulum_")


@pytest.mark.parametrize("name", NAMES)
def test_an_example_runs_and_says_how_it_ended(name, capsys):
    example = module(name)
    main = EasyDict(example.main_config)
    main.policy = EasyDict({**main.policy, "random_collect_size": 200, "eval": {"evaluator": {"eval_freq": 2}}})
    main.env = EasyDict({**main.env, "stop_value": -3000, "n_evaluator_episode": 5})
    assert runner.run(main, example.create_config, [], max_env_step=1000) == 0
    assert capsys.readouterr().out.startswith("solved: mean return ")
