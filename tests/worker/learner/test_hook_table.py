"""The hook table: built from config, kept in order, merged."""

import pytest
from easydict import EasyDict

from ding.utils.config_helper import ConfigError
from ding.worker.learner.learner_hook import (
    Hook,
    LearnerHook,
    LoadCkptHook,
    LogReduceHook,
    LogShowHook,
    SaveCkptHook,
    add_learner_hook,
    build_learner_hook_by_cfg,
    find_char,
    hook_mapping,
    merge_hooks,
    register_learner_hook,
    show_hooks,
    simplified_hook_mapping,
)

POSITIONS = ["before_run", "after_run", "before_iter", "after_iter"]
FREQ = "log_show_after_iter"


class NothingHook(LearnerHook):
    def __call__(self, engine):
        return None


def nothing(name="n", priority=10, position="after_iter"):
    return NothingHook(name, priority, position=position)


def names(hooks):
    return {position: [hook.name for hook in row] for position, row in hooks.items()}


def test_a_hook_tells_its_name_priority_and_position():
    hook = nothing("x", 3, "before_run")
    assert (hook.name, hook.priority, hook.position) == ("x", 3, "before_run")
    assert LearnerHook.positions == POSITIONS
    for attribute in ("name", "priority", "position"):
        with pytest.raises(AttributeError):
            setattr(hook, attribute, 1)


def test_abstract_hooks_cannot_be_made():
    with pytest.raises(TypeError):
        LearnerHook("n", 1, position="after_iter")
    with pytest.raises(TypeError):
        Hook("n", 1)


def test_a_subclass_that_takes_no_ext_args_is_built_all_the_same():
    register_learner_hook("nothing", NothingHook)
    try:
        form = EasyDict(name="n", type="nothing", position="before_iter", ext_args={"freq": 3})
        (hook,) = build_learner_hook_by_cfg({"any_key": form})["before_iter"]
    finally:
        del hook_mapping["nothing"]
    assert type(hook) is NothingHook and hook.priority == 100


@pytest.mark.parametrize(
    ("args", "index"),
    [
        (("a_b_c", "_", 1), 1),
        (("a_b_c", "_", 2), 3),
        (("a_b_c", "_", 3), -1),
        (("a_b_c", "_", 1, True), 3),
        (("a_b_c", "_", 2, True), 1),
        (("a_b_c", "_", 3, True), -1),
        (("", "_", 1), -1),
    ],
)
def test_find_char_gives_the_index_of_an_occurrence(args, index):
    assert find_char(*args) == index


def test_the_default_hooks():
    hooks = build_learner_hook_by_cfg(
        EasyDict(load_ckpt_before_run="", log_show_after_iter=100, save_ckpt_after_iter=10000, save_ckpt_after_run=True)
    )
    assert list(hooks) == POSITIONS
    assert names(hooks) == {
        "before_run": ["load_ckpt"],
        "after_run": ["save_ckpt_after_run"],
        "before_iter": [],
        "after_iter": ["log_show", "save_ckpt_after_iter"],
    }
    assert [type(hook) for hook in hooks["after_iter"]] == [LogShowHook, SaveCkptHook]
    assert [hook._freq for hook in hooks["after_iter"]] == [100, 10000]
    assert [hook.priority for row in hooks.values() for hook in row] == [20] * 4


def test_simplified_keys_come_from_a_plain_dict_too_and_log_reduce_is_first():
    hooks = build_learner_hook_by_cfg({"log_show_after_iter": 1e2, "log_reduce_after_iter": True})
    assert [type(hook) for hook in hooks["after_iter"]] == [LogReduceHook, LogShowHook]
    assert hooks["after_iter"][0].priority == 10 and hooks["after_iter"][1]._freq == 100


@pytest.mark.parametrize("off", [False, 0, None, ""])
def test_a_falsy_switch_leaves_its_hook_out(off):
    hooks = build_learner_hook_by_cfg({"save_ckpt_after_run": off, "log_reduce_after_iter": off})
    assert not any(hooks.values())


def full(**changes):
    form = {"name": "n", "type": "save_ckpt", "position": "after_iter", **changes}
    return {"key": EasyDict({name: value for name, value in form.items() if value is not None})}


