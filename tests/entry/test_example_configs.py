"""The example configs of classic control run an iteration, with what DI-engine's policies take and return there.

What went in and came out is written as `key:kind`: `f4` is float32 of shape [4], `i` an integer, `b` a flag, `d`
float64. A list or tuple of n equal values counts as an axis, and a nested key is `logit.mu`.
"""

import copy
import runpy
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pytest
import torch
from easydict import EasyDict

from ding.entry import (
    collect_demo_data,
    eval,
    parallel_pipeline,
    serial_pipeline,
    serial_pipeline_bc,
    serial_pipeline_dqfd,
    serial_pipeline_offline,
    serial_pipeline_onpolicy,
    serial_pipeline_sqil,
)
from ding.envs import BaseEnvTimestep
from ding.policy import (
    create_policy,
)
from ding.utils.registry_factory import POLICY_REGISTRY
from tests.benchmarks.learning_tasks import train_ppg
from tests.entry.example_configs import configs

KINDS = {torch.float32: "f", torch.float64: "d", torch.int64: "i", torch.bool: "b"}
BUFFERED = "replay_unique_id:s replay_buffer_idx:i priority:f staleness:i use:i IS:f"


class Facts(NamedTuple):
    """What DI-engine's policies take and return with a config; of a sample those keys that the step does not have."""

    acts: str
    step: str
    sample: str
    learns: str
    state: str
    batch: int = 64
    buffered: bool = True
    not_in_eval: tuple[str, ...] = ("value", "prev_state")  # keys of `acts` that evaluation does not return


def step(obs, action, more=""):
    return f"obs:f{obs} next_obs:f{obs} action:{action} reward:f1 done:b {more}"


CARTPOLE, PENDULUM, BINS = step(4, "i1"), step(3, "f1"), step(3, "i1")
NSTEP = "reward:f3 value_gamma:f"
Q = "cur_lr total_loss q_value target_q_value priority"
Q_STATE = "model optimizer target_model"
PLAIN_STATE = "model optimizer"
AC_STATE = "model optimizer_actor optimizer_critic target_model"
PPO = (
    "cur_lr total_loss policy_loss value_loss entropy_loss adv_max adv_mean value_mean value_max approx_kl clipfrac "
    "kl_div"
)
A2C = "cur_lr total_loss policy_loss value_loss entropy_loss adv_abs_max grad_norm"
PG = "cur_lr total_loss policy_loss entropy_loss return_abs_max grad_norm"
SQL = "cur_lr total_loss priority record_value_function"
DDPG = "cur_lr_actor cur_lr_critic action priority critic_loss total_loss q_value"
FQF_LOSSES = (
    "cur_lr_fraction_loss cur_lr_quantile_loss logit fraction_loss quantile_loss total_norm_quantiles_proposal "
    "total_norm_Q total_norm_fqf_fc total_norm_encoder priority [histogram]action_distribution "
    "[histogram]quantiles_hats"
)
SAC = (
    "cur_lr_q cur_lr_p priority td_error alpha target_q_value transformed_log_prob critic_loss twin_critic_loss "
    "policy_loss alpha_loss total_loss"
)
DISCRETE_SAC = (
    "total_loss policy_loss critic_loss cur_lr_q cur_lr_p priority td_error alpha q_value_1 q_value_2 target_value "
    "entropy"
)
QUANTILES = "logit:f2 q:f2x64 tau:f64x1 action:i1"
VALUED = "logit:f2 value:f1 action:i1"
GAUSSIAN = "logit.mu:f1 logit.sigma:f1"
RECURRENT = "prev_state.h:f1x1x64 prev_state.c:f1x1x64"


def sequence(length, state=""):
    """A sample of `length` steps; `state` are further keys of a step."""
    keys = [f"obs:f{length}x4", f"action:i{length}x1", f"reward:f{length}x1", f"done:b{length}"]
    return " ".join(keys) + "".join(f" {key.replace(':f', f':f{length}x')}" for key in state.split())


