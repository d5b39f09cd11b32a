"""Functions over the leaves of nested data."""

from collections import deque, namedtuple

import numpy as np
import pytest
import torch
from easydict import EasyDict

from ding.utils.data.nested import (
    ByType,
    has_nan,
    is_container,
    is_finite,
    leaves,
    leaves_by_path,
    map_leaves,
    parts_of,
    plain,
    rebuilt,
)

Pair = namedtuple("Pair", ["one", "two"])
LEAVES = [None, 1, "text", b"bytes", bytearray(b"x"), np.zeros(2), torch.zeros(2), range(2), {1}]


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: type(leaf).__name__)
def test_what_is_neither_a_mapping_nor_a_sequence_is_a_leaf(leaf):
    assert not is_container(leaf) and list(leaves(leaf)) == [leaf] or leaf is next(leaves(leaf))
    assert list(parts_of(leaf)) == []
    assert map_leaves(lambda value: (value,), leaf)[0] is leaf


def test_containers_keep_their_form():
    tree = EasyDict(a=[1, (2, 3)], b=Pair(4, {"c": 5}))
    tree["d"] = deque([6])
    doubled = map_leaves(lambda value: 2 * value, dict(tree))
    assert doubled == {"a": [2, (4, 6)], "b": Pair(8, {"c": 10}), "d": [12]}
    assert [type(part) for part in doubled.values()] == [list, Pair, list]
    assert type(map_leaves(lambda value: value, tree)) is dict


def test_leaves_come_in_order_with_their_paths():
    tree = {"a": [1, {"b": 2}], 3: Pair(4, ())}
    assert list(leaves(tree)) == [1, 2, 4]
    assert list(leaves_by_path(tree)) == [("['a'][0]", 1), ("['a'][1]['b']", 2), ("[3][0]", 4)]
    assert [path for path, _ in leaves_by_path(tree, "x", lambda path, key: f"{path}.{key}")] == [
        "x.a.0",
        "x.a.1.b",
        "x.3.0",
    ]


def test_parts_can_be_put_together_again():
    for container in ({"a": 1}, [1], (1,), Pair(1, 2)):
        again = rebuilt(container, (part for _, part in parts_of(container)))
        assert again == container and type(again) is type(container)


@pytest.mark.parametrize(
    "value",
    [float("nan"), np.float32("nan"), np.array([0, np.nan]), np.array([1j * np.nan]), torch.tensor([0, np.nan])],
    ids=lambda value: type(value).__name__,
)
def test_nan_is_found(value):
    assert has_nan(value)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 1e39])
@pytest.mark.parametrize(
    "make",
    [
        float,
        np.float64,
        lambda x: np.array([0, x]),
        lambda x: np.array([1j * x]),
        lambda x: torch.tensor([0.0, x]).double(),
    ],
)
def test_a_number_that_is_not_finite_in_float32_is_found(number, make):
    assert not is_finite(make(number))


@pytest.mark.parametrize(
    "value",
    [3.4e38, 10**40, "inf", None, np.array([3.4e38, -3.4e38]), np.array(["a"]), np.array([2**62]), torch.tensor([1])],
    ids=str,
)
def test_everything_else_is_finite(value):
    assert is_finite(value)


def test_by_type_takes_the_first_rule_that_matches_and_names_what_it_refuses():
    handlers = ByType("name", (bool, lambda x: "bool"), ((int, float), lambda x: "number"))
    assert [handlers[type(x)](x) for x in (True, 1, 2.5)] == ["bool", "number", "number"]
    with pytest.raises(TypeError, match=r"cannot name a value of type builtins\.str"):
        handlers[str]


# Values as JSON has them.


@pytest.mark.parametrize(
    ("value", "result"),
    [
        (np.float32(0.5), 0.5),
        (torch.tensor([1, 2]), [1, 2]),
        ((1, None, "a"), [1, None, "a"]),
        ([np.int64(1), [np.bool_(True)]], [1, [True]]),
        (EasyDict(a=np.zeros(2)), {"a": [0.0, 0.0]}),
        (True, True),
    ],
)
def test_values_become_what_json_has(value, result):
    found = plain(value)
    assert found == result and type(found) is type(result)
