import copy
import json
import math
import os
import pathlib
import pickle
import signal
import threading

import numpy as np
import pytest
import torch
from easydict import EasyDict

from ding.config.read import read_config
from ding.entry import random_collect, serial_pipeline
from ding.entry.progress import ProgressLine
from ding.entry.serial_entry import run_serial
from ding.entry.workers import evaluation_seed
from ding.model.template.q_learning import DQN
from ding.utils.config_helper import ConfigError
from ding.utils.default_helper import one_time_warning
from ding.worker.learner.learner_hook import LearnerHook, hook_mapping
from ding.worker.replay_buffer.advanced_buffer import AdvancedReplayBuffer
from tests.entry.fakes import TinyEnv, pair, setting


@pytest.fixture(autouse=True)
def in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(TinyEnv, "made", [])


def result(exp="exp"):
    with open(f"{exp}/result.pkl", "rb") as f:
        return pickle.load(f)


def evaluations(exp="exp"):
    with open(f"{exp}/eval.jsonl") as f:
        return [json.loads(line) for line in f]


def weights(policy):
    return policy.learn_mode.state_dict()["model"]


def envs(role):
    """The launched envs of a role, without the one that only tells the spaces."""
    return [env for env in TinyEnv.made if env.role == role and env.seeds]


def open_files():
    return {
        os.readlink(f"/proc/self/fd/{fd}")
        for fd in os.listdir("/proc/self/fd")
        if os.path.islink(f"/proc/self/fd/{fd}")
    }


def test_a_run_leaves_config_logs_checkpoints_evaluations_and_result():
    policy = serial_pipeline(pair(), seed=1, env_setting=setting(), max_train_iter=12)
    assert sorted(os.listdir("exp")) == [
        "README.md",
        "ckpt",
        "eval.jsonl",
        "formatted_total_config.py",
        "log",
        "metrics",
        "metrics.jsonl",
        "result.json",
        "result.pkl",
        "run_state",
        "total_config.py",
    ]
    assert sorted(os.listdir("exp/ckpt")) == ["ckpt_best.pth.tar", "iteration_0.pth.tar", "iteration_12.pth.tar"]
    assert sorted(os.listdir("exp/log")) == ["buffer", "collector", "evaluator", "learner", "serial"]
    assert any(name.startswith("events.out") for name in os.listdir("exp/log/serial"))
    found = result()
    assert found["stop"] is False and found["train_iter"] == 12
    lines = evaluations()
    assert [line["train_iter"] for line in lines] == [0, 6]
    assert [(line["seed"], len(line["returns"]), line["lengths"]) for line in lines] == [(1, 3, [5, 5, 5])] * 2
    assert lines[0]["env_step"] == 0 and lines[1]["env_step"] > 0
    assert found["eval_value_raw"] == lines[1]["returns"]
    assert found["eval_value"] == pytest.approx(np.mean(lines[1]["returns"]))
    assert set(weights(policy)) == set(torch.load("exp/ckpt/iteration_12.pth.tar", weights_only=True)["model"])


@pytest.mark.differs("`max_train_iter` is overshot", "exact")
@pytest.mark.parametrize("limit", [1, 4, 7])
def test_training_stops_exactly_at_max_train_iter(limit):
    run = run_serial(pair(), env_setting=setting(), max_train_iter=limit)
    assert run.learner.train_iter == limit == result()["train_iter"]


@pytest.mark.parametrize("limit", ["max_train_iter", "max_env_step"])
@pytest.mark.parametrize("value", [None, "10", -1, float("nan")])
def test_a_limit_that_is_no_number_is_refused_before_anything_is_made(limit, value):
    with pytest.raises(ConfigError, match=f"{limit} = {value!r} is not allowed.*left out for no limit"):
        serial_pipeline(pair(), env_setting=setting(), **{limit: value})
    assert os.listdir() == [] and TinyEnv.made == []


def test_no_round_begins_after_max_env_step():
    run = run_serial(pair(), env_setting=setting(), max_env_step=20)
    assert 20 <= run.collector.envstep == result()["env_step"] < 40


