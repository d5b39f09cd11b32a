import random

import numpy as np
import pytest
import torch

from ding.utils.default_helper import (
    LimitedSpaceContainer,
    default_get,
    derive_seed,
    error_wrapper,
    list_split,
    one_time_warning,
    override,
    set_pkg_seed,
    squeeze,
)


@pytest.fixture(autouse=True)
def fresh_warnings():
    one_time_warning.cache_clear()


def test_one_time_warning_warns_once_for_each_text(caplog):
    for text in ("first", "second", "first"):
        one_time_warning(text)
    assert [record.message for record in caplog.records] == ["first", "second"]


@pytest.mark.parametrize(
    ("data", "result"),
    [
        ([4], 4),
        ((4,), 4),
        ({"a": 4}, 4),
        ([1, 2], (1, 2)),
        ((1, 2), (1, 2)),
        ({"a": 1, "b": 2}, {"a": 1, "b": 2}),
        (7, 7),
    ],
)
def test_squeeze_unpacks_containers_of_one(data, result):
    assert squeeze(data) == result


def test_default_get_prefers_the_value_that_is_there(caplog):
    assert default_get({"a": 1}, "a", default_value=2) == 1
    assert not caplog.records


def test_default_get_falls_back_and_warns_once(caplog):
    assert [default_get({}, "a", default_value=2) for _ in range(2)] == [2, 2]
    assert default_get({}, "b", default_fn=lambda: 3, judge_fn=lambda x: x > 2) == 3
    assert len(caplog.records) == 2


def test_default_get_raises_without_a_default_that_is_allowed():
    with pytest.raises(AssertionError, match="'a' is missing"):
        default_get({}, "a")
    with pytest.raises(AssertionError, match="2 of 'a'"):
        default_get({}, "a", default_value=2, judge_fn=lambda x: x > 2)


def test_list_split_returns_pieces_and_rest():
    assert list_split([1, 2, 3, 4], 2) == ([[1, 2], [3, 4]], None)
    assert list_split([1, 2, 3, 4, 5], 2) == ([[1, 2], [3, 4]], [5])
    assert list_split([1], 2) == ([], [1])


@pytest.mark.differs("`error_wrapper` with a message raises `TypeError`", "logs the message once")
def test_error_wrapper_returns_the_default_and_logs_its_message_once(caplog):
    def broken():
        raise ValueError("no")

    guarded = error_wrapper(broken, 7, "reading failed")
    assert [guarded(), guarded()] == [7, 7]
    assert [record.message for record in caplog.records] == ["reading failed (ValueError: no); 7 is used instead"]
    assert guarded.__name__ == "broken"


def test_error_wrapper_is_silent_without_a_message_and_passes_results_through(caplog):
    assert error_wrapper(lambda x: 1 / x, None)(0) is None
    assert error_wrapper(lambda x: 1 / x, None)(2) == 0.5
    assert not caplog.records


def test_error_wrapper_lets_an_interrupt_through():
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        error_wrapper(interrupted, 1)()


def test_override_accepts_only_names_of_the_base():
    class Base:
        def run(self):
            return 1

    class Child(Base):
        @override(Base)
        def run(self):
            return 2

    assert Child().run() == 2
    with pytest.raises(NameError, match="'walk' overrides nothing: Base"):

        @override(Base)
        def walk():
            return None


def test_limited_space_container_counts_between_its_bounds():
    container = LimitedSpaceContainer(0, 2)
    assert [container.acquire_space() for _ in range(3)] == [True, True, False]
    for _ in range(3):
        container.release_space()
    assert container.cur == 0
    assert container.get_residual_space() == 2 and container.cur == 2
    container.increase_space()
    assert container.acquire_space() and container.cur == 3
    container.decrease_space()
    container.decrease_space()
    assert container.max_val == 1 and container.get_residual_space() == 0 and container.cur == 3


def test_limited_space_container_refuses_crossed_bounds():
    with pytest.raises(AssertionError, match="max_val = 1"):
        LimitedSpaceContainer(2, 1)


def test_set_pkg_seed_makes_all_three_generators_repeat():
    def draw():
        return random.random(), np.random.rand(), torch.rand(1).item()

    set_pkg_seed(5)
    first = draw()
    set_pkg_seed(np.int64(5), use_cuda=False)
    assert draw() == first
    set_pkg_seed(6)
    assert draw() != first


def test_derived_seeds_follow_from_their_numbers():
    seeds = [derive_seed(*numbers) for numbers in ((0,), (0, 1), (1, 0), (0, 1, 2))]
    assert len(set(seeds)) == 4 and all(0 <= seed < 2**31 for seed in seeds)
    assert derive_seed(0, 1) == seeds[1] == int(np.random.SeedSequence([0, 1]).generate_state(1)[0]) // 2
    with pytest.raises(ValueError):
        derive_seed(-1)
