import math

import pytest
from easydict import EasyDict

from ding.utils.config_helper import (
    ConfigError,
    Configurable,
    Setting,
    Settings,
    anything,
    boolean,
    check_config,
    check_section,
    default_config_of,
    instance_of,
    integer,
    number,
    one_of,
)


def allowed(rule, value):
    return rule(value) is None


@pytest.mark.parametrize(
    ("value", "result"),
    [(0, True), (1.5, True), (2, True), (2.1, False), (True, False), (math.nan, False), ("1", False)],
)
def test_number_accepts_real_numbers_in_range(value, result):
    assert allowed(number(0, 2), value) is result


@pytest.mark.parametrize(
    ("value", "result"),
    [
        (1, True),
        (1e4, True),
        (1.5, False),
        (0, False),
        (True, False),
        (math.inf, False),
        (math.nan, False),
        (None, False),
    ],
)
def test_integer_accepts_whole_numbers_in_range(value, result):
    assert allowed(integer(1), value) is result


def test_the_other_rules_accept_what_they_name():
    assert allowed(one_of("a", None), None) and not allowed(one_of("a"), "b")
    assert allowed(instance_of(str), "x") and not allowed(instance_of(str), 1)
    assert allowed(instance_of(str, list), []) and allowed(instance_of(str, optional=True), None)
    assert allowed(boolean, False) and not allowed(boolean, 1)
    assert allowed(anything, object())


RULES = {"size": integer(1), "monitor.log.seconds": number(0), "free": anything}


def test_a_wrong_value_raises_both_documented_classes_with_the_path_and_what_is_allowed():
    for error in (ConfigError, ValueError, AssertionError):
        with pytest.raises(error, match=r"Thing: monitor.log.seconds = -1 is not allowed; it must be a number in \[0"):
            check_config({"monitor": {"log": {"seconds": -1}}}, "Thing", RULES)


def test_an_unknown_key_warns_once_and_names_the_nearest(caplog):
    for _ in range(2):
        check_config({"something_else": 2, "sizes": 2, "monitor": {"logs": {}}}, "Thing", RULES)
    assert caplog.messages == [
        "Thing: ding does not read the config key something_else",
        "Thing: ding does not read the config key sizes; did you mean size?",
        "Thing: ding does not read the config key monitor.logs; did you mean monitor.log?",
    ]


class Thing(Configurable):
    settings = Settings({"size": Setting(1, integer(1), "Size.")})


Thing.__module__ = "ding.thing"


def test_the_section_of_a_class_is_checked_for_values_only(caplog):
    check_section({"size": 1, "first": 1}, Thing)
    assert caplog.messages == []
    with pytest.raises(ConfigError, match="size = 0"):
        check_section({"size": 0}, Thing)


def test_a_value_in_the_place_of_a_section_raises():
    with pytest.raises(ConfigError, match=r"monitor = 3 is not allowed; it must be a dict"):
        check_config({"monitor": 3}, "Thing", RULES)


def test_a_missing_required_key_raises_also_below_a_missing_section():
    for key in ("size", "monitor.log.seconds"):
        with pytest.raises(ConfigError, match=f"the config key '{key}' is missing"):
            check_config({}, "Thing", RULES, required=[key])


def test_default_config_is_a_fresh_easydict_with_the_class_name():
    class Thing:
        config = {"a": {"b": [1]}}

    cfg = default_config_of(Thing)
    assert isinstance(cfg, EasyDict) and cfg.cfg_type == "ThingDict" and cfg.a.b == [1]
    cfg.a.b.append(2)
    assert Thing.config == {"a": {"b": [1]}}


# The table of settings of a class: defaults, checks and meanings in one place.


GLOSSARY = {"batch_size": Setting(rule=integer(1), doc="Number of samples in a batch.")}


def test_the_default_config_has_the_keys_with_a_default_and_is_new_each_time():
    settings = Settings({"learn.betas": Setting([0.9, 0.999]), "learn.n": Setting(rule=integer(1)), "eval": {}})
    first = settings.config()
    assert first == {"learn": {"betas": [0.9, 0.999]}, "eval": {}}
    first["learn"]["betas"].append(1)
    assert settings.config()["learn"]["betas"] == [0.9, 0.999]


def test_a_default_alone_takes_rule_and_meaning_from_the_longest_known_ending():
    glossary = {**GLOSSARY, "learn.batch_size": Setting(doc="Of learning.")}
    settings = Settings({"learn.batch_size": 1, "collect.batch_size": 2, "other": 3}, glossary=glossary)
    assert settings["learn.batch_size"] == (1, None, "Of learning.")
    assert settings["collect.batch_size"].doc == "Number of samples in a batch."
    assert settings["other"] == (3, None, "")


def test_a_table_adds_to_its_base_and_overrides_it_and_leaves_it_as_it_was():
    base = Settings({"cuda": Setting(False, boolean, "On a GPU."), "n": 1}, glossary=GLOSSARY)
    settings = Settings({"cuda": True, "batch_size": 4}, base)
    assert settings["cuda"] == (True, boolean, "On a GPU.")
    assert settings["batch_size"].rule is GLOSSARY["batch_size"].rule
    assert (list(settings), list(base)) == (["cuda", "n", "batch_size"], ["cuda", "n"])
    assert base["cuda"].default is False


def test_the_config_of_a_class_is_that_of_its_settings_unless_it_has_its_own():
    class Base(Configurable):
        settings = Settings({"n": 1})

    class Child(Base):
        settings = Settings({"m": 2}, Base.settings)

    class Own(Child):
        config = {"n": 7}

    assert (Base.config, Child.config, Own.config) == ({"n": 1}, {"n": 1, "m": 2}, {"n": 7})
    assert Own.default_config() == {"n": 7, "cfg_type": "OwnDict"}
    assert Child.default_config() is not Child.default_config()


def test_a_section_of_a_table_is_a_table():
    settings = Settings({"run.n": Setting(1, integer(0), "Number."), "run.m.k": 2, "runs": 3})
    assert settings.section("run").config() == {"n": 1, "m": {"k": 2}}
    assert settings.section("run").rules()["n"](-1) is not None