def test_a_limit_that_is_hit_exactly_ends_the_run():
    steps = run_serial(pair(), env_setting=setting(), max_env_step=20).collector.envstep
    assert run_serial(pair(), env_setting=setting(), max_env_step=steps).collector.envstep == steps


def test_the_progress_is_told_after_each_round(monkeypatch):
    told, advance = [], ProgressLine.advance

    def note(line, envstep, train_iter):
        told.append((envstep, train_iter))
        advance(line, envstep, train_iter)

    monkeypatch.setattr(ProgressLine, "advance", note)
    run = run_serial(pair(), env_setting=setting(), max_train_iter=6)
    assert [train_iter for _, train_iter in told] == [3, 6]
    assert 8 <= told[0][0] < told[1][0] == run.collector.envstep


def test_replicas_that_nobody_keeps_equal_are_refused_before_envs_are_launched(monkeypatch):
    monkeypatch.setattr("ding.entry.checks.get_world_size", lambda: 2)
    with pytest.raises(ConfigError, match="policy.multi_gpu = False is not allowed on 2 ranks"):
        serial_pipeline(pair(), env_setting=setting(), max_train_iter=1)
    assert envs("collector") == envs("evaluator") == []


def test_the_env_class_of_the_setting_gives_the_defaults_of_the_config():
    class Own(TinyEnv):
        @classmethod
        def default_config(cls):
            return EasyDict(own_key=5)

    run = run_serial(pair(), env_setting=[Own, *setting()[1:]], max_train_iter=1)
    assert run.cfg.env.own_key == 5


def test_the_run_stops_at_the_stop_value_but_never_before_training():
    run = run_serial(pair(env={"stop_value": 0}), env_setting=setting())
    assert run.stop and result()["stop"] is True
    assert [line["train_iter"] for line in evaluations()] == [0, 6]
    assert run.learner.train_iter == 6


def test_equal_seeds_give_equal_runs_and_other_seeds_do_not():
    def once(exp, seed):
        main, create = pair(env={"env_id": "CartPole-v1"}, other={"replay_buffer": {"replay_buffer_size": 64}})
        main.exp_name, create.env.type = exp, "gymnasium"
        main.policy.model.obs_shape = 4
        policy = serial_pipeline((main, create), seed=seed, max_train_iter=30)
        lines = evaluations(exp)
        for line in lines:
            line.pop("seconds"), line.pop("seed")
        return lines, weights(policy)

    lines, model = once("a", 3)
    same_lines, same_model = once("b", 3)
    other_lines, other_model = once("c", 4)
    assert len(lines) == 5 and lines == same_lines != other_lines
    assert all(torch.equal(model[key], same_model[key]) for key in model)
    assert not all(torch.equal(model[key], other_model[key]) for key in model)


@pytest.mark.parametrize("priority", [False, True])
def test_registered_envs_and_a_config_file_are_enough(tmp_path, priority):
    main, create = pair(priority=priority, priority_IS_weight=priority)
    path = tmp_path / "my_config.py"
    path.write_text(
        f"from easydict import EasyDict\nmain_config = EasyDict({main!r})\ncreate_config = EasyDict({create!r})\n"
    )
    serial_pipeline(str(path), max_train_iter=6)
    assert result()["train_iter"] == 6
    assert len(envs("any")) == 4


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


def test_the_formatted_config_of_a_run_runs_again_to_the_same_tree():
    first = run_serial(pair(), seed=2, env_setting=setting(), max_train_iter=3)
    again = run_serial("exp/formatted_total_config.py", seed=2, env_setting=setting(), max_train_iter=3)
    assert again.cfg.exp_name.startswith("exp_")
    first.cfg.exp_name = again.cfg.exp_name
    assert again.cfg == first.cfg
    assert all(
        torch.equal(a, b) for a, b in zip(weights(first.policy).values(), weights(again.policy).values(), strict=True)
    )


def test_the_inputs_are_not_changed_and_a_command_type_stays():
    configs = pair()
    configs[1].policy.type = "dqn_command"
    before = copy.deepcopy(configs)
    run = run_serial(configs, env_setting=setting(), max_train_iter=1)
    assert configs == before
    assert run.cfg.policy.type == "dqn_command"
    assert read_config("exp/formatted_total_config.py")[1].policy.type == "dqn"


