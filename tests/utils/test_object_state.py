"""The state of objects as plain values."""

from __future__ import annotations

import enum
import itertools
import logging
import random
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
import torch
from easydict import EasyDict
from torch import nn

from ding.model.wrapper.model_wrappers import model_wrap
from ding.utils.msgpack_helper import pack
from ding.utils.object_state import (
    SavedAttributes,
    attributes_state,
    global_generators_state,
    load_attributes_state,
    load_global_generators_state,
)
from tests.same_state import differences, through_bytes


class Mood(enum.Enum):
    CALM = 1
    WILD = 2


class Pair(NamedTuple):
    left: int
    right: Any


class Clock:
    """Has no methods for its state, and slots."""

    __slots__ = ("tick",)

    def __init__(self) -> None:
        self.tick = 0


class Counter:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.register_buffer("cache", torch.zeros(2), persistent=False)
        self.noisy = False


class Everything:
    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.cfg = EasyDict(a=seed)
        self.lock, self.log = threading.RLock(), logging.getLogger("x")
        self.number, self.text, self.nothing = seed, str(seed), None if seed == 1 else [1]
        self.array = np.full((2, 3), float(seed))
        self.view = self.array[0]
        self.tensor = torch.full((2,), float(seed), requires_grad=True)
        self.net = Net()
        self.also_net = self.net
        self.optimizer = torch.optim.Adam([*self.net.parameters(), self.tensor], lr=0.1)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 1)
        self.generators = [np.random.default_rng(seed), np.random.RandomState(seed), random.Random(seed)]
        self.torch_rng = torch.Generator().manual_seed(seed)
        self.by_env: dict[int, Any] = {i: (torch.ones(seed), [seed]) for i in range(seed)}
        self.window, self.known = deque([seed], maxlen=3), {seed}
        self.mood, self.pair = Mood(seed), Pair(seed, np.arange(seed))
        self.clock, self.counter, self.check = Clock(), Counter(), [len]
        self.clock.tick = self.counter.calls = seed
        self.itself = self

    def move(self) -> None:
        loss = (self.net.linear(torch.ones(2)) * self.tensor).sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        self.net.noisy = True
        self.net.train(False)
        self.net.cache += 1
        for rng in self.generators:
            rng.random()
        torch.rand(1, generator=self.torch_rng)


def test_everything_that_an_object_holds_comes_back_in_another_one() -> None:
    one, other = Everything(1), Everything(2)
    one.move()
    assert differences(one, other)
    load_attributes_state(other, through_bytes(attributes_state(one)))
    assert differences(one, other, ("cfg", "_opt_called")) == []
    one.move()
    other.move()
    assert differences(one, other, ("cfg", "_opt_called")) == []


def test_what_others_share_is_changed_in_place() -> None:
    one, other = Everything(1), Everything(2)
    net, array, tensor, window = other.net, other.array, other.tensor, other.window
    load_attributes_state(other, through_bytes(attributes_state(one)))
    assert other.also_net is net and other.net is net and other.window is window and other.itself is other
    assert other.array is array and other.view.base is array and other.view.tolist() == [1, 1, 1]
    assert other.tensor is tensor and other.optimizer.param_groups[0]["params"][-1] is tensor
    assert other.cfg.a == 2


class Right(enum.Flag):
    READ = 1
    WRITE = 2


@dataclass(frozen=True, slots=True)
class Limits:
    low: int
    parts: tuple[int, ...] = ()


class Choice:
    def __init__(self, path: PurePath, limits: Limits, rights: Right) -> None:
        self.path, self.limits, self.rights = path, limits, rights
        self.values = [path, limits]


def test_values_that_never_change_are_replaced_and_stay_the_same_for_others() -> None:
    one = Choice(PurePath("a/b"), Limits(1, (2,)), Right.READ | Right.WRITE)
    own = PurePath("c"), Limits(7), Right.READ
    assert str(own[0]) == "c" and hash(own[0])  # which paths remember
    other = Choice(*own)
    load_attributes_state(other, through_bytes(attributes_state(one)))
    assert vars(other) == vars(one)
    assert (str(other.path), other.values[0], other.values[1]) == ("a/b", other.path, other.limits)
    assert other.values[0] is other.path and other.values[1] is other.limits
    assert own == (PurePath("c"), Limits(7), Right.READ) and str(own[0]) == "c"


class Holder:
    def __init__(self, vector: torch.Tensor, states: list[Any]) -> None:
        self.vector, self.states = vector, states


class Own:
    """Bookkeeping of somebody else's, most of which is not there yet when the object is built."""

    def __init__(self) -> None:
        self.episode: list[Any] = []
        self.best: Any = None
        self.last: Any = None
        self.before: Any = ((1, 2), frozenset({3}))
        self.recent: Any = None
        self.marks: Any = None
        self.raw, self.ids = bytearray(b"12"), itertools.count()


