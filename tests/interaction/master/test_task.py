import threading

import pytest

from ding.interaction.master.connection import SlaveSession, SlaveTable
from ding.interaction.master.task import ResultThread, Task, TaskResultType, TaskStatus

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


def test_a_callback_that_exits_the_interpreter_only_counts_as_failed():
    def leave(data, result):
        raise SystemExit(3)

    task = Task({"a": 1}, lambda task: task.finish(TaskResultType.FAILED, {})).on_fail(leave).start()
    assert task.join(DEADLINE_S).status is TaskStatus.FAILED
    assert [type(error) for error in task.errors] == [SystemExit]


def test_a_callback_that_is_added_by_a_callback_is_too_late():
    calls = []
    task = Task(None, lambda task: task.finish(TaskResultType.COMPLETED, 1))
    task.on_complete(lambda *_: task.on_complete(calls.append)).start()
    assert task.join(DEADLINE_S).result == 1 and calls == []


def test_jobs_run_in_order_and_after_the_stop_at_once(caplog):
    results, done = ResultThread(), []
    thread = threading.Thread(target=results.run)
    for i in range(3):
        results.submit(lambda i=i: done.append((i, threading.current_thread() is thread)))
    results.submit(lambda: {}["missing"])
    results.submit(lambda: done.append("after an error"))
    results.stop()
    results.stop()
    thread.start()
    thread.join(DEADLINE_S)
    assert done == [(0, True), (1, True), (2, True), "after an error"]
    assert "KeyError: 'missing'" in caplog.text
    results.submit(lambda: done.append(threading.current_thread() is thread))
    assert done[-1] is False


class FakeConnection:
    def __init__(self, name):
        self.name = name


def open_table():
    table = SlaveTable()
    table.open()
    return table


def test_a_session_that_has_ended_takes_no_task_and_ends_once():
    session = SlaveSession(FakeConnection("a"))
    task = Task(None, lambda task: None)
    assert session.add("1", task) and not session.has_settled("1")
    assert session.take("1") is task and session.take("1") is None
    assert session.has_settled("1") and not session.has_settled("2")
    session.add("2", task)
    assert session.end() == [task] and session.end() is None
    assert not session.add("3", task) and session.take("2") is None


def test_a_token_counts_from_the_reservation_and_a_name_from_the_activation():
    table, session = open_table(), SlaveSession(FakeConnection("a"))
    table.reserve(session)
    assert table.matches(session.token) is session and table.get("a") is None
    table.activate(session)
    assert table.get("a") is session
    assert table.end(session, "for a test") and not table.end(session, "for a test")
    assert table.matches(session.token) is None and table.get("a") is None
    table.activate(session)
    assert table.get("a") is None


def test_a_name_that_is_being_connected_cannot_be_reserved_by_another_connection():
    table, one, two = open_table(), SlaveSession(FakeConnection("a")), SlaveSession(FakeConnection("a"))
    table.reserve(one)
    with pytest.raises(KeyError):
        table.reserve(two)
    table.end(one, "for a test")
    table.reserve(two)


def test_a_session_is_not_removed_for_its_successor():
    connection = FakeConnection("a")
    table, old, new = open_table(), SlaveSession(connection), SlaveSession(connection)
    table.reserve(old)
    table.activate(old)
    table.reserve(new)
    table.activate(new)
    table.end(old, "for a test")
    assert table.get("a") is new


def test_silence_is_counted_from_the_last_sign_of_life():
    table, session = open_table(), SlaveSession(FakeConnection("a"))
    table.reserve(session)
    session.last_seen = 0.0
    assert table.silent(100.0, 10.0) == []  # not connected yet
    table.activate(session)
    start = session.last_seen
    assert start > 0
    assert table.silent(start + 10.0, 10.0) == [] and table.silent(start + 10.5, 10.0) == [session]
    table.excuse(1.0)
    assert table.silent(start + 10.5, 10.0) == []
    table.seen(session)
    assert session.last_seen >= start


def test_a_table_that_is_not_open_admits_no_session_and_ends_those_it_has():
    dropped = []
    table, connection = SlaveTable(), FakeConnection("a")
    connection.drop = lambda session, reason: dropped.append((session, reason))
    pending, active = SlaveSession(FakeConnection("b")), SlaveSession(connection)
    pending.connection.drop = connection.drop
    with pytest.raises(RuntimeError, match="the master does not run"):
        table.reserve(active)
    table.open()
    for session in (active, pending):
        table.reserve(session)
    table.activate(active)
    table.close()
    assert dropped == [(active, "the master was closed"), (pending, "the master was closed")]
    with pytest.raises(RuntimeError, match="the master does not run"):
        table.activate(pending)
