"""The auxiliary phase of PPG."""

import math

import pytest
import torch

from ding.rl_utils.ppo import ppg_data, ppg_joint_error


def make_data(weight=None):
    torch.manual_seed(0)
    return ppg_data(
        logit_new=torch.randn(3, 4, requires_grad=True),
        logit_old=torch.randn(3, 4, requires_grad=True),
        action=torch.tensor([0, 1, 3]),
        value_new=torch.tensor([0.5, 2.0, -1.0], requires_grad=True),
        value_old=torch.tensor([0.0, 1.9, 1.0]),
        return_=torch.tensor([1.0, 0.0, 0.0]),
        weight=weight,
    )


@pytest.mark.differs(
    "returns NaN as the cloning loss of PPG",
    "returns the mean divergence KL(old, new) over all actions",
)
def test_cloning_is_the_divergence_of_the_old_policy_from_the_new_over_all_actions():
    data = make_data()
    old, new = data.logit_old.softmax(-1).tolist(), data.logit_new.softmax(-1).tolist()
    expected = [sum(p * math.log(p / q) for p, q in zip(*row, strict=True)) for row in zip(old, new, strict=True)]
    assert ppg_joint_error(data).behavioral_cloning_loss.item() == pytest.approx(sum(expected) / 3, abs=1e-6)


def test_cloning_pulls_the_new_policy_only():
    data = make_data()
    ppg_joint_error(data).behavioral_cloning_loss.backward()
    assert data.logit_old.grad is None
    difference = (data.logit_new.softmax(-1) - data.logit_old.softmax(-1)) / 3
    assert torch.allclose(data.logit_new.grad, difference, atol=1e-6)


@pytest.mark.parametrize("weight", [None, torch.tensor([1.0, 2.0, 0.5])])
@pytest.mark.parametrize("use_value_clip", [True, False])
def test_the_auxiliary_loss_is_the_value_loss_of_ppo(weight, use_value_clip):
    data = make_data(weight)
    loss = ppg_joint_error(data, clip_ratio=0.3, use_value_clip=use_value_clip).auxiliary_loss
    expected = []
    for new, old, target in zip(data.value_new.tolist(), data.value_old.tolist(), data.return_.tolist(), strict=True):
        clipped = old + min(max(new - old, -0.3), 0.3)
        expected.append(max((target - new) ** 2, (target - clipped) ** 2) if use_value_clip else (target - new) ** 2)
    factors = [1.0] * 3 if weight is None else weight.tolist()
    assert loss.item() == pytest.approx(0.5 * sum(e * w for e, w in zip(expected, factors, strict=True)) / 3)
