"""Wrappers that choose actions."""

import numpy as np
import pytest
import torch
from torch import nn

from ding.model import model_wrap
from tests.generators import reseed, rng_of


class Fixed(nn.Module):
    """Returns a fresh copy of a fixed output."""

    def __init__(self, **output):
        super().__init__()
        self.output = output

    def forward(self, x=None, **kwargs):
        def fresh(value):
            if isinstance(value, torch.Tensor):
                return value.clone()
            if isinstance(value, dict):
                return {key: fresh(item) for key, item in value.items()}
            return [fresh(item) for item in value] if isinstance(value, (list, tuple)) else value

        self.kwargs = kwargs
        return fresh(self.output)


LOGIT = torch.tensor([[1.0, 3.0, 2.0], [5.0, 4.0, 6.0]])
MASK = torch.tensor([[1, 0, 1], [1, 1, 0]])


def act(name, output, **kwargs):
    return model_wrap(Fixed(**output), wrapper_name=name).forward(None, **kwargs)


def many_rows(row, count=4000):
    return torch.tensor([row]).repeat(count, 1)


def test_argmax_takes_the_largest_logit():
    output = act("argmax_sample", {"logit": LOGIT})
    assert output["action"].tolist() == [1, 2]
    assert output["action"].dtype == torch.int64


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float32])
def test_the_mask_lowers_illegal_logits_in_place(dtype):
    class Keeps(nn.Module):
        def forward(self, x):
            self.logit = LOGIT.clone()
            return {"logit": self.logit, "action_mask": MASK.to(dtype)}

    module = Keeps()
    output = model_wrap(module, wrapper_name="argmax_sample").forward(None)
    assert output["action"].tolist() == [2, 0]
    assert output["logit"] is module.logit
    assert torch.equal(module.logit, LOGIT - 1e8 * (1 - MASK))
    assert torch.equal(output["action_mask"], MASK.to(dtype))


def test_lists_of_logits_give_lists_of_actions():
    output = act(
        "argmax_sample", {"logit": [LOGIT, LOGIT[:, :2]], "action_mask": [MASK, torch.tensor([[0, 1], [1, 1]])]}
    )
    assert [action.tolist() for action in output["action"]] == [[2, 0], [1, 0]]


def test_a_mask_of_another_shape_is_refused():
    with pytest.raises(ValueError):
        act("argmax_sample", {"logit": LOGIT, "action_mask": MASK[:, :2]})
    with pytest.raises(ValueError):
        act("argmax_sample", {"logit": [LOGIT, LOGIT], "action_mask": [MASK]})


@pytest.mark.parametrize("shape", [(2, 2, 3), (2, 6)])
def test_one_array_has_the_masks_of_all_heads_of_each_env(shape):
    output = act("argmax_sample", {"logit": [LOGIT, LOGIT], "action_mask": torch.tensor(TWO_HEADS).view(shape)})
    assert [action.tolist() for action in output["action"]] == [[2, 0], [1, 2]]
    assert [mask.tolist() for mask in output["action_mask"]] == [[[1, 0, 1], [1, 1, 0]], [[0, 1, 0], [0, 0, 1]]]


@pytest.mark.parametrize("form", [lambda mask: mask, lambda mask: mask.flatten(1), lambda mask: mask.unbind(1)])
def test_branches_take_the_masks_that_heads_take(form):
    logit = torch.stack([LOGIT, LOGIT], 1)  # [B, branches, N]
    output = act("argmax_sample", {"logit": logit, "action_mask": form(torch.tensor(TWO_HEADS))})
    assert output["action"].tolist() == [[2, 1], [0, 2]]


TWO_HEADS = [[[1, 0, 1], [0, 1, 0]], [[1, 1, 0], [0, 0, 1]]]  # by env, of whom there are as many as heads


SAMPLERS = [
    ("eps_greedy_sample", {"eps": 0.0}),
    ("multinomial_sample", {}),
    ("eps_greedy_multinomial_sample", {"eps": 0.0}),
]


@pytest.mark.parametrize(("name", "kwargs"), SAMPLERS)
def test_sampling_without_a_legal_action_names_the_row(name, kwargs):
    mask = torch.tensor([[1, 0, 1], [0, 0, 0]])
    with pytest.raises(ValueError, match=r"no legal action in row \[1\]"):
        act(name, {"logit": LOGIT, "action_mask": mask}, **kwargs)
    with pytest.raises(ValueError):
        act(name, {"logit": [LOGIT, LOGIT], "action_mask": [MASK, mask]}, **kwargs)


def test_eps_zero_is_greedy_and_eps_one_uniform():
    logit = many_rows([0.0, 9.0, 0.0])
    assert (act("eps_greedy_sample", {"logit": logit}, eps=0)["action"] == 1).all()
    torch.manual_seed(0)
    counts = act("eps_greedy_sample", {"logit": logit}, eps=1.0)["action"].bincount(minlength=3)
    assert (counts > 1200).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_coin_of_each_env_also_selects_its_action(dtype):
    logit = torch.rand(500, 7).to(dtype)
    wrapper = model_wrap(Fixed(logit=logit), wrapper_name="eps_greedy_sample")
    reseed(wrapper, 1)
    action = wrapper.forward(None, eps=0.3)["action"]
    coins = rng_of(1).random(500).tolist()
    greedy = logit.argmax(-1).tolist()
    assert action.tolist() == [int(c / 0.3 * 7) if c < 0.3 else g for c, g in zip(coins, greedy, strict=True)]


