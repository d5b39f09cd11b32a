import copy

import pytest
import torch
from torch import nn

from ding.torch_utils.checkpoint_helper import CheckpointHelper
from ding.torch_utils.optimizer_helper import Adam
from ding.utils.module_state import fit_optimizer_state, load_parts, parameter_names, parts_state
from tests.policy.continuous_samples import assert_states_equal


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
    assert_states_equal(parts_state(parts), before)


def test_all_parts_take_their_state():
    parts, others = make_parts(3, 4, 2), make_parts(3, 4, 2)
    load_parts(parts, {**copy.deepcopy(parts_state(others)), "alpha": torch.tensor([0.25])})
    assert_states_equal(parts_state(parts), {**parts_state(others), "alpha": torch.tensor([0.25])})


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
    assert_states_equal(optimizer.state_dict(), before)
    step(net, optimizer)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ([1], "is a list; the state of an optimizer has state and param_groups"),
        ({"state": {}}, "is a dict; the state of"),
    ],
)
def test_what_is_no_state_of_an_optimizer_is_refused(state, message):
    with pytest.raises(ValueError, match=message):
        trained(3, 4, 2)[1].load_state_dict(state)


def test_groups_in_another_order_are_refused():
    net = make_net(3, 4, 2)
    groups = [{"params": layer.parameters()} for layer in net]
    optimizer, other = Adam(groups), Adam([{"params": layer.parameters()} for layer in reversed(net)])
    step(net, other)
    with pytest.raises(ValueError, match=r"parameter 0 \[4, 3\]: exp_avg is \[2, 4\]"):
        optimizer.load_state_dict(other.state_dict())


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
    assert_states_equal(twin.state_dict(), net.state_dict())


def test_a_state_that_several_optimizers_load_stays_as_it_is():
    net, optimizer = trained(3, 4, 2)
    state = optimizer.state_dict()
    before = copy.deepcopy(state)
    other = make_net(3, 4, 2)
    loaded = Adam(other.parameters())
    loaded.load_state_dict(state)
    step(other, loaded)
    assert_states_equal(state, before)


def test_an_optimizer_without_a_step_loads_and_takes_over_the_rate():
    fresh = Adam(make_net(3, 4, 2).parameters(), lr=0.3)
    net, optimizer = trained(3, 4, 2)
    optimizer.load_state_dict(fresh.state_dict())
    assert not optimizer.state and optimizer.param_groups[0]["lr"] == 0.3
    step(net, optimizer)


def test_a_state_in_an_order_that_is_accepted_is_brought_into_the_own_one():
    net, optimizer = trained(3, 4, 2)
    twin = copy.deepcopy(net)
    reverse = Adam(list(twin.parameters())[::-1], lr=0.01)
    reverse.accept_order(twin.parameters())
    reverse.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    moments = [reverse.state[parameter]["exp_avg"] for parameter in twin.parameters()]
    assert_states_equal(moments, [optimizer.state[parameter]["exp_avg"] for parameter in net.parameters()])
    for model, own in ((net, optimizer), (twin, reverse)):
        step(model, own)
    assert_states_equal(twin.state_dict(), net.state_dict())
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
    assert_states_equal(net.state_dict(), before)


def expanded(value):
    return torch.zeros(1).expand(value.shape)


def transposed(value):
    return value.t().contiguous().t() if value.ndim == 2 else value


@pytest.mark.parametrize("change", [expanded, transposed, lambda value: torch.cat([value, value])[: len(value)]])
def test_a_state_steps_alike_whatever_its_strides_are(change):
    # The fused step writes beyond the memory of an expanded tensor, which can end the process.
    _, source = trained(3, 64, 2)
    state = source.state_dict()
    own, other = copy.deepcopy(state), copy.deepcopy(state)
    for number, entry in state["state"].items():
        for name in ("exp_avg", "exp_avg_sq"):
            other["state"][number][name] = change(entry[name])
            own["state"][number][name] = change(entry[name]).clone(memory_format=torch.contiguous_format)
    nets = []
    for loaded in (own, other):
        torch.manual_seed(0)
        net, optimizer = trained(3, 64, 2)
        optimizer.load_state_dict(loaded)
        for _ in range(3):
            step(net, optimizer)
        nets.append(net)
    assert_states_equal(nets[0].state_dict(), nets[1].state_dict())


def test_entries_that_share_their_memory_are_separated():
    net, optimizer = trained(3, 4)
    state = optimizer.state_dict()
    for entry in state["state"].values():
        entry["exp_avg_sq"] = entry["exp_avg"]
    optimizer.load_state_dict(state)
    entry = optimizer.state[net[0].weight]
    assert entry["exp_avg"].data_ptr() != entry["exp_avg_sq"].data_ptr()


def test_the_moments_of_a_convolution_get_the_memory_format_of_its_weight():
    nets = []
    for memory_format in (torch.contiguous_format, torch.channels_last):
        torch.manual_seed(0)
        net = nn.Conv2d(3, 4, 3)
        optimizer = Adam(net.parameters(), lr=0.01)
        for _ in range(2):
            net(torch.arange(108.0).view(1, 3, 6, 6)).square().mean().backward()
            optimizer.step()
            state = optimizer.state_dict()
            net = net.to(memory_format=memory_format)
            optimizer = Adam(net.parameters(), lr=0.01)
            optimizer.load_state_dict(state)
        nets.append(net)
    torch.testing.assert_close(nets[0].weight, nets[1].weight, rtol=1e-5, atol=1e-6)


class LowRank(torch.optim.Optimizer):
    """Keeps the moment of each row alone, under the name that Adam has for its own."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                rows = parameter.grad.reshape(len(parameter), -1).mean(1)
                self.state[parameter]["exp_avg"] = self.state[parameter].get("exp_avg", 0) * 0.9 + rows


def test_an_optimizer_of_a_program_may_name_what_it_likes_as_adam_does():
    net, optimizer = trained(3, 4, kind=LowRank)
    other = LowRank(net.parameters(), lr=0.5)
    other.load_state_dict(fit_optimizer_state(other, optimizer.state_dict()))
    assert_states_equal(other.state_dict(), optimizer.state_dict())
    assert other.state[net[0].weight]["exp_avg"].shape == (4,)


@pytest.mark.parametrize(("state", "kind"), [(None, "NoneType"), ([1], "list"), ("model", "str")])
def test_what_is_no_dict_of_parts_is_refused(state, kind):
    refused(make_parts(3, 4), state, f"the state is a {kind}; it must be a dict with model, target_model, optimizer")


def test_the_state_of_a_bare_module_is_told():
    parts = {"model": make_net(*[2] * 9)}
    refused(
        parts,
        parts["model"].state_dict(),
        "the state lacks model; it has 0.weight, .*. It was .*; the weights of a module are",
    )


def test_a_tensor_of_another_kind_is_refused():
    refused({"alpha": torch.ones(2)}, {"alpha": torch.ones(2) * 1j}, r"alpha .* is \[2\] of torch.complex64, and must")