FACTS = {
    "cartpole_a2c": Facts(VALUED, step(4, "i1", "value:f1"), "adv:f1", A2C, PLAIN_STATE, 80, False),
    "cartpole_acer": Facts(
        "logit:f2 action:i1",
        step(4, "i1", "logit:f2"),
        sequence(32, "next_obs:f4 logit:f2"),
        "cur_actor_lr cur_critic_lr actor_loss bc_loss policy_loss critic_loss entropy_loss kl_div",
        "actor_optimizer critic_optimizer model target_model",
        16,
    ),
    "cartpole_c51": Facts("logit:f2 distribution:f2x51 action:i1", CARTPOLE, NSTEP, Q, Q_STATE),
    "cartpole_dqn": Facts("logit:f2 action:i1", CARTPOLE, "", Q, Q_STATE, 64, False),
    "cartpole_fqf": Facts(
        "logit:f2 q:f32x2 quantiles:f33 quantiles_hats:f32 q_tau_i:f31x2 entropies:f1 action:i1",
        CARTPOLE,
        "",
        FQF_LOSSES,
        "model optimizer_fraction_loss optimizer_quantile_loss target_model",
    ),
    "cartpole_impala": Facts(
        "logit:f2 action:i1",
        step(4, "i1", "logit:f2"),
        sequence(8, "next_obs:f4 logit:f2"),
        "cur_lr total_loss policy_loss value_loss entropy_loss",
        PLAIN_STATE,
        16,
    ),
    "cartpole_iqn": Facts(
        "logit:f2 q:f32x2 quantiles:f32 action:i1", CARTPOLE, NSTEP, "cur_lr total_loss priority", Q_STATE
    ),
    "cartpole_mdqn": Facts("logit:f2 action:i1", CARTPOLE, "", f"{Q} action_gap clip_frac", Q_STATE, 64, False),
    "cartpole_pg": Facts(
        "logit:f2 dist:n action:i1", "obs:f4 action:i1 reward:f1 done:b", "return:f1", PG, PLAIN_STATE, 960, False
    ),
    "cartpole_ppo": Facts(
        VALUED, step(4, "i1", "logit:f2 value:f1"), "traj_flag:b adv:f1", PPO, PLAIN_STATE, 256, False
    ),
    "cartpole_ppo_offpolicy": Facts(
        VALUED,
        step(4, "i1", "logit:f2 value:f1"),
        "traj_flag:b adv:f1",
        "cur_lr total_loss policy_loss value value_loss entropy_loss adv_abs_max approx_kl clipfrac",
        PLAIN_STATE,
    ),
    "cartpole_ppopg": Facts(
        "logit:f2 dist:n action:i1",
        "obs:f4 action:i1 logit:f2 reward:f1 done:b",
        "return:f1",
        "cur_lr total_loss policy_loss entropy_loss approx_kl clipfrac",
        PLAIN_STATE,
        960,
        False,
    ),
    "cartpole_qrdqn": Facts(QUANTILES, CARTPOLE, NSTEP, "cur_lr total_loss priority", Q_STATE),
    "cartpole_r2d2": Facts(
        f"logit:f2 action:i1 {RECURRENT}",
        f"obs:f4 action:i1 reward:f1 done:b {RECURRENT}",
        f"{sequence(42, RECURRENT)} reward:f42x5 value_gamma:f42",
        "cur_lr total_loss priority q_s_taken-a_t0 target_q_s_max-a_t0 q_s_a-mean_t0",
        Q_STATE,
    ),
    "cartpole_rainbow": Facts(
        "logit:f2 distribution:f2x51 action:i1", CARTPOLE, NSTEP, "cur_lr total_loss priority", Q_STATE
    ),
    "cartpole_sac": Facts(
        "logit:f2 action:i1",
        step(4, "i1", "logit:f2"),
        "",
        DISCRETE_SAC,
        "model optimizer_policy optimizer_q target_model",
    ),
    "cartpole_sql": Facts("logit:f2 action:i1", CARTPOLE, "", SQL, Q_STATE),
    "cartpole_sqn": Facts(
        "q_value:f2x2 logit:f2 action:i1",
        CARTPOLE,
        "",
        "[histogram]action_distribution q_loss alpha_loss entropy alpha q_value",
        "model optimizer_alpha optimizer_q",
    ),
    "pendulum_a2c": Facts(
        f"{GAUSSIAN} value:f1 action:f1", step(3, "f1", "value:f1"), "adv:f1", A2C, PLAIN_STATE, 200, False
    ),
    "pendulum_bdq": Facts("logit:f1x11 action:i1", BINS, "", f"{Q} q_value_b_0", Q_STATE, 64, False),
    "pendulum_d4pg": Facts("action:f1", PENDULUM, NSTEP, f"{DDPG} actor_loss", AC_STATE, 128),
    "pendulum_ddpg": Facts("action:f1", PENDULUM, "", f"{DDPG} td_error actor_loss target~q_value", AC_STATE, 128),
    "pendulum_pg": Facts(
        "logit.mu:f1 logit.sigma:f1 action:f1 dist:n",
        "obs:f3 action:f1 reward:f1 done:b",
        "return:f1",
        PG,
        PLAIN_STATE,
        120,
        False,
    ),
    "pendulum_ppo": Facts(
        f"{GAUSSIAN} value:f1 action:f1",
        step(3, "f1", f"{GAUSSIAN} value:f1"),
        "traj_flag:b adv:f1",
        f"{PPO} act mu_mean sigma_mean",
        PLAIN_STATE,
        500,
        False,
    ),
    "pendulum_sac": Facts(
        "logit:f2x1 action:f1",
        PENDULUM,
        "",
        SAC,
        "model optimizer_alpha optimizer_policy optimizer_q target_model",
        128,
        not_in_eval=("logit",),
    ),
    "pendulum_td3": Facts(
        "action:f1",
        PENDULUM,
        "",
        f"{DDPG} td_error critic_twin_loss q_value_twin target~q_value",
        AC_STATE,
        128,
    ),
}


