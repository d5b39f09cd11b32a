import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.utils.autolog import (
    BaseTime,
    LoggedModel,
    LoggedValue,
    NaturalTime,
    TickTime,
    TimeMode,
    TimeProxy,
    TimeRangedData,
)
from ding.utils.lock_helper import LockContextType


class Model(LoggedModel):
    loss = LoggedValue(float)
    count = LoggedValue(int)
    anything = LoggedValue()

    def __init__(self, time_, expire):
        super().__init__(time_, expire)
        self.register_attribute_value("avg", "loss", self._average)

    def _average(self):
        return self.mean_of("loss")


@pytest.fixture
def model():
    return Model(TickTime(), 2)


def record(model, values):
    for value in values:
        model.loss = value
        model.time.step()


def test_assignment_records_and_reading_gives_the_newest(model):
    record(model, [0.0, 1.0, 2.0, 3.0, 4.0])
    assert model.loss == 4.0
    assert model.range_values["loss"]() == [((3, 3), 2.0), ((3, 4), 3.0), ((4, 5), 4.0)]
    assert model.avg["loss"]() == 3.0
    assert model.window_of("loss") == [2.0, 3.0, 4.0]


def test_times_can_be_told_in_three_ways():
    clock = TickTime(100)
    model = Model(clock, 5)
    record(model, [1.0, 2.0])
    assert model.range_values["loss"](TimeMode.ABSOLUTE) == [((100, 101), 1.0), ((101, 102), 2.0)]
    assert model.range_values["loss"](TimeMode.RELATIVE_LIFECYCLE) == [((0, 1), 1.0), ((1, 2), 2.0)]
    assert model.range_values["loss"](TimeMode.RELATIVE_CURRENT_TIME) == [((-2, -1), 1.0), ((-1, 0), 2.0)]
    assert model.range_values["loss"]() == model.range_values["loss"](TimeMode.RELATIVE_LIFECYCLE)


def test_a_frozen_model_records_and_reads_at_one_time(model):
    model.loss = 1.0
    model.time.step()
    model.freeze()
    model.time.step()
    assert (model.fixed_time(), model.current_time()) == (1, 2)
    assert model.range_values["loss"]() == [((0, 1), 1.0)]
    model.unfreeze()
    assert model.range_values["loss"]() == [((0, 2), 1.0)]
    with pytest.raises(RuntimeError, match="not frozen"):
        model.unfreeze()


@pytest.mark.parametrize(
    "value",
    [2, 2.0, True + 1, np.float32(2), np.int64(2), torch.tensor(2), torch.tensor([[2.0]]), np.array([2]), [2], (2.0,)],
)
def test_one_number_of_any_kind_is_converted(model, value):
    model.loss = value
    model.count = value
    assert (type(model.loss), model.loss, type(model.count), model.count) == (float, 2.0, int, 2)


@pytest.mark.parametrize("value", ["2", None, [1, 2], torch.zeros(2), np.zeros(0), 1j, object()])
def test_what_is_not_one_number_is_a_type_error(model, value):
    with pytest.raises(TypeError, match="loss takes float"):
        model.loss = value
    with pytest.raises(TypeError, match="count takes int"):
        model.count = value


@pytest.mark.parametrize("value", [1.5, float("nan"), float("inf")])
def test_an_int_value_takes_whole_numbers_only(model, value):
    with pytest.raises(TypeError, match="count takes int"):
        model.count = value


def test_reading_before_the_first_assignment_is_a_value_error(model):
    with pytest.raises(ValueError, match="nothing was recorded"):
        model.loss  # noqa: B018


def test_hasattr_on_an_unknown_name_is_false(model):
    assert not hasattr(model, "unknown")
    for error in (AttributeError, KeyError):
        with pytest.raises(error, match="has no value or registered attribute 'unknown'"):
            model.unknown  # noqa: B018


@pytest.mark.parametrize("name", ["time", "expire", "avg", "range_values", "freeze"])
def test_an_undeclared_value_replaces_no_part_of_the_model(model, name):
    record(model, [1.0, 3.0])
    before = getattr(model, name)
    setattr(model, name, 0.5)
    assert getattr(model, name) == before
    assert (model.avg["loss"](), model.time.time(), model.expire, model.fixed_time()) == (2.0, 2, 2, 2)


def test_values_of_a_base_class_must_be_declared_again():
    class Narrow(Model):
        count = LoggedValue(int)

        def __init__(self, time_, expire):
            LoggedModel.__init__(self, time_, expire)

    model = Narrow(TickTime(), 2)
    assert list(model.range_values) == ["count"]
    assert not hasattr(model, "loss")
    model.loss = "kept aside"
    assert model.loss == "kept aside"


