from collections import namedtuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.utils.data import (
    default_collate,
    default_decollate,
    diff_shape_collate,
    timestep_collate,
    ttorch_collate,
)
from ding.utils.data.samples import Samples, Table
from tests.same_state import assert_same

Pair = namedtuple("Pair", ["a", "b"])


class Tree:
    """Stands in for a tree of tensors."""

    def __init__(self, **leaves):
        self.leaves = leaves

    def json(self):
        return dict(self.leaves)


def check(actual, expected, dtype):
    assert isinstance(actual, torch.Tensor)
    assert actual.dtype == dtype
    assert actual.tolist() == expected


def test_tensors_are_stacked_and_those_of_shape_1_concatenated():
    check(default_collate([torch.tensor([1, 2]), torch.tensor([3, 4])]), [[1, 2], [3, 4]], torch.int64)
    check(default_collate([torch.tensor([1]), torch.tensor([3])]), [1, 3], torch.int64)
    check(default_collate([torch.tensor([1]), torch.tensor([3])], cat_1dim=False), [[1], [3]], torch.int64)
    check(default_collate([torch.tensor(1.5), torch.tensor(3.0)]), [1.5, 3.0], torch.float32)


def test_arrays_keep_their_dtype_and_follow_the_rule_for_shape_1():
    check(default_collate([np.zeros(2), np.ones(2)]), [[0, 0], [1, 1]], torch.float64)
    check(default_collate([np.array([1], np.uint8), np.array([2], np.uint8)]), [1, 2], torch.uint8)
    check(default_collate([np.array([1.0]), np.array([2.0])], cat_1dim=False), [[1], [2]], torch.float64)
    check(default_collate([np.array(1.0, np.float16)]), [1], torch.float16)


@pytest.mark.parametrize(
    ("batch", "expected", "dtype"),
    [
        ([1.5, 2.0], [1.5, 2.0], torch.float32),
        ([1, 2], [1, 2], torch.int64),
        ([True, False], [True, False], torch.bool),
        ([np.float64(1), np.float64(2)], [1.0, 2.0], torch.float64),
        ([np.int32(1), np.int32(2)], [1, 2], torch.int32),
        ([np.bool_(True)], [True], torch.bool),
    ],
)
def test_numbers_become_one_tensor(batch, expected, dtype):
    check(default_collate(batch), expected, dtype)


def test_a_float_after_an_int_is_not_truncated():
    check(default_collate([1, 2.5]), [1.0, 2.5], torch.float32)
    check(default_collate([True, 2]), [1, 2], torch.int64)


def test_text_stays_a_list():
    assert default_collate(["a", "b"]) == ["a", "b"]
    assert default_collate([b"a"]) == [b"a"]
    assert default_collate([np.str_("a")]) == ["a"]


def test_dicts_are_collated_by_the_keys_of_the_first():
    batch = default_collate([{"x": {"y": 1.0}, "z": "t"}, {"x": {"y": 2.0}, "z": "u", "w": 0}])
    assert set(batch) == {"x", "z"}
    check(batch["x"]["y"], [1, 2], torch.float32)
    assert batch["z"] == ["t", "u"]


def test_a_key_that_a_later_dict_lacks_is_a_key_error():
    with pytest.raises(KeyError, match="x"):
        default_collate([{"x": 1}, {}])


def test_keys_with_the_ignored_prefix_stay_lists_at_every_level():
    data = [{"collate_ignore_a": 1, "n": {"collate_ignore": None, "b": 2}}]
    batch = default_collate(data)
    assert batch["collate_ignore_a"] == [1]
    assert batch["n"]["collate_ignore"] == [None]
    check(batch["n"]["b"], [2], torch.int64)


def test_an_own_ignored_prefix_counts_at_the_top_level_only():
    batch = default_collate([{"raw_a": 1, "n": {"raw_b": 2}}], ignore_prefix=["raw"])
    assert batch["raw_a"] == [1]
    check(batch["n"]["raw_b"], [2], torch.int64)


