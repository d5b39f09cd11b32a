"""Hybrid actions: a type and its arguments."""

import numpy as np
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


class LogitModel(torch.nn.Module):
    """The logits of a type, and deterministic arguments."""

    def forward(self, rows):
        return {
            "logit": torch.tensor([0.1, 0.7, 0.2]).log().repeat(rows, 1),
            "action_args": torch.tensor([[1.0, -2.0]]).repeat(rows, 1),
        }


@pytest.mark.parametrize(
    ("name", "kwargs", "shares"),
    [
        ("hybrid_argmax_sample", {}, [0, 1, 0]),
        ("hybrid_eps_greedy_sample", {"eps": 0.3}, [0.1, 0.8, 0.1]),
        ("hybrid_eps_greedy_multinomial_sample", {"eps": 0.3}, [0.17, 0.59, 0.24]),
    ],
)
def test_a_type_is_chosen_by_its_logits_and_keeps_its_arguments(name, kwargs, shares):
    torch.manual_seed(0)
    np.random.seed(0)
    output = model_wrap(LogitModel(), wrapper_name=name).forward(4000, **kwargs)
    assert list(output) == ["logit", "action_args", "action"]
    types = output["action"]["action_type"]
    assert (torch.bincount(types, minlength=3) / 4000).tolist() == pytest.approx(shares, abs=0.03)
    assert output["action"]["action_args"] is output["action_args"]
