"""Arrays on their way between processes, as bytes or in shared memory: what is shared, and for how long it stays."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple

from ding.envs.env_manager.env_child import NOT_SHARED, SharedObs, pack_array, unpack_array

VECTOR = Box(-1, 1, (2,), np.float32)
VALUE = np.array([0.5, -0.5], np.float32)


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
    shared = SharedObs(space)
    assert shared.is_used
    message = shared.write(obs)
    assert message[0] != NOT_SHARED
    assert not any(isinstance(leaf, np.ndarray) for leaf in leaves(message[1]))
    back = shared.read(message)
    assert type(back) is type(obs)
    for found, expected in zip(leaves(back), leaves(obs), strict=True):
        assert type(found) is type(expected)
        assert np.array_equal(found, expected)
        assert found.dtype == expected.dtype if isinstance(found, np.ndarray) else True


def leaves(tree):
    if isinstance(tree, dict):
        return [leaf for value in tree.values() for leaf in leaves(value)]
    return [leaf for value in tree for leaf in leaves(value)] if isinstance(tree, tuple) else [tree]


def test_an_observation_stays_until_the_third_one_after_it():
    shared = SharedObs(VECTOR)
    messages = [shared.write(VALUE * number) for number in (1, 2, 3)]
    assert [(shared.read(message) / VALUE).tolist() for message in messages] == [[1, 1], [2, 2], [3, 3]]
    fourth = shared.write(VALUE * 4)
    assert fourth == messages[0]
    assert [(shared.read(message) / VALUE).tolist() for message in messages] == [[4, 4], [2, 2], [3, 3]]


def test_what_is_read_is_the_shared_memory():
    shared = SharedObs(Dict({"a": VECTOR}))
    seen = shared.read(shared.write({"a": VALUE}))["a"]
    for value in (VALUE, VALUE, VALUE * 2):
        shared.write({"a": value})
    assert seen.tolist() == (VALUE * 2).tolist()


@pytest.mark.parametrize(
    "array",
    [
        np.array([1.5], np.float32),
        np.array(3),
        np.zeros((0, 2), np.uint8),
        np.arange(6, dtype=">i4").reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array([True, False]),
    ],
    ids=str,
)
def test_an_array_comes_back_equal_and_writable(array):
    packed = pack_array(array)
    assert len(packed) == 3
    back = unpack_array(pickle.loads(pickle.dumps(packed)))
    assert (back.dtype, back.shape, back.tolist()) == (array.dtype, array.shape, array.tolist())
    back[...] = 0
    assert not np.shares_memory(unpack_array(packed), array)
