import importlib
import math
import os
import pickle
import sys
from collections import Counter, OrderedDict
from functools import partial
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from easydict import EasyDict
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

from ding.config.read import read_config, read_config_directly, read_config_yaml, read_packed_config
from ding.config.save import (
    save_config,
    save_config_formatted,
    save_config_py,
    save_packed_config,
    save_pair,
    unsaved_values,
)
from ding.utils.config_helper import ConfigError
from ding.utils.references import on_path

INF = float("inf")
COUNTER = {"__reference__": "collections:Counter"}


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "total_config.py")


def tree():
    return EasyDict(
        exp_name="it's",
        seed=3,
        env={
            "type": "e",
            "import_names": ["m"],
            "manager": {"type": "base", "cfg_type": "M", "episode_num": INF},
            "shape": (1, 2),
        },
        policy={
            "type": "dqn_command",
            "collect": {"collector": {"type": "sample", "cfg_type": "C"}},
            "other": {"replay_buffer": {"type": "deque", "size": 5}, "eps": {"start": 0.9}},
        },
        reward_model={"type": "rnd", "hidden": 3},
        bco={"alpha": INF},
    )


def test_saved_python_is_read_back_by_read_config_directly(path):
    save_config_py(tree(), path)
    assert EasyDict(read_config_directly(path)["exp_config"]) == tree()


@pytest.mark.differs(
    "fails to save a config with classes or functions, and corrupts infinities and text with `inf,`",
    "saves classes and functions by name, and all data exactly",
)
@pytest.mark.parametrize(
    ("value", "saved"),
    [
        (nn.ReLU, {"__reference__": "torch.nn.modules.activation:ReLU"}),
        (Counter.fromkeys, {"__reference__": "collections:Counter.fromkeys"}),
        (partial(Counter, a=1), {"__reference__": "functools:partial", "args": [COUNTER], "kwargs": {"a": 1}}),
        ([(OrderedDict, {"a": Counter})], [({"__reference__": "collections:OrderedDict"}, {"a": COUNTER})]),
        (nn.Flatten(), "Flatten(start_dim=1, end_dim=-1)"),
        (range(3), "range(0, 3)"),
        ([np.float32(0.5), np.int64(3), np.bool_(True)], [0.5, 3, True]),
        (np.longdouble(1), "np.longdouble('1.0')"),
    ],
)
def test_what_is_no_data_is_saved_by_its_name_or_as_a_text(path, value, saved):
    save_config_py(EasyDict(a={"b": value}, n=1), path)
    assert read_config_directly(path)["exp_config"] == {"a": {"b": saved}, "n": 1}


scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary())
trees = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.dictionaries(st.text(), inner),
        st.sets(st.integers(), max_size=1),
    ),
    max_leaves=20,
)


@settings(max_examples=50)
@given(trees)
@example({"text": 'inf, nan, it\'s "x" \\ \n', "limit": (math.inf, [-math.inf])})
@example({"moves": {0: "left", (1, 2): {3}}, "empty": [(), {}, set(), frozenset()]})
def test_data_comes_back_equal(tree):
    with TemporaryDirectory() as folder:
        path = os.path.join(folder, "c.py")
        save_config_py({"tree": tree}, path)
        back = read_config_directly(path)["exp_config"]
    assert back == {"tree": tree} and repr(back) == repr({"tree": tree})


def test_values_that_no_file_can_hold_are_found_by_their_keys():
    env = {"env": (lambda: 0), "kwargs": {"a": 1}, "wrappers": [OrderedDict, nn.Flatten()]}
    assert list(unsaved_values({"env": env, "seed": 0})) == ["env.env", "env.wrappers"]
    wrappers = [(OrderedDict, {"func": partial(max, key=lambda: 0)}), (OrderedDict, {"scale": {"of": object()}})]
    assert list(unsaved_values({"env": {"wrappers": wrappers}})) == ["env.wrappers.func.key", "env.wrappers.scale.of"]


def test_a_config_without_its_json_file_names_it(path):
    save_config_py(tree(), path)
    os.remove(path.replace(".py", ".json"))
    with pytest.raises(FileNotFoundError, match=r"total_config\.json"):
        read_config(path)


