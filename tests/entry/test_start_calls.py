"""What happens before the first env step of a run."""

import os
import sys

import gymnasium
import numpy as np
import pytest
from easydict import EasyDict

import ding
from ding.config import config as config_module
from ding.entry import serial_pipeline

ROOT = os.path.dirname(ding.__file__)


class OwnCartPole(gymnasium.Env):
    """An env of one's own, with the spaces of CartPole and episodes of 20 steps."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    has_stepped = False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(4, np.float32), {}

    def step(self, action):
        OwnCartPole.has_stepped = True
        self.steps += 1
        return np.zeros(4, np.float32), 1.0, self.steps >= 20, False, {}


def configs():
    main = EasyDict(
        exp_name="exp",
        env={"env": OwnCartPole, "collector_env_num": 8, "evaluator_env_num": 5, "stop_value": 10**9},
        policy={
            "nstep": 1,
            "learn": {"batch_size": 16, "update_per_collect": 1},
            "collect": {"n_sample": 16},
            "other": {"replay_buffer": {"replay_buffer_size": 1000}},
        },
    )
    main.env.n_evaluator_episode = 5
    return main, EasyDict(env={"type": "gymnasium"}, env_manager={"type": "base"}, policy={"type": "dqn"})


def calls_before_the_first_step(monkeypatch, **how):
    """Return how many calls into the package a start makes, and how often it compiles configs."""
    counts = {"calls": 0, "compiled": 0}
    compile_pair = config_module.compile_pair

    def counted(*args):
        counts["compiled"] += 1
        return compile_pair(*args)

    def count(frame, event, arg):
        if event == "call" and not OwnCartPole.has_stepped and frame.f_code.co_filename.startswith(ROOT):
            counts["calls"] += 1

    monkeypatch.setattr("ding.entry.experiment.compile_pair", counted)
    monkeypatch.setattr(config_module, "compile_pair", counted)
    monkeypatch.setattr(OwnCartPole, "has_stepped", False)
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        serial_pipeline(configs(), **how)
    finally:
        sys.setprofile(before)
    return counts


@pytest.mark.skipif(sys.gettrace() is not None, reason="coverage measures calls, too")
def test_a_start_and_a_resume_compile_once_and_make_few_calls(monkeypatch):
    serial_pipeline(configs(), max_train_iter=4)  # caches are warm
    with monkeypatch.context() as patch:
        resumed = calls_before_the_first_step(patch, max_train_iter=8, resume=True)
    started = calls_before_the_first_step(monkeypatch, max_train_iter=4)
    assert started["compiled"] == resumed["compiled"] == 1
    assert started["calls"] <= 4500 and resumed["calls"] <= 9000
