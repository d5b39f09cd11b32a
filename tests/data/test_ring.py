"""The ring against a plain list of what was written."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.data.ring import Ring


def test_a_run_that_wraps_lands_where_single_writes_would():
    many, single = Ring(5), Ring(5)
    many.advance(3)
    assert many.next_slots(4).tolist() == [3, 4, 0, 1]
    many.advance(4)
    for _ in range(7):
        single.advance(1)
    assert many.held.all() and single.held.all()
    assert (many.tail, many.head, many.push_count) == (single.tail, single.head, single.push_count) == (2, 2, 7)


def test_ranges_follow_the_order_of_writing():
    ring = Ring(5)
    ring.advance(3)
    assert ring.ranges(slice(-2, None)) == [(1, 3)]
    ring.advance(4)
    assert ring.ranges(slice(None)) == [(2, 5), (0, 2)]
    assert ring.ranges(slice(-2, None)) == [(0, 2)]
    assert ring.ranges(slice(-3, -1)) == [(4, 5), (0, 1)]
    assert ring.ranges(slice(4, 2)) == []


def test_a_ring_that_was_emptied_slot_by_slot_starts_anew():
    ring = Ring(3)
    ring.advance(3)
    ring.release(np.arange(3))
    assert (ring.filled, ring.head, ring.tail) == (0, 0, 0)
    ring.advance(1)
    assert (ring.filled, ring.head, ring.tail) == (1, 0, 1)


def test_a_ring_is_restored_from_its_occupied_slots_and_counters():
    ring, other = Ring(5), Ring(5)
    ring.advance(5)
    ring.advance(2)
    ring.release(np.array([3]))
    other.advance(4)
    other.restore(ring.occupied(), {**ring.counters(), "valid_count": 4, "push_count": 7})
    assert (other.occupied().tolist(), other.head, other.filled) == ([2, 4, 0, 1], 2, 5)
    assert (other.valid_count, other.push_count) == (4, 7)


steps = st.lists(st.one_of(st.integers(1, 4), st.just("drop")), max_size=30)


@settings(max_examples=50)
@given(st.integers(4, 6), steps, st.randoms(use_true_random=False))
def test_head_and_order_agree_with_a_plain_list(size, steps, random):
    ring, written = Ring(size), []  # slots in order of writing, None where one was emptied
    for step in steps:
        if step == "drop":
            held = [slot for slot in written if slot is not None]
            dropped = random.sample(held, min(2, len(held)))
            written = [None if slot in dropped else slot for slot in written]
            ring.release(np.array(dropped, np.int64))
        else:
            slots = ring.next_slots(step)
            written += list(range(size))[slots] if isinstance(slots, slice) else slots.tolist()
            written = written[-size:]
            ring.advance(step)
        held = [slot for slot in written if slot is not None]
        assert ring.occupied().tolist() == held and sorted(held) == np.flatnonzero(ring.held).tolist()
        assert ring.head == (held[0] if held else ring.tail)
        if not held:
            written = []
        assert ring.filled == len(written)
