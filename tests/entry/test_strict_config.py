"""Keys that nothing in the package reads: a run trains with them, unless the config is strict."""

import copy
import os
import pathlib

import pytest
from click.testing import CliRunner
from easydict import EasyDict

from ding.entry import eval as evaluate
from ding.entry import parallel_pipeline, serial_pipeline, serial_pipeline_dqfd, serial_pipeline_sqil
from ding.entry.cli import cli
from ding.entry.describe import origins
from ding.policy import DQNPolicy
from ding.utils.config_helper import ConfigError
from ding.utils.registry_factory import POLICY_REGISTRY
from tests.entry.fakes import TinyEnv, pair, setting

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


@POLICY_REGISTRY.register("strict_own_reader")
class OwnReaderPolicy(DQNPolicy):
    """Reads a key of its own."""

    def _init_learn(self):
        super()._init_learn()
        self.kappa = self._cfg.kappa


def test_a_run_trains_with_keys_that_nothing_reads_and_warns_of_each_once(caplog):
    for _ in range(2):
        serial_pipeline(with_own_keys(pair()), seed=0, env_setting=setting(), max_train_iter=4)
    assert sorted(told(caplog)) == [
        "ding does not read the config key curriculum; it has an effect only if your code reads it",
        "ding does not read the config key env.manager.mine; it has an effect only if your code reads it",
        "ding does not read the config key policy.collect.collector.mine; it has an effect only if your code reads it",
        "ding does not read the config key policy.eval_freq; it works as policy.eval.evaluator.eval_freq",
        "ding does not read the config key policy.kappa; it has an effect only if your code reads it",
        "ding does not read the config key policy.learn.data_path; it works as policy.collect.data_path",
        "ding does not read the config key policy.learn.learner.hook.log_freq; use "
        "policy.learn.learner.hook.log_show_after_iter",
        "ding does not read the config key policy.model_path; it works as policy.collect.model_path",
        "ding does not read the config key policy.other.replay_buffer.buffer_size; use "
        "policy.other.replay_buffer.replay_buffer_size",
    ]


def test_a_policy_from_outside_reads_keys_of_its_own(caplog):
    main, create = pair()
    main.policy.kappa = 0.5
    create.policy.type = "strict_own_reader"
    assert serial_pipeline((main, create), env_setting=setting(), max_train_iter=4).kappa == 0.5
    assert told(caplog) == []


def test_a_run_with_keys_that_nothing_reads_resumes_exactly():
    def weights(**limits):
        main, create = with_own_keys(pair(env={"env_id": "CartPole-v1", "fps": 3}))
        main.policy.model.obs_shape = 4
        create.env = EasyDict(type="gymnasium", import_names=["ding.envs.env.gymnasium_env"])
        policy = serial_pipeline((main, create), seed=3, **limits)
        return {name: value.tolist() for name, value in policy.learn_mode.state_dict()["model"].items()}

    whole = weights(max_train_iter=12)
    os.rename("exp", "whole")
    weights(max_train_iter=6)
    assert weights(max_train_iter=12, resume=True) == whole


def test_a_strict_evaluation_is_refused_before_anything_is_made():
    main, create = pair()
    main.policy.lr = 3
    with pytest.raises(ConfigError, match="policy.lr = 3; use policy.learn.learning_rate"):
        evaluate((main, create), env_setting=setting(), strict_config=True)
    assert os.listdir() == [] and TinyEnv.made == []


@pytest.mark.parametrize("entry", [serial_pipeline_dqfd, serial_pipeline_sqil])
def test_the_config_of_an_expert_is_checked_too(entry):
    expert = pair()
    expert[0].policy.lr = 3
    main, create = pair()
    create.policy.type = "dqfd" if entry is serial_pipeline_dqfd else "dqn"
    with pytest.raises(ConfigError, match="policy.lr = 3; use policy.learn.learning_rate"):
        entry((main, create), expert, env_setting=setting(), strict_config=True)


def test_a_strict_parallel_run_is_refused():
    from ding.config.utils import (
        parallel_test_create_config,
        parallel_test_main_config,
        parallel_test_system_config,
    )

    main = EasyDict(copy.deepcopy(parallel_test_main_config))
    main.policy.lr = 3
    with pytest.raises(ConfigError, match="policy.lr = 3; use policy.learn.learning_rate"):
        parallel_pipeline((main, parallel_test_create_config, parallel_test_system_config), strict_config=True)
    assert os.listdir() == []


def test_the_command_train_is_strict_unless_told_otherwise():
    given = ["train", CONFIG, "--set", "policy.learn.lr=3", "--set", "policy.gamma=0.9", "--train-iter", "1"]
    result = CliRunner().invoke(cli, given)
    assert (result.exit_code, result.output.splitlines()[:2]) == (
        1,
        [
            "Error: ding does not read the config key policy.learn.lr = 3; use policy.learn.learning_rate",
            "ding does not read the config key policy.gamma = 0.9; use policy.discount_factor",
        ],
    )
    assert os.listdir() == []
    result = CliRunner().invoke(cli, [*given, "--set", "exp_name=mine", "--no-strict-config"])
    assert result.exit_code == 0 and os.path.exists("mine/result.json"), result.output


def test_the_modes_of_di_engine_are_not_strict():
    text = pathlib.Path(CONFIG).read_text() + "\nmain_config['policy']['kappa'] = 1\n"
    pathlib.Path("config.py").write_text(text)
    result = CliRunner().invoke(cli, ["-m", "serial", "-c", "config.py", "-s", "0", "--train-iter", "1"])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("path", CONFIGS, ids=os.path.basename)
def test_the_examples_are_strict_configs(path, caplog):
    origins(path)
    assert told(caplog) == []