@pytest.mark.guarantees("files")
def test_a_damaged_json_file_of_a_config_is_named(path):
    save_config_py(tree(), path)
    with open(path.replace(".py", ".json"), "r+b") as file:
        file.truncate(20)
    with pytest.raises(ConfigError, match=r"total_config\.json is damaged"):
        read_config(path)


def test_the_folder_of_a_module_that_a_config_names_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    folder = str(tmp_path)
    (tmp_path / "saved_module.py").write_text("class Own:\n    pass\n")
    with on_path(folder):
        save_pair({"env": {"env": importlib.import_module("saved_module").Own}}, {}, f"{folder}/config.py")
    for _ in range(2):
        assert read_config(f"{folder}/config.py")[0].env.env == {"__reference__": "saved_module:Own"}
    assert sys.path.count(folder) == 1 and sys.path[-1] == folder


def test_the_formatted_pair_holds_every_section_and_the_types_once(path):
    save_config_formatted(tree(), path)
    main, create = read_config(path)
    assert create == EasyDict(
        env={"type": "e", "import_names": ["m"]},
        env_manager={"type": "base"},
        policy={"type": "dqn"},
        collector={"type": "sample"},
        replay_buffer={"type": "deque"},
        reward_model={"type": "rnd"},
    )
    assert main == EasyDict(
        exp_name="it's",
        seed=3,
        env={"manager": {"cfg_type": "M", "episode_num": INF}, "shape": (1, 2)},
        policy={
            "collect": {"collector": {"cfg_type": "C"}},
            "other": {"replay_buffer": {"size": 5}, "eps": {"start": 0.9}},
        },
        reward_model={"type": "rnd", "hidden": 3},
        bco={"alpha": INF},
    )


def test_several_buffers_keep_their_types_by_name(path):
    cfg = EasyDict(
        exp_name="x",
        policy={
            "type": "ppg",
            "other": {
                "replay_buffer": {"multi_buffer": True, "policy": {"type": "a", "n": 1}, "value": {"type": "b", "n": 2}}
            },
        },
    )
    save_config_formatted(cfg, path)
    main, create = read_config(path)
    assert create.replay_buffer == {"policy": {"type": "a"}, "value": {"type": "b"}}
    assert main.policy.other.replay_buffer == cfg.policy.other.replay_buffer


def test_save_config_writes_the_formatted_file_beside_it_on_demand(tmp_path, path):
    save_config(tree(), path)
    written = ["total_config.json", "total_config.py"]
    assert sorted(os.listdir(tmp_path)) == written
    save_config(tree(), path, save_formatted=True)
    assert sorted(os.listdir(tmp_path)) == [*(f"formatted_{name}" for name in written), *written]


def test_save_config_writes_yaml(tmp_path):
    path = str(tmp_path / "c.yaml")
    save_config(EasyDict(a=(1, 2), b=INF, c=np.float32(0.5), g={"e": nn.Tanh()}, f=np.arange(2)), path, "yaml")
    assert read_config_yaml(path) == {"a": [1, 2], "b": INF, "c": 0.5, "g": {"e": "Tanh()"}, "f": [0, 1]}


def test_save_config_refuses_other_types(path):
    with pytest.raises(AssertionError, match="type_ = 'json' is not allowed; it must be 'py' or 'yaml'"):
        save_config(tree(), path, "json")


# Compiled configs in files.


def test_a_config_comes_back_as_it_was(tmp_path):
    cfg = {"main": {"shape": (1, 2), "limit": float("inf"), "none": None}, "system": {"coordinator": {}}, "seed": 3}
    save_packed_config(cfg, str(tmp_path / "exp.pkl"))
    found = read_packed_config(str(tmp_path / "exp.pkl"))
    assert found == cfg and isinstance(found.system.coordinator, EasyDict) and found.main.shape == (1, 2)


class Trap:
    def __reduce__(self):
        return open, ("executed", "w")


@pytest.mark.differs(
    "pickles the configs of `launch_learner` and of `ding -m dist`",
    "writes msgpack, which runs no code",
)
@pytest.mark.parametrize("content", [pickle.dumps(Trap()), b"", b"\x81\xa4main\x01"])
def test_another_file_is_refused_and_not_executed(tmp_path, content):
    (tmp_path / "exp.pkl").write_bytes(content)
    with pytest.raises(ConfigError, match=r"exp\.pkl was not written by dist_prepare_config"):
        read_packed_config("exp.pkl")
    assert not (tmp_path / "executed").exists()
