"""The policies that learn Q(s, a), with configs as outside programs have them, over processes and over ranks."""

import copy
import os
import pickle

import pytest
import torch
import torch.distributed as dist
from easydict import EasyDict

from ding.entry import serial_pipeline
from ding.entry.serial_entry import run_serial
from ding.envs.env_manager.base_env_manager import BaseEnvManager
from ding.policy import create_policy, get_policy_cls, steps
from ding.utils.data.plain_columns import from_plain, to_plain
from ding.utils.data.samples import Samples, Table
from ding.worker.collector.sample_serial_collector import SampleSerialCollector
from tests.fakes import FakeWriter
from tests.policy.learning import watch_syncs, watched_steps
from tests.policy.outside_envs import OutsideCartPole, OutsideHybrid, OutsidePendulum

REGRESSION = {
    "model": {"obs_shape": 3, "action_shape": 1, "action_space": "regression"},
    "learn": {
        "update_per_collect": 2,
        "batch_size": 16,
        "learning_rate_actor": 0.001,
        "learning_rate_critic": 0.001,
        "ignore_done": True,
        "actor_update_freq": 1,
        "noise": False,
    },
    "collect": {"n_sample": 24, "noise_sigma": 0.1, "collector": {"collect_print_freq": 1000}},
    "random_collect_size": 40,
}
EPS = {"type": "linear", "start": 1.0, "end": 0.1, "decay": 100}


def changed(base, **sections):
    result = copy.deepcopy(base)
    for name, value in sections.items():
        result[name] = {**result.get(name, {}), **value} if isinstance(value, dict) else value
    return result


# What the sections `policy` of the example configs are like, with smaller batches.
POLICIES = {
    "sac": {
        "priority": False,
        "random_collect_size": 40,
        "model": {
            "obs_shape": 3,
            "action_shape": 1,
            "twin_critic": True,
            "action_space": "reparameterization",
            "actor_head_hidden_size": 16,
            "critic_head_hidden_size": 16,
        },
        "learn": {
            "update_per_collect": 1,
            "batch_size": 16,
            "learning_rate_q": 0.001,
            "learning_rate_policy": 0.001,
            "learning_rate_alpha": 0.0003,
            "ignore_done": True,
            "target_theta": 0.005,
            "discount_factor": 0.99,
            "auto_alpha": True,
        },
        "collect": {"n_sample": 20, "unroll_len": 1},
    },
    "ddpg": changed(REGRESSION, model={"twin_critic": False}),
    "td3": changed(
        REGRESSION,
        model={"twin_critic": True},
        learn={
            "actor_update_freq": 2,
            "noise": True,
            "noise_sigma": 0.1,
            "noise_range": {"min": -0.5, "max": 0.5},
        },
    ),
    "d4pg": changed(REGRESSION, model={"v_min": -100, "v_max": 100, "n_atom": 51}, priority=True, nstep=3),
    "discrete_sac": {
        "multi_agent": False,
        "random_collect_size": 0,
        "model": {"obs_shape": 3, "action_shape": 2, "twin_critic": True},
        "learn": {
            "update_per_collect": 2,
            "batch_size": 16,
            "learning_rate_q": 5e-3,
            "learning_rate_policy": 5e-3,
            "learning_rate_alpha": 3e-4,
            "target_theta": 0.01,
            "alpha": 0.2,
            "auto_alpha": False,
        },
        "collect": {"env_num": 4, "n_sample": 32, "unroll_len": 1},
        "eval": {"env_num": 2},
        "other": {"eps": EPS},
    },
    "hybrid": changed(
        REGRESSION,
        action_space="hybrid",
        model={
            "action_shape": {"action_type_shape": 3, "action_args_shape": 2},
            "action_space": "hybrid",
            "twin_critic": False,
        },
        other={"eps": EPS},
    ),
}
ENVS = {"discrete_sac": OutsideCartPole, "hybrid": OutsideHybrid}


def pair(name):
    """The main and create config of an outside program."""
    policy = changed({"cuda": False}, **POLICIES[name])
    policy["eval"] = {**policy.get("eval", {}), "evaluator": {"eval_freq": 100}}
    policy["other"] = {**policy.get("other", {}), "replay_buffer": {"replay_buffer_size": 1000}}
    env_type = {"discrete_sac": "outside_cartpole", "hybrid": "outside_hybrid"}.get(name, "outside_pendulum")
    main = EasyDict(
        exp_name=f"{name}_seed0",
        env={
            "collector_env_num": 4,
            "evaluator_env_num": 2,
            "act_scale": True,
            "n_evaluator_episode": 2,
            "stop_value": 250,
        },
        policy=policy,
    )
    policy_type = "ddpg" if name == "hybrid" else name
    create = EasyDict(
        env={"type": env_type, "import_names": ["tests.policy.outside_envs"]},
        env_manager={"type": "base"},
        policy={"type": policy_type, "import_names": [f"ding.policy.{policy_type}"]},
        replay_buffer={"type": "advanced" if name == "d4pg" else "naive"},
    )
    return main, create


