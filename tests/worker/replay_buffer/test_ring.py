"""The ring against a plain list of what was written."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.worker.replay_buffer.ring import Ring


def test_a_run_that_wraps_lands_where_single_writes_would():
    many, single = Ring(5), Ring(5)
    many.put([0, 1, 2])
    assert many.put([3, 4, 5, 6]) == [0, 1]
    for i in range(7):
        single.put([i])
    assert many.slots == single.slots == [5, 6, 2, 3, 4]
    assert (many.tail, many.head, many.push_count) == (single.tail, single.head, single.push_count) == (2, 2, 7)


def test_ranges_follow_the_order_of_writing():
    ring = Ring(5)
    ring.put([0, 1, 2])
    assert ring.ranges(slice(-2, None)) == [(1, 3)]
    ring.put([3, 4, 5, 6])
    assert ring.ranges(slice(None)) == [(2, 5), (0, 2)]
    assert ring.ranges(slice(-2, None)) == [(0, 2)]
    assert ring.ranges(slice(-3, -1)) == [(4, 5), (0, 1)]
    assert ring.ranges(slice(4, 2)) == []


def test_a_ring_that_was_emptied_slot_by_slot_starts_anew():
    ring = Ring(3)
    ring.put([0, 1, 2])
    ring.slots = [None] * 3
    ring.skip_empty_head()
    assert (ring.filled, ring.head, ring.tail) == (0, 0, 0)
    ring.put([3])
    assert (ring.filled, ring.head, ring.tail) == (1, 0, 1)


def test_a_state_of_another_size_is_refused():
    with pytest.raises(ValueError, match="does not fit a buffer of 3"):
        Ring(3).load([1, 2], tail=0, valid_count=2, push_count=2)


steps = st.lists(st.one_of(st.integers(1, 4), st.just("drop")), max_size=30)


@settings(deadline=None, max_examples=50)
@given(st.integers(4, 6), steps, st.randoms(use_true_random=False))
def test_head_and_order_agree_with_a_plain_list(size, steps, random):
    ring, written = Ring(size), []
    next_item = 0
    for step in steps:
        if step == "drop":
            held = [slot for slot, item in enumerate(ring.slots) if item is not None]
            for slot in random.sample(held, min(2, len(held))):
                written = [None if item == ring.slots[slot] else item for item in written]
                ring.slots[slot] = None
            ring.skip_empty_head()
        else:
            items = list(range(next_item, next_item + step))
            next_item += step
            replaced = ring.put(items)
            written += items
            gone, written = written[:-size], written[-size:]
            assert replaced == [item for item in gone if item is not None]
        held = [item for item in written if item is not None]
        assert [ring.slots[slot] for slot in ring.occupied().tolist()] == held
        assert ring.slots[ring.head] == (held[0] if held else None)
        if not held:
            written = []
            assert ring.head == ring.tail
        slots = ring.positions_to_slots(np.arange(ring.filled)).tolist()
        assert [ring.slots[slot] for slot in slots] == written[-ring.filled :] if ring.filled else True
