import threading
from concurrent.futures import CancelledError

import pytest

from ding.utils.data.dataloader import WorkerPool
from ding.utils.data.nested import ByType


def test_results_come_in_the_order_of_the_jobs():
    pool = WorkerPool(3, "test")
    assert pool.run([lambda i=i: i for i in range(20)]) == list(range(20))
    pool.close()


def test_the_first_error_in_order_is_raised_and_waiting_jobs_are_dropped():
    ran, go_on = [], threading.Event()

    def fail():
        raise KeyError("first")

    def wait():
        go_on.wait(10)

    pool = WorkerPool(1, "test")
    with pytest.raises(KeyError, match="first"):
        pool.run([fail, wait, *[lambda: ran.append(1)] * 5])
    go_on.set()
    assert pool.run([lambda: "alive"]) == ["alive"]
    assert ran == []
    pool.close()


def test_stopping_cancels_a_run_that_waits_and_refuses_others():
    started, go_on, raised = threading.Event(), threading.Event(), []
    pool = WorkerPool(1, "test")

    def wait():
        started.set()
        go_on.wait(10)

    def run():
        try:
            pool.run([wait, wait])
        except CancelledError as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert started.wait(10)
    pool.stop()
    go_on.set()
    thread.join(10)
    assert len(raised) == 1
    pool.close()
    pool.close()
    with pytest.raises(CancelledError):
        pool.run([wait])


def test_by_type_takes_the_first_rule_that_matches_and_names_what_it_refuses():
    handlers = ByType("name", (bool, lambda x: "bool"), ((int, float), lambda x: "number"))
    assert [handlers[type(x)](x) for x in (True, 1, 2.5)] == ["bool", "number", "number"]
    with pytest.raises(TypeError, match=r"cannot name a value of type builtins\.str"):
        handlers[str]
