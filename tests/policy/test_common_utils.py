"""Preparing batches, single-env calls, noise switches."""

import functools
from collections import namedtuple

import numpy as np
import pytest
import torch
from easydict import EasyDict

from ding.data.buffer import DequeBufferWrapper
from ding.policy import (
    A2CPolicy,
    ACERPolicy,
    CQLPolicy,
    D4PGPolicy,
    DDPGPolicy,
    IQLPolicy,
    PGPolicy,
    PPOOffPolicy,
    PPOPGPolicy,
    PPOPolicy,
    SACPolicy,
    TD3BCPolicy,
    TD3Policy,
)
from ding.policy.common_utils import (
    default_preprocess_learn,
    set_noise_mode,
    single_env_forward_wrapper,
)
from ding.policy.on_policy_data import OnPolicyData
from ding.rl_utils import v_1step_td_data, v_1step_td_error
from ding.torch_utils.network.nn_module import NoiseLinearLayer
from ding.utils.batch_methods import takes_fragments
from ding.utils.config_helper import ConfigError
from ding.utils.data.samples import Samples, Table
from ding.worker.replay_buffer import AdvancedReplayBuffer
from tests.policy import on_policy_samples, test_bc, test_dqfd, test_ppg, test_r2d2, test_sac, test_sequence_policies
from tests.policy.continuous_samples import make_config as make_continuous_config
from tests.policy.samples import make_batch
from tests.policy.value_policies import make_policy as make_value_policy
from tests.rl_utils.fragments import FLAGS, parts_of
from tests.rl_utils.fragments import assert_same as assert_same_fragments
from tests.same_state import assert_same


@pytest.mark.parametrize(
    ("action", "shape"),
    [
        (torch.zeros(1, dtype=torch.int64), (4,)),
        (np.zeros(1, dtype=np.int64), (4,)),
        (torch.zeros(1), (4, 1)),
        (np.zeros(1, dtype=np.float32), (4, 1)),
        (torch.zeros(2, dtype=torch.int64), (4, 2)),
        (torch.zeros(2), (4, 2)),
    ],
)
def test_only_integer_actions_of_one_element_lose_their_axis(action, shape):
    batch = default_preprocess_learn([{"action": action, "reward": torch.zeros(1), "done": False}] * 4)
    assert batch["action"].shape == shape
    assert batch["reward"].shape == (4,)


# What a sample tells of its end, and whether the value of what follows it counts.
ENDS = [
    ({"done": True}, False),
    ({"done": False}, True),
    ({"done": True, "truncated": True}, True),
    ({"done": True, "truncated": False}, False),
    ({"done": True, "terminated": False, "truncated": True}, True),
    ({"done": True, "terminated": True, "truncated": False}, False),
    ({"done": True, "terminated": False}, True),
]


@pytest.mark.differs(
    "treats a time limit as a terminal state",
    "bootstraps from what follows if the env reports `truncated`, in all policies",
)
@pytest.mark.parametrize("keys", [None, ("done",), ("obs", "done", "terminated")])
@pytest.mark.parametrize("first", range(len(ENDS)))
@pytest.mark.parametrize("as_flag", [bool, np.bool_, lambda flag: torch.tensor([flag]), lambda flag: np.array([flag])])
def test_each_sample_of_a_batch_decides_for_itself_whether_it_bootstraps(keys, first, as_flag):
    ends = ENDS[first:] + ENDS[:first]
    data = make_batch(len(ends))
    for sample, (flags, _) in zip(data, ends, strict=True):
        sample.update({key: as_flag(flag) for key, flag in flags.items()})
    batch = default_preprocess_learn(data, keys=keys)
    assert batch["done"].dtype == torch.float32
    assert batch["done"].tolist() == [float(not bootstraps) for _, bootstraps in ends]
    assert "terminated" not in batch and "truncated" not in batch
    assert default_preprocess_learn(data, ignore_done=True, keys=keys)["done"].tolist() == [0.0] * len(ends)


def test_a_sample_tells_how_it_ended_for_all_its_agents():
    data = make_batch(2, done=torch.tensor([True, False]))
    data[1]["truncated"] = True
    assert default_preprocess_learn(data)["done"].tolist() == [[1.0, 0.0], [0.0, 0.0]]


