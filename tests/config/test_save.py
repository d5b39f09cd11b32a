import os

import numpy as np
import pytest
from easydict import EasyDict
from torch import nn

from ding.config.read import read_config, read_config_directly, read_config_yaml
from ding.config.save import save_config, save_config_formatted, save_config_py, save_config_yaml

INF = float("inf")


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


def test_classes_and_modules_do_not_break_saving(path):
    save_config_py(EasyDict(a=nn.Flatten(), b=nn.ReLU, c=lambda x: x, n=1), path)
    back = read_config_directly(path)["exp_config"]
    assert back["a"] == "Flatten(start_dim=1, end_dim=-1)" and back["n"] == 1
    assert back["b"] == {"__reference__": "torch.nn.modules.activation:ReLU"}


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


def test_saving_does_not_change_the_config(path):
    cfg = tree()
    save_config(cfg, path, save_formatted=True)
    assert cfg == tree()


def test_a_type_that_differs_from_the_create_config_stays_in_main(path):
    save_config_formatted(tree(), path, create_cfg={"policy": {"type": "dqn"}, "collector": {"type": "episode"}})
    main, create = read_config(path)
    assert main.policy.collect.collector.type == "sample"
    assert create == {"policy": {"type": "dqn"}, "collector": {"type": "episode"}}


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


@pytest.mark.parametrize("missing", ["exp_name", "policy"])
def test_formatted_needs_a_compiled_config(path, missing):
    cfg = tree()
    cfg.pop(missing)
    with pytest.raises(ValueError, match=f"the config has no key '{missing}'"):
        save_config_formatted(cfg, path)


def test_save_config_writes_the_formatted_file_beside_it_on_demand(tmp_path, path):
    save_config(tree(), path)
    assert os.listdir(tmp_path) == ["total_config.py"]
    save_config(tree(), path, save_formatted=True)
    assert sorted(os.listdir(tmp_path)) == ["formatted_total_config.py", "total_config.py"]


def test_save_config_writes_yaml(tmp_path):
    path = str(tmp_path / "c.yaml")
    save_config(EasyDict(a=(1, 2), b=INF, c=np.float32(0.5), g={"e": nn.Tanh()}, f=np.arange(2)), path, "yaml")
    assert read_config_yaml(path) == {"a": [1, 2], "b": INF, "c": 0.5, "g": {"e": "Tanh()"}, "f": [0, 1]}


def test_yaml_keeps_key_order_and_sets_become_lists(tmp_path):
    path = str(tmp_path / "c.yaml")
    save_config_yaml({"z": {2, 1}, "a": "ä"}, path)
    assert open_text(path) == "z:\n- 1\n- 2\na: ä\n"


def open_text(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def test_save_config_refuses_other_types(path):
    with pytest.raises(AssertionError, match="type_ = 'json' is not allowed; it must be 'py' or 'yaml'"):
        save_config(tree(), path, "json")
