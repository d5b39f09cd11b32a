"""What all relatives of DQN have in common: keys, state, weights, modes, pipelines, time limits."""

import numpy as np
import pytest
import torch

from ding.policy.c51 import C51Policy
from ding.torch_utils.network.nn_module import NoiseLinearLayer
from ding.utils.config_helper import ConfigError
from tests.generators import reseed
from tests.policy.learning import model_of, target_of
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
def test_fragments_of_several_steps_are_refused_by_what_learns_from_single_ones(name):
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


# Rainbow: C51 with noise.


def noise_of(module):
    layers = [layer for layer in module.modules() if isinstance(layer, NoiseLinearLayer)]
    return torch.cat([noise.flatten() for layer in layers for noise in (layer.weight_eps, layer.bias_eps)])


def test_without_noise_it_learns_as_c51_does_with_the_same_networks():
    policy = make_policy("rainbow", "learn", noisy_net=False, **plain("rainbow"))
    assert isinstance(policy, C51Policy)
    twin = make_policy("c51", "learn", model=model_of(policy), priority=True, discount_factor=0.99)
    data = make_batch(6)
    expected = twin.calculate_priority(data)["priority"]
    assert policy.calculate_priority(data)["priority"] == pytest.approx(expected)
    assert policy.learn_mode.forward(data)["priority"] == pytest.approx(expected)


def test_noise_is_drawn_for_each_network_and_once_more_for_the_next_action():
    policy = make_policy("rainbow", "learn", **plain("rainbow"))
    seen = {"online": [], "target": []}

    def note(name):
        return lambda module, *_: seen[name].append(noise_of(module))

    model_of(policy).register_forward_hook(note("online"))
    policy.learn_mode.get_attribute("target_net").register_forward_hook(note("target"))
    for _ in range(2):
        policy.learn_mode.forward(make_batch(4))
    assert len(seen["online"]) == 4 and len(seen["target"]) == 2
    drawn = [*seen["online"], *seen["target"]]
    assert all(not torch.equal(a, b) for i, a in enumerate(drawn) for b in drawn[:i])


def test_collecting_keeps_its_noise_and_evaluation_has_none():
    policy = make_policy("rainbow", **plain("rainbow"))
    first, second = (policy.collect_mode.forward(OBS, eps=0.0)[0]["logit"] for _ in range(2))
    assert torch.equal(first, second)
    quiet = policy.eval_mode.forward(OBS)[0]["logit"]
    assert not torch.equal(quiet, first)
    policy.learn_mode.forward(make_batch(4))
    online = make_policy("rainbow", "eval")
    online.eval_mode.load_state_dict(policy.learn_mode.state_dict())
    assert torch.equal(online.eval_mode.forward(OBS)[0]["logit"], policy.eval_mode.forward(OBS)[0]["logit"])


# IQN: quantile regression at random fractions, rows of each env when acting.


def test_each_env_gets_its_own_values_at_its_own_fractions():
    policy = make_policy("iqn", "collect", "eval", model__num_quantiles=5)
    observations = {env_id: torch.rand(4) for env_id in (4, 1, 2)}
    for forward in (policy.eval_mode.forward, lambda data: policy.collect_mode.forward(data, eps=0.0)):
        reseed(policy, 0)
        with torch.no_grad():
            output = model_of(policy)(torch.stack(list(observations.values())))
        reseed(policy, 0)
        acted = forward(observations)
        for row, env_id in enumerate(observations):
            assert torch.equal(acted[env_id]["q"], output["q"][:, row])
            assert torch.equal(acted[env_id]["quantiles"], output["quantiles"].view(5, 3)[:, row])
            assert torch.equal(acted[env_id]["logit"], output["logit"][row])
            assert acted[env_id]["q"].mean(0).argmax().item() == acted[env_id]["action"].item()


# FQF: what it shows of its batches; its updates are in the recorded steps of `tests/compat`.