def test_value_adv_and_done_lose_a_trailing_axis():
    data = make_batch(3, value=torch.ones(1), adv=torch.ones(1), done=torch.ones(1), action=torch.zeros(1))
    batch = default_preprocess_learn(data)
    assert batch["value"].shape == batch["adv"].shape == batch["done"].shape == (3,)
    assert batch["action"].shape == (3, 1)


def test_weight_is_the_importance_weight_or_the_samples_own_or_none():
    data = make_batch(3)
    assert default_preprocess_learn(data)["weight"] is None
    assert default_preprocess_learn(make_batch(3, weight=2.0))["weight"].tolist() == [2.0] * 3
    weighted = {"use_priority": True, "use_priority_IS_weight": True}
    assert default_preprocess_learn(data, **weighted)["weight"].tolist() == [0.5] * 3
    data = make_batch(3, priority_IS=0.25)
    assert default_preprocess_learn(data, **weighted)["weight"].tolist() == [0.25] * 3


@pytest.mark.parametrize("action", [torch.zeros(2), torch.zeros(1), torch.zeros(1, dtype=torch.int64)])
@pytest.mark.parametrize("kind", ["deque", "advanced"])
def test_the_importance_weights_of_a_buffer_weigh_each_sample_once_whatever_its_action(kind, action, tmp_path):
    cfg = EasyDict(replay_buffer_size=16, priority=True, priority_IS_weight=True)
    if kind == "deque":
        buffer = DequeBufferWrapper(cfg)
    else:
        cfg = {**AdvancedReplayBuffer.default_config(), "replay_buffer_size": 16, "enable_track_used_data": False}
        buffer = AdvancedReplayBuffer(EasyDict(cfg), exp_name=str(tmp_path))
    for i in range(8):
        sample = {"obs": torch.rand(4), "action": action, "reward": torch.ones(1), "done": False}
        buffer.push({**sample, "collect_iter": 0, "priority": i + 1.0}, 0)
    samples = buffer.sample(6, 0)
    buffer.close()
    key = "priority_IS" if kind == "deque" else "IS"
    weights = [float(sample[key]) for sample in samples]
    assert len(set(weights)) > 1
    batch = default_preprocess_learn(samples, use_priority=True, use_priority_IS_weight=True)
    assert batch["weight"].tolist() == pytest.approx(weights)
    v = torch.arange(6.0)
    data = v_1step_td_data(v, torch.zeros(6), batch["reward"], batch["done"], batch["weight"])
    expected = sum(w * (i - 1) ** 2 for i, w in enumerate(weights)) / 6
    assert v_1step_td_error(data, 0.9)[0].item() == pytest.approx(expected)


def test_importance_weights_that_a_buffer_does_not_give_are_an_error_that_tells_what_to_do():
    data = [{key: value for key, value in sample.items() if key != "IS"} for sample in make_batch(3)]
    with pytest.raises(ConfigError):
        default_preprocess_learn(data, use_priority=True, use_priority_IS_weight=True)


@pytest.mark.parametrize(
    ("reward", "shape"),
    [(0.5, (1, 4)), (torch.zeros(1), (1, 4)), (torch.zeros(3), (3, 4)), (torch.zeros(2, 3), (3, 4, 2))],
)
def test_nstep_reward_has_its_steps_first(reward, shape):
    assert default_preprocess_learn(make_batch(4, reward=reward), use_nstep=True)["reward"].shape == shape


def test_nstep_reward_is_transposed_step_by_step():
    data = make_batch(2)
    data[0]["reward"], data[1]["reward"] = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    reward = default_preprocess_learn(data, use_nstep=True)["reward"]
    assert reward.tolist() == [[1.0, 3.0], [2.0, 4.0]]
    assert reward.is_contiguous()


def test_all_keys_are_kept_unless_the_caller_names_his():
    data = make_batch(2, strange={"nested": 1.0})
    batch = default_preprocess_learn(data)
    assert set(batch) == set(data[0]) | {"weight"}
    assert batch["replay_unique_id"] == ["buffer_0", "buffer_1"]
    assert batch["strange"]["nested"].tolist() == [1.0, 1.0]
    assert set(default_preprocess_learn(data, keys=("obs", "reward"))) == {"obs", "reward", "weight"}


