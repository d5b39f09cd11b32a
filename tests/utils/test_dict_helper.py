from typing import NamedTuple

import pytest
from easydict import EasyDict

from ding.utils.default_helper import (
    convert_easy_dict_to_dict,
    deep_merge_dicts,
    deep_update,
    dicts_to_lists,
    flatten_dict,
    lists_to_dicts,
    make_key_as_identifier,
    remove_illegal_item,
)


class Pair(NamedTuple):
    a: int
    b: int


def test_deep_merge_merges_dicts_and_replaces_everything_else():
    original = {"a": {"b": 1, "c": [1]}, "d": {"e": 2}, "f": 3}
    merged = deep_merge_dicts(original, {"a": {"c": [2, 3], "new": 4}, "d": None, "g": {"h": 5}})
    assert merged == {"a": {"b": 1, "c": [2, 3], "new": 4}, "d": None, "f": 3, "g": {"h": 5}}
    assert original == {"a": {"b": 1, "c": [1]}, "d": {"e": 2}, "f": 3}


def test_deep_merge_with_an_empty_dict_keeps_the_original_section():
    assert deep_merge_dicts({"a": {"b": 1}}, {"a": {}}) == {"a": {"b": 1}}


def test_deep_merge_treats_none_as_empty():
    assert deep_merge_dicts(None, {"a": 1}) == {"a": 1}
    assert deep_merge_dicts({"a": 1}, None) == {"a": 1}
    assert deep_merge_dicts(None, None) == {}


def test_deep_merge_copies_the_original_and_shares_the_new_values():
    inner, new = [1], [2]
    merged = deep_merge_dicts({"a": inner}, {"b": new})
    assert merged["a"] is not inner and merged["b"] is new


def test_deep_merge_keeps_the_type_of_an_easydict():
    merged = deep_merge_dicts(EasyDict({"a": {"b": 1}}), {"a": {"c": 2}})
    assert isinstance(merged, EasyDict) and merged.a.c == 2 and merged.a.b == 1


def test_deep_merge_of_an_empty_easydict_is_a_plain_dict():
    assert type(deep_merge_dicts(EasyDict(), {"a": 1})) is dict


def test_deep_update_refuses_unknown_keys():
    with pytest.raises(RuntimeError, match="unknown key 'c'"):
        deep_update({"a": {"b": 1}}, {"a": {"c": 2}})


def test_deep_update_works_in_place_and_returns_the_dict():
    original = {"a": {"b": 1}}
    assert deep_update(original, {"a": {"b": 2}}) is original
    assert original == {"a": {"b": 2}}


def test_deep_update_lets_new_keys_in_below_the_whitelist_only():
    original = {"a": {"x": {"y": 1}}, "b": {}}
    deep_update(original, {"a": {"x": {"z": 2}}}, whitelist=["a"])
    assert original == {"a": {"x": {"y": 1, "z": 2}}, "b": {}}
    with pytest.raises(RuntimeError):
        deep_update(original, {"b": {"c": 1}}, whitelist=["a"])


def test_deep_update_replaces_a_listed_key_as_a_whole_when_its_type_differs():
    original = {"a": {"type": "one", "x": 1}, "b": {"type": "one", "x": 1}}
    new = {"a": {"type": "two", "y": 2}, "b": {"type": "two", "y": 2}}
    deep_update(original, new, new_keys_allowed=True, override_all_if_type_changes=["a"])
    assert original == {"a": {"type": "two", "y": 2}, "b": {"type": "two", "x": 1, "y": 2}}


def test_deep_update_merges_a_listed_key_of_equal_type():
    original = {"a": {"type": "one", "x": 1}}
    deep_update(original, {"a": {"type": "one", "x": 2}}, override_all_if_type_changes=["a"])
    assert original == {"a": {"type": "one", "x": 2}}


def test_flatten_dict_joins_the_keys_and_drops_empty_dicts():
    data = {"a": {"b": {"c": 1}, "e": {}}, "d": 2}
    assert flatten_dict(data) == {"a/b/c": 1, "d": 2}
    assert flatten_dict(data, delimiter=".") == {"a.b.c": 1, "d": 2}
    assert data == {"a": {"b": {"c": 1}, "e": {}}, "d": 2}


def test_lists_to_dicts_takes_the_keys_of_the_first_dict():
    assert lists_to_dicts([{"a": 1, "b": 2}, {"a": 3, "b": 4, "c": 5}]) == {"a": [1, 3], "b": [2, 4]}


def test_lists_to_dicts_needs_every_key_of_the_first_dict():
    with pytest.raises(KeyError):
        lists_to_dicts([{"a": 1}, {"b": 2}])


def test_lists_to_dicts_makes_a_namedtuple_of_tuples():
    assert lists_to_dicts([Pair(1, 2), Pair(3, 4)]) == Pair((1, 3), (2, 4))


def test_lists_to_dicts_goes_one_level_down_when_recursive_but_not_into_prev_state():
    data = [{"a": {"x": {"y": i}}, "prev_state": {"h": i}} for i in range(2)]
    assert lists_to_dicts(data, recursive=True) == {
        "a": {"x": [{"y": 0}, {"y": 1}]},
        "prev_state": [{"h": 0}, {"h": 1}],
    }


def test_lists_to_dicts_refuses_what_it_cannot_turn():
    with pytest.raises(ValueError, match="at least one"):
        lists_to_dicts([])
    with pytest.raises(TypeError, match="int"):
        lists_to_dicts([1, 2])
    with pytest.raises(TypeError, match="tuple"):
        lists_to_dicts([(1, 2)])


def test_dicts_to_lists_is_as_long_as_the_shortest_list():
    assert dicts_to_lists({"a": [1, 2, 3], "b": [4, 5]}) == [{"a": 1, "b": 4}, {"a": 2, "b": 5}]


def test_convert_easy_dict_to_dict_converts_values_but_not_what_is_inside_lists():
    converted = convert_easy_dict_to_dict(EasyDict({"a": {"b": {"c": 1}}, "d": [{"e": 2}]}))
    assert type(converted) is dict and type(converted["a"]) is dict and type(converted["a"]["b"]) is dict
    assert isinstance(converted["d"][0], EasyDict)


def test_make_key_as_identifier_replaces_dots_and_leading_digits():
    assert make_key_as_identifier({"TimeLimit.truncated": 1, "3d": 2, "ok": 3}) == {
        "TimeLimit_truncated": 1,
        "_3d": 2,
        "ok": 3,
    }


def test_remove_illegal_item_drops_strings():
    assert remove_illegal_item({"a": "text", "b": 1, "c": None}) == {"b": 1, "c": None}