def test_sequences_are_collated_by_column_up_to_the_shortest():
    columns = default_collate([[1, 2.0, 3], (4, 5.0)])
    assert [column.tolist() for column in columns] == [[1, 4], [2.0, 5.0]]


def test_namedtuples_keep_their_type():
    batch = default_collate([Pair(1, "x"), Pair(2, "y")])
    assert type(batch) is Pair
    assert batch.a.tolist() == [1, 2]
    assert batch.b == ["x", "y"]


def test_trees_of_tensors_become_dicts():
    batch = default_collate([Tree(x=torch.zeros(1), y=torch.zeros(2))] * 3)
    assert {key: tuple(value.shape) for key, value in batch.items()} == {"x": (3,), "y": (3, 2)}
    assert default_collate(Tree(x=1)) == {"x": 1}


@pytest.mark.parametrize("sample", [None, object(), {1, 2}, np.array(["a"]), np.array([None])])
def test_foreign_types_are_a_type_error(sample):
    with pytest.raises(TypeError, match="cannot collate"):
        default_collate([sample])


@pytest.mark.parametrize(
    ("columns", "error", "where"),
    [
        ([{"x": None}], TypeError, "in 'obs': in 'x': cannot collate"),
        ([torch.zeros(2), torch.zeros(3)], RuntimeError, "in 'obs'"),
        ([np.zeros(2), np.zeros(3)], ValueError, "in 'obs'"),
    ],
)
def test_an_error_names_the_key_of_the_column(columns, error, where):
    with pytest.raises(error, match=where):
        default_collate([{"obs": column} for column in columns])


def test_decollate_splits_tensors_along_the_first_dimension():
    rows = default_decollate(torch.arange(4).reshape(2, 2))
    assert [row.tolist() for row in rows] == [[0, 1], [2, 3]]
    items = default_decollate(torch.arange(2))
    assert [item.tolist() for item in items] == [[0], [1]]


def test_decollate_makes_dicts_of_a_dict_and_tuples_of_a_sequence():
    state = [("h0",), ("h1",)]
    rows = default_decollate({"logit": torch.zeros(2, 3), "n": [torch.zeros(2), torch.ones(2)], "prev_state": state})
    assert len(rows) == 2
    assert rows[1]["logit"].shape == (3,)
    assert [x.tolist() for x in rows[1]["n"]] == [[0.0], [1.0]]
    assert rows[1]["prev_state"] == ("h1",)


def test_decollate_gives_none_for_a_distribution():
    distribution = torch.distributions.Categorical(logits=torch.zeros(3, 2))
    assert default_decollate({"a": torch.zeros(3), "dist": distribution})[2]["dist"] is None


@pytest.mark.parametrize("batch", [1, None, "text", np.zeros(2), {"x": None}])
def test_decollate_refuses_other_types(batch):
    with pytest.raises(TypeError, match="cannot decollate"):
        default_decollate(batch)


@settings(max_examples=30)
@given(size=st.integers(1, 5), shape=st.lists(st.integers(1, 3), min_size=2, max_size=3))
def test_decollate_is_the_reverse_of_collate(size, shape):
    samples = [{"x": torch.rand(shape), "y": torch.rand(1)} for _ in range(size)]
    rows = default_decollate(default_collate(samples))
    assert len(rows) == size
    for row, sample in zip(rows, samples, strict=True):
        assert row.keys() == sample.keys()
        assert all(torch.equal(row[key], sample[key]) for key in sample)


def test_timestep_collate_puts_time_first():
    samples = [
        {
            "obs": [torch.full((3,), 10.0 * b + t) for t in range(2)],
            "reward": [torch.tensor([float(b)])] * 2,
            "done": [False, True],
            "prev_state": [None, {"h": b}],
        }
        for b in range(4)
    ]
    kept = [dict(sample) for sample in samples]
    batch = timestep_collate(samples)
    assert batch["obs"].shape == (2, 4, 3)
    assert batch["obs"][1, 2, 0] == 21
    assert batch["reward"].shape == (2, 4)
    assert batch["done"].tolist() == [[False] * 4, [True] * 4]
    assert batch["prev_state"] == [(None,) * 4, tuple({"h": b} for b in range(4))]
    assert samples == kept


