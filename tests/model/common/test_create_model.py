"""create_model."""

import inspect
import sys

import pytest
from easydict import EasyDict
from torch import nn

from ding.model import DQN, create_model
from ding.utils.config_helper import ConfigError


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
    with pytest.raises(KeyError):
        create_model({"obs_shape": 4})
    with pytest.raises(KeyError):
        create_model({"type": "no_such"})


@pytest.mark.parametrize("error", [ConfigError, TypeError])
def test_an_unknown_argument_is_named_with_the_known_ones_the_nearest_first(error):
    with pytest.raises(error) as e:
        create_model({"type": "dqn", "obs_shape": 4, "action_shape": 2, "hidden_sizes": [3]})
    start, known = str(e.value).split("; it knows ")
    assert start == "policy.model.hidden_sizes is unknown to the model DQN"
    assert known.split(", ")[0] == "head_hidden_size"
    assert set(known.split(", ")) == set(inspect.signature(DQN).parameters)


def test_a_missing_argument_is_named_with_its_meaning():
    with pytest.raises(ConfigError, match="obs_shape"):
        create_model({"type": "dqn", "action_shape": 2})
    with pytest.raises(ConfigError):
        create_model({"type": "dqn", "obs_shape": 2})
