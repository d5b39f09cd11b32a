"""The generators that an object holds: which are found, and how they are put back."""

from __future__ import annotations

import random
import types
from collections import deque
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from easydict import EasyDict

from ding.utils import random_generators
from ding.utils.random_generators import held_generators_state, load_held_generators_state
from tests.same_state import through_bytes


class Thing:
    """An object with the given attributes."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


class Slotted:
    __slots__ = ("__private", "empty", "rng")

    def __init__(self) -> None:
        self.rng = np.random.default_rng()
        self.__private = np.random.default_rng()

    def draw(self) -> list[float]:
        return [self.rng.random(), self.__private.random()]


def draws(generator: Any) -> list[float]:
    """The next numbers of a generator."""
    if isinstance(generator, torch.Generator):
        return torch.rand(3, generator=generator).tolist()
    return [generator.random() for _ in range(3)]


KINDS = {
    **{
        name: lambda name=name: np.random.Generator(getattr(np.random, name)())
        for name in ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
    },
    "RandomState": np.random.RandomState,
    "RandomState over PCG64": lambda: np.random.RandomState(np.random.PCG64()),
    "python": random.Random,
    "torch": lambda: torch.Generator().manual_seed(random.getrandbits(30)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_generator_of_each_kind_goes_on_in_another_object(kind: str) -> None:
    one, other = Thing(rng=KINDS[kind]()), Thing(rng=KINDS[kind]())
    draws(one.rng)
    state = through_bytes(held_generators_state(one))
    kept = other.rng
    load_held_generators_state(other, state)
    assert other.rng is kept
    assert draws(other.rng) == draws(one.rng)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("instead", [None, np.random.default_rng, random.Random])
def test_a_generator_of_another_kind_or_a_missing_one_is_replaced(kind: str, instead: Any) -> None:
    one, other = Thing(rng=KINDS[kind]()), Thing(rng=instead and instead())
    state = through_bytes(held_generators_state(one))
    load_held_generators_state(other, state)
    assert type(other.rng) is type(one.rng)
    assert draws(other.rng) == draws(one.rng)


@pytest.mark.parametrize("entropy", [7, [1, 2], (3, 1 << 70), np.array([4, 5]), None])
def test_what_is_spawned_later_is_what_would_have_been_spawned(entropy: Any) -> None:
    def made() -> Thing:
        return Thing(rng=np.random.default_rng(entropy), seeds=np.random.SeedSequence(entropy, spawn_key=(1,)))

    one, other = made(), made()
    one.rng.spawn(2), one.seeds.spawn(3), other.rng.spawn(1)
    load_held_generators_state(other, through_bytes(held_generators_state(one)))
    for spawned in (lambda thing: thing.rng.spawn(1), lambda thing: thing.seeds.spawn(1)):
        (mine,), (its,) = spawned(one), spawned(other)
        assert draws(np.random.default_rng(mine)) == draws(np.random.default_rng(its))
    assert draws(other.rng) == draws(one.rng)


def nested(new: Any) -> dict[str, tuple[Any, Any]]:
    """Objects that hold a generator somewhere, and what gets it."""
    layers = Thing(env=Thing(_env=Thing(env=Thing(rng=new()))))
    for layer in (layers, layers.env, layers.env._env):
        layer.__class__ = type("Layer", (Thing,), {"reset": None, "step": None})
    deep = layers
    for _ in range(20):
        deep = type("Layer", (Thing,), {"reset": None, "step": None})(inner=deep)
    space = gymnasium.spaces.Dict(a=gymnasium.spaces.Tuple([gymnasium.spaces.Discrete(2)]))
    space["a"][0]._np_random = new()
    return {
        "list": (Thing(rngs=[1, new()]), lambda thing: thing.rngs[1]),
        "tuple": (Thing(rngs=(1, new())), lambda thing: thing.rngs[1]),
        "deque": (Thing(rngs=deque([new()])), lambda thing: thing.rngs[0]),
        "dict": (Thing(rngs={"a": {3: new()}}), lambda thing: thing.rngs["a"][3]),
        "EasyDict": (Thing(cfg=EasyDict(a={"rng": new()})), lambda thing: thing.cfg.a.rng),
        "namespace": (Thing(a=types.SimpleNamespace(rng=new())), lambda thing: thing.a.rng),
        "layers": (layers, lambda thing: thing.env._env.env.rng),
        "many layers": (deep, lambda thing: _innermost(thing).rng),
        "space": (Thing(action_space=space), lambda thing: thing.action_space["a"][0]._np_random),
    }


def _innermost(thing: Any) -> Any:
    while not hasattr(thing, "rng"):
        thing = next(iter(vars(thing).values()))
    return thing


@pytest.mark.parametrize("place", list(nested(np.random.default_rng)))
@pytest.mark.parametrize("new", [np.random.default_rng, random.Random])
def test_a_generator_is_found_in_attributes_containers_and_wrapped_objects(place: str, new: Any) -> None:
    (one, of), (other, _) = nested(new)[place], nested(new)[place]
    load_held_generators_state(other, through_bytes(held_generators_state(one)))
    assert draws(of(other)) == draws(of(one))


def test_generators_in_slots_are_found_under_private_names_too() -> None:
    one, other = Slotted(), Slotted()
    load_held_generators_state(other, through_bytes(held_generators_state(one)))
    assert other.draw() == one.draw()
    state = held_generators_state(one)
    other.rng = None  # a slot is filled again
    load_held_generators_state(other, state)
    assert other.draw() == one.draw()


@pytest.mark.parametrize("base", [dict, list, deque])
def test_the_attributes_of_an_env_that_is_a_container_are_searched_too(base: type) -> None:
    kind: Any = type("Env", (base,), {})
    one, other = kind(), kind()
    one.rng = np.random.default_rng()
    load_held_generators_state(other, through_bytes(held_generators_state(one)))
    assert draws(other.rng) == draws(one.rng)
    assert len(other) == 0


def test_a_generator_with_several_owners_keeps_them() -> None:
    def made() -> Thing:
        return Thing(a=np.random.default_rng(), b=Thing(c=np.random.default_rng()), d=[np.random.default_rng(), None])

    one, other = made(), made()
    one.b.c = one.d[0] = one.a  # since its last reset, say
    assert len(held_generators_state(one)) == 1
    load_held_generators_state(other, through_bytes(held_generators_state(one)))
    assert other.a is other.b.c and other.a is other.d[0]
    assert draws(other.b.c) == draws(one.a)
    two = made()
    load_held_generators_state(other, through_bytes(held_generators_state(two)))  # and the other way round
    assert len({id(other.a), id(other.b.c), id(other.d[0])}) == 3
    assert [draws(g) for g in (other.a, other.b.c, other.d[0])] == [draws(g) for g in (two.a, two.b.c, two.d[0])]


def test_an_object_that_two_others_share_is_looked_at_once() -> None:
    shared = Thing(rng=np.random.default_rng())
    thing = Thing(a=Thing(env=shared), b=Thing(env=shared))
    thing.cycle = [thing, thing.a]
    (entry,) = held_generators_state(thing)
    assert len(entry["paths"]) == 1


def test_global_generators_and_those_of_the_system_are_not_the_objects() -> None:
    own = Thing(
        numpy=np.random.normal.__self__,  # type: ignore[attr-defined]
        python=random.random.__self__,
        torch=torch.default_generator,
        system=random.SystemRandom(),
        module=np.random,
    )
    assert held_generators_state(own) == []


def test_looking_makes_no_generator_and_calls_nothing() -> None:
    space = gymnasium.spaces.Discrete(3)

    class Hostile(Thing):
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError(f"{name} is read")

        def __dir__(self) -> Any:
            raise AssertionError("dir is called")

        def __eq__(self, other: object) -> bool:
            raise AssertionError("it is compared")

        __hash__ = None  # type: ignore[assignment]
        __len__ = __iter__ = __bool__ = __repr__ = __dir__

        @property
        def np_random(self) -> Any:
            raise AssertionError("the property is read")

    class Items(dict):  # type: ignore[type-arg]
        def items(self) -> Any:
            raise AssertionError("items is called")

        __len__ = __iter__ = __getitem__ = items  # type: ignore[assignment]

    class Listed(list):  # type: ignore[type-arg]
        def __iter__(self) -> Any:
            raise AssertionError("it is iterated over")

        __len__ = __getitem__ = __iter__  # type: ignore[assignment]

    class Faked:
        __dict__ = property(lambda self: 1 / 0)  # type: ignore[assignment]

    class Claims:
        __class__ = property(lambda self: 1 / 0)  # type: ignore[assignment]

    hostile = object.__new__(Hostile)
    object.__setattr__(hostile, "rng", random.Random())
    thing = Thing(space=space, a=hostile, b=Items(x=random.Random()), c=Listed([random.Random()]))
    thing.d, thing.e = Faked(), Claims()
    assert len(held_generators_state(thing)) == 3
    load_held_generators_state(thing, held_generators_state(thing))
    assert vars(space)["_np_random"] is None


def test_what_is_not_part_of_an_env_is_not_searched() -> None:
    def function() -> None:
        pass

    function.rng = random.Random()  # type: ignore[attr-defined]

    class OfClass:
        rng = random.Random()

    module = torch.nn.Linear(1, 1)
    module.rng = random.Random()  # type: ignore[assignment]
    big = [random.Random() for _ in range(1000)]
    assert held_generators_state(Thing(a=function, b=OfClass, c=OfClass(), d=module, e=big, f=np.zeros(1 << 20))) == []


def test_a_generator_whose_state_cannot_be_read_is_left_out() -> None:
    class Strange(random.Random):
        def getstate(self) -> Any:
            raise RuntimeError("no state")

    class Broken(np.random.Generator):
        bit_generator = property(lambda self: 1 / 0)  # type: ignore[assignment]

    own = np.random.default_rng()
    (entry,) = held_generators_state(Thing(a=Strange(), b=Broken(np.random.PCG64()), c=own))
    assert entry["paths"] == [[[False, "c"]]]


def test_a_path_that_leads_nowhere_is_passed_over() -> None:
    state = held_generators_state(Thing(a=Thing(b=random.Random()), c=[0, random.Random()], d=random.Random()))
    one = Thing(a=None, c=[0], d="in use")
    load_held_generators_state(one, state)
    assert vars(one) == {"a": None, "c": [0], "d": "in use"}


def test_the_number_of_objects_that_are_looked_at_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    thing = Thing(near=Thing(rng=random.Random()), far=[[Thing(rng=random.Random())] for _ in range(100)])
    assert len(held_generators_state(thing)) == 101
    monkeypatch.setattr(random_generators, "_MOST_OBJECTS", 50)
    (entry,) = held_generators_state(thing)
    assert entry["paths"] == [[[False, "near"], [False, "rng"]]]
