"""Schedules of learning rates."""

import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, MultiStepLR

from ding.torch_utils.optimizer_helper import LearningRateSchedule
from ding.utils.config_helper import ConfigError
from ding.utils.msgpack_helper import pack, unpack


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
