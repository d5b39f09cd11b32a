"""The averages over the recent past."""

import numpy as np
import pytest

from ding.utils.autolog import TickTime
from ding.worker.learner.base_learner import TickMonitor, get_simple_monitor_type

BASE = [
    "data_time",
    "train_time",
    "total_collect_step",
    "total_step",
    "total_episode",
    "total_sample",
    "total_duration",
]


def test_a_tick_monitor_averages_its_seven_names():
    monitor = TickMonitor(TickTime(), expire=10)
    assert {name: monitor.avg[name]() for name in BASE} == dict.fromkeys(BASE, 0)
    for i in range(20):
        monitor.data_time = float(i)
        monitor.time.step()
    assert monitor.avg["data_time"]() == np.mean(range(9, 20))
    assert monitor.val["data_time"]() == 19.0
    assert [value for _, value in monitor.range_values["data_time"]()] == [float(i) for i in range(9, 20)]


def test_a_monitored_value_must_be_a_number():
    with pytest.raises(TypeError, match="train_time"):
        TickMonitor(TickTime(), expire=10).record({"train_time": "1"})


def test_no_properties_give_the_base_type():
    assert get_simple_monitor_type() is TickMonitor
    assert get_simple_monitor_type([]) is TickMonitor


def test_properties_give_a_subclass_with_the_base_names_sample_count_and_those():
    monitor_type = get_simple_monitor_type(["loss", "q"])
    assert issubclass(monitor_type, TickMonitor)
    monitor = monitor_type(TickTime(), expire=10)
    assert set(monitor.avg) == {*BASE, "sample_count", "loss", "q"}
    monitor.record({"q": 3})
    monitor.time.step()
    assert monitor.avg["q"]() == 3.0 and monitor.avg["loss"]() == 0


@pytest.mark.parametrize("name", ["time", "avg", "val", "range_values", "record", "freeze"])
def test_a_property_cannot_have_the_name_of_a_part_of_the_monitor(name):
    with pytest.raises(ValueError, match=name):
        get_simple_monitor_type(["loss", name])
