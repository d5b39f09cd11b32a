"""DQN: what it learns, how it acts, what it keeps."""

import copy

import pytest
import torch

from ding.policy.dqn import DQNPolicy
from ding.torch_utils.network.nn_module import NoiseLinearLayer
from ding.utils.default_helper import one_time_warning
from tests.policy.learning import model_of, parameters_of, target_of
from tests.policy.samples import make_batch, make_config

OBS = {3: torch.zeros(4), 0: torch.ones(4)}


def make_policy(*fields, seed=0, model=None, **settings):
    torch.manual_seed(seed)
    return DQNPolicy(make_config(**settings), model=model, enable_field=list(fields) or None)


# --- learn ---


def test_a_learning_step_is_double_dqn_with_adam():
    policy = make_policy("learn", learn__target_update_freq=1000)
    q = copy.deepcopy(model_of(policy))
    target = copy.deepcopy(q)
    optimizer = torch.optim.Adam(q.parameters(), lr=0.001)
    for step in range(3):
        torch.manual_seed(step)
        data = make_batch(16)
        obs, next_obs = (torch.stack([s[key] for s in data]) for key in ("obs", "next_obs"))
        reward, action = (torch.cat([s[key] for s in data]) for key in ("reward", "action"))
        done = torch.tensor([float(s["done"]) for s in data])
        with torch.no_grad():
            best = q(next_obs)["logit"].argmax(-1)
            target_q = target(next_obs)["logit"]
            y = reward + 0.97 * (1 - done) * target_q.gather(1, best[:, None]).squeeze(1)
        logit = q(obs)["logit"]
        error = (logit.gather(1, action[:, None]).squeeze(1) - y) ** 2
        optimizer.zero_grad()
        error.mean().backward()
        optimizer.step()
        output = policy.learn_mode.forward(data)
        assert output["total_loss"] == pytest.approx(error.mean().item(), rel=1e-4)
        assert output["priority"] == pytest.approx(error.tolist(), rel=1e-3, abs=1e-6)
        assert output["q_value"] == pytest.approx(logit.mean().item(), rel=1e-4, abs=1e-6)
        assert output["target_q_value"] == pytest.approx(target_q.mean().item(), rel=1e-4, abs=1e-6)
        assert output["cur_lr"] == 0.001
    expected = torch.cat([p.detach().flatten() for p in q.parameters()])
    assert torch.allclose(parameters_of(policy), expected, atol=1e-5)


def test_priorities_are_calculated_without_learning():
    policy = make_policy("learn")
    data = make_batch(8)
    before = parameters_of(policy)
    priority = policy.calculate_priority(data)["priority"]
    assert torch.equal(parameters_of(policy), before)
    assert policy.learn_mode.forward(data)["priority"] == pytest.approx(priority)
    assert model_of(policy).training


def test_calculating_priorities_may_count_for_the_target():
    policy = make_policy("learn", learn__target_update_freq=2)
    policy.learn_mode.forward(make_batch(8))
    target_before = target_of(policy).state_dict()
    policy.calculate_priority(make_batch(8), update_target_model=True)
    model = model_of(policy).state_dict()
    assert any(not torch.equal(target_before[key], model[key]) for key in model)
    assert is_target_equal(policy)


def is_target_equal(policy):
    model = model_of(policy).state_dict()
    return all(torch.equal(value, model[key]) for key, value in target_of(policy).state_dict().items())


def test_the_target_is_copied_every_so_many_iterations():
    policy = make_policy("learn", learn__target_update_freq=3)
    equal = []
    for _ in range(6):
        policy.learn_mode.forward(make_batch(4))
        equal.append(is_target_equal(policy))
    assert equal == [False, False, True, False, False, True]


@pytest.mark.differs(
    "never lets a user's `target_theta` take effect in DQN, and has none in C51, Rainbow and FQF",
    "uses it if the frequency is None, or if the config changes only theta",
)
@pytest.mark.parametrize("settings", [{"learn__target_update_freq": None}, {}])
def test_a_users_theta_takes_effect(settings):
    policy = make_policy("learn", learn__target_theta=0.25, **settings)
    before = target_of(policy).state_dict()
    policy.learn_mode.forward(make_batch(8))
    model = model_of(policy).state_dict()
    for key, value in target_of(policy).state_dict().items():
        assert torch.allclose(value, 0.75 * before[key] + 0.25 * model[key], atol=1e-6)


