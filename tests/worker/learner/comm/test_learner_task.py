"""What passes between the thread that serves a coordinator and those that load and train."""

import contextlib
import threading

import pytest
import torch

from ding.interaction import TaskFail
from ding.utils.config_helper import ConfigError
from ding.worker.learner.comm import learner_task
from ding.worker.learner.comm.flask_fs_learner import SendLearnInfoHook, SendPolicyHook
from ding.worker.learner.comm.learner_task import LearnerQueue
from tests.worker.collector.parallel_fakes import UNTIL_NOTIFIED_S, in_thread
from tests.worker.learner.fakes import FakePolicy, make_learner
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


def test_one_batch_gets_the_first_info_of_it_and_later_ones_are_dropped():
    queue = LearnerQueue(2)
    answer = in_thread(queue.learn, A, UNTIL_NOTIFIED_S)
    assert queue.get() == A
    queue.report({"n": 1})
    assert answer() == {"n": 1}
    queue.report({"n": 2})
    answer = in_thread(queue.learn, B, UNTIL_NOTIFIED_S)
    assert queue.get() == B
    queue.report({"n": 3})
    assert answer() == {"n": 3}


def test_the_wait_for_the_info_of_one_batch_has_a_deadline():
    with failed_with("TimeoutError"):
        LearnerQueue(2).learn(B, 0)


WAITS = {
    "room": lambda queue: queue.wait_for_capacity(DEADLINE_S),
    "learn": lambda queue: queue.learn(B, DEADLINE_S),
}


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize(
    ("end", "exception"),
    [
        (lambda queue: queue.close(), "LearnerClosed"),
        (lambda queue: queue.finish(), "LearnerClosed"),
        (lambda queue: queue.fail(KeyError("lost")), "KeyError"),
    ],
)
def test_the_end_of_the_learner_ends_every_wait(wait, end, exception):
    queue = LearnerQueue(2)
    queue.put([A] if wait == "learn" else [A, A])
    outcome = in_thread(WAITS[wait], queue)
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


def test_a_queue_needs_room():
    assert LearnerQueue(1).wait_for_capacity(0) == 1
    with pytest.raises(ValueError, match="prefetch_batches = 0"):
        LearnerQueue(0)


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


# When weights and infos are sent.


@pytest.fixture
def clock(monkeypatch):
    """The time that hooks see, in seconds; a list of one."""
    now = [0.0]
    monkeypatch.setattr(learner_task, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def learner():
    learner = make_learner(FakePolicy())
    learner.sent, learner.told = [], []
    learner.send_policy, learner.send_learn_info = learner.sent.append, learner.told.append
    yield learner
    learner.close()


def sent(learner):
    return [state["iter"] for state in learner.sent]


def after_iter(**ext_args):
    return SendPolicyHook("send_policy", 100, position="after_iter", ext_args=ext_args)


def test_statistics_of_the_collectors_are_sent_along(learner):
    learner.ckpt_extra = {"task_id": "t", "normalization": {"obs": {"size": 3.0}}}
    learner.register_hook(after_iter())
    learner.train([{}, {}])
    assert learner.sent == [{"model": {"w": 1.5}, "iter": 0, "normalization": {"obs": {"size": 3.0}}}]


@pytest.mark.parametrize("part", ["model", "value_norm"])
def test_weights_with_nan_are_an_error_and_not_sent(learner, part):
    learner.policy.state = {"model": {"w": 1.5}, part: {"w": torch.tensor(float("nan"))}}
    learner.register_hook(after_iter())
    with pytest.raises(FloatingPointError, match=rf"hold NaN at train_iter 0 .the first is {part}.w."):
        learner.train([{}, {}])
    assert learner.sent == []


def test_what_comes_too_soon_is_put_off_to_the_next_iteration_after_the_interval(learner, clock):
    learner.register_hook(after_iter(send_policy_freq=2, send_policy_interval_s=1.0))
    for now in (0.0, 0.1, 0.2, 1.5, 1.6, 2.4, 2.6):
        clock[0] = now
        learner.train([{}, {}])
    assert sent(learner) == [0, 3, 6]


def test_weights_are_sent_after_so_many_iterations_whatever_the_time(learner, clock):
    learner.register_hook(after_iter(send_policy_interval_s=1.0, max_policy_lag=3))
    for _ in range(8):
        learner.train([{}, {}])
    assert sent(learner) == [0, 3, 6]


def test_before_and_after_a_run_weights_are_always_sent(learner, clock):
    for position in ("before_run", "after_run"):
        args = {"send_policy_freq": 5, "send_policy_interval_s": 1.0}
        learner.register_hook(SendPolicyHook("send_policy", 100, position=position, ext_args=args))
    learner.last_iter.update(3)
    for position in ("before_run", "after_run", "after_run"):
        learner.call_hook(position)
    assert sent(learner) == [3, 3, 3]


def test_only_the_first_rank_sends_weights():
    learner = make_learner(FakePolicy(), dist_info=(1, 2), hook={})
    learner.send_policy = None
    try:
        hook = after_iter()
        hook(learner)
        assert not hook.is_due
    finally:
        learner.close()


@pytest.mark.parametrize(
    ("kind", "ext_args", "text"),
    [
        (SendPolicyHook, {"send_policy_freq": 0}, "send_policy_freq = 0"),
        (SendPolicyHook, {"send_policy_freq": "often"}, "send_policy_freq = 'often'"),
        (SendPolicyHook, {"send_policy_interval_s": -1}, "send_policy_interval_s = -1"),
        (SendLearnInfoHook, {"freq": 0}, "freq = 0"),
    ],
)
def test_frequencies_are_checked(kind, ext_args, text):
    with pytest.raises(ConfigError, match=text):
        kind("send", 100, position="after_iter", ext_args=ext_args)
