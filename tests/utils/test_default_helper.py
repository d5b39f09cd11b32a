"""Helpers for values, dicts, classes and seeds, and the scheduler."""

import random
from typing import NamedTuple

import numpy as np
import pytest
import torch
from easydict import EasyDict

from ding.utils.config_helper import ConfigError
from ding.utils.default_helper import (
    LimitedSpaceContainer,
    Scheduler,
    convert_easy_dict_to_dict,
    deep_merge_dicts,
    deep_update,
    default_get,
    dicts_to_lists,
    error_wrapper,
    flatten_dict,
    list_split,
    lists_to_dicts,
    make_key_as_identifier,
    one_time_warning,
    override,
    remove_illegal_item,
    set_pkg_seed,
    squeeze,
)


def test_one_time_warning_warns_once_for_each_text(caplog):
    for text in ("first", "second", "first"):
        one_time_warning(text)
    assert [record.message for record in caplog.records] == ["first", "second"]


@pytest.mark.parametrize(
    ("data", "result"),
    [
        ([4], 4),
        ((4,), 4),
        ({"a": 4}, 4),
        ([1, 2], (1, 2)),
        ((1, 2), (1, 2)),
        ({"a": 1, "b": 2}, {"a": 1, "b": 2}),
        (7, 7),
    ],
)
def test_squeeze_unpacks_containers_of_one(data, result):
    assert squeeze(data) == result


def test_default_get_prefers_the_value_that_is_there(caplog):
    assert default_get({"a": 1}, "a", default_value=2) == 1
    assert not caplog.records


def test_default_get_falls_back_and_warns_once(caplog):
    assert [default_get({}, "a", default_value=2) for _ in range(2)] == [2, 2]
    assert default_get({}, "b", default_fn=lambda: 3, judge_fn=lambda x: x > 2) == 3
    assert len(caplog.records) == 2


def test_default_get_raises_without_a_default_that_is_allowed():
    with pytest.raises(AssertionError, match="'a' is missing"):
        default_get({}, "a")
    with pytest.raises(AssertionError, match="2 of 'a'"):
        default_get({}, "a", default_value=2, judge_fn=lambda x: x > 2)


def test_list_split_returns_pieces_and_rest():
    assert list_split([1, 2, 3, 4], 2) == ([[1, 2], [3, 4]], None)
    assert list_split([1, 2, 3, 4, 5], 2) == ([[1, 2], [3, 4]], [5])
    assert list_split([1], 2) == ([], [1])


@pytest.mark.differs(
    "fails in small helpers: `error_wrapper` with a message, `import_module('a.b')`, `diff_shape_collate` of text, "
    "`split_data_generator` of few rows, `squeeze` in containers",
    "does what their documentation says",
)
def test_error_wrapper_returns_the_default_and_logs_its_message_once(caplog):
    def broken():
        raise ValueError("no")

    guarded = error_wrapper(broken, 7, "reading failed")
    assert [guarded(), guarded()] == [7, 7]
    assert [record.message for record in caplog.records] == ["reading failed (ValueError: no); 7 is used instead"]
    assert guarded.__name__ == "broken"


def test_error_wrapper_is_silent_without_a_message_and_passes_results_through(caplog):
    assert error_wrapper(lambda x: 1 / x, None)(0) is None
    assert error_wrapper(lambda x: 1 / x, None)(2) == 0.5
    assert not caplog.records


def test_override_accepts_only_names_of_the_base():
    class Base:
        def run(self):
            return 1

    class Child(Base):
        @override(Base)
        def run(self):
            return 2

    assert Child().run() == 2
    with pytest.raises(NameError, match="'walk' overrides nothing: Base"):

        @override(Base)
        def walk():
            return None


def test_limited_space_container_counts_between_its_bounds():
    container = LimitedSpaceContainer(0, 2)
    assert [container.acquire_space() for _ in range(3)] == [True, True, False]
    for _ in range(3):
        container.release_space()
    assert container.cur == 0
    assert container.get_residual_space() == 2 and container.cur == 2
    container.increase_space()
    assert container.acquire_space() and container.cur == 3
    container.decrease_space()
    container.decrease_space()
    assert container.max_val == 1 and container.get_residual_space() == 0 and container.cur == 3


