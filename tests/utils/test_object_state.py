"""The state of objects: the attributes that their classes declare, as plain values."""

import logging
import random
from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from ding.model.wrapper.model_wrappers import model_wrap
from ding.utils.msgpack_helper import pack
from ding.utils.object_state import (
    SavedAttributes,
    declared_state,
    global_generators_state,
    load_declared_state,
    load_global_generators_state,
    undeclared,
)
from tests.same_state import differences, through_bytes


def test_the_global_generators_go_on_where_they_were() -> None:
    state = through_bytes(global_generators_state())

    def draw() -> tuple[float, float, float, float]:
        return random.gauss(0, 1), float(np.random.random()), float(np.random.randn()), torch.rand(1).item()

    expected = draw()
    load_global_generators_state(state)
    assert draw() == expected


def test_the_generators_of_gpus_are_asked_only_where_cuda_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in a process that was forked from one that uses it: there, asking fails."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: [torch.arange(3)])
    assert "cuda" not in global_generators_state()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert global_generators_state()["cuda"][0].tolist() == [0, 1, 2]


class Part(SavedAttributes):
    _saved = ("count",)
    __slots__ = ("count",)

    def __init__(self, count: int) -> None:
        self.count = count

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> list[str]:
        return [*super().load_state_dict(state_dict), f"a part of {self.count} is not exact"]


class Named(SavedAttributes):
    _saved = ("name",)
    name = "nobody"


class Mixin:
    """Declares attributes without being a `SavedAttributes`."""

    _saved = ("mixed",)
    mixed = 0


class Worker(Named):
    _saved: ClassVar[tuple[str, ...]] = ("_rng", "_part", "recent", "array", "_by_env")
    _saved_if_plain: ClassVar = {"infos": "the infos are lost"}

    def __init__(self, seed: int) -> None:
        self._rng, self._part = np.random.default_rng(seed), Part(seed)
        self.recent, self.array = deque([seed], maxlen=2), np.full(3, seed)
        self._by_env: dict[int, Any] = {0: {seed}, 1: [np.zeros(seed)]}
        self.infos: list[Any] = []
        self.log = logging.getLogger("x")


class UsersWorker(Mixin, Worker):
    _saved = ("further",)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.further = seed

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "own": self.log.name}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> list[str]:
        return [*super().load_state_dict(state_dict), f"own is {state_dict['own']}"]


def test_the_attributes_that_all_classes_of_an_object_declare_are_saved_and_restored() -> None:
    one, other = UsersWorker(1), UsersWorker(2)
    one.name, one.mixed, one.infos = "one", 7, [{"a": 1}]
    one.recent.extend([3, 4])
    state = through_bytes(one.state_dict())
    keys = {"name", "rng", "part", "recent", "array", "by_env", "mixed", "further", "infos", "own"}
    assert state.keys() == keys
    part, array = other._part, other.array
    assert other.load_state_dict(state) == ["a part of 1 is not exact", "own is x"]
    assert differences(one, other, ("log",)) == []
    assert other.recent.maxlen == 2 and other._part is part and other.array is array


def test_a_state_of_declared_attributes_is_a_snapshot() -> None:
    one = Worker(1)
    one.infos = [[1]]
    state = one.state_dict()
    before = pack(state)
    one._part.count += 1
    one._rng.random()
    one.array += 1
    one.recent.append(5)
    one._by_env[0].add(5)
    one._by_env[1][0][:] = 9
    one.infos[0].append(2)
    assert pack(state) == before


def test_values_that_are_not_plain_are_left_out_of_a_state_and_told() -> None:
    one, other = Worker(1), Worker(1)
    one.infos, other.infos = [object()], [4]
    state = one.state_dict()
    assert "infos" not in state
    assert other.load_state_dict(state) == ["a part of 1 is not exact", "the infos are lost"]
    assert other.infos == [4]


def test_a_state_without_an_attribute_is_refused_in_a_line_and_changes_nothing() -> None:
    state, other = Worker(1).state_dict(), Worker(2)
    del state["recent"], state["array"]
    with pytest.raises(ValueError, match="Worker lacks recent, array"):
        other.load_state_dict(state)
    assert differences(other, Worker(2)) == []


class Held(SavedAttributes):
    """Holds values of each kind."""

    _saved = ("optimizer", "net", "generators", "tensor", "half", "places")

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.net = nn.Linear(2, 2)
        self.optimizer = torch.optim.Adam(self.net.parameters())
        self.generators = (
            *(np.random.default_rng(seed), np.random.RandomState(seed), random.Random(seed)),
            torch.Generator().manual_seed(seed),
        )
        self.tensor = torch.full((2,), float(seed), requires_grad=True)
        self.half: Any = seed if seed == 2 else torch.ones(seed, dtype=torch.bfloat16)
        self.places = {seed: (np.arange(seed), [{seed}, None, np.float32(seed), "x", b"y"])}

    def move(self) -> None:
        self.net(torch.ones(2)).sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        numpy, legacy, python, generator = self.generators
        numpy.random(), legacy.rand(), python.random(), torch.rand(1, generator=generator)


def test_values_of_each_kind_come_back_in_another_object() -> None:
    one, other = Held(1), Held(2)
    one.move()
    net, tensor = other.net, other.tensor
    assert other.load_state_dict(through_bytes(one.state_dict())) == []
    assert differences(one, other) == [] and other.net is net and other.tensor is tensor
    for held in (one, other):
        held.move()
    assert differences(one, other) == []


def test_wrappers_of_a_model_save_what_is_theirs_and_what_the_wrappers_in_them_hold() -> None:
    class Counting(nn.Module):
        def forward(self, data: Any) -> dict[str, Any]:
            counts = [(count or 0) + 1 for count in data["prev_state"]]
            return {"next_state": counts, "logit": torch.zeros(len(counts), 4)}

    def wrapped(seed: int) -> Any:
        model = model_wrap(model_wrap(Counting(), "hidden_state", state_num=2), "multinomial_sample")
        model._rng = np.random.default_rng(seed)
        return model

    one, other = wrapped(1), wrapped(2)
    one.forward({}, data_id=[1])
    state = through_bytes(declared_state(one))
    assert load_declared_state(other, state) == [] and other._model._state == {0: None, 1: 1}
    actions = [[model.forward({})["action"].tolist() for _ in range(8)] for model in (one, other)]
    assert actions[0] == actions[1]


def test_what_a_users_class_adds_and_does_not_declare_is_named() -> None:
    class Users(SavedAttributes):
        def __init__(self) -> None:
            self.rate, self._seen, self._buffer = 0.5, 3, [1]

    assert undeclared(Users()) == ["rate", "_seen", "_buffer"]
    assert undeclared(Users(), {"learn.ratio": 0.5, "names": [1], "every": 3}) == ["_seen", "_buffer"]
    assert undeclared(Users(), {"hook.seen": 3}) == ["rate", "_buffer"]  # a count says nothing without its name

    class Declared(Users):
        _saved = ("_seen",)

    class Overriding(Users):
        def state_dict(self) -> dict[str, Any]:
            return {}

    assert undeclared(Declared()) == undeclared(Overriding()) == undeclared(np.random.default_rng()) == []
