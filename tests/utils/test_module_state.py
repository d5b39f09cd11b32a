import copy

import pytest
import torch
from torch import nn

from ding.torch_utils.checkpoint_helper import CheckpointHelper
from ding.torch_utils.optimizer_helper import Adam
from ding.utils.module_state import fit_optimizer_state, load_parts, parameter_names, parts_state
from tests.same_state import assert_same


def make_net(*sizes):
    return nn.Sequential(*(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:], strict=False)))


def step(net, optimizer):
    optimizer.zero_grad()
    net(torch.ones(2, net[0].in_features)).square().sum().backward()
    optimizer.step()


def trained(*sizes, kind=Adam, **options):
    net = make_net(*sizes)
    optimizer = kind(net.parameters(), lr=0.01, **options)
    step(net, optimizer)
    return net, optimizer


def make_parts(*sizes):
    net, optimizer = trained(*sizes)
    return {"model": net, "target_model": make_net(*sizes), "optimizer": optimizer, "alpha": torch.tensor([0.5])}


def refused(parts, state, message, kind=ValueError, **kwargs):
    before = copy.deepcopy(parts_state(parts))
    with pytest.raises(kind, match=message):
        load_parts(parts, state, **kwargs)
    assert_same(parts_state(parts), before)


def test_all_parts_take_their_state():
    parts, others = make_parts(3, 4, 2), make_parts(3, 4, 2)
    load_parts(parts, {**copy.deepcopy(parts_state(others)), "alpha": torch.tensor([0.25])})
    assert_same(parts_state(parts), {**parts_state(others), "alpha": torch.tensor([0.25])})


def test_a_key_that_is_missing_is_named_unless_it_is_optional():
    parts, state = make_parts(3, 4, 2), parts_state(make_parts(3, 4, 2))
    del state["alpha"], state["target_model"]
    refused(parts, state, "lacks target_model, alpha; it has model, optimizer")
    load_parts(parts, state, optional=("alpha", "target_model"))
    assert parts["alpha"] == 0.5


def test_nothing_is_loaded_if_the_optimizer_is_that_of_another_model_and_a_parameter_is_named():
    parts = make_parts(3, 4, 2)
    state = {**parts_state(make_parts(3, 4, 2)), "optimizer": trained(3, 5, 2)[1].state_dict()}
    message = r"0.weight \[4, 3\]: exp_avg is \[5, 3\]"
    refused(parts, state, message, names=parameter_names(parts["model"]))
    state["optimizer"] = trained(3, 4, 4, 2)[1].state_dict()
    refused(parts, state, r"groups of \[6\] parameters, but Adam has \[4\]")


def test_a_tensor_of_another_shape_is_refused():
    parts = make_parts(3, 4, 2)
    refused(parts, {**parts_state(parts), "alpha": torch.zeros(2)}, r"alpha does not fit: it is \[2\]")


def changed(state, **entries):
    state = copy.deepcopy(state)
    for name, value in entries.items():
        if value is None:
            del state["state"][0][name]
        else:
            state["state"][0][name] = value
    return state


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"exp_avg": torch.zeros(4, 3, dtype=torch.int64)}, r"exp_avg is \[4, 3\] of torch.int64"),
        ({"exp_avg": torch.zeros(12)}, r"exp_avg is \[12\]"),
        ({"exp_avg": 0.0}, "exp_avg is a float"),
        ({"max_exp_avg_sq": torch.zeros(3)}, r"max_exp_avg_sq is \[3\]"),
    ],
)
def test_a_state_that_is_damaged_is_refused(entries, message):
    net, optimizer = trained(3, 4, 2)
    before = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict(changed(optimizer.state_dict(), **entries))
    assert_same(optimizer.state_dict(), before)
    step(net, optimizer)


@pytest.mark.parametrize("options", [{"capturable": True}, {"fused": False, "foreach": True}, {"differentiable": True}])
def test_how_a_step_is_computed_is_not_loaded(options):
    net, optimizer = trained(3, 4, 2)
    state = optimizer.state_dict()
    state["param_groups"][0].update(options)
    optimizer.load_state_dict(copy.deepcopy(state))
    assert optimizer.param_groups[0]["fused"] and not any(
        optimizer.param_groups[0][name] for name in ("capturable", "foreach", "differentiable")
    )
    step(net, optimizer)
    plain = torch.optim.SGD(net.parameters(), lr=0.1)
    state = {"state": {}, "param_groups": [{"params": [0, 1, 2, 3], "lr": 0.2, "fused": True}]}
    plain.load_state_dict(fit_optimizer_state(plain, state))
    assert plain.param_groups[0]["lr"] == 0.2 and not plain.param_groups[0]["fused"]
    step(net, plain)


def test_states_of_other_versions_of_torch_load():
    net, optimizer = trained(3, 4, 2)
    twin = copy.deepcopy(net)
    state = copy.deepcopy(optimizer.state_dict())
    for entry in state["state"].values():
        entry["step"] = 1  # a number, before torch 1.12
        entry["exp_avg"] = entry["exp_avg"].double()
    for name in ("decoupled_weight_decay", "maximize", "differentiable"):
        del state["param_groups"][0][name]
    other = Adam(twin.parameters(), lr=0.5)
    other.load_state_dict(state)
    for model, own in ((net, optimizer), (twin, other)):
        step(model, own)
    assert_same(twin.state_dict(), net.state_dict())


def test_a_state_in_an_order_that_is_accepted_is_brought_into_the_own_one():
    net, optimizer = trained(3, 4, 2)
    twin = copy.deepcopy(net)
    reverse = Adam(list(twin.parameters())[::-1], lr=0.01)
    reverse.accept_order(twin.parameters())
    reverse.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    moments = [reverse.state[parameter]["exp_avg"] for parameter in twin.parameters()]
    assert_same(moments, [optimizer.state[parameter]["exp_avg"] for parameter in net.parameters()])
    for model, own in ((net, optimizer), (twin, reverse)):
        step(model, own)
    assert_same(twin.state_dict(), net.state_dict())
    again = copy.deepcopy(reverse)
    again.load_state_dict(reverse.state_dict())
    assert again.accepted_orders == ([3, 2, 1, 0],)


def test_checkpoint_files_are_checked_before_the_model_is_loaded(tmp_path):
    helper, path = CheckpointHelper(), str(tmp_path / "ckpt.pth.tar")
    net, optimizer = trained(3, 4, 2, kind=torch.optim.AdamW)
    helper.save(path, make_net(3, 4, 2), trained(3, 5, 2)[1])
    before = copy.deepcopy(net.state_dict())
    with pytest.raises(ValueError, match=r"0.weight \[4, 3\]: exp_avg is \[5, 3\]"):
        helper.load(path, net, optimizer)
    assert_same(net.state_dict(), before)


@pytest.mark.parametrize(("state", "kind"), [(None, "NoneType"), ([1], "list"), ("model", "str")])
def test_what_is_no_dict_of_parts_is_refused(state, kind):
    refused(make_parts(3, 4), state, f"the state is a {kind}; it must be a dict with model, target_model, optimizer")
