"""What is only for showing: its failures are told once, and end nothing."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from ding.utils import log_helper
from ding.utils.log_helper import only_shows, shown


@pytest.fixture(autouse=True)
def _nothing_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_helper, "_warned", set())


class Unready:
    """Like an env whose `__repr__` reads what only `reset` sets."""

    def __repr__(self) -> str:
        return f"Unready({self.inner})"  # type: ignore[attr-defined]


@pytest.mark.parametrize("text_of", [repr, str])
def test_an_object_that_cannot_be_shown_is_named_by_its_class(text_of: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert [shown(Unready(), text_of), shown(Unready())] == ["<Unready>", "<Unready>"]
    (message,) = caplog.messages
    assert "Unready" in message and "AttributeError" in message


def test_each_cause_is_told_once_for_each_set_of_what_was_told(caplog: pytest.LogCaptureFixture) -> None:
    own: set[str] = set()
    for told in (None, None, own, own):
        for what in ("one", "other"):
            with only_shows(what, told):
                raise OSError("disk\nfull")
    assert [message.split(";")[0] for message in caplog.messages] == [
        *("one fails with OSError: disk full", "other fails with OSError: disk full") * 2
    ]
    assert all(record.levelno == logging.WARNING for record in caplog.records)
