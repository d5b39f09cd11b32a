"""A thread that writes a state now and then."""

import logging
import os
import threading

import pytest

from ding.utils.state_folder import StateFolder
from ding.worker.coordinator import parallel_run_state
from ding.worker.coordinator.parallel_run_state import StateWriter
from tests.worker.coordinator.fakes import PATIENCE_S

PATH = os.path.join("exp", "run_state")
LOGGER = logging.getLogger("test_writer")


class Source:
    """States with a number; `enough` is set when `count` of them were taken."""

    def __init__(self, count=3):
        self.count, self.taken, self.enough = count, 0, threading.Event()

    def __call__(self, reason):
        self.taken += 1
        if self.taken >= self.count:
            self.enough.set()
        return {"number": self.taken}, {"reason": reason}


def written():
    """The last state and its description; None if there is none."""
    return StateFolder(PATH).read()


@pytest.fixture
def keep():
    made = []

    def keep(take_state, interval_s):
        made.append(StateWriter(StateFolder(PATH), take_state, interval_s, LOGGER, LOGGER.error))
        return made[-1]

    yield keep
    for keeper in made:
        keeper.stop(PATIENCE_S)
        assert keeper._threads.join(0)


def test_it_writes_again_and_again_until_it_is_stopped(keep):
    source = Source()
    keeper = keep(source, 0.001)
    keeper.start()
    assert keeper.is_active and source.enough.wait(PATIENCE_S)
    keeper.stop(PATIENCE_S)
    assert written() == ({"number": source.taken}, {"reason": "interval"})
    keeper.stop(PATIENCE_S)


def test_without_an_interval_nothing_is_written_or_removed(keep):
    keeper = keep(Source(), 0)
    keeper.start()
    assert not keeper.is_active and not os.path.exists(PATH)
    keeper.write("end")
    keeper.remove()
    assert written() == ({"number": 1}, {"reason": "end"})


def test_a_keeper_that_was_stopped_does_not_start(keep):
    keeper = keep(Source(), 1)
    keeper.stop(0)
    keeper.start()
    assert not keeper.is_active


def test_where_there_is_no_state_the_file_stays(keep):
    keep(Source(), 1).write("end")
    keep(lambda reason: None, 1).write("end")
    assert written() == ({"number": 1}, {"reason": "end"})


def test_the_file_of_a_run_that_is_over_is_removed(keep):
    keeper = keep(Source(), 1000)
    keeper.start()
    keeper.write("end")
    keeper.remove()
    keeper.remove()
    assert written() is None and os.listdir(PATH) == []


def test_a_disk_that_hangs_keeps_nobody_waiting_for_long(keep, caplog, monkeypatch):
    monkeypatch.setattr(parallel_run_state, "FILE_TIMEOUT_S", 0.01)
    taken, go_on = threading.Event(), threading.Event()

    def take(reason):
        taken.set()
        assert go_on.wait(PATIENCE_S)
        return {"number": 1}, {}

    keeper = keep(take, 1000)
    keeper.start()
    stuck = threading.Thread(target=keeper.write, args=("end",))
    stuck.start()
    assert taken.wait(PATIENCE_S)
    keeper.write("end")
    keeper.remove()
    go_on.set()
    stuck.join(PATIENCE_S)
    assert "the last write has taken more than 0.01 s" in caplog.text and written() == ({"number": 1}, {})


def test_what_goes_wrong_is_logged_once_and_does_no_harm(keep, caplog):
    states = iter([{"a": object()}, {"a": object()}, {"a": 1}, {"a": object()}])
    keeper = keep(lambda reason: (next(states), {}), 1)
    for _ in range(4):
        keeper.write("end")
    assert written() == ({"a": 1}, {})
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(told) == 2 and all(
        "the state of the run is not saved in" in text and "TypeError" in text for text in told
    )
