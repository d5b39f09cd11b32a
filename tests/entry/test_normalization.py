"""Trainings in envs that normalize: collecting gathers, evaluations use what it gathered, checkpoints keep it."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from ding import train
from ding.entry import collect_demo_data, eval, load_policy, serial_pipeline, serial_pipeline_onpolicy
from ding.entry.run_folder import RunFolder
from ding.envs import BaseEnvManager, DingEnvWrapper
from ding.policy import DQNPolicy
from ding.utils.config_helper import ConfigError
from ding.utils.data.dataset import NaiveRLDataset
from ding.utils.registry_factory import ENV_REGISTRY
from tests.entry import fakes
from tests.entry.steps import Steps
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


def test_the_env_of_a_loaded_policy_begins_with_a_normalized_observation():
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
    "normalizes each env by its own statistics, evaluations from nothing, and saves none",
    "shares them among collector envs, uses them frozen in evaluations, and saves them in checkpoints",
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


class Far(Steps):
    """Observations far from 0, of very different sizes; episodes have 6 steps, each worth 50."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    length = 6

    def reward(self, action):
        return 50.0

    def observe(self):
        return (self.np_random.normal(size=2) * [300, 0.01] + [5000, 7]).astype(np.float32)


QUICK = {"eval_episodes": 2, "num_envs": 2, "batch_size": 8, "n_sample": 8}


def stored(training):
    """Return the newest statistics that a training has saved."""
    path = f"{training.folder}/ckpt/iteration_{training.result['train_iter']}.pth.tar"
    return torch.load(path, weights_only=True)["learner"]["normalization"]


@pytest.fixture
def shown(monkeypatch):
    """What policies are shown: stacks of observations by the name of the mode."""
    seen = {"collect": [], "eval": [], "learn": []}
    for mode in ("collect", "eval"):
        act = getattr(DQNPolicy, f"_act_{mode}")

        def watched(self, obs, env_ids, *args, act=act, mode=mode, **kwargs):
            seen[mode].append(torch.as_tensor(obs).numpy().copy())
            return act(self, obs, env_ids, *args, **kwargs)

        monkeypatch.setattr(DQNPolicy, f"_act_{mode}", watched)
    update = DQNPolicy._update
    monkeypatch.setattr(DQNPolicy, "_update", lambda self, batch: (seen["learn"].append(batch), update(self, batch))[1])
    return seen


@pytest.mark.parametrize("manager", ["base", "subprocess", "async_subprocess", "vector_env"])
def test_one_switch_normalizes_what_policies_see_in_envs_of_every_manager(manager, shown):
    training = train("dqn", Far, iterations=9, env_manager=manager, normalize=True, **QUICK)
    statistics = stored(training)
    assert sorted(statistics) == ["obs", "return"]
    steps = training.result["env_step"]
    assert all(float(moments["size"]) == pytest.approx(steps, abs=4) for moments in statistics.values())
    np.testing.assert_allclose(statistics["obs"]["mean"], [5000, 7], rtol=0.05)
    later = np.concatenate(shown["collect"][5:])
    assert np.abs(later.mean(0)).max() < 0.6 and 0.5 < later.std() < 2
    assert float(np.max(training.result["eval_value_raw"])) == 300  # the returns of the env
    assert all(float(batch["reward"].max()) <= 10 for batch in shown["learn"])


def test_whoever_uses_a_trained_policy_has_it_see_what_evaluations_show(shown):
    training = train("dqn", Far, iterations=9, normalize="obs", **QUICK)
    statistics = stored(training)
    obs, _ = Far().reset(seed=5)
    expected = (obs - statistics["obs"]["mean"].numpy()) / np.sqrt(statistics["obs"]["var"].numpy() + 1e-8)
    last = str(training.result["train_iter"])
    with load_policy(training.folder, last) as policy:
        policy.predict(obs)
        policy.predict_batch(np.stack([obs, obs]))
    for rows in shown["eval"][-2:]:
        np.testing.assert_allclose(rows, [expected] * len(rows), rtol=1e-5)
    shown["eval"].clear()
    training.evaluate(2, checkpoint=last)
    rows = np.concatenate(shown["eval"])
    assert len(rows) == 12 and np.abs(rows).max() < 5


def test_the_discount_of_normalized_rewards_is_that_of_the_policy():
    few = {"dqn": QUICK, "ppo": {"n_steps": 8}, "sac": {"batch_size": 8, "random_collect_size": 16}}
    for policy, settings in (("dqn", {"gamma": 0.5}), ("ppo", {"gamma": 0.8}), ("sac", {"gamma": 0.9})):
        env = "Pendulum-v1" if policy == "sac" else Far
        training = train(
            policy, env, iterations=1, normalize="reward", **{"eval_episodes": 1, **few[policy], **settings}
        )
        compiled = RunFolder(training.folder).compiled
        assert compiled.env.norm_reward == {"use_norm": True, "reward_discount": settings["gamma"]}


@pytest.mark.guarantees("resume")
@pytest.mark.parametrize("manager", ["base", "subprocess"])
def test_a_run_that_normalizes_and_resumes_has_the_same_bits(manager):
    how = {"normalize": True, "env_manager": manager, "num_envs": 2, "eval_episodes": 1}
    how["config"] = {
        "policy.collect.n_sample": 10, "policy.learn.batch_size": 5, "policy.learn.epoch_per_collect": 1,
    }  # fmt: skip
    train("ppo", Far, iterations=4, folder="parts", **how)
    parts = train("ppo", Far, iterations=8, folder="parts", resume=True, **how)
    whole = train("ppo", Far, iterations=8, folder="whole", **how)
    states = [torch.load(f"{run.folder}/ckpt/iteration_8.pth.tar", weights_only=True) for run in (parts, whole)]
    assert all(states[0]["model"][key].equal(value) for key, value in states[1]["model"].items())
    for name, moments in stored(whole).items():
        assert all(stored(parts)[name][key].equal(value) for key, value in moments.items())


@pytest.mark.slow
def test_workers_of_a_parallel_training_share_their_statistics():
    training = train("dqn", Far, env_steps=600, normalize=True, parallel=2, eval_episodes=2, num_envs=2)
    statistics, steps = stored(training), training.result["env_step"]
    assert steps * 0.8 < float(statistics["obs"]["size"]) <= steps + 1
    np.testing.assert_allclose(statistics["obs"]["mean"], [5000, 7], rtol=0.05)
    best = torch.load(f"{training.folder}/ckpt/ckpt_best.pth.tar", weights_only=True)
    assert best["last_iter"] == 0 or list(best["learner"]["normalization"]) == ["obs", "return"]


def test_a_policy_that_saw_normalized_observations_is_refused_where_they_are_not():
    training = train("dqn", Far, iterations=2, normalize="obs", folder="run", **QUICK)
    main, create = training.config
    del main.env["norm_obs"]
    with pytest.raises(ConfigError, match="norm_obs"):
        eval((main, create), load_path="run/ckpt/iteration_2.pth.tar")