def kind(value):
    """The kind and the shape of a value that is not a dict."""
    if isinstance(value, (list, tuple)):
        kinds = {kind(item) for item in value}
        assert len(kinds) == 1, kinds
        inner = kinds.pop()
        return f"{inner[0]}{len(value)}" + (f"x{inner[1:]}" if inner[1:] else "")
    if isinstance(value, (torch.Tensor, np.ndarray)):
        value = torch.as_tensor(value)
        return KINDS[value.dtype] + "x".join(map(str, value.shape))
    kinds = {bool: "b", np.bool_: "b", int: "i", np.int64: "i", float: "f", np.float64: "f", str: "s", type(None): "n"}
    return kinds[type(value)]


def kinds_of(data):
    """Keys and kinds of a dict, which may be nested."""
    if isinstance(data, Mapping):
        kinds = {}
        for key, value in data.items():
            inner = kinds_of(value)
            kinds |= (
                {f"{key}.{name}": each for name, each in inner.items()} if isinstance(inner, dict) else {key: inner}
            )
        return kinds
    if isinstance(data, (list, tuple)) and data and isinstance(data[0], Mapping):
        first, *others = (kinds_of(item) for item in data)
        assert all(other == first for other in others)
        return {key: f"{each[0]}{len(data)}" + (f"x{each[1:]}" if each[1:] else "") for key, each in first.items()}
    return kind(data)


def read(line):
    return dict(item.rsplit(":", 1) for item in line.split())


