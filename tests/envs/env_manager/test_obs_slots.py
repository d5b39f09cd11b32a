"""Observations in shared memory: which spaces are shared, what does not fit, and for how long one stays."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Text, Tuple

from ding.envs.env_manager.obs_slots import NOT_SHARED, ObsSlots

VECTOR = Box(-1, 1, (2,), np.float32)
VALUE = np.array([0.5, -0.5], np.float32)


def slots_for(space, copy_on_get=True):
    return ObsSlots.for_space(space, copy_on_get)


@pytest.mark.parametrize(
    "space, obs",
    [
        (VECTOR, VALUE),
        (Box(0, 255, (2, 2, 1), np.uint8), np.full((2, 2, 1), 7, np.uint8)),
        (MultiBinary(3), np.array([1, 0, 1], np.int8)),
        (Dict({"a": VECTOR, "b": Dict({"c": VECTOR})}), {"a": VALUE, "b": {"c": VALUE * 2}}),
        (Tuple((VECTOR, VECTOR)), (VALUE, VALUE * 2)),
        (Dict({"a": Tuple((VECTOR, Discrete(3)))}), {"a": (VALUE, 2)}),
    ],
)
def test_what_fits_is_shared(space, obs):
    slots = slots_for(space)
    assert slots.are_shared
    sent = slots.put(obs)
    assert sent[0] != NOT_SHARED
    assert not any(isinstance(leaf, np.ndarray) for leaf in leaves(sent[1]))
    back = slots.get(sent)
    assert type(back) is type(obs)
    for found, expected in zip(leaves(back), leaves(obs), strict=True):
        assert type(found) is type(expected)
        assert np.array_equal(found, expected)
        assert found.dtype == expected.dtype if isinstance(found, np.ndarray) else True


def leaves(tree):
    if isinstance(tree, dict):
        return [leaf for value in tree.values() for leaf in leaves(value)]
    return [leaf for value in tree for leaf in leaves(value)] if isinstance(tree, tuple) else [tree]


@pytest.mark.parametrize(
    "space", [None, "a space", Discrete(3), Text(3), Box(0, 1, ()), Dict({"n": Discrete(3)}), Tuple(())]
)
def test_spaces_without_arrays_of_a_fixed_shape_are_not_shared(space):
    slots = slots_for(space)
    assert not slots.are_shared
    assert slots.put("anything") == (NOT_SHARED, "anything")
    assert slots.get((NOT_SHARED, "anything")) == "anything"


def test_a_dtype_that_cannot_be_shared_is_not():
    class Space:
        shape, dtype = (2,), np.float16

    assert not slots_for(Space()).are_shared


@pytest.mark.parametrize(
    "space, obs",
    [
        (VECTOR, VALUE.astype(np.float64)),
        (VECTOR, np.zeros(3, np.float32)),
        (VECTOR, VALUE.tolist()),
        (VECTOR, None),
        (Dict({"a": VECTOR}), {"b": VALUE}),
        (Dict({"a": VECTOR}), [VALUE]),
        (Dict({"a": VECTOR}), {"a": VALUE.astype(int)}),
        (Tuple((VECTOR, VECTOR)), (VALUE,)),
        (Tuple((VECTOR, VECTOR)), [VALUE, VALUE]),
    ],
)
def test_what_does_not_fit_goes_as_it_is(space, obs):
    slots = slots_for(space)
    sent = slots.put(obs)
    assert sent[0] == NOT_SHARED
    assert slots.get(sent) is obs


def test_an_observation_stays_until_the_next_but_one():
    slots = slots_for(VECTOR)
    first, second = slots.put(VALUE), slots.put(VALUE * 2)
    assert slots.get(first).tolist() == VALUE.tolist()
    third = slots.put(VALUE * 3)
    assert (slots.get(second) / VALUE).tolist() == [2, 2]
    assert (slots.get(third) / VALUE).tolist() == [3, 3]
    assert third == first


def test_copies_are_handed_out_unless_the_memory_itself_is_asked_for():
    for copy_on_get in (True, False):
        slots = slots_for(Dict({"a": VECTOR}), copy_on_get)
        sent = slots.put({"a": VALUE})
        seen = slots.get(sent)["a"]
        slots.put({"a": VALUE}), slots.put({"a": VALUE * 2})
        assert seen.tolist() == (VALUE if copy_on_get else VALUE * 2).tolist()