def test_timestep_collate_needs_prev_state():
    with pytest.raises(KeyError, match="prev_state"):
        timestep_collate([{"obs": [torch.zeros(1)]}])


def test_timestep_collate_takes_lists_of_trees():
    samples = [[Tree(obs=torch.full((3,), 10.0 * b + t), prev_state=(b, t)) for t in range(2)] for b in range(4)]
    batch = timestep_collate(samples)
    assert batch["obs"].shape == (2, 4, 3)
    assert batch["obs"][1, 2, 0] == 21
    assert batch["prev_state"] == [[(b, t) for b in range(4)] for t in range(2)]


def test_diff_shape_collate_stacks_what_can_be_stacked():
    batch = diff_shape_collate(
        [
            {"a": torch.zeros(2), "b": torch.zeros(1), "c": None, "d": 1, "e": np.zeros(2), "f": np.float64(1)},
            {"a": torch.zeros(2), "b": torch.zeros(2), "c": torch.zeros(2), "d": 2, "e": np.zeros(2), "f": 2.0},
        ]
    )
    assert batch["a"].shape == (2, 2)
    assert [tuple(x.shape) for x in batch["b"]] == [(1,), (2,)]
    assert isinstance(batch["c"], list) and batch["c"][0] is None
    check(batch["d"], [1, 2], torch.int64)
    check(batch["e"], [[0, 0], [0, 0]], torch.float64)
    check(batch["f"], [1, 2], torch.float64)


def test_diff_shape_collate_handles_containers_and_leaves_text_alone():
    assert diff_shape_collate(["ab", "cd"]) == ["ab", "cd"]
    batch = diff_shape_collate([Pair([1.0], "x"), Pair([2.0], "y")])
    assert type(batch) is Pair
    assert batch.a[0].tolist() == [1.0, 2.0]
    assert list(batch.b) == ["x", "y"]
    assert diff_shape_collate([torch.ones(1)] * 2).shape == (2, 1)
    with pytest.raises(TypeError, match="cannot collate"):
        diff_shape_collate([object()])


def test_ttorch_collate_gives_dicts_or_asks_for_the_optional_package(put_module):
    trees = [Tree(x=torch.zeros(1))] * 2
    assert ttorch_collate(trees, json=True)["x"].shape == (2,)
    assert ttorch_collate(trees, json=True, cat_1dim=False)["x"].shape == (2, 1)
    put_module("treetensor", None)
    put_module("treetensor.torch", None)
    with pytest.raises(ImportError, match="extra 'tree'"):
        ttorch_collate(trees)


# ---- samples in columns


def transition(i: int) -> dict:
    return {
        "obs": torch.arange(3.0) + i,
        "next_obs": torch.arange(3.0) + i + 1,
        "action": torch.tensor([i % 2]),
        "reward": np.array([0.5 * i], np.float32),
        "count": i,
        "value": i / 3,
        "done": i == 2,
        "scalar": np.float16(i),
        "zero_dim": np.array(i, np.int16),
        "name": f"n{i}",
        "state": {"h": torch.full((2,), float(i)), "c": [i, -i], "collate_ignore_x": i},
        "pair": Pair(torch.tensor([i]), i * 1.0),
        "steps": [torch.tensor([float(i)]), torch.tensor([float(-i)])],
        "mixed": (i, torch.ones(2) * i),
        "collate_ignore_raw": torch.tensor([i]),
        "ragged": np.float32(1) if i else np.float64(2),
    }


@pytest.mark.parametrize("cat_1dim", [True, False])
@pytest.mark.parametrize("rows", [None, [3, 0, 0, 2]])
def test_samples_are_batched_as_their_dicts_are_without_making_them(cat_1dim, rows):
    items = [transition(i) for i in range(4)]
    samples = Samples(Table.of(items))
    if rows is not None:
        items, samples = [items[row] for row in rows], Samples(samples.table.take(np.array(rows)))
    assert_same(default_collate(samples, cat_1dim), default_collate(items, cat_1dim))
    assert samples.table is not None