@pytest.mark.parametrize(
    ("cfg", "error", "word"),
    [
        *(({FREQ: freq}, ConfigError, f"freq = {freq!r}") for freq in (0, 2.5, True, "often", None)),
        ({"save_ckpt_after_iter": 0}, ConfigError, "freq = 0"),
        ({"log_show_after_iters": 5}, AttributeError, "did you mean 'log_show_after_iter'"),
        (full(type="save_ckpts"), KeyError, "save_ckpts"),
        (full(position="never"), AssertionError, "position = 'never'"),
        *((full(**{field: None}), AttributeError, f"lacks {field}") for field in ("name", "type", "position")),
        ({"key": {"name": "n", "type": "save_ckpt", "position": "after_iter"}}, AttributeError, "EasyDict"),
        (full(type="load_ckpt", position="before_run"), KeyError, "load_path"),
    ],
)
def test_a_wrong_config_of_a_hook_is_refused(cfg, error, word):
    with pytest.raises(error, match=word):
        build_learner_hook_by_cfg(cfg)


def test_the_full_form_may_have_any_key_or_a_simplified_one():
    hooks = build_learner_hook_by_cfg(
        {
            "save_ckpt_after_run": EasyDict(name="last", type="save_ckpt", priority=40, position="after_run"),
            "mine": EasyDict(name="load", type="load_ckpt", position="before_run", ext_args={"load_path": "x"}),
        }
    )
    assert names(hooks)["after_run"] == ["last"] and hooks["after_run"][0].priority == 40
    assert hooks["before_run"][0]._load_path == "x" and hooks["before_run"][0].priority == 100


def test_a_hook_is_inserted_after_those_of_equal_priority():
    hooks = build_learner_hook_by_cfg({"log_show_after_iter": 1, "log_reduce_after_iter": True})
    add_learner_hook(hooks, nothing("late", 20))
    add_learner_hook(hooks, nothing("early", 0))
    add_learner_hook(hooks, nothing("run", 5, "before_run"))
    assert names(hooks)["after_iter"] == ["early", "log_reduce_after_iter", "log_show", "late"]
    assert names(hooks)["before_run"] == ["run"]


def test_what_is_no_hook_and_tables_of_other_positions_are_refused():
    with pytest.raises(AssertionError):
        add_learner_hook({}, print)
    with pytest.raises(AssertionError):
        merge_hooks({"before_run": []}, {"after_run": []})


def test_merged_hooks_are_a_new_table_in_which_the_first_ones_go_before_their_equals():
    first = build_learner_hook_by_cfg({"log_show_after_iter": 1, "save_ckpt_after_run": True})
    second = build_learner_hook_by_cfg({"save_ckpt_after_iter": 1, "log_reduce_after_iter": True})
    merged = merge_hooks(first, second)
    assert names(merged)["after_iter"] == ["log_reduce_after_iter", "log_show", "save_ckpt_after_iter"]
    assert names(merged)["after_run"] == ["save_ckpt_after_run"]
    assert names(first)["after_iter"] == ["log_show"]


def test_only_learner_hook_classes_are_registered():
    with pytest.raises(AssertionError):
        register_learner_hook("bad", int)
    with pytest.raises(TypeError):
        register_learner_hook("bad", nothing())
    assert "bad" not in hook_mapping


def test_a_type_registered_anew_is_what_simplified_keys_build(monkeypatch):
    class OwnShow(LogShowHook):
        pass

    monkeypatch.setitem(hook_mapping, "log_show", LogShowHook)
    register_learner_hook("log_show", OwnShow)
    (hook,) = build_learner_hook_by_cfg({"log_show_after_iter": 3})["after_iter"]
    assert type(hook) is OwnShow


def test_the_mappings_name_the_built_in_hooks():
    assert hook_mapping == {
        "load_ckpt": LoadCkptHook,
        "save_ckpt": SaveCkptHook,
        "log_show": LogShowHook,
        "log_reduce": LogReduceHook,
    }
    assert set(simplified_hook_mapping) == {
        "load_ckpt_before_run",
        "log_show_after_iter",
        "save_ckpt_after_iter",
        "save_ckpt_after_run",
        "log_reduce_after_iter",
    }


def test_show_hooks_writes_the_class_names_of_each_position(capsys):
    show_hooks(build_learner_hook_by_cfg({"log_show_after_iter": 1, "save_ckpt_after_iter": 1}))
    assert capsys.readouterr().out.splitlines() == [
        "before_run: -",
        "after_run: -",
        "before_iter: -",
        "after_iter: LogShowHook, SaveCkptHook",
    ]
