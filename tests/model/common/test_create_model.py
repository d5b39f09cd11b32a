"""create_model."""

import sys

import pytest
from easydict import EasyDict
from torch import nn

from ding.model import DQN, create_model


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


def test_a_missing_or_unknown_type_and_an_unknown_argument_fail():
    with pytest.raises(KeyError, match="'type'"):
        create_model({"obs_shape": 4})
    with pytest.raises(KeyError, match="no_such"):
        create_model({"type": "no_such"})
    with pytest.raises(TypeError, match="hidden"):
        create_model({"type": "dqn", "obs_shape": 4, "action_shape": 2, "hidden": 3})
