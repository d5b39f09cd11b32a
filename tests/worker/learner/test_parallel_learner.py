"""A learner that fetches its own data: `setup_dataloader` and `start`."""

import itertools
import pathlib
import threading
from functools import partial

import pytest
import torch

from ding.worker.learner import BaseLearner
from tests.worker.learner.fakes import FakePolicy, RecordingWriter, learner_cfg, make_learner


class FetchingLearner(BaseLearner):
    """Its k-th batch is [{'obs': k, 'size': batch_size}]."""

    def get_data(self, batch_size):
        self.counter = getattr(self, "counter", itertools.count())
        return [{"obs": next(self.counter), "size": batch_size}]


def fetching(policy=None, hook=None, **changes):
    return FetchingLearner(learner_cfg(hook, **changes), policy or FakePolicy(), RecordingWriter(), exp_name="exp")


def names():
    return sorted(path.name for path in pathlib.Path("exp/ckpt").iterdir())


def test_start_trains_the_batches_in_order_between_the_run_hooks():
    policy = FakePolicy()
    learner = fetching(policy, train_iterations=4)
    learner.setup_dataloader()
    learner.start()
    learner.close()
    assert [data for data, _ in policy.calls] == [[{"obs": k, "size": 2}] for k in range(4)]
    assert learner.learn_info == {"learner_step": 4, "priority_info": {}, "learner_done": True}
    assert learner.log_buffer["scalar"]["data_time"] >= 0


def test_a_resumed_learner_adds_its_iterations_and_keeps_its_env_step():
    torch.save({"model": {}, "last_iter": 5, "last_step": 77}, "old.pth.tar")
    hook = {"load_ckpt_before_run": "old.pth.tar", "save_ckpt_after_iter": 5, "save_ckpt_after_run": True}
    learner = fetching(hook=hook, train_iterations=10)
    learner.setup_dataloader()
    learner.start()
    learner.close()
    assert learner.train_iter == 15
    assert names() == ["iteration_10.pth.tar", "iteration_15.pth.tar", "iteration_5.pth.tar"]
    assert torch.load("exp/ckpt/iteration_15.pth.tar", weights_only=True)["last_step"] == 77


def test_a_learner_without_get_data_is_refused():
    with pytest.raises(AttributeError):
        make_learner(FakePolicy()).setup_dataloader()


def test_get_data_may_be_injected():
    policy = FakePolicy()
    learner = make_learner(policy, changes={"train_iterations": 1})
    learner.get_data = lambda batch_size: [{"obs": "injected"}] * batch_size
    learner.setup_dataloader()
    learner.start()
    learner.close()
    assert policy.calls[0][0] == [{"obs": "injected"}] * 2


@pytest.mark.parametrize(("chunk_size", "at_once"), [(1, "ab"), (2, "ac"), (None, "ac")])
def test_a_job_of_a_worker_loads_as_many_samples_as_chunk_size_says_by_default_a_batch(chunk_size, at_once):
    together = threading.Barrier(2, timeout=10)  # who waits here for another is in another thread
    threads = {}

    def load(name):
        threads[name] = threading.get_ident()
        if name in at_once:
            together.wait()
        return name

    policy = FakePolicy()
    dataloader = {"num_workers": 2, "chunk_size": chunk_size}
    learner = make_learner(policy, changes={"train_iterations": 1, "dataloader": dataloader})
    batches = iter([[partial(load, name) for name in "abcd"]])
    learner.get_data = lambda batch_size: next(batches, [])
    learner.setup_dataloader()
    learner.start()
    learner.close()
    assert policy.calls[0][0] == ["a", "b", "c", "d"]
    assert (threads["a"] == threads["b"]) is (chunk_size != 1)


def test_an_exception_saves_a_checkpoint_and_reaches_the_caller():
    learner = fetching(FakePolicy({"total_loss": 1.0}, {"total_loss": float("nan")}), train_iterations=9)
    learner.setup_dataloader()
    try:
        with pytest.raises(FloatingPointError):
            learner.start()
    finally:
        learner.close()
    assert names() == ["ckpt_exception.pth.tar"]
    assert learner.learn_info["learner_done"] is False


def test_stop_ends_a_start_after_the_present_iteration_with_its_after_run_hooks():
    class Stopping(FakePolicy):
        def forward(self, data, **kwargs):
            if len(self.calls) == 1:
                learner.stop()
            return super().forward(data, **kwargs)

    policy = Stopping()
    learner = fetching(policy, hook={"save_ckpt_after_run": True})
    learner.setup_dataloader()
    learner.start()
    learner.close()
    assert len(policy.calls) == 2 and names() == ["iteration_2.pth.tar"]
    assert learner.learn_info["learner_done"] is True
