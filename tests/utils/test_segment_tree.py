"""The segment trees, against reference values and against the plain definitions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.utils.segment_tree import MinSegmentTree, SegmentTree, SumSegmentTree, refresh_ancestors

LEAVES = [0, 0.1, 0.5, 0, 0, 0.2, 0.8, 0]


@pytest.fixture
def tree() -> SumSegmentTree:
    tree = SumSegmentTree(8)
    for i, weight in enumerate(LEAVES):
        tree[i] = weight
    return tree


@pytest.mark.parametrize("capacity", [0, -2, 13])
def test_capacity_must_be_a_positive_power_of_two(capacity):
    with pytest.raises(AssertionError, match="power of two"):
        SumSegmentTree(capacity)


def test_an_unknown_operation_is_refused_even_with_a_neutral_element():
    for neutral in (None, 0.0):
        with pytest.raises(ValueError, match="operation = 'mul'"):
            SegmentTree(4, "mul", neutral)


@pytest.mark.differs("accepts `SegmentTree('max')`, which then is always -inf", "computes the largest value")
def test_a_max_tree_reduces_to_the_largest_leaf():
    tree = SegmentTree(4, "max")
    tree[1], tree[2] = 3.0, -1.0
    assert [tree.reduce(), tree.reduce(2), tree.reduce(3)] == [3.0, -1.0, -np.inf]


@pytest.mark.parametrize("index", [-1, 8])
def test_an_index_outside_the_leaves_is_refused(tree, index):
    with pytest.raises(AssertionError, match="leaf index"):
        tree[index] = 1.0
    with pytest.raises(AssertionError, match="leaf index"):
        tree[index]
    with pytest.raises(AssertionError, match="leaf index"):
        tree.set_batch([0, index], 1.0)


@pytest.mark.parametrize("bounds", [(3, 3), (5, 2), (-1, 2), (0, 9)])
def test_an_empty_or_outlying_range_is_refused(tree, bounds):
    start, end = bounds
    with pytest.raises(AssertionError, match=rf"range \[{start}, {end}\)"):
        tree.reduce(start, end)


def test_the_total_selects_the_last_leaf_with_weight(tree):
    assert tree.find_prefixsum_idx(tree.reduce()) == 6
    assert tree.find_prefixsum_batch([0.0, tree.reduce()]).tolist() == [1, 6]


@pytest.mark.differs(
    "fails in a search of the segment tree if leaf 0 alone has weight",
    "finds it, and says so if the tree is empty",
)
def test_the_total_selects_leaf_0_when_it_is_the_only_one_with_weight():
    tree = SumSegmentTree(4)
    tree[0] = 2.0
    assert tree.find_prefixsum_idx(2.0) == 0
    assert tree.find_prefixsum_batch([2.0, 1.0]).tolist() == [0, 0]


def test_an_empty_tree_is_named_as_such():
    with pytest.raises(AssertionError, match="up to 3 are 0 \\(the total is 0.0\\)"):
        SumSegmentTree(4).find_prefixsum_idx(0.0)
    with pytest.raises(AssertionError, match="up to 3 are 0 \\(the total is 0.0\\)"):
        SumSegmentTree(4).find_prefixsum_batch([0.0])


@pytest.mark.parametrize("mass", [-0.1, 1.7, float("nan")])
def test_an_untrusted_prefix_sum_is_checked(tree, mass):
    with pytest.raises(AssertionError, match="prefixsum ="):
        tree.find_prefixsum_idx(mass, trust_caller=False)


@pytest.mark.parametrize("operation", ["sum", "min", "max"])
@pytest.mark.parametrize("count", [1, 7, 300, 5000])
def test_a_batch_leaves_the_tree_bit_equal_to_scalar_writes(operation, count):
    rng = np.random.default_rng(count)
    batched, scalar = SegmentTree(2**14, operation), SegmentTree(2**14, operation)
    indices, values = rng.integers(0, 2**14, count), rng.random(count)
    batched.set_batch(indices, values)
    for i, value in zip(indices.tolist(), values.tolist(), strict=True):
        scalar[i] = value
    assert np.array_equal(batched.value, scalar.value)


@pytest.mark.parametrize("operation, empty", [("sum", 0.0), ("min", np.inf), ("max", -np.inf)])
def test_clear_brings_back_a_fresh_tree_of_each_operation(operation, empty):
    tree = SegmentTree(4, operation)
    tree.set_batch(range(4), [3.0, -1.0, 2.0, 5.0])
    tree.clear()
    assert tree.value.tolist() == [empty] * 8 and tree.reduce() == empty


# Above 2,048 leaves a batch refreshes the lower levels through gathered indices, the upper ones whole.
@pytest.mark.parametrize("capacity", [1, 1024, 2048, 4096, 2**15])
def test_trees_refreshed_together_equal_trees_that_were_written_leaf_by_leaf(capacity):
    rng = np.random.default_rng(capacity)
    together = [SumSegmentTree(capacity), MinSegmentTree(capacity), SegmentTree(capacity, "max")]
    alone = [SumSegmentTree(capacity), MinSegmentTree(capacity), SegmentTree(capacity, "max")]
    for count in (1, 3, 200):
        indices = np.append(rng.integers(0, capacity, count), [0, capacity - 1])
        for tree, twin in zip(together, alone, strict=True):
            values = rng.normal(size=indices.size)
            tree.leaves[indices] = values
            for index, value in zip(indices.tolist(), values.tolist(), strict=True):
                twin[index] = value
        refresh_ancestors(together, indices)
        for tree, twin in zip(together, alone, strict=True):
            assert np.array_equal(tree.value, twin.value)


weights = st.lists(st.floats(0, 100).map(lambda x: round(x, 1)), min_size=1, max_size=40)


@settings(max_examples=50)
@given(weights, st.lists(st.floats(0, 1), min_size=1, max_size=10))
def test_batched_and_scalar_searches_agree_and_land_on_the_right_leaf(leaves, fractions):
    capacity = 1 << max(0, (len(leaves) - 1).bit_length())
    tree = SumSegmentTree(capacity)
    tree.set_batch(range(len(leaves)), leaves)
    total = tree.reduce()
    if total == 0:
        return
    masses = [fraction * total for fraction in fractions]
    found = tree.find_prefixsum_batch(masses).tolist()
    assert found == [tree.find_prefixsum_idx(mass) for mass in masses]
    bounds = np.concatenate([[0.0], np.cumsum(leaves)])
    for mass, leaf in zip(masses, found, strict=True):
        assert leaves[leaf] > 0
        assert bounds[leaf] - 1e-9 * total <= mass <= bounds[leaf + 1] + 1e-9 * total


operations = st.lists(st.tuples(st.integers(0, 15), st.floats(-5, 5)), min_size=1, max_size=30)


@settings(max_examples=50)
@given(operations, st.integers(0, 15), st.integers(1, 16))
def test_reductions_equal_the_plain_definition(writes, start, length):
    trees = {name: SegmentTree(16, name) for name in ("sum", "min", "max")}
    plain = {name: [tree.neutral_element] * 16 for name, tree in trees.items()}
    for i, value in writes:
        for name, tree in trees.items():
            tree[i] = value
            plain[name][i] = value
    end = min(16, start + length)
    assert trees["sum"].reduce(start, end) == pytest.approx(sum(plain["sum"][start:end]), abs=1e-9)
    assert trees["min"].reduce(start, end) == min(plain["min"][start:end])
    assert trees["max"].reduce(start, end) == max(plain["max"][start:end])
