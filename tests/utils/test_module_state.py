import copy

import pytest
import torch
from torch import nn

from ding.torch_utils.checkpoint_helper import CheckpointHelper
from ding.torch_utils.optimizer_helper import Adam, RMSprop
from ding.utils.module_state import load_optimizer_state, load_parts, parameter_names, parts_state
from ding.utils.object_state import attributes_state, load_attributes_state
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


@pytest.mark.differs(
    "of a learner state that does not fit, the parts before the error are loaded",
    "all parts are loaded, or none",
)
@pytest.mark.parametrize("key", ["model", "target_model"])
def test_nothing_is_loaded_if_one_module_refuses_its_state(key):
    parts, state = make_parts(3, 4, 2), parts_state(make_parts(3, 4, 2))
    state[key] = {**state[key], "1.weight": torch.zeros(5, 4)}
    refused(parts, state, "1.weight", RuntimeError)


@pytest.mark.differs(
    "the state of an optimizer with other parameters loads, and the next step fails or writes beyond its memory",
    "it is refused with the names and shapes of the parameters",
)
def test_nothing_is_loaded_if_the_optimizer_is_that_of_another_model_and_its_parameters_are_named():
    parts = make_parts(3, 4, 2)
    state = {**parts_state(make_parts(3, 4, 2)), "optimizer": trained(3, 5, 2)[1].state_dict()}
    message = r"0.weight \[4, 3\]: exp_avg is \[5, 3\]; 0.bias \[4\]: exp_avg is \[5\]; 1.weight \[2, 4\]: .*\[2, 5\]"
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
        ({"exp_avg_sq": None}, r"parameter 0 \[4, 3\]: exp_avg_sq missing beside step, exp_avg"),
        ({"exp_avg": torch.zeros(4, 3, dtype=torch.int64)}, r"exp_avg is \[4, 3\] of torch.int64"),
        ({"exp_avg": torch.zeros(12)}, r"exp_avg is \[12\]"),
        ({"exp_avg": 0.0}, "exp_avg is a float"),
        ({"step": torch.zeros(2)}, r"step is \[2\], not a count of steps"),
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
        ({"state": {9: {}}, "param_groups": [{"params": [0, 1, 2, 3]}]}, r"damaged: .*not \[9\]"),
        ({"state": {}, "param_groups": [{"params": [0, 0, 1, 2]}]}, "damaged"),
    ],
)
def test_what_is_no_state_of_an_optimizer_is_refused(state, message):
    with pytest.raises(ValueError, match=message):
        trained(3, 4, 2)[1].load_state_dict(state)


def test_a_state_of_another_kind_of_optimizer_is_refused():
    sgd = trained(3, 4, 2, kind=torch.optim.SGD, momentum=0.9)[1]
    with pytest.raises(ValueError, match="step, exp_avg, exp_avg_sq missing beside momentum_buffer"):
        trained(3, 4, 2)[1].load_state_dict(sgd.state_dict())
    with pytest.raises(ValueError, match="square_avg missing"):
        trained(3, 4, 2, kind=RMSprop)[1].load_state_dict(trained(3, 4, 2)[1].state_dict())
    plain, moving = trained(3, 4, 2, kind=RMSprop)[1].state_dict(), trained(3, 4, 2, kind=RMSprop, momentum=0.9)[1]
    plain["param_groups"][0]["momentum"] = 0.9
    with pytest.raises(ValueError, match="momentum_buffer missing"):
        moving.load_state_dict(plain)
    amsgrad = trained(3, 4, 2)[1].state_dict()
    amsgrad["param_groups"][0]["amsgrad"] = True
    with pytest.raises(ValueError, match="max_exp_avg_sq missing"):
        trained(3, 4, 2)[1].load_state_dict(amsgrad)


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
    load_optimizer_state(plain, {"state": {}, "param_groups": [{"params": [0, 1, 2, 3], "lr": 0.2, "fused": True}]})
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


class Owner:
    def __init__(self, kind, *sizes):
        self.net, self.optimizer = trained(*sizes, kind=kind)


@pytest.mark.parametrize("kind", [Adam, torch.optim.AdamW])
def test_states_of_runs_are_checked_too(kind):
    owner, other = Owner(kind, 3, 4, 2), Owner(kind, 3, 5, 2)
    state = attributes_state(owner)
    load_attributes_state(Owner(kind, 3, 4, 2), state)
    with pytest.raises(ValueError, match=r"parameter 0 \[5, 3\]: exp_avg is \[4, 3\]"):
        load_attributes_state(other, {"optimizer": state["optimizer"]})


