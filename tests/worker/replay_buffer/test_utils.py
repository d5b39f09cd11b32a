"""The parts the buffers are put together from."""

import logging
import threading

import pytest
from easydict import EasyDict

from ding.worker.replay_buffer.advanced_buffer import to_positive_index
from ding.worker.replay_buffer.utils import (
    PeriodicThruputMonitor,
    ThruputController,
    UsedDataRemover,
)


def controller(clock, low: float = 0.5, high: float = 2.0, window: float = 5.0) -> ThruputController:
    cfg = EasyDict(push_sample_rate_limit={"max": high, "min": low}, window_seconds=window)
    return ThruputController(cfg, clock)


def test_to_positive_index_counts_negative_ones_from_the_end():
    assert [to_positive_index(i, 10) for i in (None, 0, 3, -1, -10)] == [None, 0, 3, 9, 0]


def test_histories_fade_to_one_percent_over_the_window(clock):
    limiter = controller(clock)
    limiter.history_push_count, limiter.history_sample_count = 60, 40
    clock.now = 4.999
    four_seconds = 0.01 ** (4 / 5)
    assert limiter.history_push_count == pytest.approx(60 * four_seconds)
    clock.now = 5.4
    assert limiter.history_push_count == pytest.approx(0.6, abs=1e-5)
    assert limiter.history_sample_count == pytest.approx(0.4, abs=1e-5)
    clock.now = 6.0
    limiter.add(pushed=10)
    assert limiter.history_push_count == pytest.approx(0.6 * 0.01 ** (1 / 5) + 10, abs=1e-5)
    other, clock.now = controller(clock), 8.0
    other.load_state_dict(limiter.state_dict())
    assert other.state_dict() == limiter.state_dict()


def test_a_push_is_free_before_the_first_sample_and_then_bounded(clock):
    limiter = controller(clock)
    assert limiter.can_push(1000)
    limiter.add(pushed=50, sampled=30)
    assert limiter.can_push(10).allowed is True
    refused = limiter.can_push(11)
    assert not refused and refused.reason == "pushed / sampled would be 2.033, allowed is at most 2"


def test_a_sample_needs_enough_pushes(clock):
    limiter = controller(clock)
    assert not limiter.can_sample(1)
    limiter.add(pushed=10)
    assert limiter.can_sample(20) and not limiter.can_sample(21)
    assert controller(clock, low=0).can_sample(10**9)


def test_impossible_limits_are_refused(clock):
    with pytest.raises(ValueError, match="min"):
        controller(clock, low=3, high=2)
    with pytest.raises(ValueError):
        controller(clock, low=-1)


def test_the_periodic_monitor_logs_each_period_once_and_starts_it_at_zero(clock, tb, caplog):
    threads = threading.active_count()
    monitor = PeriodicThruputMonitor("demo", EasyDict(seconds=10), logging.getLogger("thruput"), tb, clock)
    assert threading.active_count() <= threads
    monitor.push_data_count += 4
    monitor.sample_data_count += 2
    monitor.remove_data_count += 1
    monitor.valid_count = 3
    with caplog.at_level(logging.INFO):
        for clock.now in (9.9, 10.0, 15.0, 20.0):
            monitor.add(pushed=1)
    assert [(tag, value, step) for tag, value, step in tb.scalars] == [
        ("demo_sec/pushed_in", 5, 0),
        ("demo_sec/sampled_out", 2, 0),
        ("demo_sec/removed", 1, 0),
        ("demo_sec/current_have", 3, 0),
        ("demo_sec/pushed_in", 2, 1),
        ("demo_sec/sampled_out", 0, 1),
        ("demo_sec/removed", 0, 1),
        ("demo_sec/current_have", 3, 1),
    ]
    assert "pushed_in 5, sampled_out 2, removed 1, current_have 3" in caplog.text
    counts = (monitor.push_data_count, monitor.sample_data_count, monitor.remove_data_count, monitor.valid_count)
    assert counts == (1, 0, 0, 3)
    monitor.close()
    monitor.close()
    clock.now = 99.0
    monitor.add(pushed=1)
    assert len(tb.scalars) == 8


def test_the_remover_deletes_files_on_its_thread_and_joins_it(tmp_path):
    def threads():
        return [thread.name for thread in threading.enumerate()].count("delete_used_data")

    remover, before = UsedDataRemover(), threads()
    for i in range(3):
        (tmp_path / f"f{i}").write_text("x")
        remover.add_used_data({"data_id": str(tmp_path / f"f{i}")})
    remover.start()
    remover.start()
    assert threads() == before + 1
    remover.close()
    remover.close()
    assert list(tmp_path.glob("f*")) == [] and threads() == before


@pytest.mark.parametrize("wrong", [3, {"id": "a"}])
def test_used_data_needs_a_data_id(wrong):
    with pytest.raises(AssertionError):
        UsedDataRemover().add_used_data(wrong)
