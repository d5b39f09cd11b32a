"""The queue between the collector's thread and the coordinator's tasks."""

import pytest

from ding.interaction import TaskFail
from ding.utils.data.samples import Samples, Table, rows_of, table_of
from ding.worker.collector.comm.collector_task import CollectorQueue
from tests.worker.collector.parallel_fakes import DEADLINE_S, UNTIL_NOTIFIED_S, in_thread


def row(number):
    return {"data_id": f"d{number}"}


def info(is_done=False):
    return {"collector_done": is_done}


def test_samples_and_infos_are_taken_apart_in_order():
    queue = CollectorQueue(10)
    queue.put([row(1), row(2)], 0)
    queue.put(info(), 0)
    queue.put([row(3)], 0)
    queue.put(info(True), 0)
    assert queue.take(0) == ([row(1), row(2), row(3)], [info(), info(True)])
    assert queue.take(0) == ([], [])


def test_one_by_one_samples_come_before_infos():
    queue = CollectorQueue(10)
    queue.put([row(1), row(2)], 0)
    queue.put(info(), 0)
    queue.put([row(3)], 0)
    assert [queue.take_one(0) for _ in range(4)] == [row(1), row(2), row(3), info()]
    with pytest.raises(TaskFail) as failed:
        queue.take_one(0)
    assert failed.value.result["exception"] == "TimeoutError"


@pytest.mark.parametrize("entry", [row(1), info(True)])
def test_taking_waits_for_a_sample_or_the_end(entry):
    queue = CollectorQueue(10)
    taking = in_thread(queue.take, UNTIL_NOTIFIED_S)
    queue.put(info(), 0)
    queue.put(entry if "collector_done" in entry else [entry], 0)
    rows, infos = taking()
    assert rows + infos in ([row(1), info()], [info(), info(True)])


def test_samples_that_come_soon_after_others_were_taken_are_taken_together(monkeypatch):
    now_s = [100.0]
    monkeypatch.setattr("ding.worker.collector.comm.collector_task.monotonic", lambda: now_s[0])
    queue = CollectorQueue(10, interval_s=1000)
    queue.put([row(1)], 0)
    assert queue.take(0) == ([row(1)], [])  # the first at once
    queue.put([row(2)], 0)
    taking = in_thread(queue.take, UNTIL_NOTIFIED_S)
    queue.put([row(3)], 0)
    queue.put(info(True), 0)
    assert taking() == ([row(2), row(3)], [info(True)])  # nothing waits after the last info
    now_s[0] += 1000
    queue.put([row(4)], 0)
    assert queue.take(0) == ([row(4)], [])


def test_samples_do_not_wait_for_others_once_half_of_the_queue_is_used():
    queue = CollectorQueue(4, interval_s=1000)
    queue.put([row(0)], 0)
    queue.take(0)
    queue.put([row(1)], 0)
    taking = in_thread(queue.take, UNTIL_NOTIFIED_S)
    queue.put([row(2)], 0)
    assert taking() == ([row(1), row(2)], [])


def test_putting_waits_for_room_and_then_gives_all_at_once():
    queue = CollectorQueue(2)
    queue.put([row(i) for i in range(3)], 0)
    with pytest.raises(TimeoutError, match="taken nothing for 0 s, and 3 samples and infos wait"):
        queue.put([row(3)], 0)
    putting = in_thread(queue.put, [row(3), row(4)], UNTIL_NOTIFIED_S)
    queue.take_one(0)
    queue.take_one(0)
    assert putting() is True
    assert queue.take(0)[0] == [row(2), row(3), row(4)]


def test_closing_ends_all_waits_and_drops_what_waits():
    queue = CollectorQueue(1)
    taking = in_thread(queue.take, 1000)
    queue.close()
    assert isinstance(taking(), TaskFail)
    full = CollectorQueue(1)
    full.put([row(1)], 0)
    putting = in_thread(full.put, [row(2)], 1000)
    full.close()
    assert putting() is False and full.is_closed
    full.put([row(3)], 0)
    for take in (full.take, full.take_one):
        with pytest.raises(TaskFail, match="the collector has been closed"):
            take(1000)


def test_a_failure_ends_the_wait_and_is_told_to_whoever_asks_later():
    queue = CollectorQueue(1)
    taking = in_thread(queue.take, 1000)
    try:
        raise ValueError("broken")
    except ValueError as e:
        queue.fail(e)
    assert isinstance(taking(), TaskFail)
    for take in (queue.take, queue.take_one):
        with pytest.raises(TaskFail, match="broken") as failed:
            take(1000)
        assert (
            failed.value.result["exception"] == "ValueError" and "raise ValueError" in failed.value.result["traceback"]
        )


def test_the_end_of_the_collector_is_told_after_what_it_put():
    queue = CollectorQueue(10)
    queue.put(info(), 0)
    queue.finish()
    assert queue.take(1000) == ([], [info()])
    for take in (queue.take, queue.take_one):
        with pytest.raises(TaskFail, match="has ended, and all its reports were taken"):
            take(1000)


def test_a_queue_has_room_for_something():
    with pytest.raises(ValueError, match="queue_size = 0 is not allowed"):
        CollectorQueue(0)


def test_nothing_is_lost_between_two_threads():
    queue = CollectorQueue(3)
    numbers = list(range(500))
    putting = in_thread(lambda: [queue.put([row(i)], UNTIL_NOTIFIED_S) for i in numbers])
    taken = []
    while len(taken) < len(numbers):
        taken += queue.take(DEADLINE_S)[0]
    putting()
    assert taken == [row(i) for i in numbers]


def table(name, count):
    return Samples(Table.of([{"data_id": name, "data_index": index, "policy_iter": 7} for index in range(count)]))


def test_the_metadata_of_a_chunk_stay_in_columns():
    queue = CollectorQueue(10)
    assert queue.put(table("a", 2), 1) and queue.put(info(), 1) and queue.put(table("b", 3), 1)
    samples, infos = queue.take(1)
    assert table_of(samples) is not None and infos == [info()]
    assert [(row["data_id"], row["data_index"]) for row in rows_of(samples)] == [
        *(("a", 0), ("a", 1)),
        *(("b", 0), ("b", 1), ("b", 2)),
    ]


def test_each_sample_of_a_table_counts_against_the_capacity():
    queue = CollectorQueue(3)
    assert queue.put(table("a", 3), 1)
    with pytest.raises(TimeoutError, match="3 samples and infos wait for it"):
        queue.put(info(), 0)
    assert queue.take_one(1)["data_index"] == 0
    assert queue.put(info(), 0)
