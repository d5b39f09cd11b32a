"""What a serial run takes from its arguments, when it ends, and what is refused before it begins."""

import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from easydict import EasyDict
from gymnasium import spaces

from ding.config.config import compile_config
from ding.config.read import put
from ding.entry.serial_entry import run_serial, serial_pipeline
from ding.entry.utils import AccMetric, mark_not_expert, mark_warm_up, random_collect
from ding.envs.env_manager.base_env_manager import BaseEnvManager
from ding.policy import CommandModePolicy, DQNPolicy
from ding.utils import ENV_MANAGER_REGISTRY
from ding.utils.config_helper import ConfigError
from ding.utils.registry_factory import POLICY_REGISTRY, SERIAL_COLLECTOR_REGISTRY
from ding.worker import (
    BaseLearner,
    ElasticReplayBuffer,
    EpisodeReplayBuffer,
    EpisodeSerialCollector,
    SampleSerialCollector,
)
from ding.worker.collector.interaction_serial_evaluator import InteractionSerialEvaluator
from tests.entry.fakes import TinyEnv, pair, setting
from tests.fakes import FakeManager, FakeWriter


class ConfiguredEnv(TinyEnv):
    @classmethod
    def default_config(cls):
        return EasyDict(length=7, colour="blue", stop_value=7)


def test_the_class_in_the_env_setting_gives_the_defaults_of_the_env_section():
    envs = setting()
    envs[0] = ConfiguredEnv
    main, create = pair(env={"length": 9})
    del main.env["stop_value"]
    cfg = run_serial((main, create), env_setting=envs, max_train_iter=1).cfg
    assert (cfg.env.colour, cfg.env.length, cfg.policy.eval.evaluator.stop_value) == ("blue", 9, 7)
    assert all(type(env) is ConfiguredEnv for env in TinyEnv.made)


def test_a_limit_of_env_steps_that_a_round_reaches_exactly_is_the_last():
    first, second = (
        run_serial(pair(), env_setting=setting(), max_train_iter=limit).collector.envstep for limit in (3, 6)
    )
    assert second > first
    for limit, reached, train_iter in ((first, first, 3), (first + 1, second, 6), (second, second, 6)):
        run = run_serial(pair(), env_setting=setting(), max_env_step=limit)
        assert (run.collector.envstep, run.learner.train_iter) == (reached, train_iter)


def evaluations_return(monkeypatch, *returns):
    """Have the evaluations of a run return these mean returns, one after the other."""
    left = list(returns)
    monkeypatch.setattr(
        InteractionSerialEvaluator, "eval", lambda *args: (False, {"eval_episode_return": [left.pop(0)]})
    )


def with_patience(patience):
    main, create = pair()
    main.policy.eval.evaluator.update(eval_freq=3, patience=patience)
    return main, create


def test_a_run_ends_after_so_many_evaluations_without_a_better_return(monkeypatch, capsys):
    evaluations_return(monkeypatch, 1.0, 3.0, 2.0, 4.0, 4.0, 3.5, 9.0)
    run = run_serial(with_patience(2), env_setting=setting(), max_train_iter=99)
    assert (run.learner.train_iter, run.best_return, run.idle_evaluations) == (15, 4.0, 2)
    assert run.stop is False
    text = capsys.readouterr().err
    assert "No better mean return in 2 evaluations: the training ends.\nOver: mean return 3.5" in text


def test_patience_lasts_over_a_resume_and_may_be_raised(monkeypatch):
    evaluations_return(monkeypatch, 5.0, 1.0, 2.0, 3.0, 1.0, 1.0, 1.0)
    run_serial(with_patience(3), env_setting=setting(), max_train_iter=6)
    resumed = run_serial(with_patience(3), env_setting=setting(), max_train_iter=99, resume=True)
    assert (resumed.learner.train_iter, resumed.idle_evaluations) == (9, 3)
    again = run_serial(with_patience(3), env_setting=setting(), max_train_iter=99, resume=True)
    assert again.learner.train_iter == 9
    longer = run_serial(with_patience(5), env_setting=setting(), max_train_iter=99, resume=True)
    assert (longer.learner.train_iter, longer.best_return) == (15, 5.0)


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ("policy.learn.batch_size", 4.0, "batch_size = 4.0"),
        ("policy.other.replay_buffer.replay_buffer_size", 3, "replay_buffer_size = 3"),
        ("policy.other", None, "policy.other = None"),
        ("policy.other.replay_buffer", None, "policy.other.replay_buffer = None"),
    ],
)
def test_a_wrong_config_leaves_nothing_behind(path, value, text):
    main, create = pair()
    put(main, path, value)
    with pytest.raises(ConfigError, match=text):
        serial_pipeline((main, create), env_setting=setting())
    assert os.listdir() == [] and TinyEnv.made == []


