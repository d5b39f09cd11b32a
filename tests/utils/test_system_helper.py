import os
import re
import socket
import threading

import pytest

from ding.utils import system_helper
from ding.utils.system_helper import PropagatingThread, find_free_port, get_ip, get_pid, get_task_uid


def test_task_uids_have_the_documented_form_and_differ():
    uids = {get_task_uid() for _ in range(20)}
    assert len(uids) == 20
    assert all(re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}_[0-9.]{6}", uid) for uid in uids)


def test_the_process_and_its_machine_are_named(monkeypatch):
    assert get_pid() == os.getpid()
    socket.inet_aton(get_ip())
    monkeypatch.setattr(socket, "gethostbyname", lambda name: (_ for _ in ()).throw(socket.gaierror()))
    assert get_ip() == "127.0.0.1"


def test_a_free_port_can_be_bound_on_that_host():
    for host in ("127.0.0.1", "localhost", "0.0.0.0"):
        with socket.socket() as server:
            server.bind((host, find_free_port(host)))


def test_a_free_port_is_none_that_a_connection_may_take_meanwhile():
    assert all(find_free_port("127.0.0.1") < 32768 for _ in range(20))


def test_any_free_port_is_taken_if_those_that_last_are_in_use(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        monkeypatch.setattr(system_helper, "_SERVER_PORTS", [taken] * 100)
        assert find_free_port("127.0.0.1") not in (0, taken)


@pytest.mark.differs("`find_free_port` ignores its host", "looks on that host")
def test_a_free_port_is_looked_for_on_the_host_that_is_asked_for():
    with pytest.raises(OSError):
        # TEST-NET-1: an address that no machine has.
        find_free_port("192.0.2.1")


def test_a_propagating_thread_returns_the_result():
    thread = PropagatingThread(target=lambda a, b: a + b, args=(1,), kwargs={"b": 2})
    thread.start()
    assert thread.join() == 3 and thread.join() == 3


def test_a_propagating_thread_raises_what_stopped_it():
    thread = PropagatingThread(target=lambda: {}["missing"])
    thread.start()
    with pytest.raises(RuntimeError, match=r"Exception in thread\(\d+\).*missing") as caught:
        thread.join()
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_propagating_thread_can_be_waited_for_with_a_deadline():
    go = threading.Event()
    thread = PropagatingThread(target=lambda: go.wait(10))
    thread.start()
    assert thread.join(timeout=0.01) is None
    go.set()
    assert thread.join() is True


def test_a_propagating_thread_without_a_target_returns_nothing():
    thread = PropagatingThread()
    thread.start()
    assert thread.join() is None
