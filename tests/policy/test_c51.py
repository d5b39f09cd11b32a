"""C51: the cross-entropy to the projected distribution of the double-Q choice."""

import math

import pytest
import torch

from tests.policy.learning import model_of, target_of
from tests.policy.samples import make_batch
from tests.policy.value_policies import make_policy


def naive_error(policy, sample):
    """One sample by hand: each atom of the next distribution is moved, and shared between its neighbours."""
    cfg = policy.cfg.model
    with torch.no_grad():
        output, next_output = (model_of(policy)(sample[key][None]) for key in ("obs", "next_obs"))
        following = target_of(policy)(sample["next_obs"][None])["distribution"]
    atoms = [cfg.v_min + i * (cfg.v_max - cfg.v_min) / (cfg.n_atom - 1) for i in range(cfg.n_atom)]
    best = int(next_output["logit"][0].argmax())
    target = [0.0] * cfg.n_atom
    for probability, atom in zip(following[0, best].tolist(), atoms, strict=True):
        moved = sample["reward"].item() + policy.cfg.discount_factor * (not sample["done"]) * atom
        place = (min(max(moved, cfg.v_min), cfg.v_max) - cfg.v_min) / (atoms[1] - atoms[0])
        for i in range(cfg.n_atom):
            target[i] += probability * max(0.0, 1 - abs(place - i))
    chosen = output["distribution"][0, sample["action"].item()].tolist()
    return -sum(share * math.log(probability) for share, probability in zip(target, chosen, strict=True))


def test_the_error_is_the_cross_entropy_to_the_projected_target():
    policy = make_policy("c51", "learn", model__v_min=-1, model__v_max=2, model__n_atom=7)
    data = make_batch(6)
    for _ in range(3):
        policy.learn_mode.forward(data)  # now the target network differs
    expected = [naive_error(policy, sample) for sample in data]
    assert policy.calculate_priority(data)["priority"] == pytest.approx(expected, rel=1e-4)
    output = policy.learn_mode.forward(data)
    assert output["priority"] == pytest.approx(expected, rel=1e-4)
    assert output["total_loss"] == pytest.approx(sum(expected) / 6, rel=1e-4)


def test_the_target_may_follow_by_a_moving_average():
    policy = make_policy("c51", "learn", learn__target_update_freq=None, learn__target_theta=0.25)
    before = target_of(policy).state_dict()
    policy.learn_mode.forward(make_batch(4))
    online = model_of(policy).state_dict()
    for name, tensor in target_of(policy).state_dict().items():
        assert torch.allclose(tensor, 0.75 * before[name] + 0.25 * online[name], atol=1e-6)
