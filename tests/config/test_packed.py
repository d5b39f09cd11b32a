"""Compiled configs in files."""

import pickle

import pytest
from easydict import EasyDict

from ding.config.read import read_packed_config
from ding.config.save import save_packed_config
from ding.utils.config_helper import ConfigError


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
