"""How a collector comes by weights."""

import threading

import pytest

from ding.worker.collector import task_collector
from ding.worker.collector.task_collector import PolicyWatch
from tests.worker.collector.parallel_fakes import DEADLINE_S, join_threads


class Answers:
    """Gives its answers one after the other, the last for ever; exceptions are raised. `spent` says that all were."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.spent = threading.Event()

    def __call__(self):
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if len(self.answers) == 1:
            self.spent.set()
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def look_at_once(monkeypatch):
    monkeypatch.setattr(task_collector, "_FIRST_LOOK_S", 0.0)


def fetches():
    """The threads that look for weights."""
    return [thread for thread in threading.enumerate() if thread.name == "update_policy"]


def test_the_first_weights_are_waited_for():
    assert PolicyWatch(Answers(FileNotFoundError("a"), None, {"iter": 3}), 0).first(DEADLINE_S) == {"iter": 3}


@pytest.mark.parametrize("answer", [FileNotFoundError("nothing there"), None])
def test_the_wait_for_the_first_weights_ends_with_its_deadline(answer):
    with pytest.raises(TimeoutError):
        PolicyWatch(Answers(answer), 0).first(0)


def test_closing_ends_the_wait_for_the_first_weights():
    fetch = Answers(FileNotFoundError("a"), FileNotFoundError("a"))
    watch, found = PolicyWatch(fetch, 0), []
    thread = threading.Thread(target=lambda: found.append(watch.first(1000)), daemon=True)
    thread.start()
    assert fetch.spent.wait(DEADLINE_S)
    watch.close()
    thread.join(DEADLINE_S)
    assert found == [None]


def test_only_the_newest_of_later_weights_is_taken_and_once():
    fetch = Answers({"iter": 1}, {"iter": 2}, FileNotFoundError("a"), {"iter": 3}, None)
    watch = PolicyWatch(fetch, 0)
    assert watch.take() is None
    watch.start()
    watch.start()
    assert fetch.spent.wait(DEADLINE_S)
    watch.close()
    assert watch.take() == {"iter": 3}
    assert watch.take() is None


def test_what_goes_wrong_later_is_raised_where_the_weights_are_taken():
    watch = PolicyWatch(Answers(PermissionError("not for you")), 0)
    watch.start()
    join_threads("update_policy")
    for _ in range(2):
        with pytest.raises(PermissionError):
            watch.take()
    watch.close()


def test_the_thread_looks_in_intervals_and_ends_at_once():
    fetch = Answers({"iter": 1}, {"iter": 2})
    watch = PolicyWatch(fetch, 1000)
    watch.start()
    watch.close()
    assert fetches() == [] and watch.take() is None
