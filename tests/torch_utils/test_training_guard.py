import logging
import os
import signal
import threading

import pytest

from ding.torch_utils import auto_checkpoint, guard_training

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


def test_the_method_keeps_its_name_and_docstring():
    assert Trainer.train.__name__ == "train"
    assert Trainer.train.__doc__ == "Train a bit."


def test_an_exception_saves_and_goes_on():
    trainer, before = Trainer(), handlers()
    with pytest.raises(ZeroDivisionError, match="of the test"):
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


def test_a_signal_is_not_caught_by_except_exception():
    trainer = Trainer()

    def work():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            threading.Event().wait(10)
        except Exception:
            pytest.fail("the signal was taken for an error")

    with pytest.raises(SystemExit):
        trainer.train(work)
    assert trainer.saved_names == ["ckpt_interrupt.pth.tar"]


def test_a_second_signal_cuts_the_saving_short():
    def save(name):
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background has it ignored
    try:
        with pytest.raises(KeyboardInterrupt), guard_training(save):
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(("work", "error"), [(fail, ZeroDivisionError), (lambda: signal.raise_signal(15), SystemExit)])
def test_a_save_that_fails_is_logged_and_hides_nothing(work, error, caplog):
    def save(name):
        raise OSError("disk is full")

    with caplog.at_level(logging.ERROR, "ding"), pytest.raises(error), guard_training(save):
        work()
    assert "could not save ckpt_" in caplog.text
    assert "disk is full" in caplog.text


def test_a_guard_within_a_guard_saves_an_interrupt_once():
    saved = []
    with (
        pytest.raises(SystemExit),
        guard_training(lambda name: saved.append("outer")),
        guard_training(lambda name: saved.append("inner")),
    ):
        signal.raise_signal(signal.SIGTERM)
    assert saved == ["inner"]


def test_a_planned_exit_saves_nothing():
    trainer = Trainer()
    with pytest.raises(SystemExit), guard_training(trainer.save_checkpoint):
        raise SystemExit(0)
    assert trainer.saved == []


def test_off_the_main_thread_errors_are_saved_and_signals_left_alone():
    trainer, before, seen = Trainer(), handlers(), []

    def work():
        seen.append(handlers())
        fail()

    def run():
        with pytest.raises(ZeroDivisionError):
            trainer.train(work)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [before]
    assert trainer.saved_names == ["ckpt_exception.pth.tar"]


def test_auto_checkpoint_needs_a_method_to_save_with():
    class Careless:
        @auto_checkpoint
        def train(self):
            pytest.fail("must not run")

    with pytest.raises(AssertionError, match="Careless has none"):
        Careless().train()
