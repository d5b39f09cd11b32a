"""The ring against a plain list of what was written."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.data.ring import Ring


def write(ring: Ring, count: int) -> list[int]:
    slots = np.arange(ring.size)[ring.next_slots(count)]
    ring.held[slots] = True
    ring.advance(count)
    return slots.tolist()


def test_ranges_of_positions_follow_the_order_of_writing():
    ring = Ring(5)
    write(ring, 3)
    assert ring.slots_in(slice(-2, None)).tolist() == [1, 2]
    write(ring, 4)
    assert ring.slots_in(slice(None)).tolist() == [2, 3, 4, 0, 1]
    assert ring.slots_in(slice(-2, None, 3)).tolist() == [0, 1]
    assert ring.slots_in(slice(-3, -1)).tolist() == [4, 0]
    assert ring.slots_in(slice(4, 2)).tolist() == []


@pytest.mark.parametrize("closes_gaps", [False, True])
def test_a_ring_is_restored_from_its_order_and_its_occupied_slots(closes_gaps):
    ring, other = Ring(5), Ring(5)
    write(ring, 5)
    write(ring, 2)
    ring.release(np.array([3]), closes_gaps)
    ring.valid_count = 4
    write(other, 4)
    other.restore_order(ring.order_state())
    other.held[:] = ring.held
    assert (other.occupied().tolist(), other.head, other.valid_count, other.push_count) == ([2, 4, 0, 1], 2, 4, 7)
    assert write(other, 2) == write(ring, 2) == ([3, 2] if closes_gaps else [2, 3])
    assert other.occupied().tolist() == ring.occupied().tolist()


steps = st.lists(st.one_of(st.integers(1, 4), st.sampled_from(["drop", "close gaps"])), max_size=30)


@settings(max_examples=80)
@given(st.integers(4, 6), steps, st.randoms(use_true_random=False))
def test_head_and_order_agree_with_a_plain_list(size, steps, random):
    ring, written = Ring(size), []  # slots in order of writing, None where one was emptied
    for step in steps:
        if isinstance(step, str):
            held = [slot for slot in written if slot is not None]
            dropped = random.sample(held, min(2, len(held)))
            written = [None if slot in dropped else slot for slot in written]
            ring.release(np.array(dropped, np.int64), closes_gaps=step == "close gaps")
            if step == "close gaps":
                written = [slot for slot in written if slot is not None]
        else:
            free = [slot for slot in range(size) if slot not in written]
            slots = write(ring, step)
            assert set(slots[: len(free)]) <= set(free) or None in written
            written = [*written, *slots][-size:]
        held = [slot for slot in written if slot is not None]
        assert ring.occupied().tolist() == held and sorted(held) == np.flatnonzero(ring.held).tolist()
        assert ring.head == (held[0] if held else ring.tail)
        if not held:
            written = []
        assert ring.filled == len(written)
