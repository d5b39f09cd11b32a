"""The env interface and the functions that read env configs."""

from __future__ import annotations

import sys

import pytest
from easydict import EasyDict

from ding.envs import (
    BaseEnv,
    BaseEnvTimestep,
    GymnasiumEnv,
    create_model_env,
    get_env_cls,
    get_vec_env_setting,
)
from ding.utils.registry_factory import ENV_REGISTRY
from tests.envs.env_manager.scripted_env import ScriptedEnv


def test_timestep_has_four_fields_in_order():
    assert BaseEnvTimestep("o", "r", True, {})._asdict() == {"obs": "o", "reward": "r", "done": True, "info": {}}


@pytest.mark.parametrize("missing", ["__init__", "reset", "close", "step", "seed", "__repr__"])
def test_an_env_that_lacks_a_method_cannot_be_made(missing):
    members = {name: lambda self, *a: None for name in ("__init__", "reset", "close", "step", "seed", "__repr__")}
    del members[missing]
    with pytest.raises(TypeError, match=missing):
        type("Partial", (BaseEnv,), members)()


def test_optional_members_of_an_env():
    class Plain(ScriptedEnv):
        enable_save_replay = BaseEnv.enable_save_replay

    env = Plain()
    assert env.random_action() is None
    with pytest.raises(NotImplementedError):
        env.enable_save_replay("./video")


@pytest.mark.differs(
    "returns one object n times from `create_collector_env_cfg` and `create_evaluator_env_cfg`",
    "returns independent copies",
)
@pytest.mark.parametrize("kind", ["collector", "evaluator"])
def test_env_configs_are_independent_copies(kind):
    cfg = EasyDict({f"{kind}_env_num": 3, "kwargs": {"a": [1]}})
    made = getattr(BaseEnv, f"create_{kind}_env_cfg")(cfg)
    assert cfg == {"kwargs": {"a": [1]}}
    assert made == [cfg] * 3
    assert all(type(entry) is EasyDict for entry in made)
    made[0].kwargs.a.append(2)
    assert made[1].kwargs.a == cfg.kwargs.a == [1]


@pytest.mark.parametrize("kind", ["collector", "evaluator"])
def test_a_missing_env_count_is_named(kind):
    with pytest.raises(KeyError, match=f"{kind}_env_num"):
        getattr(BaseEnv, f"create_{kind}_env_cfg")(EasyDict())


def test_env_setting_takes_the_counts_out_of_the_config():
    cfg = EasyDict(type="gymnasium", env_id="CartPole-v1", collector_env_num=2, evaluator_env_num=1)
    env_cls, collector, evaluator = get_vec_env_setting(cfg)
    assert env_cls is GymnasiumEnv
    assert len(collector) == 2
    assert len(evaluator) == 1
    assert cfg == evaluator[0] == {"type": "gymnasium", "env_id": "CartPole-v1"}


def test_env_setting_of_one_side_leaves_the_other_count():
    cfg = EasyDict(type="gymnasium", env_id="CartPole-v1", collector_env_num=2, evaluator_env_num=1)
    assert get_vec_env_setting(cfg, collect=False)[1] is None
    assert cfg.collector_env_num == 2
    assert get_vec_env_setting(cfg, eval_=False)[2] is None


def test_import_names_are_imported_before_the_type_is_looked_up(tmp_path, monkeypatch):
    (tmp_path / "outside_env_pkg.py").write_text(
        "from ding.utils.registry_factory import ENV_REGISTRY\n"
        "@ENV_REGISTRY.register('outside')\n"
        "class Outside:\n"
        "    def __init__(self, size): self.size = size\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    cfg = EasyDict(type="outside", import_names=["outside_env_pkg"])
    try:
        env_cls = get_env_cls(cfg)
        assert env_cls.__name__ == "Outside"
        assert create_model_env(EasyDict(size=4, **cfg)).size == 4
        assert cfg == {"type": "outside", "import_names": ["outside_env_pkg"]}
    finally:
        ENV_REGISTRY.pop("outside", None)
        sys.modules.pop("outside_env_pkg", None)


def test_an_unknown_env_type_is_a_key_error():
    with pytest.raises(KeyError):
        get_env_cls(EasyDict(type="nowhere"))


def test_a_model_env_needs_import_names():
    with pytest.raises(KeyError):
        create_model_env({"type": "gymnasium"})
