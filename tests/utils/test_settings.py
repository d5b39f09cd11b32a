"""The table of settings of a class: defaults, checks and meanings in one place."""

from ding.utils.config_helper import Configurable, Setting, Settings, boolean, integer

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
