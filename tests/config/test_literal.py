import math
from collections import Counter, OrderedDict
from functools import partial

import numpy as np
import pytest
from easydict import EasyDict
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from ding.config.save import is_literal, to_source, unsaved_values

NAMES = {"__builtins__": {"dict": dict, "float": float, "set": set, "frozenset": frozenset, "complex": complex}}

COUNTER = {"__reference__": "collections:Counter"}

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.complex_numbers(allow_nan=False),
)
keys = st.one_of(st.text(), st.integers(), st.sampled_from(["class", "a b", "self", "ﬁ", "x\ny", "None"]))
trees = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner), st.lists(inner).map(tuple), st.dictionaries(keys, inner), st.sets(st.integers())
    ),
    max_leaves=20,
)


def read_back(value):
    return eval(to_source(value), NAMES)


@settings(max_examples=50)
@given(trees)
def test_literal_trees_come_back_equal(tree):
    assert is_literal(tree)
    assert repr(read_back(tree)) == repr(tree) or read_back(tree) == tree


@pytest.mark.differs("some infinities and NaN are written as bare names", "always `float('inf')`, `float('nan')`")
@pytest.mark.parametrize("value", [math.inf, -math.inf, [1, math.inf], (math.inf,), {"a": {"b": -math.inf}}])
def test_infinities_come_back_wherever_they_stand(value):
    assert read_back(value) == value


def test_nan_comes_back():
    assert math.isnan(read_back({"a": [math.nan]})["a"][0])


@pytest.mark.differs("strings that hold `inf,` are corrupted", "strings come back exactly")
def test_strings_that_look_like_infinities_and_quotes_stay_strings():
    tree = {"text": 'inf, nan, it\'s "x" \\ \n', "list": ["inf,", "nan"]}
    assert read_back(tree) == tree


def test_mappings_become_plain_dicts():
    back = read_back(EasyDict(a=EasyDict(b=1), c=OrderedDict(d=2)))
    assert type(back) is dict and type(back["a"]) is dict and type(back["c"]) is dict
    assert back == {"a": {"b": 1}, "c": {"d": 2}}


def test_numpy_scalars_become_python_numbers():
    back = read_back([np.float32(0.5), np.int64(3), np.bool_(True), np.float64(math.inf)])
    assert back == [0.5, 3, True, math.inf]
    assert [type(x) for x in back] == [float, int, bool, float]


def test_an_array_becomes_a_call_with_lists():
    text = to_source({"scale": np.array([[1.0, 2.0]], dtype=np.float32)})
    call = {"__reference__": "numpy:array", "args": [[[1.0, 2.0]]], "kwargs": {"dtype": "<f4"}}
    assert eval(text, NAMES) == {"scale": call} and "#" not in text


@pytest.mark.differs(
    "classes or functions in a config make saving fail",
    "they are saved as their repr, with a comment",
)
@pytest.mark.parametrize("value", [lambda x: x, nn.Sequential(nn.Tanh(), nn.Linear(1, 1)), range(3), object()])
def test_what_has_no_literal_becomes_its_repr_with_a_comment(value):
    text = to_source({"activation": value, "after": 1})
    assert eval(text, NAMES) == {"activation": repr(value), "after": 1}
    assert "# was a" in text
    assert not is_literal({"activation": value})


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (OrderedDict, {"__reference__": "collections:OrderedDict"}),
        (print, {"__reference__": "builtins:print"}),
        (Counter.fromkeys, {"__reference__": "collections:Counter.fromkeys"}),
        (partial(Counter, a=1), {"__reference__": "functools:partial", "args": [COUNTER], "kwargs": {"a": 1}}),
        ([(OrderedDict, {"a": Counter})], [({"__reference__": "collections:OrderedDict"}, {"a": COUNTER})]),
    ],
)
def test_what_can_be_imported_becomes_its_name(value, name):
    text = to_source({"wrapper": value, "after": 1})
    assert is_literal({"wrapper": value}) and "#" not in text
    assert eval(text, NAMES) == {"wrapper": name, "after": 1}


def test_values_that_no_file_can_hold_are_found_by_their_keys():
    env = {"env": (lambda: 0), "kwargs": {"a": 1}, "wrappers": [OrderedDict, nn.Flatten()]}
    assert list(unsaved_values({"env": env, "seed": 0})) == ["env.env", "env.wrappers"]
    wrappers = [(OrderedDict, {"func": partial(max, key=lambda: 0)}), (OrderedDict, {"scale": {"of": object()}})]
    assert list(unsaved_values({"env": {"wrappers": wrappers}})) == ["env.wrappers.func.key", "env.wrappers.scale.of"]


def test_non_literals_in_sequences_and_keys_do_not_break_the_source():
    tree = {"list": [range(3), 1], Counter: 2, ("a", 1): 3}
    assert eval(to_source(tree), NAMES) == {"list": ["range(0, 3)", 1], "collections:Counter": 2, ("a", 1): 3}


def test_empty_containers_come_back():
    tree = {"a": {}, "b": [], "c": (), "d": set(), "e": frozenset(), "f": frozenset({1})}
    assert read_back(tree) == tree


def test_long_lists_break_over_lines():
    numbers = list(range(100))
    text = to_source({"numbers": numbers})
    assert max(map(len, text.splitlines())) < 120
    assert eval(text, NAMES) == {"numbers": numbers}
