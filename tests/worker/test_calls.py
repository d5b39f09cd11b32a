"""How many Python calls into the package a round of training makes: a measure of its overhead that is free of noise."""

import os
import sys
from collections import Counter
from functools import partial

import pytest
from easydict import EasyDict

import ding
from ding.config import compile_config
from ding.envs import create_env_manager, get_vec_env_setting
from ding.policy import create_policy
from ding.utils import set_pkg_seed
from ding.worker import AdvancedReplayBuffer, BaseLearner, SampleSerialCollector
from ding.worker.replay_buffer.utils import ThruputController

WARM_UP, ROUNDS, BATCH = 20, 5, 64


def calls_of_a_round(manager, env_num, n_sample):
    """Average calls of `collect`, `push`, `sample` and `train` by phase, for DQN with 3-step returns on CartPole."""
    env = {"env_id": "CartPole-v1", "collector_env_num": env_num, "evaluator_env_num": 1, "stop_value": 9999}
    policy = {
        "model": {"obs_shape": 4, "action_shape": 2, "encoder_hidden_size_list": [64, 64], "dueling": False},
        "nstep": 3,
        "learn": {"update_per_collect": 1, "batch_size": BATCH},
        "collect": {"n_sample": n_sample},
    }
    env_manager = {"type": manager, **({"batch_size": env_num} if manager == "env_pool" else {})}
    types = {"env": {"type": "gymnasium"}, "env_manager": env_manager, "policy": {"type": "dqn"}}
    set_pkg_seed(0, use_cuda=False)
    main, create = EasyDict(exp_name="calls", env=env, policy=policy), EasyDict(types)
    cfg = compile_config(main, seed=0, auto=True, create_cfg=create, save_cfg=False)
    env_fn, env_cfgs, _ = get_vec_env_setting(cfg.env)
    envs = create_env_manager(cfg.env.manager, [partial(env_fn, cfg=env_cfg) for env_cfg in env_cfgs])
    envs.seed(0)
    policy = create_policy(cfg.policy, enable_field=["learn", "collect"])
    collector = SampleSerialCollector(cfg.policy.collect.collector, envs, policy.collect_mode, exp_name="calls")
    learner = BaseLearner(cfg.policy.learn.learner, policy.learn_mode, exp_name="calls")
    learner.call_hook("before_run")
    root, phase, counts = os.path.dirname(ding.__file__), None, Counter()
    before = sys.getprofile()

    def count(frame, event, arg):
        if event == "call" and phase and frame.f_code.co_filename.startswith(root):
            counts[phase] += 1

    with AdvancedReplayBuffer(AdvancedReplayBuffer.default_config(), exp_name="calls") as buffer:
        try:
            for i in range(WARM_UP + ROUNDS):
                if i == WARM_UP:
                    sys.setprofile(count)
                phase = "collect" if i >= WARM_UP else None
                samples = collector.collect(n_sample, policy_kwargs={"eps": 0.1})
                phase = phase and "push"
                buffer.push(samples, cur_collector_envstep=collector.envstep)
                phase = phase and "sample"
                batch = buffer.sample(BATCH, learner.train_iter)
                phase = phase and "train"
                learner.train(batch, collector.envstep)
        finally:
            sys.setprofile(before)
    collector.close()
    learner.close()
    return {name: total / ROUNDS for name, total in counts.items()}


# With some slack in `collect`: an end of an episode costs calls, and its step may differ on another machine.
@pytest.mark.parametrize(
    ("manager", "env_num", "n_sample", "most"),
    [
        ("base", 8, 64, {"collect": 590, "push": 28, "sample": 34, "train": 75}),
        ("base", 64, 512, {"collect": 1585, "push": 29, "sample": 34, "train": 75}),
        ("env_pool", 64, 512, {"collect": 418, "push": 29, "sample": 34, "train": 75}),
        ("vector_env", 64, 512, {"collect": 442, "push": 29, "sample": 34, "train": 75}),
        ("env_pool", 256, 2048, {"collect": 467, "push": 29, "sample": 34, "train": 75}),
    ],
)
def test_a_round_makes_no_more_calls_than_it_did(manager, env_num, n_sample, most, monkeypatch):
    if manager == "env_pool":
        pytest.importorskip("envpool")
    monkeypatch.setattr(ThruputController, "_decay", lambda self: None)  # once a second, not once a round
    calls = calls_of_a_round(manager, env_num, n_sample)
    assert calls.keys() == most.keys()
    assert {name: count for name, count in calls.items() if count > most[name]} == {}
