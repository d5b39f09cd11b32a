"""What passes between the thread that serves a coordinator and those that load and train."""

import threading

import pytest

from ding.interaction import TaskFail
from ding.worker.learner.comm.learner_queue import LearnerQueue

DEADLINE_S = 20
A, B, C = [{"data_id": "a"}], [{"data_id": "b"}], [{"data_id": "c"}]


def in_thread(act, *args):
    """Run `act(*args)` in a thread; `join` of what is returned gives the result or error."""
    outcome = []

    def run():
        try:
            outcome.append(act(*args))
        except Exception as e:
            outcome.append(e)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def join():
        thread.join(DEADLINE_S)
        return outcome[0]

    return join


def waiting(exchange):
    """Wait until somebody waits at the exchange."""
    done = threading.Event()
    while not exchange._changed._waiters:
        done.wait(0.001)


def failed_with(exception, text):
    """The matcher of a failed task."""

    class Matcher:
        def __enter__(self):
            self._raises = pytest.raises(TaskFail, match=text)
            self._info = self._raises.__enter__()

        def __exit__(self, *exc_info):
            handled = self._raises.__exit__(*exc_info)
            assert self._info.value.result["exception"] == exception
            return handled

    return Matcher()


def test_batches_come_out_in_order_and_count_as_loaded_when_the_next_is_asked_for():
    exchange = LearnerQueue(4)
    exchange.put([A, B])
    assert exchange.get() == A and exchange.take() == ([], 0)
    assert exchange.get() == B and exchange.take() == ([], 1)
    assert exchange.take() == ([], 0)


def test_infos_come_out_once_and_in_order():
    exchange = LearnerQueue(1)
    exchange.report({"n": 1})
    exchange.report({"n": 2})
    assert exchange.take() == ([{"n": 1}, {"n": 2}], 0)
    assert exchange.take() == ([], 0)


def test_room_is_what_no_batch_waits_in():
    exchange = LearnerQueue(4)
    assert exchange.wait_for_capacity(0) == 4
    exchange.put([A, B, C])
    assert exchange.wait_for_capacity(0) == 1
    exchange.get()
    assert exchange.wait_for_capacity(0) == 2


def test_room_is_waited_for_until_half_of_it_is_free():
    exchange = LearnerQueue(2)
    exchange.put([A, B])
    room = in_thread(exchange.wait_for_capacity, DEADLINE_S)
    waiting(exchange)
    exchange.get()
    assert room() == 1


class Clock:
    """Stands in for `monotonic`; the test moves it."""

    def __init__(self, monkeypatch):
        self.now_s = 100.0
        monkeypatch.setattr("ding.worker.learner.comm.learner_queue.monotonic", lambda: self.now_s)

    def train(self, exchange, count, batch_s):
        """The learner takes `count` batches, and so long for each."""
        for _ in range(count):
            exchange.put([A])
            exchange.get()
            self.now_s += batch_s


def test_a_fast_learner_asks_for_more_batches_than_a_slow_one(monkeypatch):
    clock, exchange = Clock(monkeypatch), LearnerQueue(64, ahead_s=0.1)
    assert exchange.wait_for_capacity(0) == 8  # nothing is known of it
    clock.train(exchange, 200, batch_s=0.002)
    assert 49 <= exchange.wait_for_capacity(0) <= 51
    clock.train(exchange, 200, batch_s=0.5)
    assert exchange.wait_for_capacity(0) == 2
    clock.train(exchange, 200, batch_s=0.0001)
    assert exchange.wait_for_capacity(0) == 64


def test_a_wait_for_data_does_not_make_a_learner_slow(monkeypatch):
    clock, exchange = Clock(monkeypatch), LearnerQueue(64, ahead_s=0.1)
    exchange.put([A])
    exchange.get()
    clock.now_s += 0.0125
    batch = in_thread(exchange.get)
    waiting(exchange)
    clock.now_s += 60.0
    exchange.put([B])
    assert batch() == B
    assert exchange.wait_for_capacity(0) == 8


def test_batches_that_were_wanted_are_taken_though_the_learner_has_become_slow(monkeypatch):
    clock, exchange = Clock(monkeypatch), LearnerQueue(8, ahead_s=0.1)
    exchange.put([A])
    exchange.get()
    assert exchange.wait_for_capacity(0) == 8
    clock.now_s += 60.0
    exchange.put([B])
    exchange.get()
    exchange.put([A] * 7)
    assert exchange.wait_for_capacity(0) == 0


def test_more_batches_than_there_is_room_for_are_refused():
    exchange = LearnerQueue(2)
    exchange.put([A])
    with failed_with("ValueError", "capacity for 1 batches; it was sent 2"):
        exchange.put([B, C])


def test_the_last_info_ends_the_demand_and_is_told_at_once():
    exchange = LearnerQueue(2)
    exchange.put([A, B])
    room = in_thread(exchange.wait_for_capacity, DEADLINE_S)
    waiting(exchange)
    exchange.report({"learner_done": True})
    exchange.finish()
    assert room() == 0
    exchange.put([C])  # has crossed with the info
    assert exchange.take() == ([{"learner_done": True}], 0)
    with failed_with("LearnerClosed", "all its reports were taken"):
        exchange.wait_for_capacity(0)


