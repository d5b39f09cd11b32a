import pytest

from ding.utils.config_helper import ConfigError
from ding.utils.default_helper import Scheduler


def run(cfg, metrics, param=1.0):
    scheduler, params = Scheduler(cfg), []
    for metric in metrics:
        param = scheduler.step(metric, param)
        params.append(pytest.approx(param))
    return params


def test_defaults_are_the_documented_ones():
    assert Scheduler.default_config() == {
        "schedule_flag": False,
        "schedule_mode": "reduce",
        "factor": 0.05,
        "change_range": [-1, 1],
        "threshold": 1e-4,
        "optimize_mode": "min",
        "patience": 10,
        "cooldown": 0,
        "cfg_type": "SchedulerDict",
    }


def test_the_parameter_changes_after_more_than_patience_calls_that_are_not_better():
    assert run({"patience": 2}, [1.0] * 8) == [1, 1, 1, 0.95, 0.95, 0.95, 0.9, 0.9]


def test_a_better_metric_starts_the_count_again():
    assert run({"patience": 1}, [1.0, 1.0, 0.5, 0.5, 0.5]) == [1, 1, 1, 1, 0.95]


def test_each_metric_is_compared_with_the_one_before_it():
    assert run({"patience": 0}, [1.0, 5.0, 4.0, 3.0]) == [1, 0.95, 0.95, 0.95]


def test_better_means_by_more_than_the_threshold_in_the_chosen_direction():
    assert run({"patience": 0, "threshold": 0.5}, [1.0, 0.6, 0.0]) == [1, 0.95, 0.95]
    assert run({"patience": 0, "threshold": 0.5, "optimize_mode": "max"}, [1.0, 1.6, 2.0]) == [1, 1, 0.95]


def test_calls_during_the_cooldown_do_not_count_also_at_the_start():
    assert run({"patience": 0, "cooldown": 2}, [1.0] * 7) == [1, 1, 0.95, 0.95, 0.95, 0.9, 0.9]


@pytest.mark.parametrize(
    ("mode", "factor", "expected"),
    [
        ("reduce", 3.0, [-1, -1]),
        ("add", 0.6, [0.6, 1]),
        ("multi", 2.0, [0, 0]),
        ("div", 2.0, [0, 0]),
    ],
)
def test_the_parameter_stays_in_its_range(mode, factor, expected):
    cfg = {"patience": 0, "schedule_mode": mode, "factor": factor}
    assert run(cfg, [1.0] * 3, param=0.0)[1:] == expected


@pytest.mark.parametrize(
    ("mode", "factor", "expected"),
    [
        ("multi", 3.0, [3, 8, 8]),
        ("multi", 0.5, [0.5, 0.4, 0.4]),
        ("div", 2.0, [0.5, 0.4, 0.4]),
        ("div", 0.3, [10 / 3, 8, 8]),
    ],
)
def test_factors_multiply_and_divide_within_the_range(mode, factor, expected):
    cfg = {"patience": 0, "schedule_mode": mode, "factor": factor, "change_range": [0.4, 8]}
    assert run(cfg, [1.0] * 4)[1:] == expected


def test_a_metric_that_is_not_a_float_is_refused():
    with pytest.raises(AssertionError, match="metrics = 1"):
        Scheduler({}).step(1, 1.0)


@pytest.mark.parametrize(
    "cfg",
    [
        {"schedule_mode": "exp"},
        {"factor": 0},
        {"factor": "1"},
        {"change_range": [1, 0]},
        {"change_range": (0, 1)},
        {"change_range": [0, 1, 2]},
        {"threshold": None},
        {"optimize_mode": "mean"},
        {"patience": -1},
        {"patience": 1.5},
        {"cooldown": True},
    ],
)
def test_a_wrong_configuration_is_refused(cfg):
    with pytest.raises(ConfigError):
        Scheduler(cfg)
    with pytest.raises(AssertionError):
        Scheduler(cfg)