class Watch:
    """Notes what first went into and came out of the methods of a policy class."""

    def __init__(self, monkeypatch, policy_type):
        self.acted = self.learnt = self.told = self.sampled = None
        cls = POLICY_REGISTRY.get(policy_type)
        collect, learn, sample = cls._forward_collect, cls._forward_learn, cls._get_train_sample

        def forward_collect(policy, data, **kwargs):
            output = collect(policy, data, **kwargs)
            if self.acted is None:
                self.acted = copy.deepcopy((data, output, kwargs))
            return output

        def forward_learn(policy, data):
            if self.learnt is None:
                self.learnt = copy.deepcopy(data)
            output = learn(policy, data)
            if self.told is None:
                self.told = copy.deepcopy(output)
            return output

        def get_train_sample(policy, transitions):
            samples = sample(policy, transitions)
            if self.sampled is None:
                self.sampled = copy.deepcopy(dict(samples[0]))
            return samples

        monkeypatch.setattr(cls, "_forward_collect", forward_collect)
        monkeypatch.setattr(cls, "_forward_learn", forward_learn)
        monkeypatch.setattr(cls, "_get_train_sample", get_train_sample)

    def check(self, facts, policy, env_num):
        """Compares all of them; DI-engine's keys are there, in its kinds."""
        observations, output, _ = self.acted
        assert sorted(output) == list(range(env_num))
        assert [kinds_of(each) for each in output.values()] == [read(facts.acts)] * env_num
        obs = observations[0]
        evaluated = {key: each for key, each in read(facts.acts).items() if key.split(".")[0] not in facts.not_in_eval}
        assert kinds_of(policy.eval_mode.forward({0: torch.as_tensor(obs)})[0]) == evaluated
        timestep = BaseEnvTimestep(np.asarray(obs, np.float32), np.zeros(1, np.float32), False, {})
        transition = policy.collect_mode.process_transition(obs, output[0], timestep)
        assert kinds_of(transition) == read(facts.step)
        sample = {**read(facts.step), "collect_iter": "i", **read(facts.sample)}
        if "x" in sample["obs"]:
            sample["collect_iter"] = f"i{sample['obs'][1:].split('x')[0]}"
        assert with_kinds_of(self.sampled, sample) == sample
        learnt = {**sample, **(read(BUFFERED) if facts.buffered else {})}
        rows = list(self.learnt)
        assert len(rows) == facts.batch
        assert all(with_kinds_of(dict(row), learnt) == learnt for row in rows[:3])
        check_told(self.told, facts.learns, facts.batch)
        assert set(facts.state.split()) <= set(policy.learn_mode.state_dict())


def with_kinds_of(sample, facts):
    """The kinds of `sample`, without keys that `facts` has not."""
    names = {key.split(".")[0] for key in facts}
    return kinds_of({key: value for key, value in sample.items() if key in names})


def check_told(told, names, batch):
    rows = told if isinstance(told, list) else [told]
    assert rows
    for row in rows:
        assert {name.replace("~", " ") for name in names.split()} <= set(row)
        for key, value in row.items():
            if key == "priority":
                assert kind(value) == f"f{batch}"
            elif not key.startswith("[histogram]"):
                assert kind(value) == "f", key


ON_POLICY = {"a2c", "pg", "ppo", "ppo_pg"}


def run(name):
    main, create = configs(name)
    if create.policy.type in ON_POLICY:
        return serial_pipeline_onpolicy((main, create), seed=0, max_train_iter=1)
    return serial_pipeline((main, create), seed=0, max_train_iter=1, dynamic_seed=name != "cartpole_mdqn")


@pytest.mark.parametrize("name", FACTS)
def test_a_config_trains_with_the_documented_data(name, monkeypatch):
    main, create = configs(name)
    watch = Watch(monkeypatch, create.policy.type)
    policy = run(name)
    watch.check(FACTS[name], policy, main.env.collector_env_num)


MAIN = """
from easydict import EasyDict

cartpole_dqn_config = dict(
    exp_name='cartpole_dqn_seed0',
    env=dict(collector_env_num=8, evaluator_env_num=5, n_evaluator_episode=5, stop_value=195),
    policy=dict(
        cuda=False,
        model=dict(obs_shape=4, action_shape=2, encoder_hidden_size_list=[128, 128, 64], dueling=True),
        nstep=1,
        discount_factor=0.97,
        learn=dict(batch_size=64, learning_rate=0.001),
        collect=dict(n_sample=8),
        eval=dict(evaluator=dict(eval_freq=40, )),
        other=dict(
            eps=dict(type='exp', start=0.95, end=0.1, decay=10000, ),
            replay_buffer=dict(replay_buffer_size=20000, ),
        ),
    ),
)
cartpole_dqn_config = EasyDict(cartpole_dqn_config)
main_config = cartpole_dqn_config
cartpole_dqn_create_config = dict(
    env=dict(type='cartpole', import_names=['tests.entry.example_configs']),
    env_manager=dict(type='base'),
    policy=dict(type='dqn'),
    replay_buffer=dict(type='deque', import_names=['ding.data.buffer.deque_buffer_wrapper']),
)
cartpole_dqn_create_config = EasyDict(cartpole_dqn_create_config)
create_config = cartpole_dqn_create_config

if __name__ == "__main__":
    # or you can enter `ding -m serial -c cartpole_dqn_config.py -s 0`
    from ding.entry import serial_pipeline
    serial_pipeline((main_config, create_config), seed=0, max_train_iter=1)
"""