def test_what_is_shared_only_later_is_shared_again_and_keeps_its_kind() -> None:
    one, other = Own(), Own()
    one.episode.append((1, [2]))
    one.best, one.recent = one.episode, deque([one.episode], maxlen=2)
    one.last = one.before = (3, (4,), frozenset({5}))
    one.marks, one.raw = {(1, 2): {7}}, bytearray(b"345")
    one.episode.append(one.best)
    next(one.ids)
    load_attributes_state(other, through_bytes(attributes_state(one)))
    assert other.best is other.episode and other.recent[0] is other.episode and other.episode[1] is other.episode
    assert (other.episode[0], other.last, other.before) == ((1, [2]), one.last, one.last)
    assert (other.recent.maxlen, other.marks, other.raw, next(other.ids)) == (2, one.marks, one.raw, 1)
    other.episode.append(6)
    assert other.best[-1] == 6


def test_items_that_are_not_there_are_refused_by_name() -> None:
    one, other = Own(), Own()
    one.episode = [len, 3]
    with pytest.raises(ValueError, match=r"Own.episode\[0\] is missing, but the state has an object; construct it as"):
        load_attributes_state(other, attributes_state(one))


def test_tuples_of_values_and_of_functions_are_restored() -> None:
    one, other = Own(), Own()
    one.best, other.best = (len, 3, [4]), (len, 5, [6])
    inner = other.best[2]
    load_attributes_state(other, through_bytes(attributes_state(one)))
    assert other.best == (len, 3, [4]) and other.best[2] is inner


def test_names_to_skip_are_left_as_they_are() -> None:
    state = attributes_state(Everything(1), ("number", "net", "also_net"))
    assert "number" not in state and "net" not in state and state["text"] == "1"


def test_tensors_that_are_new_go_to_a_device_and_others_stay_on_theirs() -> None:
    one, other = Holder(torch.full((2,), 2.0), [torch.ones(2), (torch.ones(3), None)]), Holder(torch.zeros(2), [])
    load_attributes_state(other, through_bytes(attributes_state(one)), "meta")
    first, (second, none) = other.states
    assert other.vector.tolist() == [2.0, 2.0]
    assert (first.device.type, second.device.type, none) == ("meta", "meta", None)


def test_state_of_an_object_that_is_not_there_is_refused() -> None:
    one, other = Everything(1), Everything(2)
    other.counter = None  # type: ignore[assignment]
    with pytest.raises(ValueError, match="Everything.counter is None, but the state has an object"):
        load_attributes_state(other, attributes_state(one))


def test_wrappers_of_a_model_tell_their_own_state() -> None:
    def wrapped() -> Any:
        kwargs = {"noise_type": "ou", "noise_kwargs": {"sigma": 0.1}, "noise_range": None}
        return model_wrap(model_wrap(nn.Identity(), "base"), "action_noise", **kwargs)

    one, other = wrapped(), wrapped()
    for wrapper in (one, other):
        wrapper._model._model.forward = lambda data: {"action": torch.zeros(2, 3)}
    one.forward(None)
    load_attributes_state(other, through_bytes(attributes_state(one)))
    torch.manual_seed(0)
    expected = one.forward(None)["action"]
    torch.manual_seed(0)
    assert torch.equal(other.forward(None)["action"], expected)


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
    part, recent, array, by_env = other._part, other.recent, other.array, other._by_env
    assert other.load_state_dict(state) == ["a part of 1 is not exact", "own is x"]
    assert differences(one, other, ("log",)) == []
    assert (other._part, other.recent, other.recent.maxlen, other._by_env) == (part, recent, 2, by_env)
    assert other.recent is recent and other.array is array and other._by_env is by_env


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


def test_a_state_is_not_changed_by_what_it_was_restored_to() -> None:
    one, other = Worker(3), Worker(2)
    one.array, one.infos, other.infos = np.zeros(5), [[1]], [[2]]
    state = one.state_dict()
    before = pack(state)
    other.load_state_dict(state)
    other.array += 1
    other._by_env[1][0][:] = 9
    other._by_env[0].add(7)
    other.infos[0].append(3)
    other._rng.random()
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
    text = "^the state of Worker lacks recent, array: it was saved by another version of this package, or by another"
    with pytest.raises(ValueError, match=text):
        other.load_state_dict(state)
    assert differences(other, Worker(2)) == []


def test_attributes_that_cannot_be_declared_are_refused() -> None:
    with pytest.raises(TypeError, match="Twice saves two attributes as name; rename one of them"):

        class Twice(Named):
            _saved = ("_name",)

    with pytest.raises(TypeError, match="Text._saved = 'name' is not allowed; it must be a tuple of names"):

        class Text(SavedAttributes):
            _saved = "name"  # type: ignore[assignment]

    class Calls(SavedAttributes):
        _saved = ("call",)
        call = len

    with pytest.raises(TypeError, match="Calls.call has no state: builtin_function_or_method"):
        Calls().state_dict()
