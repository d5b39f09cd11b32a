import logging
import signal

import numpy as np
import pytest
import torch

from ding.torch_utils import auto_checkpoint, guard_training
from ding.torch_utils.checkpoint_helper import Interruption, refuse_nan

SIGNALS = [signal.SIGINT, signal.SIGTERM]


def handlers():
    return [signal.getsignal(signum) for signum in SIGNALS]


@pytest.fixture(autouse=True)
def handlers_are_restored():
    before = handlers()
    yield
    assert handlers() == before


class Trainer:
    def __init__(self):
        self.saved = []

    def save_checkpoint(self, name):
        self.saved.append((name, handlers()))

    @auto_checkpoint
    def train(self, work, *, twice=False):
        """Train a bit."""
        return work() if not twice else (work(), work())

    @property
    def saved_names(self):
        return [name for name, _ in self.saved]


def fail():
    raise ZeroDivisionError("of the test")


def test_a_run_that_ends_well_saves_nothing_and_returns_its_result():
    trainer = Trainer()
    assert trainer.train(lambda: 3, twice=True) == (3, 3)
    assert trainer.saved == []


@pytest.mark.differs("swallows exceptions in `auto_checkpoint`, and so in a learner's `start`", "saves and raises them")
def test_an_exception_saves_and_goes_on():
    trainer, before = Trainer(), handlers()
    with pytest.raises(ZeroDivisionError):
        trainer.train(fail)
    assert trainer.saved == [("ckpt_exception.pth.tar", before)]


@pytest.mark.parametrize("signum", SIGNALS)
def test_a_signal_saves_after_leaving_the_block_and_exits_with_130(signum):
    trainer, before, steps = Trainer(), handlers(), []

    def work():
        assert handlers() != before
        try:
            signal.raise_signal(signum)
        finally:
            steps.append(trainer.saved_names)

    with pytest.raises(SystemExit) as exit_info:
        trainer.train(work)
    assert exit_info.value.code == 130
    assert steps == [[]]
    assert trainer.saved == [("ckpt_interrupt.pth.tar", before)]


def test_an_interruption_puts_a_signal_off_until_the_block_asks():
    saved, done, before = [], [], handlers()
    interruption = Interruption()
    with pytest.raises(SystemExit) as exit_info, guard_training(saved.append, interruption):
        interruption.leave_if_interrupted()
        signal.raise_signal(signal.SIGTERM)
        done.append(interruption.signal_name)
        interruption.leave_if_interrupted()
        done.append("left out")
    assert exit_info.value.code == 130 and done == ["SIGTERM"]
    assert saved == ["ckpt_interrupt.pth.tar"] and handlers() == before


def test_a_second_signal_is_not_put_off():
    done = []
    with pytest.raises(SystemExit), guard_training(None, Interruption()):
        signal.raise_signal(signal.SIGTERM)
        done.append("first")
        signal.raise_signal(signal.SIGINT)
        done.append("second")
    assert done == ["first"]


@pytest.mark.parametrize("interruption", [None, Interruption()])
@pytest.mark.parametrize("signum", SIGNALS)
def test_a_signal_that_is_ignored_stays_ignored(signum, interruption):
    before = signal.signal(signum, signal.SIG_IGN)
    try:
        with guard_training(pytest.fail, interruption):
            signal.raise_signal(signum)
            assert [handler is signal.SIG_IGN for handler in handlers()] == [number == signum for number in SIGNALS]
        assert signal.getsignal(signum) is signal.SIG_IGN
    finally:
        signal.signal(signum, before)


@pytest.mark.parametrize(("work", "error"), [(fail, ZeroDivisionError), (lambda: signal.raise_signal(15), SystemExit)])
def test_a_save_that_fails_is_logged_and_hides_nothing(work, error, caplog):
    def save(name):
        raise KeyError("model")

    with caplog.at_level(logging.ERROR, "ding"), pytest.raises(error), guard_training(save):
        work()
    assert "could not save ckpt_" in caplog.text
    assert "KeyError: 'model'" in caplog.text


NAN = float("nan")


@pytest.mark.parametrize(
    ("state", "path"),
    [
        ({"model": {"a": torch.zeros(2), "b": torch.tensor([0.0, NAN])}}, "model.b"),
        ({"optimizer": {"state": {3: {"exp_avg": torch.tensor(NAN)}}}}, "optimizer.state.3.exp_avg"),
        ({"model": {}, "stats": [(np.zeros(1), np.array([1.0, NAN]))]}, "stats.0.1"),
        ({"model": torch.tensor([complex(0, NAN)])}, "model"),
        ({"model": torch.tensor([NAN], dtype=torch.float16)}, "model"),
    ],
)
def test_state_with_nan_in_a_tensor_is_refused_by_name(state, path):
    with pytest.raises(FloatingPointError, match=path):
        refuse_nan(state, "at train_iter 7")


def test_state_without_nan_in_a_tensor_passes():
    infinite = torch.tensor([float("inf"), -float("inf")])
    refuse_nan({"model": infinite, "best": NAN, "n": torch.zeros(2, dtype=torch.int64), "text": ["nan"], 1: None}, "")


@pytest.mark.parametrize("error", [FloatingPointError("the parameters hold NaN"), OSError(28, "the disk is full")])
def test_a_save_that_refuses_nan_or_finds_no_space_is_told_in_one_line(error, caplog):
    def save(name):
        raise error

    with caplog.at_level(logging.ERROR, "ding"), pytest.raises(ZeroDivisionError), guard_training(save):
        fail()
    assert str(error) in caplog.text
    assert caplog.records[0].exc_info is None


def test_auto_checkpoint_needs_a_method_to_save_with():
    class Careless:
        @auto_checkpoint
        def train(self):
            pytest.fail("must not run")

    with pytest.raises(AssertionError):
        Careless().train()
