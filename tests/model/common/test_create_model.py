"""create_model."""

import functools
import inspect
import sys
from unittest.mock import patch

import pytest
from easydict import EasyDict
from torch import nn

from ding.model import DQN, create_model
from ding.utils.config_helper import ConfigError
from ding.utils.registry_factory import MODEL_REGISTRY


def test_all_other_keys_are_constructor_arguments():
    cfg = EasyDict(type="dqn", obs_shape=4, action_shape=2, dueling=False, encoder_hidden_size_list=[8, 8])
    before = dict(cfg)
    model = create_model(cfg)
    assert type(model) is DQN
    assert "head.Q.1.0.weight" in model.state_dict()
    assert cfg == before


def test_modules_in_import_names_are_imported_first(tmp_path, monkeypatch):
    (tmp_path / "my_tiny_model.py").write_text(
        "from torch import nn\n"
        "from ding.utils.registry_factory import MODEL_REGISTRY\n"
        "@MODEL_REGISTRY.register('my_tiny')\n"
        "class Tiny(nn.Linear):\n"
        "    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    model = create_model({"type": "my_tiny", "import_names": ["my_tiny_model"], "in_features": 2, "out_features": 1})
    assert isinstance(model, nn.Linear)
    assert "my_tiny_model" in sys.modules


def test_a_missing_or_unknown_type_fails():
    with pytest.raises(KeyError, match="'type'"):
        create_model({"obs_shape": 4})
    with pytest.raises(KeyError, match="no_such"):
        create_model({"type": "no_such"})


@pytest.mark.differs(
    "an unknown key of `policy.model` is a TypeError of a constructor",
    "it is named with the known keys, the nearest first",
)
@pytest.mark.parametrize("error", [ConfigError, TypeError])
def test_an_unknown_argument_is_named_with_the_known_ones_the_nearest_first(error):
    with pytest.raises(error) as e:
        create_model({"type": "dqn", "obs_shape": 4, "action_shape": 2, "hidden_sizes": [3]})
    start, known = str(e.value).split("; it knows ")
    assert start == "policy.model.hidden_sizes is unknown to the model DQN"
    assert known.split(", ")[0] == "head_hidden_size"
    assert set(known.split(", ")) == set(inspect.signature(DQN).parameters)


@pytest.mark.parametrize(
    ("kind", "known"), [("sqn", "head_hidden_size"), ("qac", "actor_head_type"), ("qac_pixel", "share_encoder")]
)
def test_a_model_that_passes_its_arguments_on_knows_their_names(kind, known):
    cfg = {"type": kind, "obs_shape": 4, "action_shape": 2, "hidden_sizes": [3]}
    with pytest.raises(ConfigError, match=rf"hidden_sizes is unknown to the model .*\b{known}\b"):
        create_model(cfg)


def test_a_type_error_of_the_model_itself_stays_as_it_is():
    class Faulty(nn.Module):
        def __init__(self, size):
            super().__init__(hidden_sizes=size)

    MODEL_REGISTRY["my_faulty"] = Faulty
    try:
        with pytest.raises(TypeError, match="unexpected keyword argument 'hidden_sizes'") as e:
            create_model({"type": "my_faulty", "size": 2})
    finally:
        del MODEL_REGISTRY["my_faulty"]
    assert type(e.value) is TypeError


def test_a_missing_argument_is_named_with_its_meaning():
    with pytest.raises(
        ConfigError, match=r"policy.model.obs_shape is missing: the model DQN needs it; set it to the shape"
    ):
        create_model({"type": "dqn", "action_shape": 2})
    with pytest.raises(ConfigError, match=r"policy.model.action_shape is missing: .* the number of the env's actions"):
        create_model({"type": "dqn", "obs_shape": 2})


def test_a_model_may_take_any_arguments():
    class Free(nn.Module):
        def __init__(self, *sizes, width=3, **others):
            super().__init__()
            self.others = others

    MODEL_REGISTRY["my_free"] = Free
    try:
        assert create_model({"type": "my_free", "depth": 2}).others == {"depth": 2}
    finally:
        del MODEL_REGISTRY["my_free"]


@patch.dict(MODEL_REGISTRY, {"my_partial": functools.partial(nn.Linear, bias=False)})
def test_a_partial_is_called_with_what_it_leaves_open():
    model = create_model({"type": "my_partial", "in_features": 2, "out_features": 1})
    assert model.bias is None
    with pytest.raises(ConfigError, match="policy.model.hidden is unknown to the model Linear; it knows "):
        create_model({"type": "my_partial", "in_features": 2, "out_features": 1, "hidden": 3})


def test_an_optional_argument_is_left_out_only_for_a_model_that_does_not_take_it():
    cfg = {"type": "dqn", "obs_shape": 4, "action_shape": 2, "dueling": False, "width": 3}
    assert "head.V.1.0.weight" not in create_model(cfg, optional=["dueling", "width"]).state_dict()
    with pytest.raises(ConfigError, match="policy.model.width is unknown"):
        create_model(cfg, optional=["dueling"])