@pytest.mark.differs("fails if a model has no `obs_shape`", "takes the shape from the env")
@pytest.mark.parametrize("key", ["obs_shape", "action_shape"])
def test_a_missing_shape_is_that_of_the_env(key):
    main, create = pair()
    shape = main.policy.model.pop(key)
    run = run_serial((main, create), env_setting=setting(), max_train_iter=1)
    assert run.cfg.policy.model[key] == shape


def test_a_model_of_none_is_that_of_the_env():
    main, create = pair(model=None)
    model = run_serial((main, create), env_setting=setting(), max_train_iter=1).cfg.policy.model
    assert (model.obs_shape, model.action_shape) == (3, 2)


@pytest.mark.differs(
    "cannot train a registered policy `x` online unless a class is registered as `x_command`",
    "derives one",
)
def test_a_policy_of_ones_own_is_trained_without_a_command_twin():
    class MyPolicy(DQNPolicy):
        config = {**DQNPolicy.config, "type": "my_dqn", "my_key": 3}

    main, create = pair(my_key=4)
    create.policy = EasyDict(type="my_dqn")
    POLICY_REGISTRY["my_dqn"] = MyPolicy
    try:
        run = run_serial((main, create), env_setting=setting(), max_train_iter=1)
        assert isinstance(run.policy, MyPolicy) and isinstance(run.policy, CommandModePolicy)
        assert (run.cfg.policy.my_key, run.cfg.policy.type) == (4, "my_dqn_command")
        with pytest.raises(KeyError, match=r"unknown type 'my_dqnn'; did you mean 'my_dqn'\?"):
            run_serial((main, {**create, "policy": {"type": "my_dqnn"}}), env_setting=setting())
    finally:
        del POLICY_REGISTRY["my_dqn"]


@pytest.mark.guarantees("overrides")
@pytest.mark.parametrize("method", ["_forward_collect", "_act_collect"])
def test_an_override_that_takes_any_arguments_is_given_epsilon(method):
    def act(self, *args, **kwargs):
        seen.append(kwargs)
        return getattr(super(MyPolicy, self), method)(*args, **kwargs)

    seen: list[dict] = []
    MyPolicy = type("MyPolicy", (DQNPolicy,), {method: act})
    main, create = pair()
    create.policy = EasyDict(type="my_dqn")
    POLICY_REGISTRY["my_dqn"] = MyPolicy
    try:
        run_serial((main, create), env_setting=setting(), max_train_iter=1)
    finally:
        del POLICY_REGISTRY["my_dqn"]
    assert seen and all(kwargs.keys() == {"eps"} for kwargs in seen)


# Which replay buffers `serial_pipeline` trains from.


def configs(buffer_type: str, **buffer_cfg: object):
    main, create = pair()
    main.policy.other.replay_buffer.update(buffer_cfg)
    create.replay_buffer = {"type": buffer_type}
    return main, create


def test_an_elastic_buffer_gives_its_newest_transitions():
    asked = []

    def set_buffer_size(envstep):
        asked.append(envstep)
        return 16

    run = run_serial(configs("elastic", set_buffer_size=set_buffer_size), max_train_iter=9)
    assert type(run.buffer) is ElasticReplayBuffer and run.learner.train_iter == 9
    assert set(asked) == {0}  # nobody tells the buffer of env steps here


def test_an_episode_buffer_is_one_of_transitions_with_a_collector_of_samples():
    run = run_serial(configs("episode"), max_train_iter=6)
    assert type(run.buffer) is EpisodeReplayBuffer and run.learner.train_iter == 6
    assert "should be an episode, a list of transitions" in Path("exp/log/buffer/buffer_logger.txt").read_text()


# Env managers of other packages, which have the documented members alone.


@ENV_MANAGER_REGISTRY.register("entry_foreign")
class ForeignManager(FakeManager):
    @classmethod
    def default_config(cls):
        return EasyDict(type="entry_foreign")

    def __init__(self, env_fn, cfg):
        super().__init__([5] * len(env_fn))
        self.seeds = []

    def seed(self, seed, dynamic_seed=None):
        self.seeds.append(seed)


