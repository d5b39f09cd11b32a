"""Trainings that learn from goals reached in hindsight."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from easydict import EasyDict

from ding import train
from ding.entry import serial_pipeline
from ding.entry.run_folder import RunFolder
from ding.entry.serial_entry import run_serial
from ding.utils.config_helper import ConfigError
from ding.worker import HindsightReplayBuffer
from tests.benchmarks.goals import success_rate
from tests.entry.killed_runs import Moment, assert_same, inexact, outcome, play
from tests.goal_envs import BitFlip, Reach
from tests.programs import ding

BITS = (BitFlip, {"bits": 4})
QUICK = {"eval_episodes": 2, "batch_size": 8}


def configs(env=BITS, policy="dqn", manager="base", **main) -> tuple[EasyDict, EasyDict]:
    cfg = EasyDict(
        exp_name="exp",
        env={"env": env, "collector_env_num": 2, "evaluator_env_num": 2, "n_evaluator_episode": 2},
        policy={
            "model": {"encoder_hidden_size_list": [16]},
            "learn": {"update_per_collect": 3, "batch_size": 8},
            "collect": {"n_sample": 4},
            "other": {"replay_buffer": {"replay_buffer_size": 500}},
        },
        **main,
    )
    create = EasyDict(env={"type": "gymnasium"}, env_manager={"type": manager}, policy={"type": policy})
    return cfg, create


@pytest.mark.parametrize("policy", ["dqn", "ddpg", "td3", "sac", "c51", "discrete_sac"])
def test_off_policy_policies_learn_from_goals_of_their_episodes(policy):
    env = BITS if policy in ("dqn", "c51", "discrete_sac") else Reach
    settings = {} if env is BITS else {"random_collect_size": 50}
    training = train(policy, env, env_steps=120, her=True, num_envs=2, n_sample=20, **QUICK, **settings)
    cfg = RunFolder(training.folder).compiled
    assert (cfg.policy.other.replay_buffer.type, cfg.policy.other.replay_buffer.k) == ("her", 4)
    obs, _ = Reach().reset(seed=0)
    if env is Reach:
        assert np.shape(training.predict(obs)) == (2,)


@pytest.fixture
def pushed(monkeypatch):
    """The lists of transitions that were pushed."""
    pushes, push = [], HindsightReplayBuffer.push

    def noting(self, data, cur_collector_envstep):
        count = push(self, data, cur_collector_envstep)
        pushes.append(list(data))
        assert count == len(pushes[-1])
        return count

    monkeypatch.setattr(HindsightReplayBuffer, "push", noting)
    return pushes


@pytest.mark.parametrize("manager", ["base", "subprocess", "async_subprocess", "vector_env"])
def test_the_buffer_is_given_whole_episodes(manager, pushed):
    run_serial(configs(manager=manager, her=True), max_env_step=40)
    for items in pushed:
        assert items[-1]["done"]
        for item, after in zip(items, items[1:], strict=False):
            if not item["done"]:
                assert item["next_obs"]["achieved_goal"].tolist() == after["obs"]["achieved_goal"].tolist()
                assert item["next_obs"]["desired_goal"].tolist() == after["obs"]["desired_goal"].tolist()
    assert sum(map(len, pushed)) >= 36  # all but what is unfinished


def test_samples_are_rewarded_for_the_goals_that_they_have(monkeypatch):
    seen, sample = [], HindsightReplayBuffer.sample

    def noting(*args, **kwargs):
        batch = sample(*args, **kwargs)
        seen.extend(batch or [])
        return batch

    monkeypatch.setattr(HindsightReplayBuffer, "sample", noting)
    run_serial(configs(her={"strategy": "final"}), max_train_iter=30)
    for item in seen:
        reached, goal = (item["next_obs"][key].tolist() for key in ("achieved_goal", "desired_goal"))
        assert item["reward"].tolist() == [0.0 if reached == goal else -1.0]
        assert item["terminated"] == (reached == goal) and item["obs"]["desired_goal"].tolist() == goal
    assert {item["reward"].item() for item in seen} == {0.0, -1.0}


def test_a_round_is_all_finished_episodes_and_keeps_the_ratio_of_updates_to_samples(pushed):
    main, create = configs(env=(Reach, {}), policy="ddpg", her=True)
    main.policy.random_collect_size = 0
    run = run_serial((main, create), max_env_step=150)  # rounds of two episodes of 25 steps
    assert run.envstep == 150 and list(map(len, pushed)) == [50, 50, 50]
    assert run.learner.train_iter == 3 * 38  # 50 * 3 / 4, rounded


@pytest.mark.parametrize(
    "place", ["main_config.her", "create_config.replay_buffer", "main_config.policy.other.replay_buffer"]
)
def test_the_buffer_is_chosen_in_any_place(place):
    main, create = configs()
    if place.endswith("her"):
        main.her = {"strategy": "episode", "k": 2}
    elif place.startswith("create"):
        create.replay_buffer = {"type": "her", "strategy": "episode", "k": 2}
    else:
        main.policy.other.replay_buffer.update(type="her", strategy="episode", k=2)
    run = run_serial((main, create), max_env_step=20, strict_config=True)
    own = run.cfg.policy.other.replay_buffer
    assert (own.type, own.strategy, own.k, own.replay_buffer_size) == ("her", "episode", 2, 500)
    assert run.cfg.policy.collect.traj_len_inf is True and "her" not in run.cfg


def test_the_command_takes_it_as_a_setting():
    words = ["train", "dqn", "tests.goal_envs:BitFlip", "--env-steps=40", "--set=her=true", "--set=batch_size=8"]
    ding(*words, "--exp-name=one", "--set=env.n_evaluator_episode=2")
    assert RunFolder("one").compiled.policy.other.replay_buffer.type == "her"
    Path("flip.py").write_text(f"main_config, create_config = {tuple(map(dict, configs('tests.goal_envs:BitFlip')))}")
    words = ["train", "flip.py", "--env-step=40", "--exp-name=two"]
    ding(*words, "--set=her={'strategy': 'final'}")
    assert RunFolder("two").compiled.policy.other.replay_buffer.strategy == "final"


class NoGoals(Reach):
    compute_reward = property()

    def step(self, action):
        return self._obs(), -1.0, False, False, {}


@pytest.mark.parametrize(
    ("policy", "env", "settings", "message"),
    [
        ("dqn", "CartPole-v1", {"nstep": 1}, "achieved_goal"),
        ("ddpg", NoGoals, {}, "compute_reward"),
        ("dqn", BITS, {"nstep": 3}, "nstep = 3"),
        ("ppo", BITS, {}, "off-policy"),
        ("dqn", BITS, {"parallel": True}, "serial"),
        ("dqn", BITS, {"normalize": "obs"}, "norm_obs"),
        ("dqn", BITS, {"her": {"strategi": "final"}}, "strategy"),
    ],
)
def test_what_does_not_go_with_it_is_refused(policy, env, settings, message):
    with pytest.raises(ConfigError, match=message):
        train(policy, env, env_steps=20, **{"her": True, **settings})


def test_the_shape_may_leave_out_what_the_goals_show_already():
    shape = {"achieved_goal": 4, "desired_goal": 4}
    training = train("dqn", BITS, env_steps=40, her=True, config={"policy.model.obs_shape": shape}, **QUICK)
    assert training.predict(BitFlip(4).reset(seed=0)[0]) in range(4)


@pytest.mark.slow
def test_hindsight_solves_what_is_not_solved_alone():
    assert success_rate("flip 15 bits", "dqn", her=True, seed=0) > 0.9
    assert success_rate("flip 15 bits", "dqn", her=False, seed=0) < 0.1


# success rates


def test_evaluations_tell_the_success_rate_if_the_env_does(capsys):
    training = train("dqn", (BitFlip, {"bits": 1}), env_steps=300, her=True, eval_episodes=4, batch_size=8)
    lines = [json.loads(line) for line in Path(training.folder, "eval.jsonl").read_text().splitlines()]
    shares = [np.mean([value > -1 for value in line["returns"]]) for line in lines]
    assert [line["success_rate"] for line in lines] == shares
    assert "success_rate" in capsys.readouterr().err
    record = training.evaluate(4)
    assert record.success_rate == np.mean([value > -1 for value in record.returns])
    rates = [value for _, value in RunFolder(training.folder).metric("evaluator/success_rate")]
    assert rates == shares
    assert "success rate" in ding("eval", training.folder)


# resuming


@pytest.mark.guarantees("resume")
def test_a_run_that_is_killed_goes_on_with_the_same_bits(tmp_path):
    def job(resume: bool) -> None:
        main, create = configs(her=True, run_state={"every_iter": 9})
        serial_pipeline((main, create), seed=3, max_train_iter=60, resume=resume)

    assert play(job, tmp_path / "undisturbed") == 0
    killed = tmp_path / "killed"
    assert play(job, killed, moment=Moment("update", 41)) == -9
    assert play(partial(job), killed, resume=True) == 0
    assert_same(outcome(killed), outcome(tmp_path / "undisturbed"))
    assert inexact(killed) == []
