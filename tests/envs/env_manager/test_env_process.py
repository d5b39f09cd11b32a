"""What an env's process is asked and answers; exceptions on their way from one process to another."""

from __future__ import annotations

import pickle
import signal

import pytest

from ding.envs.env_manager.env_child import EnvProcessError, Failure
from ding.envs.env_manager.env_process import describe_exit
from tests.envs.env_manager.scripted_env import OddError


def failure_of(error):
    try:
        raise error
    except BaseException as e:
        return pickle.loads(pickle.dumps(Failure.of(e, "step")))


class WithFields(ValueError):
    def __init__(self, text, code=None):
        super().__init__(text)
        self.code = code


class OwnText(ValueError):
    def __str__(self):
        return "always the same"


class PickyText(ValueError):
    def __str__(self):
        return self.args[0] + self.args[1]


class NoText(ValueError):
    def __str__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize("error", [ValueError("broken"), KeyError("k"), WithFields("broken", 3), OSError(2, "gone")])
def test_an_exception_keeps_its_class_and_tells_what_happened(error):
    back = failure_of(error).to_exception(7)
    assert type(back) is type(error)
    (text,) = back.args
    assert text.startswith(f"env 7 failed in step with {type(error).__name__}\n")
    assert "Traceback" in text and "test_env_process.py" in text
    if isinstance(error, OSError):
        assert (back.errno, str(back.__cause__)) == (2, text)


def test_a_class_with_a_text_of_its_own_has_what_happened_as_its_cause():
    back = failure_of(OwnText("x")).to_exception(7)
    assert type(back) is OwnText
    assert type(back.__cause__) is EnvProcessError
    assert "env 7 failed in step with OwnText" in str(back.__cause__)


@pytest.mark.parametrize(
    "error",
    [OddError(3, reason="x"), PickyText("a", "b"), NoText(), SystemExit(3), ValueError(i for i in range(3))],
    ids=lambda error: type(error).__name__,
)
def test_what_cannot_be_made_again_comes_as_our_own(error):
    back = failure_of(error).to_exception(7)
    assert type(back) is EnvProcessError
    assert f"env 7 failed in step with {type(error).__name__}" in str(back)
    assert "Traceback" in str(back)


@pytest.mark.parametrize(
    "exitcode, words",
    [
        (None, "its process has closed its connection"),
        (0, "its process ended with exit code 0"),
        (
            -signal.SIGSEGV,
            "its process was ended by SIGSEGV (native code of the env, or of a library it uses, crashed)",
        ),
        (-signal.SIGTERM, "its process was ended by SIGTERM"),
        (-250, "its process was ended by signal 250"),
    ],
)
def test_ends_of_a_process_in_words(exitcode, words):
    assert describe_exit(exitcode) == words
