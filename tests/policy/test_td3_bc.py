"""TD3+BC: what it learns, and how it is trained."""

import pytest
import torch

from ding.policy import TD3BCPolicy, TD3Policy
from ding.utils import set_pkg_seed
from tests.policy.continuous_samples import columns, make_batch, make_config
from tests.policy.learning import before_each_step, model_of


def make_policy(*fields, **settings):
    torch.manual_seed(0)
    cfg = make_config(TD3BCPolicy, "regression", **settings)
    return TD3BCPolicy(cfg, enable_field=list(fields) or None)


def policies_with_and_without_an_actors_step(**settings):
    """Two policies alike in whose first step only one moves its actor, after the same step of the critic."""
    return [make_policy("learn", learn__noise=False, learn__actor_update_freq=freq, **settings) for freq in (1, 2)]


@pytest.mark.differs(
    "compares an action of one dimension with those of all samples in TD3+BC",
    "compares it with that of its sample",
)
@pytest.mark.parametrize("alpha", [2.5, 0.1])
def test_the_actor_weighs_values_of_mean_size_one_against_the_distance_to_the_data(alpha):
    policy, twin = policies_with_and_without_an_actors_step(learn__alpha=alpha)
    data = make_batch(8)
    obs, _, action, *_ = columns(data)
    output, _ = (one.learn_mode.forward(data) for one in (policy, twin))
    mu = model_of(twin)(obs, mode="compute_actor")["action"]
    q = model_of(twin)({"obs": obs, "action": mu}, mode="compute_critic")["q_value"][0]
    expected = (mu - action).square().mean() - alpha * q.mean() / q.abs().mean()
    assert output["actor_loss"] == pytest.approx(expected.item(), rel=1e-4)


@pytest.mark.differs(
    "smooths the targets of TD3+BC twice, and once without `learn.noise`",
    "smooths them once, and only with `learn.noise`",
)
def test_targets_are_smoothed_once_as_in_td3():
    data, losses = make_batch(8), []
    for cls in (TD3Policy, TD3BCPolicy):
        sizes = {"model__actor_head_hidden_size": 64, "model__critic_head_hidden_size": 64}
        set_pkg_seed(0, use_cuda=False)
        policy = cls(
            make_config(cls, "regression", learn__noise=True, learn__noise_sigma=1.0, **sizes), None, ["learn"]
        )
        losses.append(policy.learn_mode.forward(data)["critic_loss"])
        losses.append(policy.learn_mode.forward(data)["critic_loss"])
    assert losses[0] == losses[2] and losses[0] != losses[1]


def test_large_gradients_are_scaled_down_to_a_norm_of_one():
    policy, norms = make_policy("learn", learn__noise=False), []

    def measure(optimizer):
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"]]
        norms.append(torch.stack([gradient.norm() for gradient in gradients]).norm().item())

    data = [{**sample, "reward": sample["reward"] + 100.0} for sample in make_batch(8)]
    with before_each_step(measure):
        policy.learn_mode.forward(data)
        policy.learn_mode.forward(data)
    assert len(norms) == 3 and norms[:2] == pytest.approx([1.0, 1.0], rel=1e-4) and norms[2] <= 1.0001
