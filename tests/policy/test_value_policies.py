"""What all relatives of DQN have in common: keys, state, weights, modes, pipelines, time limits."""

import numpy as np
import pytest
import torch

from ding.utils.config_helper import ConfigError
from tests.generators import reseed
from tests.policy.learning import model_of
from tests.policy.samples import make_batch
from tests.policy.value_policies import OBS, collect, make_policy, plain, stack

NAMES = ["dqn", "c51", "rainbow", "qrdqn", "iqn", "fqf", "mdqn", "sql", "sqn", "bdq"]
NORMS = [f"total_norm_{part}" for part in ("quantiles_proposal", "Q", "fqf_fc", "encoder")]
FQF_LOGGED = ["cur_lr_fraction_loss", "cur_lr_quantile_loss", "logit", "fraction_loss", "quantile_loss", *NORMS]
MONITORED = {
    **dict.fromkeys(("dqn", "c51", "rainbow", "qrdqn", "iqn"), ["cur_lr", "total_loss", "q_value", "target_q_value"]),
    "fqf": FQF_LOGGED,
    "mdqn": ["cur_lr", "total_loss", "q_value", "action_gap", "clip_frac"],
    "sql": ["cur_lr", "total_loss", "record_value_function"],
    "sqn": ["alpha_loss", "alpha", "entropy", "q_loss", "q_value"],
    "bdq": ["cur_lr", "total_loss", "q_value", "q_value_b_0"],
}


@pytest.mark.differs(
    "ignores importance weights in C51, QR-DQN, IQN, FQF, SQL, SQN and discrete CQL",
    "weights the loss of each sample",
)
@pytest.mark.parametrize("name", NAMES)
def test_importance_weights_of_each_sample_scale_the_loss_and_not_the_priority(name):
    data, weights = make_batch(8), [0.25 * (i + 1) for i in range(8)]
    weighted = [{**sample, "IS": weight} for sample, weight in zip(data, weights, strict=True)]
    settings = {**plain(name), "priority": True}
    expected = make_policy(name, "learn", **settings).learn_mode.forward(data)
    output = make_policy(name, "learn", **{**settings, "priority_IS_weight": True}).learn_mode.forward(weighted)
    assert output["priority"] == pytest.approx(expected["priority"], rel=1e-5)
    key, factor = {"fqf": ("quantile_loss", 1), "sqn": ("q_loss", 2)}.get(name, ("total_loss", 1))
    mean = factor * np.mean([w * e for w, e in zip(weights, output["priority"], strict=True)])
    assert output[key] == pytest.approx(mean, rel=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_pieces_of_several_steps_are_refused_by_what_learns_from_single_ones(name):
    with pytest.raises(ConfigError, match="unroll_len = 2 is not allowed .* single steps"):
        make_policy(name, "learn", collect__unroll_len=2)


@pytest.mark.parametrize("name", ["dqn", "mdqn", "sql", "bdq"])
def test_the_criterion_counts(name):
    data = make_batch(8, reward=torch.tensor([3.0]))
    squared = make_policy(name, "learn").learn_mode.forward(data)["priority"]
    errors = make_policy(name, "learn", learn__criterion="huber").learn_mode.forward(data)["priority"]
    assert errors == pytest.approx([e / 2 if e < 1 else e**0.5 - 0.5 for e in squared], rel=1e-4)


def test_targets_are_distributed_over_the_atoms_of_the_settings():
    policy = make_policy("c51", "learn", model__v_min=-1, model__v_max=2, model__n_atom=7)
    data = make_batch(4, reward=torch.tensor([0.5]), done=True)  # the fourth atom
    chances = model_of(policy)(stack(data, "obs"))["distribution"][:, :, 3]
    expected = [-chances[i, sample["action"]].log().item() for i, sample in enumerate(data)]
    assert policy.calculate_priority(data)["priority"] == pytest.approx(expected, rel=1e-5)


def test_the_errors_of_quantiles_are_linear_beyond_kappa():
    data = make_batch(4, reward=torch.tensor([100.0]), done=True)
    errors = [make_policy("iqn", "learn", learn__kappa=k).learn_mode.forward(data)["priority"] for k in (1.0, 0.5)]
    assert errors[0] == pytest.approx(errors[1], rel=0.02)  # slopes are divided by kappa
    near = make_batch(4, reward=torch.tensor([0.0]), done=True)
    errors = [make_policy("iqn", "learn", learn__kappa=k).learn_mode.forward(near)["priority"] for k in (1.0, 2.0)]
    assert errors[0] == pytest.approx([2 * error for error in errors[1]], rel=1e-4)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("mdqn", "sqn")])
def test_samples_of_n_steps_are_learnt_with_their_own_discount(name):
    policy = make_policy(name, "learn", "collect", **{**plain(name), "nstep": 3, "discount_factor": 0.5})
    samples = policy.collect_mode.get_train_sample(make_batch(4, done=False))
    assert [sample["value_gamma"] for sample in samples] == [0.125, 0.125, 0.25, 0.5]
    single = [{**sample, "value_gamma": 0.125} for sample in samples]
    reseed(policy, 0)
    own = policy.calculate_priority(samples)["priority"]
    reseed(policy, 0)
    other = policy.calculate_priority(single)["priority"]
    assert own[:2] == pytest.approx(other[:2]) and own[2:] != pytest.approx(other[2:], rel=1e-6)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("bdq",)])
def test_masked_actions_are_never_taken_nor_bootstrapped_from(name):
    def masked(mask):
        return {"observation": torch.rand(4), "action_mask": torch.tensor(mask)}

    policy = make_policy(name, **{**plain(name), "seed": 3})
    observations = {env_id: masked([0, 1] if env_id % 2 else [1, 0]) for env_id in range(20)}
    for output in (collect(policy, observations), policy.eval_mode.forward(observations)):
        assert [out["action"].item() for out in output.values()] == [env_id % 2 for env_id in range(20)]
    data = make_batch(6, obs=masked([1, 0]), next_obs=masked([1, 0]), action=torch.tensor([0]), reward=torch.zeros(1))
    output = policy.learn_mode.forward(data)
    assert max(output["priority"]) < 1e3 and all(abs(output[key]) < 1e3 for key in MONITORED[name])
    assert output.get("action_gap", 0) == 0  # one action is legal


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("bdq", "sqn")])
def test_multi_discrete_actions_learn_the_mean_over_their_heads(name):
    policy = make_policy(name, model__action_shape=[2, 3], **plain(name))
    output = collect(policy, OBS)[0]
    assert [action.shape for action in output["action"]] == [(1,), (1,)]
    data = make_batch(6, action=[torch.tensor([1]), torch.tensor([2])])
    learnt = policy.learn_mode.forward(data)
    key = "quantile_loss" if name == "fqf" else "total_loss"
    assert learnt[key] == pytest.approx(np.mean(learnt["priority"]), rel=1e-5)


def test_adam_has_the_epsilon_of_the_paper_in_munchausen_dqn():
    assert make_policy("mdqn", "learn").learn_mode.state_dict()["optimizer"]["param_groups"][0]["eps"] == 3.125e-4