def test_a_model_of_ones_own_is_trained_and_not_compared_with_the_config():
    main, create = pair()
    main.policy.model.obs_shape = 99
    model = DQN(3, 2, encoder_hidden_size_list=[8])
    policy = serial_pipeline((main, create), env_setting=setting(), model=model, max_train_iter=3)
    assert policy._model is model


def test_random_collect_fills_the_buffer_first(monkeypatch):
    pushed, push = [], AdvancedReplayBuffer.push

    def record(self, data, cur_collector_envstep):
        pushed.append((len(data), cur_collector_envstep))
        push(self, data, cur_collector_envstep)

    monkeypatch.setattr(AdvancedReplayBuffer, "push", record)
    serial_pipeline(pair(random_collect_size=16), env_setting=setting(), max_train_iter=1)
    assert [count for count, _ in pushed] == [16, 8]
    assert pushed[0][1] == 0 and pushed[1][1] >= 24
    assert random_collect.__module__ == "ding.entry.utils"


@pytest.mark.differs(
    "a run that resumes from a checkpoint forgets the best return, and replaces the best checkpoint by a worse one",
    "only by a better one",
)
def test_a_run_that_goes_on_from_a_checkpoint_replaces_the_best_one_by_a_better_one_only():
    run_serial(pair(), env_setting=setting(evaluator={"length": 20}), max_train_iter=7)
    best = pathlib.Path("exp/ckpt/ckpt_best.pth.tar").read_bytes()
    learn = {"resume_training": True, "learner": {"hook": {"load_ckpt_before_run": "exp/ckpt/iteration_7.pth.tar"}}}
    worse = setting(evaluator={"length": 1})
    run = run_serial(pair(learn=learn), env_setting=worse, max_train_iter=13)
    assert run.cfg.exp_name == "exp" and run.learner.train_iter == 13
    assert pathlib.Path("exp/ckpt/ckpt_best.pth.tar").read_bytes() == best


def test_settings_without_effect_are_warned_of(caplog):
    one_time_warning.cache_clear()
    main, create = pair(priority=True)
    main.policy.eval.evaluator.stop_value = 2
    create.replay_buffer = {"type": "naive"}
    serial_pipeline((main, create), env_setting=setting(), max_train_iter=1)
    assert "policy.eval.evaluator.stop_value = 2 has no effect: env.stop_value takes its place (100)" in caplog.text
    assert "policy.priority = True has no effect: the replay buffer 'naive' draws uniformly" in caplog.text


def test_that_the_buffer_is_filled_first_is_told_once(capsys):
    learn = {"batch_size": 30, "update_per_collect": 2}
    run = run_serial(pair(learn=learn), env_setting=setting(), max_train_iter=2)
    assert capsys.readouterr().err.count("Collecting until the replay buffer can give a batch of 30.") == 1
    assert run.learner.train_iter == 2


@pytest.mark.differs("evaluation and collector envs share seeds", "evaluation has its own")
def test_evaluation_envs_have_static_seeds_of_their_own():
    run_serial(pair(), seed=5, env_setting=setting(), max_train_iter=1)
    collector = [env.seeds[0] for env in envs("collector")]
    evaluator = [env.seeds[0] for env in envs("evaluator")]
    assert all(dynamic for _, dynamic in collector) and not any(dynamic for _, dynamic in evaluator)
    assert not {seed for seed, _ in collector} & {seed for seed, _ in evaluator}


def test_dynamic_seed_reaches_the_collector_envs():
    serial_pipeline(pair(), env_setting=setting(), max_train_iter=1, dynamic_seed=False)
    assert not any(dynamic for env in envs("collector") for _, dynamic in env.seeds)


def test_evaluation_seeds_are_fixed_distinct_and_refuse_negative_seeds():
    seeds = [evaluation_seed(seed) for seed in range(50)]
    assert len(set(seeds)) == 50 and seeds == [evaluation_seed(seed) for seed in range(50)]
    assert all(0 <= seed < 2**31 for seed in seeds)
    with pytest.raises(ValueError, match="seed = -1 is not allowed"):
        evaluation_seed(-1)


