import pytest
from easydict import EasyDict

from ding.entry import serial_pipeline, serial_pipeline_onpolicy
from ding.entry.checks import check_pipeline
from ding.entry.serial_entry import run_serial_onpolicy
from ding.utils.config_helper import ConfigError
from ding.worker.learner.base_learner import BaseLearner
from tests.entry import fakes
from tests.entry.fakes import TinyEnv, evaluations, result, setting
from tests.entry.fakes import on_policy_pair as pair


def test_all_that_was_collected_is_trained_on_once_a_round(monkeypatch):
    batches, train = [], BaseLearner.train

    def record(self, data, envstep):
        batches.append((len(data), envstep, self.train_iter, data[0]["collect_iter"]))
        return train(self, data, envstep)

    monkeypatch.setattr(BaseLearner, "train", record)
    run = run_serial_onpolicy(pair(), env_setting=setting(), max_train_iter=12)
    assert [batch[0] for batch in batches] == [8, 8, 8]
    assert [batch[2:] for batch in batches] == [(0, 0), (4, 4), (8, 8)]
    assert batches[-1][1] == run.collector.envstep
    assert run.buffer is None


@pytest.mark.parametrize(("limit", "reached"), [(0, 0), (1, 4), (4, 4), (5, 8), (9, 12)])
def test_no_round_begins_after_max_train_iter(limit, reached):
    run = run_serial_onpolicy(pair(), env_setting=setting(), max_train_iter=limit)
    assert run.learner.train_iter == reached == result()["train_iter"]


def test_no_round_begins_after_max_env_step():
    run = run_serial_onpolicy(pair(), env_setting=setting(), max_env_step=20)
    assert 20 <= run.collector.envstep == result()["env_step"] < 40


def test_evaluations_come_with_the_first_round_that_is_due():
    # eval_freq is 6 and a round has 4 iterations.
    run_serial_onpolicy(pair(), env_setting=setting(), max_train_iter=20)
    assert [line["train_iter"] for line in evaluations()] == [0, 8, 16]


def test_no_fragment_of_an_older_policy_is_trained_on(monkeypatch):
    seen, train = [], BaseLearner.train

    def record(self, data, envstep):
        seen.append({sample["collect_iter"] for sample in data})
        return train(self, data, envstep)

    monkeypatch.setattr(BaseLearner, "train", record)
    run_serial_onpolicy(pair(collect={"n_sample": 6}), env_setting=setting(), max_train_iter=20)
    assert len(seen) > 3 and all(len(iterations) == 1 for iterations in seen)


def test_with_fixed_rollouts_every_step_is_trained_on(monkeypatch):
    seen, train = [], BaseLearner.train

    def record(self, data, envstep):
        seen.append([(tuple(sample["obs"].tolist()), sample["collect_iter"] - self.train_iter) for sample in data])
        return train(self, data, envstep)

    monkeypatch.setattr(BaseLearner, "train", record)
    main, create = pair(env={"length": 5}, collect={"n_sample": 8, "collector": {"fixed_rollout": True}})
    run = run_serial_onpolicy((main, create), env_setting=setting(), max_train_iter=24)
    samples = sum(seen, [])
    assert [len(data) for data in seen] == [8] * 6
    assert len(set(samples)) == len(samples) == run.collector.envstep == 48
    assert {age for _, age in samples} == {0}


def test_a_continuous_policy_trains_on_scaled_actions():
    main, create = pair(env={"env_id": "Pendulum-v1", "act_scale": True}, action_space="continuous")
    create.env.type = "gymnasium"
    main.env.stop_value = 0
    main.policy.model.update(obs_shape=3, action_shape=1)
    run = run_serial_onpolicy((main, create), max_train_iter=8)
    assert run.policy.cfg.model.action_space == "continuous"
    assert all(-2000 < value < 0 for value in evaluations()[0]["returns"])


def test_a_continuous_policy_is_refused_in_an_env_of_discrete_actions():
    with pytest.raises(ValueError, match="set policy.action_space = 'discrete'"):
        serial_pipeline_onpolicy(pair(action_space="continuous"), env_setting=setting())


def test_the_off_policy_pipeline_names_the_other_one():
    main, create = pair()
    main.policy.other = EasyDict(replay_buffer={"replay_buffer_size": 64})
    with pytest.raises(ConfigError, match="'ppo' .* serial_pipeline_onpolicy"):
        serial_pipeline((main, create), env_setting=setting())
    main.policy.on_policy = False
    main.policy.learn.pop("update_per_collect")
    with pytest.raises(ConfigError, match="policy.learn.update_per_collect"):
        serial_pipeline((main, create), env_setting=setting())
    assert TinyEnv.made == []


@pytest.mark.differs(
    "fails late, or for a missing attribute, if a policy runs in the wrong serial pipeline",
    "names the other pipeline before envs are made",
)
def test_the_on_policy_pipeline_names_the_other_one():
    own = {"type": "own", "learn": {"update_per_collect": 1}}  # a policy from outside that does not say `on_policy`
    check_pipeline({"policy": {**own, "learn": {}}}, has_buffer=False)
    with pytest.raises(ConfigError, match="'own' .* serial_pipeline"):
        check_pipeline({"policy": own}, has_buffer=False)
    with pytest.raises(ConfigError, match="'dqn' .* serial_pipeline"):
        serial_pipeline_onpolicy(fakes.pair(), env_setting=setting())
    assert TinyEnv.made == []