class Settable(TickTime):
    def set(self, value):
        self._tick = value


def recorded(count, expire, clock):
    data = TimeRangedData(clock, expire)
    for value in range(count):
        data.append(value)
        clock.step()
    return data


def test_values_of_the_span_and_the_one_before_are_kept():
    clock = TickTime()
    data = recorded(5, 2, clock)
    assert data.history() == [(3, 2), (3, 3), (4, 4), (5, 4)]
    clock.step(10)
    assert data.history() == [(13, 4), (15, 4)]
    assert data.current() == 4


def test_extend_appends_each():
    data = TimeRangedData(TickTime(), 3)
    assert data.extend([1, 2]) is data
    assert data.history() == [(0, 1), (0, 2)]


def test_there_is_no_current_value_before_the_first():
    with pytest.raises(ValueError, match="nothing was recorded"):
        TimeRangedData(TickTime(), 3).current()


@pytest.mark.parametrize(("expire", "error"), [(0, ValueError), (-1, ValueError), ("3", TypeError), (True, TypeError)])
def test_expire_must_be_a_positive_number(expire, error):
    with pytest.raises(error, match="expire"):
        TimeRangedData(TickTime(), expire)


def test_time_that_goes_back_is_refused():
    clock = Settable(5)
    data = TimeRangedData(clock, 3)
    data.append(1)
    clock.set(4)
    with pytest.raises(ValueError, match="went back"):
        data.append(2)


class Pair(LoggedModel):
    one = LoggedValue(float)
    two = LoggedValue(float)


@settings(max_examples=100)
@given(
    expire=st.integers(1, 6),
    events=st.lists(
        st.one_of(
            st.dictionaries(st.sampled_from(["one", "two"]), st.floats(-10, 10)),
            st.integers(1, 9),
            st.sampled_from(["one", "two"]),
        )
    ),
)
def test_values_recorded_together_agree_with_a_plain_list_for_each_name(expire, events):
    clock, told = TickTime(), {"one": [], "two": []}
    model = Pair(clock, expire)
    for event in events:
        if isinstance(event, int):
            clock.step(event)
        elif isinstance(event, dict):  # not read after each: what has expired is dropped later
            model.record(event)
            for name, value in event.items():
                told[name].append((clock.time(), value))
        else:
            expected = plain_history(told[event], clock.time(), expire)
            values = [value for _, value in expected[:-1]]
            assert model.window_of(event) == values
            assert model.mean_of(event) == pytest.approx(sum(values) / len(values) if values else 0.0)
            if told[event]:
                assert getattr(model, event) == told[event][-1][1]


def plain_history(told, now, expire):
    """The history of a list of (time, value)."""
    older = [(now - expire, v) for t, v in told if t < now - expire][-1:]
    expected = older + [(t, v) for t, v in told if t >= now - expire]
    return [*expected, (now, told[-1][1])] if told and now > told[-1][0] else expected


def test_tick_time_moves_by_steps_only():
    clock = TickTime()
    assert isinstance(clock, BaseTime)
    assert (clock.time(), clock.step(), clock.step(3), clock.step(np.int64(2)), clock.time()) == (0, 1, 4, 6, 6)
    assert TickTime(7).time() == 7


@pytest.mark.parametrize(("delta", "error"), [(0, ValueError), (-1, ValueError), (1.0, TypeError), ("1", TypeError)])
def test_tick_time_refuses_other_steps(delta, error):
    clock = TickTime()
    with pytest.raises(error):
        clock.step(delta)
    assert clock.time() == 0


def test_natural_time_never_goes_back(monkeypatch):
    told = iter([10.0, 11.0, 5.0, 12.0])
    monkeypatch.setattr(time, "time", lambda: next(told))
    clock = NaturalTime()
    assert [clock.time() for _ in range(3)] == [11.0, 11.0, 12.0]


def test_a_frozen_proxy_stands_still_until_it_is_unfrozen():
    clock = TickTime()
    proxy = TimeProxy(clock)
    assert not proxy.is_frozen
    proxy.freeze()
    clock.step()
    assert proxy.is_frozen
    assert (proxy.time(), proxy.current_time()) == (0, 1)
    proxy.unfreeze()
    assert (proxy.is_frozen, proxy.time()) == (False, 1)
    assert TimeProxy(clock, frozen=True).is_frozen


@pytest.mark.parametrize("lock_type", list(LockContextType))
def test_unfreezing_what_is_not_frozen_is_an_error(lock_type):
    proxy = TimeProxy(TickTime(), frozen=True, lock_type=lock_type)
    proxy.unfreeze()
    with pytest.raises(RuntimeError, match="not frozen"):
        proxy.unfreeze()
