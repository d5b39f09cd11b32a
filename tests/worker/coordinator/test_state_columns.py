"""Long lists in the file of a state: what comes back is what was put in, and small."""

import math
import os
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ding.worker.coordinator.saved_run import RunIdentity, read_state, write_state

plain = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3))
columns = st.one_of(
    st.lists(st.integers(-300, 300), min_size=20, max_size=20),
    st.lists(st.integers(), min_size=20, max_size=20),
    st.lists(st.booleans(), min_size=20, max_size=20),
    st.lists(st.floats(allow_nan=False), min_size=20, max_size=20),
    st.lists(st.sampled_from(["a", "b", "c"]), min_size=20, max_size=20),
    st.lists(st.text(), min_size=20, max_size=20),
    st.lists(st.dictionaries(st.text(max_size=1), plain, max_size=2), min_size=20, max_size=20),
    st.lists(plain, min_size=20, max_size=20),
    st.lists(st.lists(plain, max_size=2), min_size=20, max_size=20),
)


RUN = RunIdentity("exp", 3)


def through_a_file(value):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "state")
        write_state(path, RUN, {"value": value})
        return read_state(path, RUN)["value"]


def types(value):
    if isinstance(value, dict):
        return {key: types(item) for key, item in value.items()}
    return [types(item) for item in value] if isinstance(value, list) else type(value)


@given(st.dictionaries(st.sampled_from(["data_id", "data_index", "priority", "env_id"]), columns))
def test_rows_come_back_as_they_were_with_the_types_of_their_values(by_key):
    rows = [dict(zip(by_key, values, strict=True)) for values in zip(*by_key.values(), strict=True)]
    back = through_a_file({"data": rows, "more": {"again": rows}})
    assert back == {"data": rows, "more": {"again": rows}} and types(back["data"]) == types(rows)


@given(st.lists(st.one_of(st.none(), st.dictionaries(st.sampled_from("abc"), plain)), max_size=40))
def test_rows_may_differ_in_their_keys_and_some_may_be_missing(rows):
    back = through_a_file(rows)
    assert back == rows and types(back) == types(rows)


@pytest.mark.parametrize(
    "values",
    [
        [None] * 20,
        [{}] * 20,
        [{"a": 1}] * 10 + [None] * 10,
        [{"a": 1, "b": 2}, {"b": 2, "a": 1}] * 10,
        [{"a": 1}, {"b": 1}] * 10,
        [2**70] * 10 + [0] * 10,
        [-(2**63), 2**63 - 1] * 10,
        [1, True, 1.0] * 10,
        [(1, "a")] * 20,
        [0.0, math.inf, -math.inf] * 10,
        list(range(15)),
    ],
    ids=repr,
)
def test_what_comes_back(values):
    back = through_a_file(values)
    assert back == values and types(back) == types(values)


def test_a_nan_comes_back():
    assert [math.isnan(value) for value in through_a_file([math.nan, 1.0] * 8)] == [True, False] * 8


def test_rows_do_not_share_a_dict():
    first, second, *_ = through_a_file([{} for _ in range(20)])
    first["a"] = 1
    assert second == {}


def test_the_metadata_of_samples_take_few_bytes_each(tmp_path):
    rows = [
        {"data_id": f"env_{i // 64:040}", "data_index": i % 64, "policy_iter": i // 500, "compressor": "lz4"}
        for i in range(6400)
    ]
    assert write_state(str(tmp_path / "state"), RUN, {"rows": rows}) < 2 * len(rows)


def test_a_dict_that_looks_like_a_column_is_refused():
    with pytest.raises(ValueError, match="a dict with the key '__column__' cannot be kept"):
        through_a_file({"a": {"__column__": 1}})
