"""Adam and RMSprop: equal to torch's, clipping, ignoring, state dicts."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, MultiStepLR

from ding.torch_utils.optimizer_helper import (
    Adam,
    GradientGuard,
    LearningRateSchedule,
    RMSprop,
    calculate_grad_norm,
    calculate_grad_norm_without_bias_two_norm,
    grad_ignore_norm,
    grad_ignore_value,
)
from ding.utils.config_helper import ConfigError
from ding.utils.msgpack_helper import pack, unpack


def make_net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))


def backward(net, scale=1.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(16, 3, generator=generator)
    net.zero_grad()
    (scale * (net(x) - 1) ** 2).mean().backward()


def run(net, optimizer, steps=20):
    for step in range(steps):
        backward(net, seed=step)
        optimizer.step()
        optimizer.zero_grad()
    return [parameter.detach().clone() for parameter in net.parameters()]


def assert_close(left, right):
    for a, b in zip(left, right, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("ours", "theirs", "options", "own"),
    [
        (Adam, torch.optim.Adam, {}, {}),
        (Adam, torch.optim.Adam, {"weight_decay": 0.1, "betas": [0.8, 0.9]}, {}),
        (Adam, torch.optim.Adam, {"amsgrad": True}, {}),
        (Adam, torch.optim.AdamW, {"weight_decay": 0.3}, {"optim_type": "adamw"}),
        (RMSprop, torch.optim.RMSprop, {"momentum": 0.5, "centered": True}, {}),
    ],
)
def test_optimizers_move_as_those_of_torch(ours, theirs, options, own):
    mine, reference = make_net(), make_net()
    assert_close(
        run(mine, ours(mine.parameters(), lr=0.01, **options, **own)),
        run(reference, theirs(reference.parameters(), lr=0.01, **options)),
    )


@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.1}, {"optim_type": "adamw"}])
def test_steps_equal_those_of_torchs_fused_adam_bit_for_bit(options):
    is_adamw = "optim_type" in options
    torchs = torch.optim.AdamW if is_adamw else torch.optim.Adam
    kept = {key: value for key, value in options.items() if key != "optim_type"}
    nets = make_net(), make_net()
    mine = Adam(nets[0].parameters(), lr=0.01, **options)
    reference = torchs(nets[1].parameters(), lr=0.01, fused=True, **({"weight_decay": 0} if is_adamw else kept))
    for step in range(9):
        for net, optimizer in zip(nets, (mine, reference), strict=True):
            backward(net, seed=step)
            if step == 3:
                net[2].bias.grad = None  # its number of steps falls behind
            optimizer.step()
        if step == 6:
            mine.load_state_dict(copy.deepcopy(mine.state_dict()))
    for own, other in zip(*(net.parameters() for net in nets), strict=True):
        assert torch.equal(own, other)
    own, other = mine.state_dict()["state"], reference.state_dict()["state"]
    assert [float(own[i]["step"]) for i in range(4)] == [9, 9, 9, 8]
    for i in range(4):
        assert all(torch.equal(own[i][key], other[i][key]) for key in ("step", "exp_avg", "exp_avg_sq"))


def test_state_dict_is_exchanged_with_torchs_adam_in_both_directions():
    source, target = make_net(), make_net()
    theirs = torch.optim.Adam(source.parameters(), lr=0.05)
    run(source, theirs, 5)
    target.load_state_dict(source.state_dict())
    ours = Adam(target.parameters(), lr=0.5)
    ours.load_state_dict(copy.deepcopy(theirs.state_dict()))
    assert ours.param_groups[0]["fused"] is True
    assert ours.param_groups[0]["lr"] == 0.05
    assert_close(run(target, ours, 5), run(source, theirs, 5))
    back = torch.optim.Adam(source.parameters())
    back.load_state_dict(copy.deepcopy(ours.state_dict()))
    assert_close(run(source, back, 3), run(target, ours, 3))


def test_step_hooks_run_once_and_a_closure_gives_the_loss():
    net = make_net()
    torch.optim.Adam(net.parameters())  # torch hooks its own class at the first construction
    optimizer = Adam(net.parameters())
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("pre"))
    optimizer.register_step_post_hook(lambda *_: calls.append("post"))

    def closure():
        optimizer.zero_grad()
        loss = net(torch.ones(1, 3)).sum()
        loss.backward()
        return loss

    before = net[0].weight.detach().clone()
    assert optimizer.step(closure).requires_grad
    assert calls == ["pre", "post"]
    assert not torch.equal(before, net[0].weight)


# --- clipping and ignoring ---


def stepped_grads(cls=Adam, scale=1.0, warm_up=0, **options):
    """The gradients of a net before and after they went through a step of an optimizer with `options`."""
    net = make_net()
    optimizer = cls(net.parameters(), lr=0.0, **options)
    for _ in range(warm_up):
        backward(net)
        optimizer.step()
    backward(net, scale)
    before = [parameter.grad.clone() for parameter in net.parameters()]
    optimizer.step()
    return before, [parameter.grad for parameter in net.parameters()]


def norm(tensors, kind=2.0):
    return torch.linalg.vector_norm(torch.cat([tensor.flatten() for tensor in tensors]), kind).item()


@pytest.mark.parametrize("cls", [Adam, RMSprop])
def test_clip_value_bounds_each_element(cls):
    before, after = stepped_grads(cls, grad_clip_type="clip_value", clip_value=0.05)
    assert_close(after, [grad.clamp(-0.05, 0.05) for grad in before])
    assert norm(before, math.inf) > 0.05


@pytest.mark.parametrize("kind", [2.0, 1.0, math.inf])
def test_clip_norm_scales_all_gradients_down(kind):
    before, after = stepped_grads(grad_clip_type="clip_norm", clip_value=0.1, clip_norm_type=kind)
    assert norm(before, kind) > 0.1
    assert norm(after, kind) == pytest.approx(0.1, rel=1e-3)
    assert_close(after, [grad * (norm(after) / norm(before)) for grad in before])


def clipped(make, max_norm, norm_type):
    guard = GradientGuard(grad_clip_type="clip_norm", clip_value=max_norm, clip_norm_type=norm_type)
    ours, theirs = make(), make()
    guard.apply(torch.optim.SGD(ours, lr=1.0))
    nn.utils.clip_grad_norm_(theirs, max_norm, norm_type)
    return [p.grad for p in ours], [p.grad for p in theirs]


def dense(dtypes):
    torch.manual_seed(0)
    parameters = [nn.Parameter(torch.rand(3, i + 1, dtype=dtype)) for i, dtype in enumerate(dtypes)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    parameters.append(nn.Parameter(torch.rand(2)))  # without a gradient
    return parameters


@pytest.mark.parametrize("norm_type", [1.0, 2.0, math.inf])
@pytest.mark.parametrize("max_norm", [0.1, 100.0])
@pytest.mark.parametrize("dtypes", [[torch.float32] * 3, [torch.float64], [torch.float32, torch.float64]])
def test_clipping_by_the_norm_equals_torchs_bit_for_bit(dtypes, max_norm, norm_type):
    ours, theirs = clipped(lambda: dense(dtypes), max_norm, norm_type)
    assert all(a is b is None or torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("cls", [Adam, RMSprop])
def test_clip_momentum_bounds_elements_by_their_past(cls):
    options = {"grad_clip_type": "clip_momentum", "clip_value": 1, "clip_coef": 2, "clip_momentum_timestep": 3}
    if cls is RMSprop:
        options["alpha"] = 0.5
    usual, _ = stepped_grads(cls)
    before, after = stepped_grads(cls, scale=100.0, warm_up=4, **options)
    root = 1.0 if cls is Adam else math.sqrt(1 - 0.5**4)
    assert_close(after, [2 * root * grad for grad in usual])
    before, after = stepped_grads(cls, scale=100.0, warm_up=2, **options)
    assert_close(after, before)


def test_clip_momentum_norm_bounds_the_norm_by_the_past():
    options = {"grad_clip_type": "clip_momentum_norm", "clip_value": 1, "clip_coef": 2, "clip_momentum_timestep": 2}
    usual, _ = stepped_grads()
    _, after = stepped_grads(scale=100.0, warm_up=3, **options)
    assert norm(after) == pytest.approx(2 * norm(usual), rel=1e-4)
    before, after = stepped_grads(scale=1.5, warm_up=3, **options)
    assert_close(after, before)


@pytest.mark.parametrize("cls", [Adam, RMSprop])
@pytest.mark.parametrize(
    "options",
    [
        {"grad_ignore_type": "ignore_value", "ignore_value": 5.0},
        {"grad_ignore_type": "ignore_norm", "ignore_value": 10.0},
        {"grad_ignore_type": "ignore_momentum", "ignore_value": 0, "ignore_coef": 30, "ignore_momentum_timestep": 2},
        {
            "grad_ignore_type": "ignore_momentum_norm",
            "ignore_value": 0,
            "ignore_coef": 30,
            "ignore_momentum_timestep": 2,
        },
    ],
)
def test_ignored_gradients_are_zero_and_others_untouched(cls, options):
    before, after = stepped_grads(cls, scale=1000.0, warm_up=3, **options)
    assert norm(before) > 0
    assert norm(after) == 0
    before, after = stepped_grads(cls, warm_up=3, **options)
    assert_close(after, before)


@pytest.mark.parametrize("cls", [Adam, RMSprop])
@pytest.mark.parametrize("as_keyword", [False, True])
def test_the_gradients_of_a_closure_are_clipped(cls, as_keyword):
    net = make_net()
    optimizer = cls(net.parameters(), lr=0.0, grad_clip_type="clip_norm", clip_value=0.1)

    def closure():
        backward(net)
        return "loss"

    assert (optimizer.step(closure=closure) if as_keyword else optimizer.step(closure)) == "loss"
    assert norm([parameter.grad for parameter in net.parameters()]) == pytest.approx(0.1, rel=1e-3)


@pytest.mark.parametrize("cls", [Adam, RMSprop])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grad_clip_type": "clip_norm"}, "needs clip_value"),
        ({"grad_ignore_type": "ignore_norm"}, "needs ignore_value"),
        ({"grad_clip_type": "norm", "clip_value": 1}, "grad_clip_type = 'norm'"),
        ({"grad_clip_type": "clip_norm", "clip_value": -1.0}, "clip_value = -1.0 is not allowed"),
        ({"grad_ignore_type": "ignore_norm", "ignore_value": math.nan}, "ignore_value = nan is not allowed"),
        ({"grad_ignore_type": "norm", "ignore_value": 1}, "grad_ignore_type = 'norm'"),
    ],
)
def test_wrong_options_fail_at_construction(cls, options, message):
    with pytest.raises(AssertionError, match=message):
        cls(make_net().parameters(), **options)


def test_get_grad_sums_the_powered_norms():
    net = make_net()
    optimizer = Adam(net.parameters(), grad_norm_type=2)
    assert optimizer.get_grad() == 0
    backward(net)
    grads = [parameter.grad for parameter in net.parameters()]
    assert optimizer.get_grad() == pytest.approx(norm(grads) ** 2)
    assert RMSprop(net.parameters(), grad_norm_type=1).get_grad() == pytest.approx(norm(grads, 1))
    assert Adam(net.parameters()).get_grad() == pytest.approx(norm(grads) ** 2)


def test_grad_norms_of_a_model():
    net = make_net()
    assert calculate_grad_norm(net) == 0
    assert calculate_grad_norm(net, "inf") == 0
    backward(net)
    grads = [parameter.grad for parameter in net.parameters()]
    assert calculate_grad_norm(net) == pytest.approx(norm(grads))
    assert calculate_grad_norm(net, "inf") == pytest.approx(norm(grads, math.inf))
    assert calculate_grad_norm_without_bias_two_norm(net) == pytest.approx(norm(grads[::2]))


def test_grad_ignore_functions_clear_large_gradients():
    for function, limit in ((grad_ignore_norm, 5.0), (grad_ignore_value, 3.5)):
        parameter = nn.Parameter(torch.zeros(2))
        parameter.grad = torch.tensor([3.0, -3.9])
        function([parameter], 10.0)
        assert parameter.grad.tolist() == pytest.approx([3.0, -3.9])
        function([parameter], limit - 1.2)
        assert parameter.grad.tolist() == [0.0, 0.0]
        function([nn.Parameter(torch.zeros(1))], limit)
        parameter.grad = torch.tensor([math.nan, 0.0])
        function([parameter], 10.0)
        assert parameter.grad.tolist() == [0.0, 0.0]


# Schedules of learning rates.


def halved(progress_remaining):
    return progress_remaining / 2


def optimizers(*rates):
    return [torch.optim.Adam([torch.zeros(1, requires_grad=True)], lr=rate) for rate in rates]


def rates_of(made):
    return [optimizer.param_groups[0]["lr"] for optimizer in made]


def play(schedule, made, steps):
    found = []
    for _ in range(steps):
        schedule.begin()
        found.append(rates_of(made))
        schedule.step()
    return found


def test_a_linear_schedule_multiplies_every_rate_by_the_remaining_progress():
    made = optimizers(0.4, 0.02)
    schedule = LearningRateSchedule(made, "linear")
    for progress in (1.0, 0.5, 0.0):
        schedule.begin(progress)
        assert rates_of(made) == [0.4 * progress, 0.02 * progress]
        schedule.step()


@pytest.mark.parametrize("setting", [halved, f"{__name__}:halved"])
def test_a_function_or_its_name_maps_the_progress_to_a_factor(setting):
    made = optimizers(0.4)
    LearningRateSchedule(made, setting).begin(0.5)
    assert rates_of(made) == [0.1]


def test_a_decay_falls_to_its_minimum_and_stays_there():
    made = optimizers(2.0)
    schedule = LearningRateSchedule(made, {"epoch_num": 4, "min_lr_lambda": 0.2})
    assert play(schedule, made, 6) == [[pytest.approx(rate)] for rate in (2.0, 1.6, 1.2, 0.8, 0.4, 0.4)]


@pytest.mark.parametrize(
    ("setting", "cls"),
    [
        ({"type": "CosineAnnealingLR", "T_max": 5, "eta_min": 0.01}, CosineAnnealingLR),
        ({"type": "MultiStepLR", "milestones": [2, 4], "gamma": 0.5}, MultiStepLR),
    ],
)
def test_a_scheduler_of_torch_gives_the_rates_of_torch(setting, cls):
    made, (reference,) = optimizers(0.3, 0.05), optimizers(0.3)
    arguments = {key: value for key, value in setting.items() if key != "type"}
    theirs, expected = cls(reference, **arguments), []
    for _ in range(7):
        expected.append(reference.param_groups[0]["lr"])
        reference.step()
        theirs.step()
    assert [first for first, _ in play(LearningRateSchedule(made, setting), made, 7)] == expected


@pytest.mark.parametrize(
    "setting",
    [
        {"epoch_num": 9, "min_lr_lambda": 0.1},
        {"type": "CosineAnnealingWarmRestarts", "T_0": 3},
        {"type": "MultiStepLR", "milestones": [2, 4]},
        {"type": "ExponentialLR", "gamma": 0.9},
        {"type": "OneCycleLR", "max_lr": [0.5, 0.6], "total_steps": 20},
        "ConstantLR",
    ],
)
def test_another_schedule_goes_on_from_its_state(setting):
    one, other = optimizers(0.3, 0.05), optimizers(0.3, 0.05)
    first, second = LearningRateSchedule(one, setting), LearningRateSchedule(other, setting)
    play(first, one, 5)
    second.load_state_dict(unpack(pack(first.state_dict())))
    assert play(second, other, 4) == play(first, one, 4)


@pytest.mark.parametrize(
    "setting",
    [
        "cosine",
        3,
        lambda progress: progress,
        MultiStepLR,
        {"epoch_num": 5},
        {"type": "ReduceLROnPlateau"},
        {"type": "Cosine", "T_max": 5},
        {"type": "CosineAnnealingLR"},
        {"type": "CosineAnnealingLR", "t_max": 5},
        f"{__name__}:missing",
    ],
)
def test_what_is_no_schedule_is_refused(setting):
    with pytest.raises(ConfigError):
        LearningRateSchedule(optimizers(1.0), setting)


def test_a_schedule_by_progress_needs_the_length_of_the_run():
    with pytest.raises(ConfigError):
        LearningRateSchedule(optimizers(1.0), "linear").begin()
