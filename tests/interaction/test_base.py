import random
import string

import pytest

from ding.interaction.base import (
    ControllableContext,
    ControllableService,
    default_func,
    random_token,
    translate_dict_func,
)


@pytest.mark.parametrize(("length", "expected"), [(None, 64), (0, 64), (1, 1), (100, 100)])
def test_tokens_are_hexadecimal_digits_of_the_wanted_length(length, expected):
    token = random_token(length)
    assert len(token) == expected and set(token) <= set(string.hexdigits)


@pytest.mark.differs(
    "draws tokens from the seeded generator, equal in sibling processes",
    "draws them from the operating system",
)
def test_tokens_do_not_come_from_the_seeded_generator():
    tokens = set()
    for _ in range(20):
        random.seed(0)
        tokens.add(random_token())
    assert len(tokens) == 20
    assert {c for token in tokens for c in token} == set(string.hexdigits)


def test_a_dict_of_functions_becomes_a_function_of_dicts():
    assert translate_dict_func({"a": lambda: 1, "b": lambda: 2})() == {"a": 1, "b": 2}
    assert translate_dict_func({"sum": lambda x, y: x + y, "mul": lambda x, y: x * y})(2, 3) == {"sum": 5, "mul": 6}


def test_a_default_function_stands_in_for_a_missing_one_only():
    assert default_func(5)(None)(1, 2, x=3) == 5
    assert default_func()(None)() is None
    assert default_func(5)(max) is max


def test_a_context_is_started_on_entering_and_closed_on_leaving():
    calls = []

    class Context(ControllableContext):
        def start(self):
            calls.append("start")

        def close(self):
            calls.append("close")

    context = Context()
    with context as entered:
        assert entered is context and calls == ["start"]
    assert calls == ["start", "close"]
    with pytest.raises(KeyError), context:
        raise KeyError
    assert calls == ["start", "close"] * 2


def test_closing_a_service_is_shutdown_and_join_in_this_order():
    calls = []

    class Service(ControllableService):
        def start(self):
            calls.append("start")

        def shutdown(self):
            calls.append("shutdown")

        def join(self):
            calls.append("join")

    with Service():
        assert calls == ["start"]
    assert calls == ["start", "shutdown", "join"]


@pytest.mark.parametrize("kind", [ControllableContext, ControllableService])
def test_contexts_and_services_are_abstract(kind):
    with pytest.raises(TypeError, match="abstract"):
        kind()
