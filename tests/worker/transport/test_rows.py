import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.utils.data.samples import Samples
from ding.worker.transport.rows import cut_columns, from_columns, to_columns

VALUES = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "x", "ü"]) | st.floats(allow_nan=False)


def kinds(row):
    return {key: type(value) for key, value in row.items()}


@settings(deadline=None, max_examples=100)
@given(st.lists(st.dictionaries(st.sampled_from("abcd"), VALUES, max_size=4), max_size=5))
def test_rows_come_back_whatever_their_keys_and_values_are(rows):
    again = from_columns(json.loads(json.dumps(to_columns(rows))))
    assert again == rows
    assert [kinds(row) for row in again] == [kinds(row) for row in rows]


def test_a_value_that_is_the_same_in_every_row_is_said_once():
    rows = [{"id": i, "iter": 7, "done": False} for i in range(3)]
    assert to_columns(rows) == {"size": 3, "same": {"iter": 7, "done": False}, "each": {"id": [0, 1, 2]}}


def test_equal_values_of_several_types_stay_apart():
    rows = [{"x": 1}, {"x": True}, {"x": 1.0}]
    assert [type(row["x"]) for row in from_columns(to_columns(rows))] == [int, bool, float]


def test_mutable_values_are_not_shared_between_rows():
    first, second = from_columns(to_columns([{"x": [1]}, {"x": [1]}]))
    first["x"].append(2)
    assert second == {"x": [1]}


def test_rows_with_constant_values_only_are_dicts_of_their_own():
    first, second = from_columns(to_columns([{"x": 1}, {"x": 1}]))
    first["x"] = 2
    assert second == {"x": 1}


@pytest.mark.parametrize(
    "columns",
    [{}, {"size": 1}, {"size": 2, "same": {}, "each": {"a": [1, 2], "b": [1]}}, {"size": 1, "same": 0, "each": 3}],
)
def test_what_is_no_rows_is_an_error(columns):
    with pytest.raises(ValueError, match="these are not rows in columns"):
        from_columns(columns)


def test_a_wrong_size_is_an_error():
    with pytest.raises(ValueError, match="3 rows are announced, but the columns have 2"):
        from_columns({"size": 3, "same": {}, "each": {"a": [1, 2]}})


@given(st.lists(st.integers(0, 3), min_size=1, max_size=4), st.booleans())
def test_columns_are_cut_as_their_rows_would_be(sizes, same_keys):
    rows = [{"a": i, "b": 1} if same_keys or i % 2 else {"a": i} for i in range(sum(sizes))]
    rest, expected = list(rows), []
    for size in sizes:
        expected.append(rest[:size])
        rest = rest[size:]
    assert [from_columns(part) for part in cut_columns(to_columns(rows), sizes)] == expected


@pytest.mark.parametrize("columns", [{"rows": [{}, {}]}, {"size": 2, "same": {"a": 1}, "each": {}}])
def test_columns_with_another_number_of_rows_are_not_cut(columns):
    with pytest.raises(ValueError, match="2 rows came; asked for were 3"):
        cut_columns(columns, [1, 2])


@pytest.mark.parametrize("columns", [{}, {"rows": 3}, {"size": 1, "same": {}, "each": {"a": 1}}, {"size": 1}])
def test_what_are_no_columns_is_not_cut(columns):
    with pytest.raises(ValueError, match="not rows in columns"):
        cut_columns(columns, [1])


@settings(deadline=None, max_examples=100)
@given(st.lists(st.fixed_dictionaries({"a": VALUES, "b": VALUES, "c": st.lists(VALUES, max_size=2)}), min_size=1))
def test_rows_in_columns_have_the_message_of_their_dicts(rows):
    message = json.loads(json.dumps(to_columns(rows)))
    samples = from_columns(message)
    assert isinstance(samples, Samples) and json.dumps(to_columns(samples)) == json.dumps(message)
    assert samples.has_columns and list(samples) == rows


@pytest.mark.parametrize("size", [10**15, -1, 1.0, None, True, "1"])
def test_a_size_that_is_not_that_of_the_columns_makes_no_rows(size):
    with pytest.raises(ValueError, match="are announced|not rows in columns"):
        from_columns({"size": size, "same": {"a": 1}, "each": {"b": [1, 2]}})
