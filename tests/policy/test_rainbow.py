"""Rainbow: C51 with noise."""

import pytest
import torch

from ding.policy.c51 import C51Policy
from ding.torch_utils.network.nn_module import NoiseLinearLayer
from tests.policy.learning import model_of
from tests.policy.samples import make_batch
from tests.policy.value_policies import OBS, make_policy, plain


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
