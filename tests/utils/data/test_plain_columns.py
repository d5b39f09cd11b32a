"""Samples as plain values: what comes back is what was given, and what is the same is in there once."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.utils.data.plain_columns import from_plain, samples_of_state, to_plain
from ding.utils.data.samples import Column, Kind, Samples, Table, columns_of
from ding.utils.msgpack_helper import pack, unpack

SIZE = 20
# One list of values for a key.
COLUMNS = st.one_of(
    *(
        st.lists(values, min_size=SIZE, max_size=SIZE)
        for values in (
            st.integers(),
            st.integers(-300, 300),
            st.just(7),
            st.booleans(),
            st.just(True),
            st.floats(),
            st.sampled_from([0.0, -0.0]),
            st.just(-0.0),
            st.none(),
            st.sampled_from(["a", "b"]),
            st.text(max_size=2),
            st.one_of(st.none(), st.booleans(), st.integers(-1, 1), st.sampled_from(["", "1"])),
            st.lists(st.integers(0, 3), min_size=2, max_size=2),
            st.lists(st.integers(0, 3), max_size=2),
            st.tuples(st.integers(0, 1), st.text(max_size=1)),
            st.fixed_dictionaries({"x": st.integers(0, 2), "y": st.sampled_from(["p", "q"])}),
            st.builds(lambda n: np.full(2, n, np.int16), st.integers(0, 9)),
            st.builds(lambda n: torch.full((2, 1), n, dtype=torch.uint8), st.integers(0, 9)),
            st.builds(np.float32, st.integers(0, 9)),
        )
    )
)


def same(one, other):
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        assert all(same(one[key], other[key]) for key in one)
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other) and all(map(same, one, other))
    elif isinstance(one, (np.ndarray, torch.Tensor, np.generic)):
        assert one.dtype == other.dtype and one.shape == other.shape and (one == other).all()
    elif isinstance(one, float):
        assert math.isnan(one) and math.isnan(other) or (one, math.copysign(1, one)) == (other, math.copysign(1, other))
    else:
        assert one == other
    return True


@settings(max_examples=150)
@given(st.dictionaries(st.sampled_from("abcde"), COLUMNS, min_size=1))
def test_samples_come_back_with_the_types_of_their_values(by_key):
    samples = [dict(zip(by_key, values, strict=True)) for values in zip(*by_key.values(), strict=True)]
    again = from_plain(unpack(pack(to_plain(samples))))
    assert same(list(again), samples)


def test_rows_that_two_columns_share_are_in_there_once_and_shared_again():
    rows = np.arange(9.0)
    obs, next_obs = (Column(Kind.TENSOR, rows, np.arange(8) + i) for i in (0, 1))
    plain = unpack(pack(to_plain(Samples(Table({"obs": obs, "next_obs": next_obs})))))
    assert [block.tolist() for block in plain["blocks"]] == [rows.tolist()]
    one, other = columns_of(from_plain(plain).table.columns)
    assert one.data is other.data and other.values().tolist() == rows[1:].tolist()


def test_samples_that_were_chosen_out_of_others_come_back():
    samples = Table.of([{"name": f"n{i}", "x": np.full(2, i), "k": i} for i in range(10)])
    chosen = samples.take(np.array([7, 7, 1]))
    again = from_plain(unpack(pack(to_plain(chosen))))
    assert [(s["name"], s["x"].tolist(), s["k"]) for s in again] == [("n7", [7, 7], 7)] * 2 + [("n1", [1, 1], 1)]


def test_what_are_no_dicts_with_the_same_keys_is_listed():
    for samples in ([], [{}], [1, "a"], [{"a": 1}, {"b": 1}], [[{"a": 1}]]):
        assert from_plain(unpack(pack(to_plain(samples)))) == samples


@pytest.mark.parametrize(
    "state", [3, [], torch.zeros(2), {}, {"items": 3}, {"samples": 3}, {"items": [{"samples": {}}]}]
)
def test_what_is_no_state_of_samples_is_an_error(state):
    with pytest.raises(ValueError, match="(state|data) is not samples"):
        samples_of_state(state)