def test_a_learner_that_is_done_wants_nothing_more_though_its_thread_has_not_ended():
    exchange = LearnerQueue(2)
    exchange.report({"learner_done": True})
    exchange.take()
    assert exchange.wait_for_capacity(0) == 0


def test_one_batch_gets_the_first_info_of_it_and_later_ones_are_dropped():
    exchange = LearnerQueue(2)
    answer = in_thread(exchange.learn, A, DEADLINE_S)
    assert exchange.get() == A
    exchange.report({"n": 1})
    assert answer() == {"n": 1}
    exchange.report({"n": 2})
    answer = in_thread(exchange.learn, B, DEADLINE_S)
    assert exchange.get() == B
    exchange.report({"n": 3})
    assert answer() == {"n": 3}


def test_one_batch_that_crosses_with_the_last_info_gets_it():
    exchange = LearnerQueue(1)
    exchange.report({"learner_done": True})
    exchange.wait_for_want(0)
    assert exchange.learn(A, 0) == {"learner_done": True}


def test_want_is_waited_for_until_every_batch_is_being_loaded():
    exchange = LearnerQueue(2)
    exchange.put([A])
    want = in_thread(exchange.wait_for_want, DEADLINE_S)
    waiting(exchange)
    exchange.get()
    assert want() is None


@pytest.mark.parametrize(("wait", "text"), [("wait_for_want", "wanted no data"), ("learn", "reported nothing")])
def test_waits_for_one_have_a_deadline(wait, text):
    exchange = LearnerQueue(2)
    exchange.put([A])
    with failed_with("TimeoutError", text):
        exchange.learn(B, 0) if wait == "learn" else exchange.wait_for_want(0)


WAITS = {
    "room": lambda exchange: exchange.wait_for_capacity(DEADLINE_S),
    "want": lambda exchange: exchange.wait_for_want(DEADLINE_S),
    "learn": lambda exchange: exchange.learn(B, DEADLINE_S),
}


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize(
    ("end", "exception"),
    [
        (lambda exchange: exchange.close(), "LearnerClosed"),
        (lambda exchange: exchange.finish(), "LearnerClosed"),
        (lambda exchange: exchange.fail(KeyError("lost")), "KeyError"),
    ],
)
def test_the_end_of_the_learner_ends_every_wait(wait, end, exception):
    exchange = LearnerQueue(2)
    exchange.put([A] if wait == "learn" else [A, A])
    outcome = in_thread(WAITS[wait], exchange)
    waiting(exchange)
    end(exchange)
    assert outcome().result["exception"] == exception


def test_close_ends_the_wait_for_a_batch_and_drops_those_that_wait():
    exchange = LearnerQueue(2)
    batch = in_thread(exchange.get)
    waiting(exchange)
    exchange.close()
    assert batch() is None and exchange.get() is None
    exchange = LearnerQueue(2)
    exchange.put([A])
    exchange.close()
    assert exchange.get() is None


def test_work_is_a_batch_that_the_learner_has_not_begun():
    exchange = LearnerQueue(2)
    assert not exchange.wait_for_work(0)
    exchange.put([A])
    exchange.get()
    assert exchange.wait_for_work(0)
    exchange.begin()
    assert not exchange.wait_for_work(0)
    work = in_thread(exchange.wait_for_work, DEADLINE_S)
    waiting(exchange)
    exchange.close()
    assert work() is True and exchange.wait_closed(0)


def test_infos_and_counts_are_left_over_when_a_learner_has_failed():
    exchange = LearnerQueue(2)
    exchange.report({"n": 1})
    exchange.fail(KeyError("lost"))
    with failed_with("KeyError", "lost"):
        exchange.take()
    assert exchange.rest() == ([{"n": 1}], 0) and exchange.rest() == ([], 0)


def test_an_exchange_needs_room():
    with pytest.raises(ValueError, match="prefetch_batches = 0"):
        LearnerQueue(0)


# Whether all is trained.


def trained(exchange, timeout_s=0.0):
    return exchange.wait_trained(timeout_s)


def test_all_is_trained_when_the_learner_wants_more_than_it_was_given():
    exchange = LearnerQueue(2)
    assert not trained(exchange)  # it has not come to its first batch
    exchange.rest_until_next()
    assert trained(exchange)
    exchange.put([A, B])
    assert not trained(exchange)
    for is_last in (False, True):
        exchange.begin()
        assert not trained(exchange)
        exchange.rest_until_next()
        assert trained(exchange) is is_last


def test_waiting_for_the_training_goes_on_when_it_is_through():
    exchange = LearnerQueue(2)
    exchange.put([A])
    exchange.begin()
    join = in_thread(trained, exchange, DEADLINE_S)
    waiting(exchange)
    exchange.rest_until_next()
    assert join() is True


@pytest.mark.parametrize("end", [LearnerQueue.close, LearnerQueue.finish, lambda e: e.fail(ValueError("no"))])
def test_waiting_for_the_training_ends_with_the_learner(end):
    exchange = LearnerQueue(2)
    exchange.put([A])
    join = in_thread(trained, exchange, DEADLINE_S)
    waiting(exchange)
    end(exchange)
    assert join() is True
