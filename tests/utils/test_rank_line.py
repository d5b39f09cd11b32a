"""The line between ranks, here between threads of one process."""

import logging
import pickle
import signal
import socket
import threading

import pytest

from ding.utils import rank_line
from ding.utils.rank_line import RankFailedError, RankLine

NAMES = ["rank 0 (process 10 on host)", "rank 1 (process 11 on host)", "rank 2 (process 12 on host)"]
LONG_S = 10


class Ends:
    """Records what a line would do to its process."""

    def __init__(self):
        self.events, self.ended = [], threading.Event()

    def signal_main(self):
        self.events.append("signal")

    def end(self):
        self.events.append("end")
        self.ended.set()

    def failure(self):
        self.events.append("failure")


@pytest.fixture
def make_lines():
    """Makes the connected lines of `n` ranks; closes them at the end."""
    made = []

    def make(n=3, grace_s=LONG_S, ends=None):
        pairs = {rank: socket.socketpair() for rank in range(1, n)}
        sockets = [{rank: pair[0] for rank, pair in pairs.items()}, *({0: pair[1]} for pair in pairs.values())]
        for rank, own in enumerate(sockets):
            act = ends[rank] if ends else Ends()
            made.append(
                RankLine(
                    rank, NAMES[:n], own, grace_s, on_failure=act.failure, signal_main=act.signal_main, end=act.end
                )
            )
        return made[-n:]

    yield make
    for line in made:
        line.close()


def hear(line):
    """Wait until `line` has heard of a failure; return it."""
    with pytest.raises(RankFailedError) as e:
        line.wait_for_failure(LONG_S)
    return e.value


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_every_other_rank_hears_who_failed_and_why(make_lines, failing):
    lines = make_lines()
    lines[failing].fail(ValueError("no such env"))
    for rank in {0, 1, 2} - {failing}:
        failure = hear(lines[rank])
        assert (failure.rank, failure.cause) == (failing, "ValueError: no such env")
        assert str(failure) == (
            f"{NAMES[failing]} failed, and rank {rank} cannot go on without it: ValueError: no such env"
        )
    lines[failing].check()


@pytest.mark.parametrize("killed", [0, 2])
def test_a_connection_that_breaks_without_a_word_is_a_killed_rank(make_lines, killed):
    lines = make_lines()
    lines[killed].close()
    for rank in {0, 1, 2} - {killed}:
        failure = hear(lines[rank])
        assert failure.rank == killed and "a signal killed it" in failure.cause


def test_a_connection_that_is_reset_is_a_killed_rank_too(make_lines, monkeypatch):
    class Reset:
        def recv(self, size):
            raise ConnectionResetError

    assert rank_line._receive(Reset()) == b""


def test_the_first_failure_counts(make_lines):
    lines = make_lines()
    lines[1].fail(ValueError("first"))
    assert hear(lines[0]).cause == "ValueError: first"
    lines[2].fail(ValueError("second"))
    lines[1].close()
    lines[2].close()
    lines[0]._threads[0].join(LONG_S)
    assert lines[0].failure.cause == "ValueError: first"


def test_each_check_raises_a_new_error(make_lines):
    first, second = make_lines(2)
    second.fail(ValueError("x"))
    assert hear(first) is not hear(first)


def test_without_a_failure_nothing_is_raised(make_lines):
    first, _ = make_lines(2)
    first.check()
    first.wait_for_failure(0.01)
    assert first.failure is None and first.first_left() is None


def test_ranks_that_leave_wait_for_each_other(make_lines):
    lines = make_lines()
    threads = [threading.Thread(target=line.leave, args=(LONG_S,)) for line in lines[:2]]
    for thread in threads:
        thread.start()
    assert [thread.is_alive() for thread in threads] == [True, True]
    lines[2].leave(LONG_S)
    for thread in threads:
        thread.join(LONG_S)
    assert not any(thread.is_alive() for thread in threads)


def test_a_rank_that_left_may_hang_up(make_lines):
    first, second = make_lines(2)
    second.leave(0)
    second.close()
    first._threads[0].join(LONG_S)
    assert first.failure is None and first.first_left() == NAMES[1]
    assert first.first_left(LONG_S) is None


def test_a_failure_ends_the_wait_of_those_that_left(make_lines):
    first, second = make_lines(2)
    second.fail(ValueError("late"))
    with pytest.raises(RankFailedError, match="late"):
        first.leave(LONG_S)


def test_a_failure_is_logged_unless_this_rank_is_failing_itself(make_lines, caplog):
    ends = [Ends(), Ends()]
    first, second = make_lines(2, ends=ends)
    first.fail(ValueError("mine"))
    second.fail(ValueError("yours"))
    hear(first)
    assert "rank 1 (process 11 on host) failed" not in caplog.text
    first, second = make_lines(2, ends=ends)
    second.fail(ValueError("yours"))
    hear(first)
    assert "rank 1 (process 11 on host) failed" in caplog.text


def test_a_process_that_stays_is_signalled_and_then_ended(make_lines, caplog):
    ends = [Ends(), Ends()]
    _, second = make_lines(2, 0.03, ends)
    second.fail(ValueError("x"))
    assert ends[0].ended.wait(LONG_S)
    assert ends[0].events == ["failure", "signal", "end"] and ends[1].events == []
    assert "its process is ended now" in caplog.text and caplog.records[-1].levelno == logging.CRITICAL


@pytest.mark.parametrize("closed_by", ["before", "signal_main"])
def test_a_process_that_leaves_in_time_is_left_alone(make_lines, closed_by):
    ends = [Ends(), Ends()]
    first, second = make_lines(2, LONG_S if closed_by == "before" else 0.03, ends)
    if closed_by == "signal_main":
        ends[0].signal_main = None
        first._signal_main = first.close
    second.fail(ValueError("x"))
    hear(first)
    if closed_by == "signal_main":
        assert first._closed.wait(LONG_S)
    first.close()
    first.close()
    assert ends[0].events == ["failure"] and not any(thread.is_alive() for thread in first._threads)


def test_a_line_ends_with_no_thread_left(make_lines):
    before = threading.active_count()
    lines = make_lines()
    assert threading.active_count() == before + 3
    for line in lines:
        line.close()
    assert threading.active_count() == before


def test_news_may_come_in_pieces(make_lines):
    first, second = make_lines(2)
    raw = second._sockets[0]
    for piece in (b'{"rank": 1, "fai', b'led": "broken"}\n'):
        raw.sendall(piece)
    assert hear(first).cause == "broken"


def test_a_word_to_a_rank_that_is_gone_is_lost(make_lines):
    first, second = make_lines(2)
    second.close()
    first._sockets[1].shutdown(socket.SHUT_RDWR)
    first.fail(ValueError("x"))


def test_the_error_can_be_pickled():
    error = pickle.loads(pickle.dumps(RankFailedError(1, "cause", "message")))
    assert (error.rank, error.cause, str(error)) == (1, "cause", "message")


def test_the_main_thread_is_signalled_only_where_sigterm_is_handled():
    received = []
    previous = signal.signal(signal.SIGTERM, lambda *args: received.append("SIGTERM"))
    try:
        thread = threading.Thread(target=rank_line.signal_main_thread)
        thread.start()
        thread.join()
        assert received == ["SIGTERM"]
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        rank_line.signal_main_thread()
    finally:
        signal.signal(signal.SIGTERM, previous)


def test_ending_the_process_is_immediate(monkeypatch):
    codes = []
    monkeypatch.setattr(rank_line.os, "_exit", codes.append)
    rank_line.end_process()
    assert codes == [1]