def test_histograms_tell_the_actions_and_the_midpoints_of_the_first_sample():
    policy = make_policy("fqf", "learn")
    data = make_batch(6)
    hats = model_of(policy)(stack(data, "obs"))["quantiles_hats"][0]
    output = policy.learn_mode.forward(data)
    assert output["[histogram]action_distribution"].tolist() == [sample["action"].item() for sample in data]
    assert torch.allclose(output["[histogram]quantiles_hats"], hats)


def test_the_optimizers_of_fractions_and_of_the_rest_have_the_settings_of_the_paper():
    state = make_policy("fqf", "learn", learn__batch_size=64).learn_mode.state_dict()
    groups = [part["param_groups"][0] for part in state.values() if isinstance(part, dict) and "param_groups" in part]
    assert [(group.get("alpha"), group["eps"]) for group in groups] == [(0.95, 1e-5), (None, 0.01 / 64)]


# BDQ: one target for all branches.


def test_all_branches_learn_the_mean_of_the_next_values():
    policy = make_policy("bdq", "learn", model__num_branches=3, model__action_bins_per_branch=4)
    data = [{**sample, "action": torch.tensor([i % 4, (i + 1) % 4, 2])} for i, sample in enumerate(make_batch(6))]
    for _ in range(3):
        policy.learn_mode.forward(data)  # now the target network differs
    expected, q_value = [], torch.zeros(3)
    for sample in data:
        with torch.no_grad():
            q, best = (model_of(policy)(sample[key][None])["logit"][0] for key in ("obs", "next_obs"))
            following = target_of(policy)(sample["next_obs"][None])["logit"][0]
        next_value = sum(following[d, best[d].argmax()].item() for d in range(3)) / 3
        target = sample["reward"].item() + 0.97 * (not sample["done"]) * next_value
        expected.append(sum((q[d, sample["action"][d]].item() - target) ** 2 for d in range(3)) / 3)
        q_value += q.mean(-1) / 6
    output = policy.learn_mode.forward(data)
    assert output["priority"] == pytest.approx(expected, rel=1e-3, abs=1e-6)
    assert output["total_loss"] == pytest.approx(sum(expected) / 6, rel=1e-3)
    assert [output[f"q_value_b_{i}"] for i in range(3)] == pytest.approx(q_value.tolist(), rel=1e-3, abs=1e-6)
    assert output["q_value"] == pytest.approx(q_value.mean().item(), rel=1e-3, abs=1e-6)
    names = ["q_value_b_0", "q_value_b_1", "q_value_b_2"]
    assert policy.learn_mode.monitor_vars() == ["cur_lr", "total_loss", "q_value", *names]


def test_an_action_has_an_entry_for_each_branch():
    policy = make_policy("bdq", "collect", "eval", model__num_branches=3, model__action_bins_per_branch=4)
    for output in (policy.collect_mode.forward(OBS, eps=0.0), policy.eval_mode.forward(OBS)):
        for out in output.values():
            assert out["logit"].shape == (3, 4) and out["action"].dtype is torch.int64
            assert torch.equal(out["action"], out["logit"].argmax(-1))
    explored = policy.collect_mode.forward({env_id: torch.zeros(4) for env_id in range(400)}, eps=1.0)
    counts = torch.stack([out["action"] for out in explored.values()])
    assert all(60 < (counts[:, branch] == bin_).sum() < 140 for branch in range(3) for bin_ in range(4))


@pytest.mark.parametrize("noisy", [True, False])
def test_fqf_draws_the_noise_of_both_networks_for_each_update_of_a_noisy_net(noisy):
    model = model_of(make_policy("fqf", "learn"))
    model.encoder.main[0] = NoiseLinearLayer(16, 8)
    policy = make_policy("fqf", "learn", model=model, noisy_net=noisy)
    layers = [policy.learn_mode.get_attribute(name).encoder.main[0] for name in ("model", "target_net")]
    before = [layer.weight_eps.clone() for layer in layers]
    policy.learn_mode.forward(make_batch(4))
    assert [torch.equal(a, b.weight_eps) for a, b in zip(before, layers, strict=True)] == [not noisy] * 2