def test_single_env_forward_takes_and_returns_bare_arrays():
    seen = []

    def forward(data):
        seen.append(data)
        return {0: {"action": torch.tensor([3])}}

    action = single_env_forward_wrapper(forward)(np.ones(4))
    assert seen[0][0].shape == (1, 4)
    assert isinstance(action, np.ndarray)
    assert action == 3


def test_noise_mode_reaches_every_noisy_layer():
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Sequential(NoiseLinearLayer(2, 2)))
    set_noise_mode(module, True)
    assert module[1][0].enable_noise
    set_noise_mode(module, False)
    assert not module[1][0].enable_noise


# Policies learn from samples in columns what they learn from dicts, and make columns of columns.


OBSERVATIONS = {
    "vector": lambda: torch.rand(4),
    "one number": lambda: torch.rand(1),
    "array of one": lambda: np.random.rand(1),
    "image": lambda: torch.randint(0, 255, (2, 3, 3), dtype=torch.uint8),
    "dict": lambda: {"pos": torch.rand(2), "goal": torch.rand(1)},
    "scalar": lambda: 0.5,
}
CHANGES = {
    "plain": {},
    "continuous action": {"action": torch.rand(1)},
    "flags": {"terminated": False, "truncated": True, "done": True},
    "truncated only": {"truncated": True, "done": True},
    "done tensor": {"done": torch.tensor([True])},
    "weights": {"IS": 0.5, "priority_IS": torch.ones(1), "weight": torch.ones(1)},
    "nstep": {"reward": torch.rand(3), "value_gamma": 0.9},
    "action list": {"action": [torch.tensor([1]), torch.tensor([0])]},
    "text": {"replay_unique_id": "b_1", "nothing": "x"},
}


@pytest.mark.parametrize("obs", OBSERVATIONS)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("keys", [None, ("obs", "next_obs", "action", "reward", "done")])
def test_a_batch_of_columns_is_that_of_the_dicts(obs, change, keys):
    make_obs = OBSERVATIONS[obs]
    data = [{**sample, "obs": make_obs(), "next_obs": make_obs(), **CHANGES[change]} for sample in make_batch(4)]
    for kwargs in ({}, {"use_nstep": True}, {"ignore_done": True}):
        samples = Samples(Table.of(data))
        assert_same(
            default_preprocess_learn(samples, keys=keys, **kwargs), default_preprocess_learn(data, keys=keys, **kwargs)
        )
        assert samples.table is not None


def test_equal_row_numbers_of_different_arrays_are_not_the_same_observation():
    stored = [Table.of([{"obs": torch.full((2,), float(start + i))} for i in range(4)]) for start in (0, 10)]
    index = np.arange(3)
    obs, next_obs = stored[0].columns["obs"].take(index), stored[1].columns["obs"].take(index + 1)
    samples = Samples(Table.of(make_batch(3)).with_columns(obs=obs, next_obs=next_obs))
    data = OnPolicyData(samples, ignore_done=False, with_next=True)
    assert data.observations[:, 0].tolist() == [0, 1, 2, 11, 12, 13]


def test_next_observations_that_are_not_those_of_the_next_sample_come_after_all_others():
    rows = Table.of([{"obs": torch.full((2,), float(i))} for i in range(5)]).columns["obs"]
    index = np.array([0, 1, 3])  # after the second sample begins another fragment
    samples = Samples(Table.of(make_batch(3)).with_columns(obs=rows.take(index), next_obs=rows.take(index + 1)))
    data = OnPolicyData(samples, ignore_done=False, with_next=True)
    assert data.observations[:, 0].tolist() == [0, 1, 3, 2, 4]


# Policies make of several fragments of trajectories at once, bit by bit, what they make of each fragment alone.


Timestep = namedtuple("Timestep", "obs reward done info")
NSTEP = {"nstep": 3}


def of_values(name, **settings):
    return functools.partial(make_value_policy, name, "collect", **settings)


def continuous(cls, space="reparameterization", **settings):
    return lambda: cls(make_continuous_config(cls, space, **settings), enable_field=["collect"])


def on_policy(cls, space="discrete", **settings):
    return functools.partial(on_policy_samples.make_policy, "collect", cls=cls, space=space, **settings)