def test_a_users_frequency_wins_when_both_are_set_and_that_is_warned_of(caplog):
    one_time_warning.cache_clear()
    policy = make_policy("learn", learn__target_theta=0.25, learn__target_update_freq=1)
    policy.learn_mode.forward(make_batch(8))
    assert is_target_equal(policy)
    assert "target_theta" in caplog.text
    caplog.clear()
    make_policy("learn", learn__target_theta=0.25)
    make_policy("learn", learn__target_theta=None)
    assert caplog.text == ""


def test_one_way_to_update_the_target_is_needed():
    with pytest.raises(RuntimeError, match="target_theta"):
        make_policy("learn", learn__target_theta=None, learn__target_update_freq=None)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float64])
def test_stored_observations_of_any_dtype_are_learnt_from(dtype):
    data = make_batch(8)
    for sample in data:
        sample["obs"], sample["next_obs"] = sample["obs"].to(dtype), sample["next_obs"].to(dtype)
    as_float = [{**s, "obs": s["obs"].float(), "next_obs": s["next_obs"].float()} for s in data]
    loss = make_policy("learn").learn_mode.forward(data)["total_loss"]
    assert loss == make_policy("learn").learn_mode.forward(as_float)["total_loss"]


def test_multi_discrete_actions_learn_the_mean_over_their_heads():
    policy = make_policy("learn", "collect", model__action_shape=[2, 3])
    heads = [torch.tensor([1]), torch.tensor([2])]
    data = make_batch(6, action=heads)
    stacked = [{**sample, "action": torch.tensor([1, 2])} for sample in data]
    error = policy.calculate_priority(data)["priority"]
    assert policy.calculate_priority(stacked)["priority"] == error
    model = model_of(policy)
    for sample, priority in zip(data, error, strict=True):
        with torch.no_grad():
            q, next_q = (model(sample[key][None])["logit"] for key in ("obs", "next_obs"))
        expected = 0.0
        for k in range(2):
            target = sample["reward"] + 0.97 * (not sample["done"]) * next_q[k].max()
            expected += (q[k][0, heads[k]] - target).item() ** 2 / 2
        assert priority == pytest.approx(expected, rel=1e-4, abs=1e-6)
    output = policy.learn_mode.forward(data)
    assert output["total_loss"] == pytest.approx(sum(error) / 6, rel=1e-5)
    assert output["priority"] == pytest.approx(error)


# --- options of learning ---


def test_gradients_are_clipped_before_the_step():
    policy = make_policy("learn", learn__grad_clip_type="clip_norm", learn__grad_clip_value=0.01)
    norms = []
    policy.learn_mode.get_attribute("optimizer").register_step_pre_hook(
        lambda optimizer, *_: norms.append(sum(p.grad.pow(2).sum() for p in optimizer.param_groups[0]["params"]) ** 0.5)
    )
    policy.learn_mode.forward(make_batch(8))
    assert [norm.item() for norm in norms] == [pytest.approx(0.01, rel=1e-3)]


# --- noise ---


def noise_of(policy):
    layers = [layer for layer in model_of(policy).modules() if isinstance(layer, NoiseLinearLayer)]
    return layers, [layer.weight_eps.clone() for layer in layers]


def test_noise_is_resampled_for_learning_kept_for_collecting_and_off_for_evaluating():
    policy = make_policy(noisy_net=True, model__noise=True)
    layers, start = noise_of(policy)
    assert len(layers) == 4
    policy.collect_mode.forward(OBS, eps=0.0)
    assert all(layer.enable_noise for layer in layers)
    assert all(torch.equal(a, b) for a, b in zip(start, noise_of(policy)[1], strict=True))
    policy.eval_mode.forward(OBS)
    assert not any(layer.enable_noise for layer in layers)
    policy.learn_mode.forward(make_batch(4))
    assert all(layer.enable_noise for layer in layers)
    assert not any(torch.equal(a, b) for a, b in zip(start, noise_of(policy)[1], strict=True))
