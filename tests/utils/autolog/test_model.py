import numpy as np
import pytest
import torch

from ding.utils.autolog import LoggedModel, LoggedValue, TickTime, TimeMode


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