def test_a_resumed_run_goes_on_in_the_same_folder():
    serial_pipeline(pair(), env_setting=setting(), max_train_iter=6)
    envstep = result()["env_step"]
    resumed = pair(
        learn={"resume_training": True, "learner": {"hook": {"load_ckpt_before_run": "exp/ckpt/iteration_6.pth.tar"}}}
    )
    run = run_serial(resumed, env_setting=setting(), max_train_iter=12)
    assert run.cfg.exp_name == "exp" and os.listdir() == ["exp"]
    assert run.learner.train_iter == 12
    assert run.collector.envstep > envstep
    assert [line["train_iter"] for line in evaluations()] == [0, 6]


@pytest.mark.differs("a resumed run without an evaluation crashes at its end", "it evaluates once")
def test_a_resumed_run_without_a_due_evaluation_evaluates_at_the_end():
    serial_pipeline(pair(), env_setting=setting(), max_train_iter=6)
    resumed = pair(
        eval={"evaluator": {"eval_freq": 1000}},
        learn={"resume_training": True, "learner": {"hook": {"load_ckpt_before_run": "exp/ckpt/iteration_6.pth.tar"}}},
    )
    serial_pipeline(resumed, env_setting=setting(), max_train_iter=9)
    assert evaluations()[-1]["train_iter"] == 9
    assert not math.isnan(result()["eval_value"])


@pytest.mark.differs("envs and writer are left to destructors", "closed however the run ends")
def test_everything_is_closed_after_a_run():
    threads, files = set(threading.enumerate()), open_files()
    run = run_serial(pair(), env_setting=setting(), max_train_iter=3)
    for thread in set(threading.enumerate()) - threads:
        thread.join(10)  # the feeder of tensorboardX's queue ends by itself once the queue is closed
    assert set(threading.enumerate()) == threads
    assert open_files() <= files
    assert all(env.is_closed for env in TinyEnv.made if env.life)
    assert run.collector_env.closed


def test_a_nan_observation_stops_the_run_with_its_message_and_a_checkpoint():
    with pytest.raises(FloatingPointError, match="the observation of env 0 holds NaN"):
        serial_pipeline(pair(), env_setting=setting(collector={"nan_at": 9}))
    assert "ckpt_exception.pth.tar" in os.listdir("exp/ckpt")
    assert not os.path.exists("exp/result.pkl")
    assert all(env.is_closed for env in TinyEnv.made if env.life)


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


def test_a_nan_gradient_of_a_finite_loss_stops_the_run_and_is_not_saved():
    class Broken(DQN):
        def forward(self, x):
            output = super().forward(x)
            if self.training and torch.is_grad_enabled():  # the derivative of the root is infinite at 0
                output["logit"] = output["logit"] + torch.sqrt(output["logit"] * 0.0)
            return output

    learner = {"learner": {"hook": {"save_ckpt_after_iter": 1}}}
    with pytest.raises(FloatingPointError, match="the parameters hold NaN at train_iter 0"):
        serial_pipeline(pair(learn=learner), env_setting=setting(), model=Broken(3, 2, encoder_hidden_size_list=[8]))
    assert os.listdir("exp/ckpt") == ["ckpt_best.pth.tar"]  # that of the evaluation before
    model = torch.load("exp/ckpt/ckpt_best.pth.tar", weights_only=True)["model"]
    assert not any(torch.isnan(value).any() for value in model.values())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_a_checkpoint_closes_everything_and_exits_with_130(number):
    handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]

    def on_step(env):
        if env.life == 9:
            signal.raise_signal(number)

    with pytest.raises(SystemExit) as e:
        serial_pipeline(pair(), env_setting=setting(collector={"on_step": on_step}))
    assert e.value.code == 130
    assert "ckpt_interrupt.pth.tar" in os.listdir("exp/ckpt")
    assert all(env.is_closed for env in TinyEnv.made if env.life)
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_a_failure_while_building_closes_what_was_built():
    main, create = pair()
    create.evaluator = EasyDict(type="interaction")
    main.policy.eval.evaluator.render = {"mode": "nonsense"}
    with pytest.raises(ValueError, match=r"render.mode = 'nonsense' is not allowed"):
        serial_pipeline((main, create), env_setting=setting())
    assert len(envs("collector")) == 2 and all(env.is_closed for env in envs("collector"))
    assert os.listdir() == []