def test_limited_space_container_refuses_crossed_bounds():
    with pytest.raises(AssertionError, match="max_val = 1"):
        LimitedSpaceContainer(2, 1)


def test_set_pkg_seed_makes_all_three_generators_repeat():
    def draw():
        return random.random(), np.random.rand(), torch.rand(1).item()

    set_pkg_seed(5)
    first = draw()
    set_pkg_seed(np.int64(5), use_cuda=False)
    assert draw() == first
    set_pkg_seed(6)
    assert draw() != first


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


def run(cfg, metrics, param=1.0):
    scheduler, params = Scheduler(cfg), []
    for metric in metrics:
        param = scheduler.step(metric, param)
        params.append(pytest.approx(param))
    return params


def test_defaults_are_the_documented_ones():
    assert Scheduler.default_config() == {
        "schedule_flag": False,
        "schedule_mode": "reduce",
        "factor": 0.05,
        "change_range": [-1, 1],
        "threshold": 1e-4,
        "optimize_mode": "min",
        "patience": 10,
        "cooldown": 0,
        "cfg_type": "SchedulerDict",
    }


def test_the_parameter_changes_after_more_than_patience_calls_that_are_not_better():
    assert run({"patience": 2}, [1.0] * 8) == [1, 1, 1, 0.95, 0.95, 0.95, 0.9, 0.9]


def test_a_better_metric_starts_the_count_again():
    assert run({"patience": 1}, [1.0, 1.0, 0.5, 0.5, 0.5]) == [1, 1, 1, 1, 0.95]


def test_each_metric_is_compared_with_the_one_before_it():
    assert run({"patience": 0}, [1.0, 5.0, 4.0, 3.0]) == [1, 0.95, 0.95, 0.95]


def test_better_means_by_more_than_the_threshold_in_the_chosen_direction():
    assert run({"patience": 0, "threshold": 0.5}, [1.0, 0.6, 0.0]) == [1, 0.95, 0.95]
    assert run({"patience": 0, "threshold": 0.5, "optimize_mode": "max"}, [1.0, 1.6, 2.0]) == [1, 1, 0.95]


def test_calls_during_the_cooldown_do_not_count_also_at_the_start():
    assert run({"patience": 0, "cooldown": 2}, [1.0] * 7) == [1, 1, 0.95, 0.95, 0.95, 0.9, 0.9]


@pytest.mark.parametrize(
    ("mode", "factor", "param", "change_range", "expected"),
    [
        ("reduce", 3.0, 0.0, [-1, 1], [-1, -1]),
        ("add", 0.6, 0.0, [-1, 1], [0.6, 1]),
        ("multi", 2.0, 0.0, [-1, 1], [0, 0]),
        ("div", 2.0, 0.0, [-1, 1], [0, 0]),
        ("multi", 3.0, 1.0, [0.4, 8], [3, 8, 8]),
        ("multi", 0.5, 1.0, [0.4, 8], [0.5, 0.4, 0.4]),
        ("div", 2.0, 1.0, [0.4, 8], [0.5, 0.4, 0.4]),
        ("div", 0.3, 1.0, [0.4, 8], [10 / 3, 8, 8]),
    ],
)
def test_the_parameter_stays_in_its_range(mode, factor, param, change_range, expected):
    cfg = {"patience": 0, "schedule_mode": mode, "factor": factor, "change_range": change_range}
    assert run(cfg, [1.0] * (1 + len(expected)), param)[1:] == expected


def test_a_metric_that_is_not_a_float_is_refused():
    with pytest.raises(AssertionError, match="metrics = 1"):
        Scheduler({}).step(1, 1.0)


@pytest.mark.parametrize(
    "cfg",
    [
        {"schedule_mode": "exp"},
        {"factor": 0},
        {"factor": "1"},
        {"change_range": [1, 0]},
        {"change_range": (0, 1)},
        {"change_range": [0, 1, 2]},
        {"threshold": None},
        {"optimize_mode": "mean"},
        {"patience": -1},
        {"patience": 1.5},
        {"cooldown": True},
    ],
)
def test_a_wrong_configuration_is_refused(cfg):
    with pytest.raises(ConfigError):
        Scheduler(cfg)
    with pytest.raises(AssertionError):
        Scheduler(cfg)