@pytest.mark.parametrize("start", ["path", "script"])
def test_a_config_in_a_file_is_trained_by_path_and_as_a_script(start, tmp_path):
    (tmp_path / "cartpole_dqn_config.py").write_text(MAIN)
    if start == "path":
        serial_pipeline("cartpole_dqn_config.py", seed=0, max_train_iter=1)
    else:
        runpy.run_path("cartpole_dqn_config.py", run_name="__main__")
    assert (tmp_path / "cartpole_dqn_seed0" / "ckpt" / "iteration_1.pth.tar").exists()


def test_a_trained_policy_is_evaluated_with_the_paths_of_its_config():
    run("cartpole_dqn")
    assert eval(configs("cartpole_dqn"), seed=0) == 12.0


def test_ppg_trains_by_a_main_program_of_its_own(monkeypatch):
    watch = Watch(monkeypatch, "ppg_offpolicy")
    main, create = configs("cartpole_ppg")
    policy = train_ppg(main, create, 0, max_train_iter=1)
    assert kinds_of(watch.acted[1][0]) == read(VALUED)
    sample = {**read(step(4, "i1", "logit:f2 value:f1")), "collect_iter": "i", "adv": "f1"}
    assert with_kinds_of(watch.sampled, sample) == sample
    assert {key: len(rows) for key, rows in watch.learnt.items()} == {"policy": 64, "value": 64}
    names = "policy_cur_lr value_cur_lr policy_loss value_loss entropy_loss policy_adv_abs_max approx_kl clipfrac"
    check_told(watch.told, f"{names} total_loss aux_value_loss auxiliary_loss behavioral_cloning_loss", 64)
    assert {"model", "optimizer_ac", "optimizer_aux_critic"} <= set(policy.learn_mode.state_dict())


# --- demonstrations and data sets ---


def write_state(name, path):
    """A checkpoint of an untrained policy of a config."""
    main, create = configs(name)
    cfg = POLICY_REGISTRY.get(create.policy.type).default_config()
    cfg.model.update(main.policy.model)
    cfg.type = create.policy.type
    torch.save(create_policy(cfg, enable_field=["learn"]).learn_mode.state_dict(), path)


@pytest.mark.parametrize(
    ("name", "expert", "pipeline", "told"),
    [
        ("cartpole_dqfd", "cartpole_dqn", serial_pipeline_dqfd, Q),
        ("cartpole_sqil", "cartpole_dqn", serial_pipeline_sqil, SQL),
        ("pendulum_sqil_sac", "pendulum_sac", serial_pipeline_sqil, SAC),
    ],
)
def test_a_config_trains_with_an_expert(name, expert, pipeline, told, monkeypatch):
    write_state(expert, "expert.pth.tar")
    main, create = configs(name)
    watch = Watch(monkeypatch, create.policy.type)
    expert_main, expert_create = configs(expert)
    expert_main.policy.collect.model_path = "expert.pth.tar"
    policy = pipeline((main, create), (expert_main, expert_create), seed=0, max_train_iter=1)
    batch = main.policy.learn.batch_size
    sample = read(PENDULUM if name.startswith("pendulum") else CARTPOLE) | {"collect_iter": "i"} | read(BUFFERED)
    if name == "cartpole_dqfd":
        sample |= read(f"{NSTEP} next_obs_1:f4 done_1:b is_expert:i")
    assert len(watch.learnt) == batch
    assert all(with_kinds_of(dict(row), sample) == sample for row in watch.learnt)
    check_told(watch.told, told, batch)
    assert {"model", "target_model"} <= set(policy.learn_mode.state_dict())


