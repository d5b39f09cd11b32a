"""The saved form of values: plain data from which the same values are made."""

import dataclasses
import enum
import fractions
import json
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from easydict import EasyDict
from gymnasium import spaces
from torch import nn

from ding.utils.config_helper import ConfigError
from ding.utils.references import plain, reference_to, resolved, saved_form, unpacked
from ding.utils.state_folder import flat_config


class Side(enum.Enum):
    LEFT, RIGHT = "left", "right"


class Level(enum.IntFlag):
    LOW, HIGH = 1, 2


@dataclasses.dataclass
class Nothing:
    """A dataclass without fields."""


@dataclasses.dataclass(frozen=True)
class Cost:
    weights: dict
    sign: float = 1.0
    total: float = dataclasses.field(init=False, default=0.0)


class Place(NamedTuple):
    row: int
    column: int


VALUES = [
    abs, np.tanh, Side.RIGHT, Level.HIGH, Path("maps/first.txt"), np.dtype(np.float32), np.float32,
    partial(pow, 2, mod=7), Cost({"side": Side.LEFT, "of": (1, 2)}), Place(1, 2), Nothing(),
    {"moves": {"at": (0, 1), "by": abs}}, "crypto:BTC", [(abs, {"a": {}})],
    {"at": {2}}, (1j, b"ab", frozenset({1})),
    [np.float32(0.1), np.int64(3), np.bool_(True), np.str_("a")],
    spaces.Box(-1, np.array([1.0, np.inf]), dtype=np.float64), spaces.Discrete(3, start=-1), spaces.MultiBinary(2),
    spaces.Dict(a=spaces.MultiDiscrete([2, 3]), b=spaces.Tuple((spaces.Discrete(2),))),
]  # fmt: skip


def is_same(one, other):
    return repr(one) == repr(other) and (one == other or isinstance(one, partial))


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_comes_back_from_a_file_and_from_a_message(value):
    sent = json.dumps(EasyDict(saved_form({"of": value}, is_json=True)))
    for form in (json.loads(sent), json.loads(sent, object_hook=unpacked)):
        assert is_same(plain(resolved(EasyDict(form), "env"))["of"], value)


@pytest.mark.parametrize(
    "activation", [nn.Tanh(), nn.ReLU(inplace=True), nn.LeakyReLU(0.2), nn.Softplus(beta=2)], ids=repr
)
def test_an_activation_of_torch_comes_back_with_its_arguments(activation):
    made = resolved(saved_form({"of": activation}, is_json=True), "policy.model.activation")["of"]
    assert made is not activation and repr(made) == repr(activation)


@pytest.mark.parametrize("layer", [nn.PReLU(), nn.Linear(2, 2)], ids=repr)
def test_a_layer_with_weights_is_no_value(layer):
    assert saved_form(layer) is layer


@pytest.mark.parametrize(
    "array", [np.eye(2, dtype=np.float32), np.zeros((0, 3), np.int64), np.array(True), np.array(["a", "bc"])], ids=repr
)
def test_an_array_comes_back_with_its_shape_and_dtype(array):
    back = resolved(json.loads(json.dumps(saved_form(array, is_json=True))), "env")
    assert back.dtype == array.dtype and back.shape == array.shape and np.array_equal(back, array)


def test_a_name_that_is_missing_is_told_with_its_key():
    with pytest.raises(ConfigError, match=r"env\.wrappers\.func = 'math:no_function'.*no_function"):
        resolved({"wrappers": [{"func": {"__reference__": "math:no_function"}}]}, "env")


def test_what_has_no_name_stays_as_it_is():
    def local():
        """A function of this function."""

    for value in (lambda: 0, local, fractions.Fraction(1, 2), np.array([None]), Place(1, 2)._asdict):
        assert saved_form([value])[0] is value and reference_to(value) is None


def test_a_config_of_a_state_is_the_same_by_names_and_by_values():
    env = {"func": abs, "kind": Side.LEFT, "make": (Cost, {"weights": np.ones(2)}), "whole": partial(pow, mod=2)}
    assert flat_config({"env": env}) == flat_config({"env": saved_form(env)})
    assert flat_config({"env": env}) != flat_config({"env": {**env, "func": max}})
    assert flat_config({"env": {"env": Cost}}) == flat_config({"env": {"env": reference_to(Cost)}})
