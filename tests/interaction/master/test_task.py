import threading

import pytest

from ding.interaction.master.task import Task, TaskResultType, TaskStatus

DEADLINE_S = 20


def test_the_numbers_are_as_documented():
    assert {status.name: status.value for status in TaskStatus} == {
        "IDLE": 0x00, "STARTING": 0x11, "STARTED": 0x12, "START_FAILED": 0x13, "COMPLETED": 0x21, "FAILED": 0x22,
    }  # fmt: skip
    assert {kind.name: kind.value for kind in TaskResultType} == {"COMPLETED": 1, "FAILED": 2}


def test_a_result_that_comes_while_the_task_starts_is_its_last_word():
    def launch(task):
        assert task.status is TaskStatus.STARTING
        task.finish(TaskResultType.COMPLETED, 5)
        task.mark_started()
        task.mark_start_failed()

    task = Task(None, launch).start()
    assert task.join(DEADLINE_S).status is TaskStatus.COMPLETED and task.result == 5


def test_a_join_during_the_start_waits_for_what_comes_of_it():
    starting, go_on = threading.Event(), threading.Event()

    def launch(task):
        starting.set()
        assert go_on.wait(DEADLINE_S)
        raise KeyError("no start")

    task, joined = Task(None, launch), []

    def start():
        with pytest.raises(KeyError):
            task.start()

    threads = [threading.Thread(target=start), threading.Thread(target=lambda: joined.append(task.join().status))]
    threads[0].start()
    assert starting.wait(DEADLINE_S)
    threads[1].start()
    assert joined == []
    go_on.set()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert joined == [TaskStatus.START_FAILED]


def test_a_callback_that_is_added_by_a_callback_is_too_late():
    calls = []
    task = Task(None, lambda task: task.finish(TaskResultType.COMPLETED, 1))
    task.on_complete(lambda *_: task.on_complete(calls.append)).start()
    assert task.join(DEADLINE_S).result == 1 and calls == []
