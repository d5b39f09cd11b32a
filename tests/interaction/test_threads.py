import threading

import pytest

from ding.interaction.base import DblEvent

DEADLINE_S = 20


@pytest.mark.parametrize("opened", [False, True])
def test_an_event_begins_as_it_is_told_to(opened):
    event = DblEvent(opened)
    assert event.is_open() is opened and event.is_close() is not opened


def test_an_event_begins_closed_by_default():
    assert DblEvent().is_close()


@pytest.mark.parametrize("opens", [True, False])
def test_waiters_for_either_direction_are_released(opens):
    event, released = DblEvent(opened=not opens), []
    wait = event.wait_for_open if opens else event.wait_for_close

    def waiting():
        wait()
        released.append(event.is_open())

    threads = [threading.Thread(target=waiting) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert released == []
    (event.open if opens else event.close)()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert released == [opens] * 3


def test_waiting_for_what_is_returns_at_once_and_for_what_is_not_after_the_timeout():
    event = DblEvent(opened=True)
    assert event.wait_for_open() is None and event.wait_for_close(timeout=0.01) is None
    assert event.is_open()
    event.close()
    assert event.wait_for_close() is None and event.wait_for_open(timeout=0.01) is None
    assert event.is_close()
