"""The priority index against plain arrays, below and above the sizes at which it adds levels of sums."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.data.priority_index import PRIORITY_EPS, PriorityIndex


class Given:
    """A generator whose numbers are given."""

    def __init__(self, numbers) -> None:
        self.numbers = np.asarray(numbers, np.float64)

    def random(self, size: int) -> np.ndarray:
        return np.resize(self.numbers, size)


def assert_draws_like(index: PriorityIndex, weights: np.ndarray, size: int) -> None:
    """The plain draw lands in the same slot, but where a mass is within (single) rounding of the next one."""
    moments = np.random.default_rng(0).random(size)
    slots = index.draw(size, Given(moments))
    masses = (np.arange(size) + moments) / size * weights.sum()
    before = np.concatenate([[0.0], weights.cumsum()])
    slack = 2e-7 * weights.sum()
    assert (weights[slots] > 0).all()
    assert (before[slots] <= masses + slack).all() and (masses <= before[slots + 1] + slack).all()


writes = st.lists(
    st.tuples(st.sampled_from(["set", "run", "remove", "weights", "clear"]), st.integers(0, 2**32 - 1)), max_size=8
)


@settings(max_examples=60)
@given(st.integers(1, 70), writes, st.integers(1, 40))
def test_any_series_of_writes_leaves_the_weights_of_plain_arrays(size, series, draws):
    index, weights = PriorityIndex(size, alpha=0.6), np.zeros(size)
    for kind, seed in series:
        rng = np.random.default_rng(seed)
        slots = rng.integers(0, size, rng.integers(1, size + 1))
        values = rng.random(len(slots)).round(1)  # some are 0
        if kind == "set":
            index.set_priorities(slots, values)
            for slot, value in zip(slots, values, strict=True):
                weights[slot] = (value or PRIORITY_EPS) ** 0.6
        elif kind == "run":
            start = int(slots[0])
            stop = start + len(values[: size - start])
            index.set_priorities(slice(start, stop), values[: stop - start])
            weights[start:stop] = np.where(values[: stop - start] == 0, PRIORITY_EPS, values[: stop - start]) ** 0.6
        elif kind == "remove":
            index.remove(slots)
            weights[slots] = 0.0
        elif kind == "weights":
            slots = np.unique(slots)
            index.set_weights(slots, values[: len(slots)])
            weights[slots] = values[: len(slots)]
        else:
            index.clear()
            weights[:] = 0.0
        assert np.array_equal(index.weights, weights)
        assert index.total == pytest.approx(weights.sum(), rel=1e-12)
        assert index.sum_tree.reduce() == pytest.approx(weights.sum(), rel=1e-12)
        least = min((w for w in weights.tolist() if w), default=np.inf)
        assert index.least_weight == least
        used = np.flatnonzero(weights)
        if used.size:
            assert_draws_like(index, weights, draws)
            assert index.importance(used, 0.4).tolist() == ((least / weights[used]) ** 0.4).tolist()
        else:
            with pytest.raises(ValueError, match="no item that can be sampled"):
                index.draw(1, np.random.default_rng(0))


@pytest.mark.parametrize("size", [5, 1000, 140_000])
def test_no_rounding_draws_a_slot_without_weight(size):
    last_moment = np.nextafter(1.0, 0.0)
    for exponent in (-12, 0, 9):
        index = PriorityIndex(size, 1.0)
        weights = np.random.default_rng(1).random(size) ** 8 * 10.0**exponent
        weights[-3:] = weights[: size // 4] = 0.0
        index.set_weights(np.arange(size), weights)
        slots = index.draw(300, Given([last_moment, 0.0]))
        assert (weights[slots] > 0).all() and slots[-1] <= size - 4
        assert slots[0] >= size // 4 and (np.diff(slots) >= 0).all()