@pytest.mark.guarantees("interfaces")
def test_a_run_needs_the_documented_members_of_an_env_manager_alone(tmp_path):
    main = EasyDict(
        exp_name="foreign",
        env={"collector_env_num": 2, "evaluator_env_num": 1, "n_evaluator_episode": 1, "stop_value": 1e9},
        policy={
            "model": {"obs_shape": 3, "action_shape": 2, "encoder_hidden_size_list": [8, 8]},
            "learn": {"update_per_collect": 1, "batch_size": 4},
            "collect": {"n_sample": 8},
            "other": {"replay_buffer": {"replay_buffer_size": 100}},
        },
    )
    create = EasyDict(env={"type": "gymnasium"}, env_manager={"type": "entry_foreign"}, policy={"type": "dqn"})
    serial_pipeline((main, create), seed=0, max_env_step=24)
    assert (tmp_path / "foreign" / "ckpt").is_dir()


# `serial_pipeline` and `random_collect` with the collector of whole episodes.


def episode_pair(**collector):
    main, create = pair(collect={"n_episode": 4, "collector": {"type": "episode", **collector}})
    del main.policy.collect["n_sample"]
    return main, create


class Buffer:
    def push(self, data, cur_collector_envstep):
        self.data, self.envstep = data, cur_collector_envstep


def test_a_run_trains_on_the_samples_of_whole_episodes():
    main, create = episode_pair(get_train_sample=True)
    run = run_serial((main, create), seed=0, max_train_iter=6)
    assert type(run.collector) is EpisodeSerialCollector
    assert run.learner.train_iter == 6 and run.collector.envstep == 2 * 4 * 5


def test_a_run_begins_with_random_episodes():
    main, create = episode_pair(get_train_sample=True)
    main.policy.random_collect_size = 6
    run = run_serial((main, create), seed=0, max_train_iter=3)
    assert run.collector.envstep == (6 + 4) * 5


@pytest.mark.parametrize("with_policy_data", [False, True])
@pytest.mark.parametrize("get_train_sample", [False, True])
@pytest.mark.parametrize("mark", [False, True])
def test_random_episodes_come_whole_or_as_samples(with_policy_data, get_train_sample, mark):
    main, create = episode_pair(get_train_sample=get_train_sample)
    main.policy.random_collect_size = 8
    main.policy.transition_with_policy_data = with_policy_data
    cfg = compile_config(main, auto=True, create_cfg=create, save_cfg=False)
    policy = DQNPolicy(cfg.policy, enable_field=["collect"])
    env = BaseEnvManager([lambda: TinyEnv({"length": 5})] * 2, cfg.env.manager)
    env.seed(0)
    collector = EpisodeSerialCollector(cfg.policy.collect.collector, env, policy.collect_mode, FakeWriter(), "exp")
    commander = SimpleNamespace(step=lambda: {"eps": 0.5})

    def post_process(data):
        for row in data if get_train_sample else [row for episode in data for row in episode]:
            row["marked"] = True
        return data

    buffer = Buffer()
    random_collect(cfg.policy, policy, collector, env, commander, buffer, post_process if mark else None)
    episodes = [buffer.data[i : i + 5] for i in range(0, 40, 5)] if get_train_sample else buffer.data
    assert [[bool(np.all(row["done"])) for row in episode] for episode in episodes] == [[False] * 4 + [True]] * 8
    assert all(("marked" in row) == mark for episode in episodes for row in episode)
    assert buffer.envstep == 0 and collector.envstep == 40
    assert collector._policy == policy.collect_mode
    collector.close()


def test_whole_episodes_for_a_buffer_of_transitions_are_refused():
    with pytest.raises(RuntimeError, match=r"accepts none of the collected data.*get_train_sample"):
        run_serial(episode_pair())


def test_whole_episodes_pass_where_the_buffer_takes_them(monkeypatch):
    main, create = episode_pair()
    create.replay_buffer = {"type": "episode"}
    trained = []
    monkeypatch.setattr(BaseLearner, "train", lambda self, data, envstep: trained.append(data) or self.last_iter.add(1))
    run_serial((main, create), max_train_iter=1)
    (batch,) = trained
    assert all(isinstance(episode, list) for episode in batch) and list(map(len, batch)) == [5] * 4


@SERIAL_COLLECTOR_REGISTRY.register("entry_changing")
class Changing(SampleSerialCollector):
    """Collects what `change` makes of the samples."""

    change = staticmethod(lambda samples: samples)

    def collect(self, *args, **kwargs):
        return type(self).change(super().collect(*args, **kwargs))


