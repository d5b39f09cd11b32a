import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.utils.autolog import LoggedModel, LoggedValue, TickTime, TimeRangedData


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
