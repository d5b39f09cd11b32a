"""Hybrid actions: a type and its arguments."""

import pytest
import torch

from ding.model.wrapper.model_wrappers import model_wrap


class Model(torch.nn.Module):
    def __init__(self, rows=4000):
        super().__init__()
        self.logit = {
            "action_type": torch.tensor([0.1, 0.7, 0.2]).log().repeat(rows, 1),
            "action_args": {"mu": torch.tensor([[1.0, -2.0]]).repeat(rows, 1), "sigma": torch.full((rows, 2), 0.5)},
        }

    def forward(self, x):
        return {"logit": self.logit, "value": x}


def test_a_type_and_its_arguments_are_drawn():
    torch.manual_seed(0)
    output = model_wrap(Model(), wrapper_name="hybrid_reparam_multinomial_sample").forward(1)
    action = output["action"]
    assert action["action_type"].dtype is torch.int64
    shares = torch.bincount(action["action_type"], minlength=3) / 4000
    assert shares.tolist() == pytest.approx([0.1, 0.7, 0.2], abs=0.03)
    args = action["action_args"]
    assert args.mean(0).tolist() == pytest.approx([1, -2], abs=0.05)
    assert args.std(0).tolist() == pytest.approx([0.5, 0.5], abs=0.03)
    assert output["value"] == 1


def test_the_likeliest_type_comes_with_the_mean_of_its_arguments():
    action = model_wrap(Model(2), wrapper_name="hybrid_deterministic_argmax_sample").forward(1)["action"]
    assert action["action_type"].tolist() == [1, 1]
    assert action["action_args"].tolist() == [[1, -2], [1, -2]]