@pytest.fixture(autouse=True)
def in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def config_of(name, **settings):
    main, create = pair(name)
    cfg = get_policy_cls(EasyDict(type=create.policy.type)).default_config()
    for section, value in {**main.policy, **settings}.items():
        if isinstance(value, dict):
            cfg.setdefault(section, EasyDict()).update(value)
        else:
            cfg[section] = value
    cfg.type = create.policy.type
    return cfg


def make_policy(name, *fields, seed=0, **settings):
    torch.manual_seed(seed)
    return create_policy(config_of(name, **settings), enable_field=list(fields))


@pytest.mark.parametrize("name", POLICIES)
def test_a_config_of_an_outside_program_trains(name):
    policy = serial_pipeline(pair(name), seed=0, max_train_iter=3)
    assert type(policy).__name__.endswith("CommandModePolicy")
    with open(f"{name}_seed0/result.pkl", "rb") as file:
        result = pickle.load(file)
    assert result["train_iter"] >= 3 and result["env_step"] >= 20
    assert os.path.exists(f"{name}_seed0/ckpt/ckpt_best.pth.tar")


@pytest.mark.parametrize("name", ["sac", "d4pg"])
def test_equal_seeds_train_to_equal_bits(name):
    states = []
    for run in range(2):
        main, create = pair(name)
        main.exp_name = f"run_{run}"
        states.append(run_serial((main, create), seed=3, max_train_iter=3).policy.learn_mode.state_dict()["model"])
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


@pytest.mark.parametrize("name", POLICIES)
def test_what_one_process_collects_another_one_learns(name):
    collecting = make_policy(name, "collect")
    env_cls = ENVS.get(name, OutsidePendulum)
    manager = BaseEnvManager([lambda: env_cls({})] * 3, EasyDict(BaseEnvManager.default_config()))
    manager.seed(0)
    collector = SampleSerialCollector(
        SampleSerialCollector.default_config(), manager, collecting.collect_mode, FakeWriter(), "exp"
    )
    kwargs = {"eps": 0.5} if name in ENVS else {}
    samples = collector.collect(n_sample=12, policy_kwargs=kwargs)
    collector.close()
    assert isinstance(samples, Samples) and samples.table is not None
    message = from_plain(to_plain(samples))
    if name == "d4pg":  # the buffer adds the weights
        message = Samples(Table.of([{**sample, "IS": 1.0} for sample in message]))
    output = make_policy(name, "learn").learn_mode.forward(message)
    assert len(output["priority"]) == len(samples) == 12


# --- several ranks ---


@pytest.fixture
def lone_group(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def batch_of(name):
    torch.manual_seed(5)
    if name == "discrete_sac":
        actions = [torch.tensor([i % 2]) for i in range(8)]
    elif name == "hybrid":
        actions = [{"action_type": torch.tensor([i % 3]), "action_args": torch.rand(2)} for i in range(8)]
    else:
        actions = [torch.rand(1) for _ in range(8)]
    reward = 3 if name == "d4pg" else 1
    return [
        {
            "obs": torch.rand(3),
            "next_obs": torch.rand(3),
            "action": action,
            "logit": torch.rand(3),
            "reward": torch.rand(reward),
            "done": False,
            "value_gamma": 0.9,
            "IS": 1.0,
        }
        for action in actions
    ]


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("bp_update_sync", [True, False])
def test_the_gradients_of_every_step_are_averaged_over_the_ranks(name, bp_update_sync, lone_group, monkeypatch):
    data = batch_of(name)
    expected = make_policy(name, "learn")
    policy = make_policy(name, "learn", multi_gpu=True, bp_update_sync=bp_update_sync)
    syncs, sent = watch_syncs(monkeypatch), []
    begin_sum = steps.begin_sum
    monkeypatch.setattr(steps, "begin_sum", lambda what, x: (sent.append(x), begin_sum(what, x))[1])
    outputs = []
    for one in (expected, policy):
        with watched_steps() as stepped:
            torch.manual_seed(6)
            one.learn_mode.forward(data)
            torch.manual_seed(7)
            outputs.append(one.learn_mode.forward(data))
    assert outputs[1] == {key: pytest.approx(value) for key, value in outputs[0].items()}
    assert {id(p) for given in syncs for p in given} == {id(p) for given in stepped for p in given}
    of_model = len(list(policy._model.parameters()))
    actor_steps = 1 if name == "td3" else 2
    of_actor = len(list(policy._model.actor.parameters()))
    assert len(sent) == (0 if bp_update_sync else 2 * (of_model - of_actor) + actor_steps * of_actor)
