import multiprocessing
import threading

import pytest

from ding.utils import lock_helper
from ding.utils.lock_helper import LockContext, LockContextType, get_file_lock, get_rw_file_lock

DEADLINE_S = 10


@pytest.mark.parametrize("lock_type", list(LockContextType))
def test_lock_context_excludes_by_with_and_by_acquire(lock_type):
    def is_free():
        inner = lock._lock
        return inner.acquire(False) and inner.release() is None

    lock = LockContext(lock_type)
    with lock as entered:
        assert entered is None and not is_free()
    lock.acquire()
    assert not is_free()
    lock.release()
    assert is_free()


def take_and_report(lock, connection):
    lock.acquire()
    connection.send("taken")
    lock.release()


# Python's start method decides how the lock travels; where that is fork, newer versions warn about our threads.
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_process_lock_excludes_a_child_process():
    lock = LockContext(LockContextType.PROCESS_LOCK)
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=take_and_report, args=(lock, theirs), daemon=True)
    with lock:
        process.start()
        assert not ours.poll()
    assert ours.poll(60) and ours.recv() == "taken"
    process.join(60)
    assert process.exitcode == 0


def started(target):
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


class WatchedLocks:
    """Makes locks that tell when a thread begins to wait for one of them."""

    def __init__(self):
        self._arrivals = threading.Semaphore(0)

    def make(self, make_lock, *args):
        arrivals = self._arrivals

        class Watched(threading.Condition):
            def wait(self, timeout=None):
                arrivals.release()
                return super().wait(timeout)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lock_helper.threading, "Condition", Watched)
            return make_lock(*args)

    def wait_for_arrival(self):
        assert self._arrivals.acquire(timeout=DEADLINE_S)


def sides(name):
    return get_rw_file_lock(name, "read"), get_rw_file_lock(name, "write")


def test_readers_share_the_lock():
    reader, _ = sides("shared")
    with reader, reader:
        pass


def test_whoever_comes_first_is_served_first_so_a_writer_is_not_starved():
    locks, order = WatchedLocks(), []
    reader, writer = locks.make(sides, "in turn")

    def write():
        with writer:
            order.append("write")

    def read():
        with reader:
            order.append("read")

    with reader:
        threads = [started(write)]
        locks.wait_for_arrival()
        threads.append(started(read))
        locks.wait_for_arrival()
        assert order == []
    for thread in threads:
        thread.join(DEADLINE_S)
    assert order == ["write", "read"]


def assert_one_lock(locks, writer, reader):
    """Assert that whoever reads waits for whoever writes."""
    order = []

    def read():
        with reader:
            order.append("read")

    with writer:
        thread = started(read)
        locks.wait_for_arrival()
        order.append("write")
    thread.join(DEADLINE_S)
    assert order == ["write", "read"]


def test_rw_file_locks_of_one_name_are_one_lock():
    locks = WatchedLocks()
    writer = locks.make(get_rw_file_lock, "name", "write")
    assert_one_lock(locks, writer, get_rw_file_lock("name", "read"))
    with writer, get_rw_file_lock("other", "read"):
        pass
    reader = get_rw_file_lock("name", "read")
    with reader, get_rw_file_lock("name", "read"):
        pass


@pytest.mark.parametrize("make", [get_rw_file_lock, get_file_lock])
def test_an_unknown_operation_is_refused(make):
    with pytest.raises(AssertionError, match="op = 'append'"):
        make("name", "append")


def test_a_file_lock_excludes_other_open_files_and_leaves_its_file(tmp_path):
    fcntl = pytest.importorskip("fcntl")
    path = tmp_path / "sub" / "data"
    with get_file_lock(str(path), "read"), open(f"{path}.lock") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with open(f"{path}.lock") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_file_lock_is_a_lock_within_the_process_where_flock_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(lock_helper, "fcntl", None)
    locks, name = WatchedLocks(), str(tmp_path / "data")
    assert_one_lock(locks, locks.make(get_file_lock, name, "write"), get_file_lock(name, "read"))
    assert list(tmp_path.iterdir()) == []
