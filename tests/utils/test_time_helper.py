"""Timers, the watchdog and the profiler."""

import os
import pstats
import signal
import threading

import pytest

from ding.utils import time_helper
from ding.utils.time_helper import EasyTimer, Profiler, WatchDog, build_time_helper


class FakeClock:
    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(time_helper.time, "perf_counter", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
    return FakeClock(monkeypatch)


@pytest.mark.differs("overwrites the start of one wall-clock timer with another's", "measures each by itself")
def test_timers_inside_timers_do_not_disturb_each_other(clock):
    outer, inner = EasyTimer(), EasyTimer(cuda=False)
    with outer:
        clock.now += 1
        with inner:
            clock.now += 2
        clock.now += 4
    assert (inner.value, outer.value) == (2, 7)


def test_the_time_wrapper_measures_functions_and_nested_stretches(clock):
    helper = build_time_helper(wrapper_type="time")

    def work(x):
        clock.now += x
        return x * 10

    helper.start_time()
    assert helper.wrapper(work)(2) == (20, 2)
    clock.now += 1
    assert helper.end_time() == 3
    assert helper.wrapper(work).__name__ == "work"


def test_a_watchdog_barks_after_a_fraction_of_a_second_and_restores_the_handler():
    handler = signal.getsignal(signal.SIGALRM)
    never = threading.Event()
    with pytest.raises(TimeoutError, match="within 0.05 s"), WatchDog(0.05):
        never.wait(30)
    assert signal.getsignal(signal.SIGALRM) is handler and signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_a_watchdog_needs_the_main_thread_and_a_positive_timeout():
    with pytest.raises(ValueError, match="timeout = 0"):
        WatchDog(0)
    errors = []

    def start():
        try:
            WatchDog(1).start()
        except ValueError as error:
            errors.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join(10)
    assert len(errors) == 1


def busy():
    return sum(i * i for i in range(1000))


def functions_of(path):
    return {name for _, _, name in pstats.Stats(str(path)).stats}


def test_what_ran_between_start_and_stop_is_in_three_files(tmp_path):
    profiler = Profiler()
    profiler.profile(str(tmp_path / "new"))
    busy()
    profiler.stop()
    profiler.stop()
    base = tmp_path / "new" / f"profile_{os.getpid()}"
    assert "busy" in functions_of(f"{base}.prof")
    for order, words in (("cumulative", "Ordered by: cumulative time"), ("tottime", "Ordered by: internal time")):
        text = (tmp_path / "new" / f"{base.name}_{order}.txt").read_text()
        assert words in text and "(busy)" in text
    assert len(os.listdir(tmp_path / "new")) == 3
