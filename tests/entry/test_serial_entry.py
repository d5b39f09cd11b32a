import math
import os
import pathlib

import pytest
import torch
from easydict import EasyDict

from ding.entry import random_collect, serial_pipeline
from ding.entry.describe import origins
from ding.entry.serial_entry import run_serial
from ding.model.template.q_learning import DQN
from ding.utils.config_helper import ConfigError
from ding.worker.learner.learner_hook import LearnerHook, hook_mapping
from ding.worker.replay_buffer.advanced_buffer import AdvancedReplayBuffer
from tests.entry.fakes import TinyEnv, evaluations, pair, result, setting
from tests.programs import ding


def envs(role):
    """The launched envs of a role, without the one that only tells the spaces."""
    return [env for env in TinyEnv.made if env.role == role and env.seeds]


@pytest.mark.parametrize("limit", ["max_train_iter", "max_env_step"])
@pytest.mark.parametrize("value", [None, "10", -1, float("nan")])
def test_a_limit_that_is_no_number_is_refused_before_anything_is_made(limit, value):
    with pytest.raises(ConfigError, match=f"{limit} = {value!r} is not allowed.*left out for no limit"):
        serial_pipeline(pair(), env_setting=setting(), **{limit: value})
    assert os.listdir() == [] and TinyEnv.made == []


def test_priorities_of_trained_items_reach_the_buffer(monkeypatch):
    infos = []
    monkeypatch.setattr(AdvancedReplayBuffer, "update", lambda self, info: infos.append(info))
    serial_pipeline(pair(), env_setting=setting(), max_train_iter=3)
    assert infos == []
    serial_pipeline(pair(priority=True, priority_IS_weight=True), env_setting=setting(), max_train_iter=12)
    assert len(infos) == 12
    assert all(len(info["priority"]) == len(info["replay_unique_id"]) == 4 for info in infos)


class StopHook(LearnerHook):
    def __call__(self, engine):
        if engine.train_iter == 4:
            engine.stop()


def test_a_hook_that_stops_the_learner_ends_the_run(monkeypatch):
    monkeypatch.setitem(hook_mapping, "stopping", StopHook)
    main, create = pair()
    hook = {"mine": {"name": "mine", "type": "stopping", "position": "after_iter"}}
    main.policy.learn.learner = EasyDict(hook=hook)
    run = run_serial((main, create), env_setting=setting(), max_train_iter=99)
    assert run.learner.train_iter == 5 and result()["train_iter"] == 5


def test_random_collect_fills_the_buffer_first(monkeypatch):
    pushed, push = [], AdvancedReplayBuffer.push

    def record(self, data, cur_collector_envstep):
        pushed.append((len(data), cur_collector_envstep))
        push(self, data, cur_collector_envstep)

    monkeypatch.setattr(AdvancedReplayBuffer, "push", record)
    serial_pipeline(pair(random_collect_size=16), env_setting=setting(), max_train_iter=1)
    assert [count for count, _ in pushed] == [16, 8]
    assert pushed[0][1] >= 16 and pushed[1][1] >= 24
    assert random_collect.__module__ == "ding.entry.utils"


@pytest.mark.differs(
    "replaces the best checkpoint with a worse one after a resume", "replaces it only with a better one"
)
def test_a_run_that_goes_on_from_a_checkpoint_replaces_the_best_one_by_a_better_one_only():
    run_serial(pair(), env_setting=setting(evaluator={"length": 20}), max_train_iter=7)
    best = pathlib.Path("exp/ckpt/ckpt_best.pth.tar").read_bytes()
    learn = {"resume_training": True, "learner": {"hook": {"load_ckpt_before_run": "exp/ckpt/iteration_7.pth.tar"}}}
    worse = setting(evaluator={"length": 1})
    run = run_serial(pair(learn=learn), env_setting=worse, max_train_iter=13)
    assert run.cfg.exp_name == "exp" and run.learner.train_iter == 13
    assert pathlib.Path("exp/ckpt/ckpt_best.pth.tar").read_bytes() == best


@pytest.mark.differs("gives evaluation and collector envs the same seeds", "gives evaluations their own")
def test_evaluation_envs_have_static_seeds_of_their_own():
    run_serial(pair(), seed=5, env_setting=setting(), max_train_iter=1)
    collector = [env.seeds[0] for env in envs("collector")]
    evaluator = [env.seeds[0] for env in envs("evaluator")]
    assert all(dynamic for _, dynamic in collector) and not any(dynamic for _, dynamic in evaluator)
    assert not {seed for seed, _ in collector} & {seed for seed, _ in evaluator}


def test_dynamic_seed_reaches_the_collector_envs():
    serial_pipeline(pair(), env_setting=setting(), max_train_iter=1, dynamic_seed=False)
    assert not any(dynamic for env in envs("collector") for _, dynamic in env.seeds)


@pytest.mark.differs(
    "crashes at the end of a run, resumed or offline, in which no evaluation was due",
    "evaluates at the end",
)
def test_a_resumed_run_without_a_due_evaluation_evaluates_at_the_end():
    serial_pipeline(pair(), env_setting=setting(), max_train_iter=6)
    resumed = pair(
        eval={"evaluator": {"eval_freq": 1000}},
        learn={"resume_training": True, "learner": {"hook": {"load_ckpt_before_run": "exp/ckpt/iteration_6.pth.tar"}}},
    )
    serial_pipeline(resumed, env_setting=setting(), max_train_iter=9)
    assert evaluations()[-1]["train_iter"] == 9
    assert not math.isnan(result()["eval_value"])


def test_a_nan_loss_stops_the_run_with_its_message_and_ruined_parameters_are_not_saved(caplog):
    class Broken(DQN):
        def forward(self, x):
            output = super().forward(x)
            if self.training and torch.is_grad_enabled():
                output["logit"] = output["logit"] * math.nan
            return output

    with pytest.raises(FloatingPointError, match="total_loss"):
        serial_pipeline(pair(), env_setting=setting(), model=Broken(3, 2, encoder_hidden_size_list=[8]))
    assert os.listdir("exp/ckpt") == ["ckpt_best.pth.tar"]
    assert "ckpt_exception.pth.tar is not written: the parameters hold NaN at train_iter 0" in caplog.text
    assert all(env.is_closed for env in TinyEnv.made if env.life)


def test_a_failed_start_leaves_no_folder_but_what_was_there_before():
    os.makedirs("old/exp")
    open("old/exp/result", "w").close()
    main, create = pair(env={"n_evaluator_episode": 1})
    for name in ("exp", "old/exp", "old/exp/inner"):
        main.exp_name = name
        with pytest.raises(ConfigError):
            serial_pipeline((main, create), env_setting=setting())
    main.policy.learn.resume_training, main.exp_name = True, "old/exp"
    with pytest.raises(ConfigError):
        serial_pipeline((main, create), env_setting=setting())
    assert os.listdir() == ["old"] and os.listdir("old") == ["exp"] and "result" in os.listdir("old/exp")


@pytest.mark.parametrize("bad", [None, 3, (1,), pair()[0]])
def test_an_input_that_is_no_pair_is_refused(bad):
    with pytest.raises(TypeError, match="file path"):
        serial_pipeline(bad)


def test_a_create_config_without_policy_type_is_refused():
    main, create = pair()
    create.pop("policy")
    with pytest.raises(ValueError, match="create_config.policy must name its type"):
        serial_pipeline((main, create))


# Keys that nothing in the package reads: a run trains with them, unless the config is strict.


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