@pytest.mark.differs(
    "a start that fails, by a wrong config say, leaves its folder behind, and the next run gets another name",
    "it leaves no folder",
)
def test_a_failed_start_leaves_no_folder_but_what_was_there_before():
    os.makedirs("old/exp")
    open("old/exp/result", "w").close()
    main, create = pair(env={"n_evaluator_episode": 1})
    for name in ("exp", "new/deep/exp", "old/exp", "old/exp/inner/exp"):
        main.exp_name = name
        with pytest.raises(ConfigError):
            serial_pipeline((main, create), env_setting=setting())
    main.policy.learn.resume_training, main.exp_name = True, "old/exp"
    with pytest.raises(ConfigError):
        serial_pipeline((main, create), env_setting=setting())
    assert os.listdir() == ["old"] and os.listdir("old") == ["exp"] and "result" in os.listdir("old/exp")


def test_a_run_that_fails_after_its_start_keeps_its_folder():
    def on_step(env):
        raise ZeroDivisionError("in the first step")

    with pytest.raises(RuntimeError, match="in the first step"):
        serial_pipeline(pair(), env_setting=setting(collector={"on_step": on_step}))
    assert os.listdir() == ["exp"] and "ckpt_exception.pth.tar" in os.listdir("exp/ckpt")


@pytest.mark.differs(
    "a model that does not fit the env fails inside torch",
    "refused before training, both sides named",
)
def test_a_model_that_does_not_fit_the_env_is_refused_before_training():
    main, create = pair()
    main.policy.model.action_shape = 3
    with pytest.raises(ValueError, match=r"policy.model.action_shape = 3 does not fit the env, .* Discrete\(2\)"):
        serial_pipeline((main, create), env_setting=setting())
    assert not any(env.life for env in TinyEnv.made)
    assert all(env.is_closed for env in envs("collector"))


def test_too_few_evaluation_episodes_are_refused_before_envs_are_made():
    with pytest.raises(ValueError, match="n_evaluator_episode = 1 is less than env.evaluator_env_num = 2"):
        serial_pipeline(pair(env={"n_evaluator_episode": 1}), env_setting=setting())
    assert TinyEnv.made == []


def test_an_unusable_experiment_folder_is_refused_before_envs_are_made():
    open("exp", "w").close()
    main, create = pair()
    main.exp_name = "exp/deep"
    with pytest.raises(OSError, match="cannot create the experiment folder"):
        serial_pipeline((main, create), env_setting=setting())
    assert TinyEnv.made == []


@pytest.mark.parametrize(
    ("section", "registered"),
    [
        ("env", "gymnasium"),
        ("env_manager", "base"),
        ("policy", "dqn"),
        ("collector", "sample"),
        ("replay_buffer", "advanced"),
    ],
)
def test_unknown_types_name_the_section_and_the_known_ones(section, registered):
    main, create = pair()
    create[section] = EasyDict(type="absent")
    with pytest.raises(KeyError, match=rf"create_config.{section}\)?: unknown type 'absent.*{registered}"):
        serial_pipeline((main, create))


@pytest.mark.parametrize("bad", [None, 3, (1,), pair()[0]])
def test_an_input_that_is_no_pair_is_refused(bad):
    with pytest.raises(TypeError, match="must be a file path or the pair"):
        serial_pipeline(bad)


def test_a_create_config_without_policy_type_is_refused():
    main, create = pair()
    create.pop("policy")
    with pytest.raises(ValueError, match="create_config.policy must name its type"):
        serial_pipeline((main, create))


def test_without_an_env_an_env_setting_is_asked_for():
    main, create = pair()
    create.pop("env")
    with pytest.raises(ValueError, match="create_config lacks the entry 'env'.*or pass env_setting"):
        serial_pipeline((main, create))
    assert serial_pipeline((main, create), env_setting=setting(), max_train_iter=1) is not None
