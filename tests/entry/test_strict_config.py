"""Keys that nothing in the package reads: a run trains with them, unless the config is strict."""

import os
import pathlib

import pytest

from ding.entry import serial_pipeline
from ding.entry.describe import origins
from tests.entry.fakes import pair, setting
from tests.programs import ding

EXAMPLES = pathlib.Path(__file__).parents[2] / "ding" / "example"
CONFIG = str(EXAMPLES / "cartpole_dqn.py")
CONFIGS = [str(path) for path in sorted(EXAMPLES.glob("*.py")) if "create_config =" in path.read_text()]


def with_own_keys(configs):
    """Returns the configs with keys as published ones have them, which nothing in the package reads."""
    main, create = configs
    main.policy.update(model_path="ckpt.pth", eval_freq=3, kappa=1.0, discount_factor=0.9)
    main.policy.learn.update(data_path="data", multi_gpu=False, nstep=1)
    main.policy.learn.learner = {"hook": {"log_freq": 1}}
    main.policy.collect.collector = {"mine": 1}
    main.policy.other.replay_buffer.update(buffer_size=7)
    main.env.update(manager={"mine": 1})
    main.curriculum = {"stages": [1, 2, {"stage": 3}]}
    return main, create


def told(caplog):
    return [message for message in caplog.messages if "does not read" in message]


def test_a_run_trains_with_keys_that_nothing_reads_and_warns_of_each_once(caplog):
    for _ in range(2):
        serial_pipeline(with_own_keys(pair()), seed=0, env_setting=setting(), max_train_iter=4)
    assert sorted(message.partition("config key ")[2].partition(";")[0] for message in told(caplog)) == [
        "curriculum",
        "env.manager.mine",
        "policy.collect.collector.mine",
        "policy.eval_freq",
        "policy.kappa",
        "policy.learn.data_path",
        "policy.learn.learner.hook.log_freq",
        "policy.model_path",
        "policy.other.replay_buffer.buffer_size",
    ]


def test_the_command_train_is_strict_unless_told_otherwise():
    given = ["train", CONFIG, "--set", "policy.learn.lr=3", "--set", "policy.gamma=0.9", "--train-iter", "1"]
    refused = ding(*given, status=1)
    assert "policy.learn.lr = 3; use policy.learn.learning_rate" in refused and "policy.gamma = 0.9" in refused
    assert os.listdir() == []
    ding(*given, "--set", "exp_name=mine", "--no-strict-config")
    assert os.path.exists("mine/result.json")


def test_the_modes_of_di_engine_are_not_strict():
    text = pathlib.Path(CONFIG).read_text() + "\nmain_config['policy']['kappa'] = 1\n"
    pathlib.Path("config.py").write_text(text)
    ding("-m", "serial", "-c", "config.py", "-s", "0", "--train-iter", "1")


@pytest.mark.parametrize("path", CONFIGS, ids=os.path.basename)
def test_the_examples_are_strict_configs(path, caplog):
    origins(path)
    assert told(caplog) == []
