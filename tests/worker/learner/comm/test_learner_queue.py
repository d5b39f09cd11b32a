"""What passes between the thread that serves a coordinator and those that load and train."""

import contextlib
import threading

import pytest

from ding.interaction import TaskFail
from ding.worker.learner.comm.learner_task import LearnerQueue
from tests.worker.collector.parallel_fakes import UNTIL_NOTIFIED_S, in_thread
from tests.worker.transport.sites import DEADLINE_S

A, B, C = [{"data_id": "a"}], [{"data_id": "b"}], [{"data_id": "c"}]


def waiting(queue):
    """Wait until somebody waits at the queue."""
    done = threading.Event()
    while not queue._changed._waiters:
        done.wait(0.001)


@contextlib.contextmanager
def failed_with(exception):
    with pytest.raises(TaskFail) as failed:
        yield
    assert failed.value.result["exception"] == exception


def test_room_is_waited_for_until_half_of_it_is_free():
    queue = LearnerQueue(2)
    queue.put([A, B])
    room = in_thread(queue.wait_for_capacity, UNTIL_NOTIFIED_S)
    waiting(queue)
    queue.get()
    assert room() == 1


class Clock:
    """Stands in for `monotonic`; the test moves it."""

    def __init__(self, monkeypatch):
        self.now_s = 100.0
        monkeypatch.setattr("ding.worker.learner.comm.learner_task.monotonic", lambda: self.now_s)

    def train(self, queue, count, batch_s):
        """The learner takes `count` batches, and so long for each."""
        for _ in range(count):
            queue.put([A])
            queue.get()
            self.now_s += batch_s


def test_a_fast_learner_asks_for_more_batches_than_a_slow_one(monkeypatch):
    clock, queue = Clock(monkeypatch), LearnerQueue(64, ahead_s=0.1)
    assert queue.wait_for_capacity(0) == 8  # nothing is known of it
    clock.train(queue, 200, batch_s=0.002)
    assert 49 <= queue.wait_for_capacity(0) <= 51
    clock.train(queue, 200, batch_s=0.5)
    assert queue.wait_for_capacity(0) == 2
    clock.train(queue, 200, batch_s=0.0001)
    assert queue.wait_for_capacity(0) == 64


def test_more_batches_than_there_is_room_for_are_refused():
    queue = LearnerQueue(2)
    queue.put([A])
    with failed_with("ValueError"):
        queue.put([B, C])


@pytest.mark.parametrize(
    ("end", "exception"),
    [
        (lambda queue: queue.close(), "LearnerClosed"),
        (lambda queue: queue.finish(), "LearnerClosed"),
        (lambda queue: queue.fail(KeyError("lost")), "KeyError"),
    ],
)
def test_the_end_of_the_learner_ends_the_wait_for_room(end, exception):
    queue = LearnerQueue(2)
    queue.put([A, A])
    outcome = in_thread(queue.wait_for_capacity, DEADLINE_S)
    waiting(queue)
    end(queue)
    assert outcome().result["exception"] == exception


def test_work_is_a_batch_that_the_learner_has_not_begun():
    queue = LearnerQueue(2)
    assert not queue.wait_for_work(0)
    queue.put([A])
    queue.get()
    assert queue.wait_for_work(0)
    queue.begin()
    assert not queue.wait_for_work(0)
    work = in_thread(queue.wait_for_work, UNTIL_NOTIFIED_S)
    waiting(queue)
    queue.close()
    assert work() is True and queue.wait_closed(0)


# Whether all is trained.


def trained(queue, timeout_s=0.0):
    return queue.wait_trained(timeout_s)


def test_all_is_trained_when_the_learner_wants_more_than_it_was_given():
    queue = LearnerQueue(2)
    assert not trained(queue)  # it has not come to its first batch
    queue.rest_until_next()
    assert trained(queue)
    queue.put([A, B])
    assert not trained(queue)
    for is_last in (False, True):
        queue.begin()
        assert not trained(queue)
        queue.rest_until_next()
        assert trained(queue) is is_last


@pytest.mark.parametrize(
    "end", [LearnerQueue.rest_until_next, LearnerQueue.close, LearnerQueue.finish, lambda e: e.fail(ValueError("no"))]
)
def test_waiting_for_the_training_ends_when_it_is_through_and_with_the_learner(end):
    queue = LearnerQueue(2)
    queue.put([A])
    queue.begin()
    join = in_thread(trained, queue, UNTIL_NOTIFIED_S)
    waiting(queue)
    end(queue)
    assert join() is True
