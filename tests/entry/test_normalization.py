"""Trainings in envs that normalize: collecting gathers, evaluations use what it gathered, checkpoints keep it."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from ding.entry import collect_demo_data, eval, load_policy, serial_pipeline, serial_pipeline_onpolicy
from ding.envs import BaseEnvManager, DingEnvWrapper
from ding.utils.data.dataset import NaiveRLDataset
from ding.utils.registry_factory import ENV_REGISTRY
from tests.entry import fakes
from tests.envs.toys import Toy

SPACE = spaces.Box(-20, 20, (3,), np.float32)


@ENV_REGISTRY.register("toy_that_normalizes")
class NormalizedToy(DingEnvWrapper):
    """Observations are the number of the step, and twice that; episodes have 10 steps."""

    def __init__(self, cfg):
        toy = Toy(10, observe=lambda episode, step: np.array([step, 2 * step, 5], np.float32), observation_space=SPACE)
        super().__init__(toy, cfg={"env_wrapper": [{"type": "obs_norm"}, {"type": "eval_episode_return"}]})


SETTING = [NormalizedToy, [{}, {}], [{}, {}]]


def pair(policy_type="dqn", manager="base", **learn):
    main, create = fakes.pair()
    main.policy.model.action_shape = 3
    main.policy.learn.update(learn)
    create.policy.type = policy_type
    create.env_manager.type = manager
    if policy_type == "ppo":
        main.policy.model.update(actor_head_hidden_size=8, critic_head_hidden_size=8)
        main.policy.learn.epoch_per_collect = 1
        main.policy.pop("other")
    return main, create


def saved(name, exp="exp"):
    state = torch.load(f"{exp}/ckpt/{name}.pth.tar", weights_only=True)
    return state, state["learner"]["normalization"]["ObsNormWrapper0"]


def test_the_env_of_a_loaded_policy_begins_with_a_normalized_observation(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main, create = pair()
    create.env = {"type": "toy_that_normalizes", "import_names": [__name__]}
    serial_pipeline((main, create), seed=0, max_train_iter=3)
    _, statistics = saved("ckpt_best")
    with load_policy("exp") as policy:
        env = policy.make_env(seed=1)
        first, begin = env.ready_obs[0], np.array([0, 0, 5])
    mean, var = (np.asarray(statistics[key]) for key in ("mean", "var"))
    np.testing.assert_allclose(first, np.clip((begin - mean) / np.sqrt(var + 1e-8), -10, 10), rtol=1e-3, atol=1e-3)


class Recorder(nn.Module):
    """Takes action 0 and notes what it is shown."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.seen = []

    def forward(self, x):
        self.seen.append(x.clone())
        return {"logit": torch.zeros(len(x), 3) + self.weight}


@pytest.mark.parametrize(("policy_type", "manager"), [("dqn", "base"), ("ppo", "base"), ("ppo", "subprocess")])
def test_a_checkpoint_has_the_statistics_of_all_that_was_collected(policy_type, manager):
    pipeline = serial_pipeline_onpolicy if policy_type == "ppo" else serial_pipeline
    pipeline(pair(policy_type, manager), env_setting=SETTING, max_train_iter=20)
    state, moments = saved("iteration_20")
    steps = int(state["last_step"])
    assert steps > 30 and float(moments["size"]) == pytest.approx(steps, rel=1e-4)
    assert moments["mean"][2].item() == pytest.approx(5, rel=1e-3)
    assert moments["mean"][1].item() == pytest.approx(2 * moments["mean"][0].item(), rel=1e-3)


@pytest.mark.differs(
    "each env normalizes by statistics of its own, those of the evaluator begin from nothing, and none are saved",
    "the collector envs share theirs, evaluations use them frozen, checkpoints keep them",
)
def test_evaluations_use_the_statistics_of_collecting_and_add_nothing(monkeypatch):
    given, load = [], BaseEnvManager.load_normalization

    def record(self, state, is_frozen=False):
        given.append((float(state["ObsNormWrapper0"]["size"]), is_frozen))
        load(self, state, is_frozen)

    monkeypatch.setattr(BaseEnvManager, "load_normalization", record)
    serial_pipeline_onpolicy(pair("ppo"), env_setting=SETTING, max_train_iter=20)
    lines = [json.loads(line) for line in Path("exp/eval.jsonl").read_text().splitlines()]
    assert len(given) == len(lines) > 2
    for (size, is_frozen), line in zip(given, lines, strict=True):
        assert is_frozen and size == pytest.approx(line["env_step"], rel=1e-4, abs=1e-3)


def test_a_resumed_training_goes_on_from_the_statistics():
    serial_pipeline(pair(), env_setting=SETTING, max_train_iter=20)
    before = saved("iteration_20")[1]["size"]
    main, create = pair(
        resume_training=True, learner={"hook": {"load_ckpt_before_run": "exp/ckpt/iteration_20.pth.tar"}}
    )
    serial_pipeline((main, create), env_setting=SETTING, max_train_iter=40)
    state, moments = saved("iteration_40")
    assert float(moments["size"]) > before and float(moments["size"]) == pytest.approx(
        int(state["last_step"]), rel=1e-4
    )


def test_a_trained_policy_is_evaluated_and_shown_with_its_statistics():
    model = Recorder()
    serial_pipeline(pair(), env_setting=SETTING, model=Recorder(), max_train_iter=20)
    moments = saved("iteration_20")[1]
    first = (np.array([0.0, 0.0, 5.0]) - moments["mean"].numpy()) / (moments["var"].sqrt().numpy() + 1e-4)
    path = "exp/ckpt/iteration_20.pth.tar"
    eval(pair(), env_setting=SETTING, model=model, load_path=path)
    np.testing.assert_allclose(model.seen[0][0], first.clip(-3, 3), rtol=1e-4, atol=1e-5)
    collect_demo_data(pair(), 0, 4, "demos", env_setting=SETTING, model=Recorder(), state_dict_path=path)
    sample = NaiveRLDataset("demos", trusted=True)[0]
    np.testing.assert_allclose(sample["obs"], first.clip(-3, 3), rtol=1e-4, atol=1e-5)


def test_without_normalization_checkpoints_are_as_before():
    def make_plain(cfg):
        return DingEnvWrapper(Toy(5, observe=lambda e, k: np.zeros(3, np.float32), observation_space=SPACE))

    serial_pipeline(pair(), env_setting=[make_plain, [{}, {}], [{}, {}]], max_train_iter=4)
    assert "learner" not in torch.load("exp/ckpt/iteration_4.pth.tar", weights_only=True)
