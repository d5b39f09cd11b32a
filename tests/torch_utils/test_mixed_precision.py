"""Autocast while learning, the scale of the loss, and compiled models."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from ding.policy.dqn import DQNPolicy
from ding.torch_utils.mixed_precision import MixedPrecision
from ding.utils.config_helper import ConfigError
from tests.policy.on_policy_samples import make_fragment
from tests.policy.on_policy_samples import make_policy as make_ppo
from tests.policy.samples import make_batch, make_config
from tests.same_state import differences, through_bytes


def make_dqn(**settings: Any) -> Any:
    torch.manual_seed(0)
    return DQNPolicy(make_config(**settings))


def batch() -> list[dict[str, Any]]:
    torch.manual_seed(1)
    return make_batch(16)


class Watched(nn.Module):
    """A linear layer that notes the type of its outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1, bias=False)
        self.dtypes: list[torch.dtype] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(x)
        self.dtypes.append(out.dtype)
        return out


# autocast


@pytest.mark.parametrize(("kind", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_forward_passes_are_in_16_bits_and_parameters_and_gradients_in_32(kind: str, dtype: torch.dtype) -> None:
    net, precision = Watched(), MixedPrecision(kind, "cpu")
    loss = precision.run(lambda x: net(x).sum(), torch.ones(3, 2))
    precision.scale(loss).backward()
    assert net.dtypes == [dtype]
    assert net.layer.weight.dtype == net.layer.weight.grad.dtype == torch.float32


def test_the_loss_is_scaled_for_fp16_and_the_step_takes_the_true_gradients() -> None:
    net, precision = Watched(), MixedPrecision("fp16", "cpu")
    nn.init.ones_(net.layer.weight)
    precision.load_state_dict({**precision.state_dict(), "scale": 1024.0})
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    loss = precision.run(lambda: net(torch.tensor([[1.0, 2.0]])).sum())
    assert precision.scale(loss).item() == 1024 * 3
    precision.scale(loss).backward()
    assert net.layer.weight.grad.tolist() == [[1024.0, 2048.0]]
    precision.unscale(optimizer)
    assert net.layer.weight.grad.tolist() == [[1.0, 2.0]]
    precision.step(optimizer)
    assert net.layer.weight.tolist() == [[0.5, 0.0]]


def test_a_step_whose_gradients_overflow_is_left_out_and_the_scale_is_halved() -> None:
    net, precision = Watched(), MixedPrecision("fp16", "cpu")
    nn.init.ones_(net.layer.weight)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    scale = precision.state_dict()["scale"]
    loss = precision.run(lambda: net(torch.tensor([[1.0, 2.0]])).sum())
    precision.scale(loss * 60000).backward()
    precision.unscale(optimizer)
    precision.step(optimizer)
    assert net.layer.weight.tolist() == [[1.0, 1.0]]
    assert precision.state_dict()["scale"] == scale / 2


# policies


@pytest.mark.parametrize("setting", ["bf16", "fp16"])
def test_a_policy_learns_alike_under_autocast(setting: str) -> None:
    plain, mixed = make_dqn(), make_dqn(learn__autocast=setting)
    losses = [policy.learn_mode.forward(batch())["total_loss"] for policy in (plain, mixed)]
    assert losses[0] != losses[1] == pytest.approx(losses[0], rel=0.02)
    for _ in range(40):
        mixed.learn_mode.forward(batch())
    assert mixed.learn_mode.forward(batch())["total_loss"] < 0.8 * losses[0]
    state = mixed.learn_mode.state_dict()["model"]
    assert {value.dtype for value in state.values()} == {torch.float32}


@pytest.mark.parametrize("setting", ["bf16", "fp16"])
def test_gradients_of_ppo_are_clipped_at_their_true_norm(setting: str) -> None:
    plain, mixed = (make_ppo(**more) for more in ({}, {"learn__autocast": setting}))
    fragments = make_fragment(plain, 16, {"done": True})
    for policy in (plain, mixed):
        torch.manual_seed(2)
        policy.learn_mode.forward(policy.collect_mode.get_train_sample(copy.deepcopy(fragments)))
    for policy in (plain, mixed):
        for group in policy._optimizer.param_groups:
            norm = torch.cat([parameter.grad.flatten() for parameter in group["params"]]).norm()
            assert norm <= 0.5 + 1e-4


def test_the_scale_of_the_loss_is_part_of_the_state_of_a_policy() -> None:
    one, other = (make_dqn(learn__autocast="fp16") for _ in range(2))
    one.learn_mode.forward(batch())  # the first scale is too large
    assert any("scale" in line for line in differences(one.state_dict(), other.state_dict()))
    other.load_state_dict(through_bytes(one.state_dict()))
    assert differences(one.state_dict(), other.state_dict()) == []


@pytest.mark.parametrize(
    ("settings", "key"), [({"learn__autocast": "fp8"}, "autocast"), ({"learn__compile": 3}, "compile")]
)
def test_a_wrong_setting_is_refused(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        make_dqn(**settings)


# compiled models


def test_a_compiled_policy_learns_and_acts_with_the_same_numbers() -> None:
    plain, compiled = make_dqn(), make_dqn(learn__compile="eager")
    assert compiled._model._compiled_call_impl is not None
    outcomes = []
    for policy in (plain, compiled):
        torch.manual_seed(3)
        losses = [policy.learn_mode.forward(batch())["total_loss"] for _ in range(3)]
        outcomes.append((losses, policy.eval_mode.forward({0: torch.ones(4)})[0]["logit"].tolist()))
    assert outcomes[0] == outcomes[1]


def test_the_names_in_checkpoints_stay_and_fit_a_model_that_is_not_compiled() -> None:
    plain, compiled = make_dqn(), make_dqn(learn__compile="eager")
    compiled.learn_mode.forward(batch())
    state = compiled.learn_mode.state_dict()
    assert list(state["model"]) == list(plain.learn_mode.state_dict()["model"])
    plain.learn_mode.load_state_dict(state)
    assert plain.learn_mode.forward(batch()) == compiled.learn_mode.forward(batch())