# The config that collects, the policy whose state it collects with, and the configs that learn from that.
OFFLINE = [
    ("cartpole_qrdqn_generation_data", "cartpole_qrdqn", ["cartpole_cql", "cartpole_bc"]),
    ("pendulum_sac_data_generation", "pendulum_sac", ["pendulum_cql", "pendulum_iql"]),
    ("pendulum_td3_data_generation", "pendulum_td3", ["pendulum_td3_bc"]),
]
TOLD_OFFLINE = {
    "cartpole_bc": "cur_lr total_loss forward_time backward_time",
    "cartpole_cql": "cur_lr total_loss priority q_target q_value",
    "pendulum_cql": SAC,
    "pendulum_iql": "cur_lr_q cur_lr_p priority critic_loss value_loss policy_loss total_loss",
    "pendulum_td3_bc": "cur_lr_actor cur_lr_critic action priority td_error critic_loss total_loss q_value",
}


@pytest.mark.parametrize(("collecting", "expert", "learning"), OFFLINE)
def test_what_one_config_collects_others_learn_from(collecting, expert, learning, monkeypatch):
    write_state(expert, "expert.pth.tar")
    collect_demo_data(configs(collecting), seed=0, collect_count=200, state_dict_path="expert.pth.tar")
    for name in learning:
        main, create = configs(name)
        watch = Watch(monkeypatch, create.policy.type)
        if name == "cartpole_bc":
            main.policy.collect = EasyDict(data_type="hdf5")
            data_path = configs("cartpole_cql")[0].policy.collect.data_path
            policy, _ = serial_pipeline_bc((main, create), seed=0, data_path=data_path, max_iter=1)
        else:
            policy, _ = serial_pipeline_offline((main, create), seed=0, max_train_iter=1)
        obs, action = ("f4", "i1") if name.startswith("cartpole") else ("f3", "f1")
        sample = {"obs": obs, "action": action, "next_obs": obs}
        assert len(watch.learnt) == 64
        assert all(with_kinds_of(dict(row), sample) == sample for row in watch.learnt)
        check_told(watch.told, TOLD_OFFLINE[name], 64)
        assert "model" in policy.learn_mode.state_dict()


# --- parallel training ---


def test_the_parallel_config_trains(tmp_path):
    main = EasyDict(
        exp_name="cartpole_dqn_parallel",
        env=dict(
            collector_env_num=8,
            collector_episode_num=2,
            evaluator_env_num=5,
            evaluator_episode_num=1,
            stop_value=195,
        ),
        policy=dict(
            cuda=False,
            model=dict(obs_shape=4, action_shape=2, encoder_hidden_size_list=[128, 128, 64], dueling=True),
            nstep=3,
            discount_factor=0.97,
            learn=dict(batch_size=32, learning_rate=0.001, learner=dict(learner_num=1, send_policy_freq=1)),
            collect=dict(n_sample=16, collector=dict(collector_num=2, update_policy_second=3)),
            other=dict(
                eps=dict(type="exp", start=0.95, end=0.1, decay=100000),
                replay_buffer=dict(replay_buffer_size=100000, enable_track_used_data=False),
                commander=dict(collector_task_space=2, learner_task_space=1, eval_interval=5),
            ),
        ),
    )
    create = EasyDict(
        env=dict(type="cartpole", import_names=["tests.entry.example_configs"]),
        env_manager=dict(type="subprocess"),
        policy=dict(type="dqn_command"),
        learner=dict(type="base", import_names=["ding.worker.learner.base_learner"]),
        collector=dict(type="zergling", import_names=["ding.worker.collector.zergling_parallel_collector"]),
        commander=dict(type="solo", import_names=["ding.worker.coordinator.solo_parallel_commander"]),
        comm_learner=dict(type="flask_fs", import_names=["ding.worker.learner.comm.flask_fs_learner"]),
        comm_collector=dict(type="flask_fs", import_names=["ding.worker.collector.comm.flask_fs_collector"]),
    )
    system = EasyDict(
        coordinator={}, path_data="./data", path_policy="./policy", communication_mode="auto", learner_gpu_num=1
    )
    parallel_pipeline((main, create, system), seed=0, max_train_iter=1, max_seconds=60)
    assert (tmp_path / "cartpole_dqn_parallel" / "result.pkl").exists()
