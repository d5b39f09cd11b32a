"""The queue between the collector's thread and the coordinator's tasks."""

import pytest

from ding.interaction import TaskFail
from ding.worker.collector.comm.collector_task import CollectorQueue
from tests.worker.collector.parallel_fakes import UNTIL_NOTIFIED_S, in_thread


def row(number):
    return {"data_id": f"d{number}"}


def info(is_done=False):
    return {"collector_done": is_done}


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


def test_putting_waits_for_room_and_then_gives_all_at_once():
    queue = CollectorQueue(2)
    queue.put([row(i) for i in range(3)], 0)
    with pytest.raises(TimeoutError):
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
        with pytest.raises(TaskFail):
            take(1000)


def test_the_end_of_the_collector_is_told_after_what_it_put():
    queue = CollectorQueue(10)
    queue.put(info(), 0)
    queue.finish()
    assert queue.take(1000) == ([], [info()])
    for take in (queue.take, queue.take_one):
        with pytest.raises(TaskFail, match="ended"):
            take(1000)