def test_checkpoint_files_are_checked_before_the_model_is_loaded(tmp_path):
    helper, path = CheckpointHelper(), str(tmp_path / "ckpt.pth.tar")
    net, optimizer = trained(3, 4, 2, kind=torch.optim.AdamW)
    helper.save(path, make_net(3, 4, 2), trained(3, 5, 2)[1])
    before = copy.deepcopy(net.state_dict())
    with pytest.raises(ValueError, match=r"0.weight \[4, 3\]: exp_avg is \[5, 3\]"):
        helper.load(path, net, optimizer)
    assert_states_equal(net.state_dict(), before)
    other = make_net(3, 4, 5)
    before = copy.deepcopy(other.state_dict())
    with pytest.raises(RuntimeError, match=r"1\.weight"):
        helper.load(path, other)
    assert_states_equal(other.state_dict(), before)


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


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (torch.zeros(4, 3).to_sparse(), r"0 \[4, 3\]: exp_avg is \[4, 3\] of torch.sparse_coo"),
        (torch.zeros(4, 3, device="meta"), r"0 \[4, 3\]: exp_avg is \[4, 3\] without data"),
        (torch.zeros(4, 3) * 1j, r"0 \[4, 3\]: exp_avg is \[4, 3\] of torch.complex64"),
    ],
)
def test_moments_that_cannot_be_those_of_the_parameter_are_refused(value, message):
    _, optimizer = trained(3, 4)
    state = optimizer.state_dict()
    state["state"][0]["exp_avg"] = value
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict(state)


@pytest.mark.parametrize("count", [torch.tensor(-1.0), float("nan"), torch.tensor(float("inf"))])
def test_a_step_that_is_no_count_is_refused(count):
    _, optimizer = trained(3, 4)
    state = optimizer.state_dict()
    state["state"][1]["step"] = count
    with pytest.raises(ValueError, match=f"parameter 1 .*: step is {float(count)!r}, not a count of steps"):
        optimizer.load_state_dict(state)


@pytest.mark.parametrize(
    "change",
    [
        {"state": [1]},
        {"state": {0: torch.ones(3)}},
        {"param_groups": None},
        {"param_groups": [{"lr": 1.0}]},
        {"param_groups": [{"params": 2}]},
    ],
)
def test_a_state_of_another_structure_is_refused(change):
    _, optimizer = trained(3, 4)
    with pytest.raises(ValueError, match="the state of optimizer is damaged: state must be a dict of dicts, and"):
        optimizer.load_state_dict({**optimizer.state_dict(), **change})


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
    load_optimizer_state(other, optimizer.state_dict())
    assert_states_equal(other.state_dict(), optimizer.state_dict())
    assert other.state[net[0].weight]["exp_avg"].shape == (4,)


class Refusing(torch.optim.SGD):
    refuses = False

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        if self.refuses:
            raise RuntimeError("not today")


def test_nothing_is_loaded_if_an_optimizer_of_a_program_refuses_its_state():
    parts = make_parts(3, 4)
    last = parts["last"] = Refusing(parts["model"].parameters(), lr=0.1, momentum=0.9)
    step(parts["model"], last)
    state = copy.deepcopy(parts_state(parts))
    state["alpha"] += 1
    state["optimizer"]["param_groups"][0]["lr"] = state["last"]["param_groups"][0]["lr"] = 7.0
    state["model"]["0.weight"] += 1
    last.refuses = True
    refused(parts, state, "not today", RuntimeError)


@pytest.mark.parametrize(("state", "kind"), [(None, "NoneType"), ([1], "list"), ("model", "str")])
def test_what_is_no_dict_of_parts_is_refused(state, kind):
    refused(make_parts(3, 4), state, f"the state is a {kind}; it must be a dict with model, target_model, optimizer")


def test_a_long_state_of_a_bare_module_is_not_listed_whole():
    parts = {"model": make_net(*[2] * 9)}
    refused(
        parts,
        parts["model"].state_dict(),
        "the state lacks model; it has 0.weight, .*, 3.bias and 8 more. It was .*; the weights of a module are",
    )


def test_a_tensor_of_another_kind_is_refused():
    refused({"alpha": torch.ones(2)}, {"alpha": torch.ones(2) * 1j}, r"alpha .* is \[2\] of torch.complex64, and must")
