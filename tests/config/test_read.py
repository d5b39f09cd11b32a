import os
import sys
import textwrap

import pytest
from easydict import EasyDict

from ding.config.read import Config, read_config, read_config_directly, read_config_with_system, read_config_yaml
from ding.utils.config_helper import ConfigError
from ding.utils.references import import_folders, reference_to


def write(path, text):
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return str(path)


PAIR = """
    import os
    from easydict import EasyDict
    _hidden = 1
    size = 2 * 3
    main_config = EasyDict(dict(exp_name='x', policy=dict(n=size)))
    create_config = EasyDict(dict(policy=dict(type='dqn')))
    """


def test_read_config_returns_the_pair(tmp_path):
    main, create = read_config(write(tmp_path / "c.py", PAIR))
    assert main == EasyDict(exp_name="x", policy={"n": 6})
    assert create == EasyDict(policy={"type": "dqn"})


@pytest.mark.parametrize("missing", ["main_config", "create_config"])
def test_read_config_names_the_missing_variable(tmp_path, missing):
    path = write(tmp_path / "c.py", PAIR.replace(missing, "something_else"))
    with pytest.raises(ConfigError, match=f"must define {missing}"):
        read_config(path)


def test_read_config_with_system_returns_a_triple_and_requires_it(tmp_path):
    path = write(tmp_path / "c.py", PAIR)
    with pytest.raises(ConfigError, match="must define system_config"):
        read_config_with_system(path)
    path = write(tmp_path / "d.py", PAIR + "system_config = EasyDict(path_data='.')\n")
    assert read_config_with_system(path)[2] == {"path_data": "."}


def test_read_config_directly_returns_every_public_global(tmp_path):
    cfg = read_config_directly(write(tmp_path / "c.py", PAIR))
    assert set(cfg) == {"os", "EasyDict", "size", "main_config", "create_config"}
    assert cfg["os"] is os


@pytest.mark.parametrize("read", [read_config, read_config_directly, read_config_with_system])
def test_other_suffixes_are_refused(read):
    with pytest.raises(KeyError, match="invalid config file suffix: 'pkl'"):
        read("some.config.pkl")


def test_a_missing_file_is_a_file_not_found_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        Config.file_to_dict(str(tmp_path / "absent.py"))


def test_file_to_dict_keeps_the_path_and_the_source(tmp_path):
    path = write(tmp_path / "c.py", "a = 1\n")
    cfg = Config.file_to_dict(path)
    assert cfg.cfg_dict == {"a": 1}
    assert cfg._text == f"{path}\na = 1\n"
    assert cfg._filename == path


@pytest.mark.differs(
    "leaves a dead folder on `sys.path` after a config file that raises",
    "restores `sys.path`; `__file__` is the config file",
)
def test_a_failing_config_leaves_no_trace_in_sys(tmp_path):
    path = write(tmp_path / "c.py", "a = 1\nraise ValueError('broken config')\n")
    modules, paths = set(sys.modules), list(sys.path)
    with pytest.raises(ValueError, match="broken config"):
        read_config_directly(path)
    assert set(sys.modules) == modules
    assert sys.path == paths


def test_reading_leaves_no_files_and_sees_a_rewritten_file_of_equal_size(tmp_path):
    path = write(tmp_path / "c.py", "a = 1\n")
    assert read_config_directly(path) == {"a": 1}
    stat = os.stat(path)
    write(tmp_path / "c.py", "a = 2\n")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert read_config_directly(path) == {"a": 2}
    assert os.listdir(tmp_path) == ["c.py"]


def test_a_config_knows_its_own_file_and_is_not_main(tmp_path):
    path = write(tmp_path / "c.py", "where = __file__\nif __name__ == '__main__':\n    is_main = True\n")
    assert read_config_directly(path) == {"where": path}


def test_config_holds_a_dict_and_its_text(tmp_path):
    assert Config().cfg_dict == {} and Config()._text == "."
    cfg = {"a": 1}
    assert Config(cfg).cfg_dict is cfg
    assert Config(cfg, cfg_text="text")._text == "text"
    path = write(tmp_path / "c.py", "a = 1\n")
    assert Config(cfg, filename=path)._text == "a = 1\n"


def test_config_refuses_what_is_not_a_dict():
    with pytest.raises(TypeError, match="cfg_dict must be a dict, got list"):
        Config([1])


def test_yaml_is_read_as_an_easydict_without_running_code(tmp_path):
    import yaml

    cfg = read_config_yaml(write(tmp_path / "c.yaml", "a: {b: [1, .inf]}\n"))
    assert cfg.a.b == [1, float("inf")] and isinstance(cfg, EasyDict)
    with pytest.raises(yaml.YAMLError):
        read_config_yaml(write(tmp_path / "d.yaml", "a: !!python/object/apply:os.getcwd []\n"))


def test_a_class_of_a_config_is_of_the_newest_file_of_its_name(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "of_the_same_name.py").write_text("class Own:\n    pass\n")
        own = Config.file_to_dict(str(tmp_path / folder / "of_the_same_name.py")).cfg_dict["Own"]
        assert reference_to(own) == "of_the_same_name:Own"
        found = [path for path in import_folders() if os.path.exists(f"{path}/of_the_same_name.py")]
        assert found[0] == str(tmp_path / folder)
