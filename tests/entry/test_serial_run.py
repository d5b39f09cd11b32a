"""What a serial run takes from its arguments, when it ends, and what is refused before it begins."""

import os

import pytest
from easydict import EasyDict

from ding.config.read import put
from ding.entry.serial_entry import run_serial, serial_pipeline
from ding.policy import CommandModePolicy, DQNPolicy
from ding.utils.config_helper import ConfigError
from ding.utils.registry_factory import POLICY_REGISTRY
from ding.worker.collector.interaction_serial_evaluator import InteractionSerialEvaluator
from tests.entry.fakes import TinyEnv, pair, setting


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
