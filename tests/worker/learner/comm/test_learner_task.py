"""What passes between the thread that serves a coordinator and those that load and train."""

from unittest.mock import Mock

import pytest
import torch

from ding.interaction import TaskFail
from ding.utils.config_helper import ConfigError
from ding.worker.learner.comm import learner_task
from ding.worker.learner.comm.flask_fs_learner import SendLearnInfoHook, SendPolicyHook
from ding.worker.learner.comm.learner_task import LearnerQueue
from tests.worker.learner.fakes import FakePolicy, make_learner


@pytest.fixture
def clock(monkeypatch):
    """The time that learners and hooks see, in seconds; a list of one."""
    now = [0.0]
    monkeypatch.setattr(learner_task, "monotonic", lambda: now[0])
    return now


def test_a_fast_learner_asks_for_more_batches_than_a_slow_one(clock):
    queue = LearnerQueue(64, ahead_s=0.1)
    assert queue.wait_for_capacity(0) == 8  # nothing is known of it
    for batch_s, wanted in ((0.002, (49, 50, 51)), (0.5, (2,)), (0.0001, (64,))):
        for _ in range(200):
            queue.put([[{"data_id": "a"}]])
            queue.get()
            clock[0] += batch_s
        assert queue.wait_for_capacity(0) in wanted


def test_work_is_a_batch_that_the_learner_has_not_begun():
    queue = LearnerQueue(2)
    assert not queue.wait_for_work(0)
    queue.put([[{"data_id": "a"}]])
    queue.get()
    assert queue.wait_for_work(0)
    queue.begin()
    assert not queue.wait_for_work(0)
    queue.close()
    assert queue.wait_for_work(0)


def test_more_batches_than_there_is_room_for_are_refused():
    with pytest.raises(TaskFail):
        LearnerQueue(2).put([[{"data_id": "a"}]] * 3)


# When weights and infos are sent.


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


@pytest.mark.parametrize(("has_work", "expected"), [(True, [0]), (False, [0, 3])])
def test_delayed_weights_are_sent_while_there_is_nothing_to_train_on(learner, clock, has_work, expected):
    hook = after_iter(send_policy_freq=2, send_policy_interval_s=1.0)
    learner.register_hook(hook)
    for _ in range(3):
        learner.train([{}, {}])
    queue = Mock(**{"wait_for_work.return_value": has_work})
    learner.get_data = lambda batch_size: [{}] * batch_size
    learner.setup_dataloader()
    batches = learner_task.TaskBatches(learner, queue, [hook], Mock())
    assert len(batches.next_batch()) == 2 and sent(learner) == expected
    queue.wait_for_work.assert_called_once_with(1.0)


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