def changing_pair():
    main, create = pair()
    create.collector = {"type": "entry_changing"}
    return main, create


@pytest.mark.differs(
    "collects forever if the buffer takes nothing of what is collected",
    "raises an error, at the latest after 100 rounds",
)
def test_rounds_that_bring_nothing_end_the_run(monkeypatch):
    rounds = []
    monkeypatch.setattr(Changing, "change", staticmethod(lambda samples: rounds.append(len(samples)) or []))
    with pytest.raises(RuntimeError, match="accepts none of the collected data"):
        run_serial(changing_pair())
    assert rounds == [8] * 100


COLLECT_MODE = SimpleNamespace(
    forward=None, process_transition=None, get_train_sample=None, reset=None, get_attribute=lambda name: name
)
POLICY = SimpleNamespace(collect_mode=COLLECT_MODE)
ENV = SimpleNamespace(action_space=spaces.Discrete(3))
COMMANDER = SimpleNamespace(step=lambda: {"eps": 0.5})


class Collector:
    def __init__(self):
        self.policies, self.calls = [], []

    def reset_policy(self, policy):
        self.policies.append(policy)

    def collect(self, **kwargs):
        self.calls.append(kwargs)
        return [{"obs": i} for i in range(2)]


class ListBuffer:
    def push(self, data, cur_collector_envstep):
        self.pushed = (data, cur_collector_envstep)


def policy_cfg(type_="sample", size=8, **kwargs):
    return EasyDict(random_collect_size=size, collect={"collector": {"type": type_}}, **kwargs)


def run(cfg, **kwargs):
    collector, buffer = Collector(), ListBuffer()
    random_collect(cfg, POLICY, collector, ENV, COMMANDER, buffer, **kwargs)
    return collector, buffer


def test_samples_of_a_random_policy_are_pushed_and_the_policy_is_put_back():
    collector, buffer = run(policy_cfg())
    assert collector.calls == [
        {"n_sample": 8, "random_collect": True, "record_random_collect": False, "policy_kwargs": {"eps": 0.5}}
    ]
    assert buffer.pushed == ([{"obs": 0}, {"obs": 1}], 0)
    random_policy, last = collector.policies
    assert last is COLLECT_MODE
    actions = {int(random_policy.forward({5: None})[5]["action"]) for _ in range(100)}
    assert actions == {0, 1, 2}
    assert random_policy.get_attribute("cfg") == "cfg"


def test_an_episode_collector_is_asked_for_episodes():
    collector, _ = run(policy_cfg("episode"))
    assert collector.calls == [{"n_episode": 8, "policy_kwargs": {"eps": 0.5}}]


def test_the_policy_itself_acts_when_transitions_need_its_outputs():
    collector, _ = run(policy_cfg(transition_with_policy_data=True))
    assert collector.policies == [COLLECT_MODE, COLLECT_MODE]


def test_what_is_pushed_is_the_postprocessed_data():
    _, buffer = run(policy_cfg(), postprocess_data_fn=lambda data: mark_warm_up(mark_not_expert(data)))
    assert buffer.pushed[0] == [{"obs": i, "is_expert": 0, "warm_up": True} for i in range(2)]


@pytest.mark.parametrize("cfg", [policy_cfg(size=0), policy_cfg(size=-1), EasyDict()])
def test_a_size_that_is_not_positive_is_refused(cfg):
    with pytest.raises(AssertionError, match="policy.random_collect_size = .* is not allowed"):
        run(cfg)


def test_the_accuracy_is_the_share_of_labels_that_the_summed_logit_names():
    metric = AccMetric()
    logit = torch.tensor([[1, 1], [2, 3], [0, 4]])
    assert metric.eval({"logit": logit}, torch.tensor([2, 5, 9])) == {"Acc": pytest.approx(2 / 3)}
    maps = {"logit": logit[:, :, None].expand(3, 2, 2)}
    assert metric.eval(maps, torch.tensor([[2, 2], [5, 0], [0, 0]])) == {"Acc": 0.5}
    assert metric.reduce_mean([{"Acc": 0.5}, {"Acc": 1.0}]) == {"Acc": 0.75}


@pytest.mark.parametrize(
    ("other", "expected"), [(None, True), ({"Acc": 0.4}, True), ({"Acc": 0.5}, False), (0.4, True), (0.5, False)]
)
def test_an_accuracy_is_better_than_nothing_and_than_a_smaller_one(other, expected):
    assert AccMetric().gt({"Acc": 0.5}, other) is expected