POLICIES = {
    **{name: of_values(name, **NSTEP) for name in ("dqn", "c51", "rainbow", "qrdqn", "iqn", "fqf", "sql")},
    "dqn of one step": of_values("dqn", nstep=1),
    "bdq": of_values("bdq", **NSTEP),
    "discrete_cql": of_values("discrete_cql", **NSTEP),
    "mdqn": of_values("mdqn"),
    "sqn": of_values("sqn"),
    "dqfd": functools.partial(test_dqfd.make_policy, "collect"),
    "sac": continuous(SACPolicy),
    "cql": continuous(CQLPolicy),
    "discrete_sac": functools.partial(test_sac.make_discrete_policy, "collect"),
    "ddpg": continuous(DDPGPolicy, "regression"),
    "hybrid ddpg": continuous(DDPGPolicy, "hybrid", action_space="hybrid"),
    "td3": continuous(TD3Policy, "regression"),
    "td3_bc": continuous(TD3BCPolicy, "regression"),
    "d4pg": continuous(D4PGPolicy, None, **NSTEP),
    "iql": continuous(IQLPolicy),
    "a2c": on_policy(A2CPolicy),
    **{f"{space} ppo": on_policy(PPOPolicy, space) for space in on_policy_samples.ACTION_SHAPES},
    "ppo that ignores done": on_policy(PPOPolicy, learn__ignore_done=True),
    "ppo with its values of then": on_policy(PPOPolicy, recompute_adv=False, learn__value_norm=False),
    "ppo_offpolicy": on_policy(PPOOffPolicy),
    "ppo_offpolicy with n-step returns": on_policy(PPOOffPolicy, nstep_return=True, nstep=3),
    "ppo_pg": on_policy(PPOPGPolicy),
    "pg": on_policy(PGPolicy),
    "ppg_offpolicy": functools.partial(test_ppg.make_policy, "collect"),
    "ppg_offpolicy that ignores done": functools.partial(test_ppg.make_policy, "collect", learn__ignore_done=True),
    "impala": functools.partial(test_sequence_policies.make_impala, "collect"),
    "continuous impala": functools.partial(test_sequence_policies.make_impala, "collect", action_space="continuous"),
    "acer": continuous(ACERPolicy, "discrete", unroll_len=3),
    "r2d2": functools.partial(test_r2d2.make_policy, "collect"),
    "bc": functools.partial(test_bc.make_policy, "collect"),
}
# What `collect_mode.forward` needs, and whether all fragments are whole episodes.
EPISODES = ("pg", "ppo_pg")


@functools.cache
def policy_of(name):
    torch.manual_seed(0)
    policy = POLICIES[name]()
    if hasattr(policy, "_values"):  # a network rounds differently for batches of different sizes
        policy._values = lambda observations: observations.sum(1)
    return policy


def forward(policy, obs):
    try:
        return policy.collect_mode.forward({0: obs})[0]
    except TypeError:
        return policy.collect_mode.forward({0: obs}, eps=0.5)[0]


def collect(policy, lengths, flags, seed=0, is_whole=False):
    """Transitions of fragments of these lengths that a policy has collected, in columns."""
    draw, rows = np.random.default_rng(seed), []
    size = policy.cfg.model.get("obs_shape")
    for length in lengths:
        obs = torch.from_numpy(draw.random(size, np.float32))
        for i in range(length):
            following = torch.from_numpy(draw.random(size, np.float32))
            ends = i == length - 1 and (is_whole or bool(draw.integers(2)))
            step = Timestep(following, torch.from_numpy(draw.standard_normal(1, np.float32)), ends, {})
            rows.append(
                {**policy.collect_mode.process_transition(obs, forward(policy, obs), step), **FLAGS[flags](ends, draw)}
            )
            obs = following
    return Table(Table.of(rows).columns, chained=True, lengths=np.array(lengths))


@pytest.mark.parametrize("flags", ["done", "all flags", "truncated"])
@pytest.mark.parametrize("name", POLICIES)
def test_samples_of_all_fragments_are_those_of_each(name, flags):
    policy, get_train_sample = policy_of(name), policy_of(name).collect_mode.get_train_sample
    assert takes_fragments(get_train_sample)
    for seed, lengths in enumerate(([1], [7, 1, 20, 3, 3, 12])):
        together = collect(policy, lengths, flags, seed, is_whole=name in EPISODES)
        parts = [get_train_sample(part) for part in parts_of(together)]
        assert_same_fragments(get_train_sample(together), parts)