@pytest.mark.differs("flips one coin for all envs in epsilon-greedy", "flips one for each env and head")
def test_each_row_has_its_own_coin():
    torch.manual_seed(0)
    logit = many_rows([0.0, 9.0], 1000)
    for _ in range(5):
        share = (act("eps_greedy_sample", {"logit": logit}, eps=0.5)["action"] == 1).float().mean()
        assert 0.68 < share < 0.82


def test_each_head_has_its_own_coin():
    torch.manual_seed(0)
    logit = many_rows([0.0, 9.0])
    first, second = act("eps_greedy_sample", {"logit": [logit, logit]}, eps=0.5)["action"]
    assert 0.05 < ((first == 0) & (second == 0)).float().mean() < 0.08
    assert 0.15 < ((first == 0) & (second == 1)).float().mean() < 0.22


def test_eps_may_be_given_for_each_env():
    torch.manual_seed(0)
    logit = torch.tensor([[0.0, 9.0]]).repeat(2, 1)
    seen = [act("eps_greedy_sample", {"logit": logit}, eps={0: 0.0, 1: 1.0})["action"].tolist() for _ in range(50)]
    assert {row[0] for row in seen} == {1}
    assert {row[1] for row in seen} == {0, 1}
    eps = {0: 1.0, 3: 0.0, 5: 0.0}
    seen = [act("eps_greedy_sample", {"logit": logit}, eps=eps, data_id=[3, 5])["action"].tolist() for _ in range(50)]
    assert seen == [[1, 1]] * 50
    seen = [
        act("eps_greedy_multinomial_sample", {"logit": [logit * 9, logit * 9]}, eps=eps, data_id=[3, 0])["action"]
        for _ in range(50)
    ]
    assert {pair[0][0].item() for pair in seen} == {pair[1][0].item() for pair in seen} == {1}
    assert {pair[1][1].item() for pair in seen} == {0, 1}


def test_rows_of_agents_keep_their_shape():
    logit = torch.rand(4, 5, 3)
    mask = torch.ones(4, 5, 3)
    for name, kwargs in (
        ("argmax_sample", {}),
        ("eps_greedy_sample", {"eps": 0.5}),
        ("multinomial_sample", {}),
        ("eps_greedy_sample", {"eps": dict.fromkeys(range(4), 0.5)}),
    ):
        assert act(name, {"logit": logit, "action_mask": mask}, **kwargs)["action"].shape == (4, 5)


@pytest.mark.differs(
    "overwrites actions in epsilon-greedy multinomial sampling with several heads",
    "samples one for each head",
)
def test_eps_greedy_multinomial_mixes_both_for_each_head():
    torch.manual_seed(0)
    logit = many_rows([0.0, 2.0])
    output = act("eps_greedy_multinomial_sample", {"logit": [logit, -logit, logit[:, :1]]}, eps=0.5, alpha=2.0)
    greedy = torch.softmax(logit[0] / 2, -1)[1].item()
    assert [action.shape for action in output["action"]] == [(4000,)] * 3
    assert output["action"][0].float().mean() == pytest.approx(0.5 * greedy + 0.25, abs=0.03)
    assert output["action"][1].float().mean() == pytest.approx(0.5 * (1 - greedy) + 0.25, abs=0.03)
    assert (output["action"][2] == 0).all()


# --- action noise ---


def noisy(output, **options):
    return model_wrap(Fixed(**output), wrapper_name="action_noise", **options)


def test_action_noise_is_added_and_clamped():
    torch.manual_seed(0)
    action = torch.zeros(4000, 1)
    model = noisy({"action": action}, noise_kwargs={"sigma": 0.1})
    assert model.forward(None)["action"].std().item() == pytest.approx(0.1, abs=0.01)
    model = noisy({"action": action + 0.9}, noise_kwargs={"sigma": 3.0}, noise_range={"min": -0.2, "max": 0.05})
    result = model.forward(None)["action"]
    assert result.max().item() == pytest.approx(0.95)
    assert result.min().item() == pytest.approx(0.7)
    model = noisy({"action": action}, noise_kwargs={"sigma": 3.0})
    assert model.forward(None)["action"].abs().max() == 1
    model = noisy({"action": action}, noise_kwargs={"sigma": 3.0}, action_range=None)
    assert model.forward(None)["action"].abs().max() > 1


@pytest.mark.differs("ignores `sigma` given at forward for the noise of actions", "sets the deviation of the noise")
def test_sigma_given_at_forward_changes_the_noise():
    torch.manual_seed(0)
    for noise_type in ("gauss", "ou"):
        model = noisy({"action": torch.zeros(100, 1)}, noise_type=noise_type, noise_kwargs={"sigma": 0.5})
        assert model.forward(None)["action"].abs().max() > 0
        if noise_type == "gauss":
            assert (model.forward(None, sigma=0.0)["action"] == 0).all()
            assert (model.forward(None)["action"] == 0).all()
        else:
            model.noise_generator.reset()
            assert (model.forward(None, sigma=0.0)["action"] == 0).all()


def test_hybrid_actions_get_noise_on_their_arguments():
    output = noisy({"action_args": torch.zeros(3, 2), "logit": LOGIT}).forward(None)
    assert (output["action_args"] != 0).all()
    with pytest.raises(KeyError):
        noisy({"logit": LOGIT}).forward(None)
    with pytest.raises(KeyError):
        noisy({"action": LOGIT}, noise_type="pink")


# Hybrid actions: a type and its arguments.


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
