"""What the client of a worker promises, over each transport."""

import math
import os
import threading

import numpy as np
import pytest
from easydict import EasyDict

from ding.interaction import TaskFail
from ding.worker.transport.transport import TaskFailed, WorkerLost
from tests.worker.transport.sites import DEADLINE_S


class Worker:
    """Answers as it is told; `waits` until `go`."""

    def __init__(self):
        self.tasks = []
        self.running, self.go = threading.Event(), threading.Event()

    def serve(self, task):
        self.tasks.append(task)
        return getattr(self, f"do_{task['name']}")(task)

    def do_echo(self, task):
        return {"got": task["value"]}

    def do_say(self, task):
        return task["value"]

    def do_strange(self, task):
        return {"value": object()}

    def do_fail(self, task):
        raise TaskFail(result=task["result"], message="told to fail")

    def do_fail_badly(self, task):
        raise TaskFail(result={"value": object()})

    def do_raise(self, task):
        raise ZeroDivisionError(task.get("text", "told to raise"))

    def do_exit(self, task):
        raise SystemExit(3)

    def do_lose(self, task):
        raise WorkerLost("another rank has gone")

    def do_die(self, task):
        os._exit(3)

    def do_wait(self, task):
        self.running.set()
        assert self.go.wait(DEADLINE_S)
        return {"waited": True}


def run(client, name, timeout_s=DEADLINE_S, **content):
    return client.run({"name": name, **content}, timeout_s)


class ClientContract:
    """For a fixture `client` that is connected to a `Worker`."""

    def test_the_result_of_a_task_comes_back(self, client):
        assert run(client, "echo", value=[1, 2.5, "x", None, True]) == {"got": [1, 2.5, "x", None, True]}

    def test_tasks_and_results_keep_their_types(self, client):
        for value in ({1: (2, 3)}, math.inf, b"bytes"):
            assert run(client, "echo", value=value) == {"got": value}
        array = run(client, "echo", value=np.arange(6).reshape(2, 3))["got"]
        assert array.dtype == np.int64 and array.tolist() == [[0, 1, 2], [3, 4, 5]]

    def test_a_task_may_be_any_mapping(self, client):
        assert client.run(EasyDict(name="echo", value=EasyDict(x=1)), DEADLINE_S) == {"got": {"x": 1}}

    @pytest.mark.parametrize(
        ("value", "result"), [(None, {}), ({}, {}), (0, {}), (7, {"result": 7}), ([1], {"result": [1]})]
    )
    def test_a_result_that_is_no_dict_comes_in_one(self, client, value, result):
        assert run(client, "say", value=value) == result

    def test_many_tasks_follow_each_other(self, client):
        assert [run(client, "echo", value=i)["got"] for i in range(50)] == list(range(50))

    def test_a_large_task_and_result_pass(self, client):
        value = "x" * 2**20
        assert run(client, "echo", value=value) == {"got": value}

    def test_a_failed_task_brings_its_result(self, client):
        with pytest.raises(TaskFailed) as failed:
            run(client, "fail", result={"message": "why not", "more": [1]})
        assert (failed.value.worker, failed.value.task) == ("w", "fail")
        assert failed.value.result == {"message": "why not", "more": [1]}

    @pytest.mark.guarantees("workers")
    def test_an_exception_brings_its_traceback(self, client):
        with pytest.raises(TaskFailed, match="in do_raise") as failed:
            run(client, "raise")
        result = failed.value.result
        assert (result["message"], result["exception"]) == ("told to raise", "ZeroDivisionError")
        assert "ZeroDivisionError: told to raise" in result["traceback"]

    def test_an_exception_that_names_a_file_with_bytes_that_are_no_text_brings_its_traceback(self, client, caplog):
        caplog.set_level("CRITICAL", "ding")  # parallel tests send the log that is captured as text
        with pytest.raises(TaskFailed, match="in do_raise") as failed:
            run(client, "raise", text=os.fsdecode(b"no file \xff"))
        assert failed.value.result["message"] == "no file \udcff"

    def test_a_worker_that_has_lost_others_it_needs_is_lost_with_the_task(self, client):
        with pytest.raises(WorkerLost, match="another rank has gone"):
            run(client, "lose")

    def test_even_the_wish_to_exit_fails_the_task_only(self, client):
        with pytest.raises(TaskFailed) as failed:
            run(client, "exit")
        assert failed.value.result["exception"] == "SystemExit"
        assert run(client, "echo", value=1) == {"got": 1}

    def test_a_result_that_cannot_be_sent_fails_the_task(self, client):
        for name in ("strange", "fail_badly"):
            with pytest.raises(TaskFailed, match="packed") as failed:
                run(client, name)
            assert failed.value.result["exception"] == "TypeError"
        assert run(client, "echo", value=1) == {"got": 1}
