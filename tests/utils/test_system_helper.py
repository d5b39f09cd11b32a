"""Addresses and ports, threads that tell their errors, and the address of an operator."""

from __future__ import annotations

import os
import queue
import re
import socket
import threading

import pytest

from ding.utils import exist_operator_server, get_operator_server_kwargs, system_helper
from ding.utils.config_helper import ConfigError
from ding.utils.system_helper import DaemonThreads, PropagatingThread, find_free_port, get_ip, get_pid, get_task_uid


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


VARIABLES = ("SERVER_URL", "SERVER_API_VERSION", "POD_NAMESPACE", "POD_NAME")


@pytest.fixture(autouse=True)
def _no_operator(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(f"KUBERNETES_{name}", raising=False)


def test_an_operator_is_there_if_the_environment_names_it(monkeypatch):
    assert exist_operator_server() is False
    monkeypatch.setenv("KUBERNETES_SERVER_URL", "10.0.0.1:8080")
    assert exist_operator_server() is True


def test_the_environment_says_where_it_is_and_who_asks(monkeypatch):
    for name, value in zip(VARIABLES, ("10.0.0.1:8080", "v2", "ours", "job-coordinator"), strict=True):
        monkeypatch.setenv(f"KUBERNETES_{name}", value)
    assert get_operator_server_kwargs({}) == {
        "host": "10.0.0.1",
        "port": 8080,
        "api_version": "v2",
        "namespace": "ours",
        "name": "job-coordinator",
    }


def test_the_config_comes_first_and_the_rest_has_defaults(monkeypatch):
    monkeypatch.setenv("KUBERNETES_SERVER_URL", "10.0.0.1:8080")
    monkeypatch.setenv("KUBERNETES_SERVER_API_VERSION", "v2")
    assert get_operator_server_kwargs({"system_addr": "op:1", "api_version": "/v3"}) == {
        "host": "op",
        "port": 1,
        "api_version": "/v3",
        "namespace": "default",
        "name": "dijob-example-coordinator",
    }
    monkeypatch.delenv("KUBERNETES_SERVER_API_VERSION")
    assert get_operator_server_kwargs({})["api_version"] == "/v1alpha1"


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("op:81", ("op", 81)),
        ("https://op:81", ("op", 81)),
        ("http://op.example.com/path", ("op.example.com", 80)),
        ("https://op", ("op", 443)),
        ("[::1]:82", ("::1", 82)),
    ],
)
def test_an_address_may_be_a_url(address, place):
    kwargs = get_operator_server_kwargs({"system_addr": address})
    assert (kwargs["host"], kwargs["port"]) == place


@pytest.mark.parametrize("address", ["op:port", "op:99999", ":80", "http://"])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(ConfigError, match="it must be host:port, or a URL"):
        get_operator_server_kwargs({"system_addr": address})


def test_without_an_address_there_is_no_operator():
    with pytest.raises(ConfigError, match="set system_addr or the variable KUBERNETES_SERVER_URL"):
        get_operator_server_kwargs({})


PATIENCE_S = 20.0


@pytest.fixture
def threads():
    return DaemonThreads()


def test_each_act_runs_in_a_daemon_thread_of_its_name(threads):
    seen = []
    for number in range(3):
        threads.start(f"t{number}", lambda n: seen.append((n, threading.current_thread())), number)
    assert threads.join(PATIENCE_S)
    assert sorted((n, thread.name, thread.daemon) for n, thread in seen) == [(n, f"t{n}", True) for n in range(3)]


def test_all_are_waited_for_within_one_limit(threads):
    go, waits = threading.Event(), []
    for number in range(3):
        threads.start(f"t{number}", go.wait, PATIENCE_S)
    for thread in threads._threads:
        thread.join = lambda timeout, join=thread.join: (waits.append(timeout), join(timeout))
    assert threads.join(0.05) is False
    assert waits[0] <= 0.05 and waits[1:] == [0.0, 0.0]
    go.set()
    assert threads.join(PATIENCE_S)


def test_a_thread_may_wait_for_the_others(threads):
    told, go = [], threading.Event()
    threads.start("waiter", lambda: (go.wait(PATIENCE_S), told.append(threads.join(PATIENCE_S))))
    threads.start("other", go.wait, PATIENCE_S)
    go.set()
    assert threads.join(PATIENCE_S) and told == [True]


def test_ended_threads_are_forgotten_also_after_an_error(threads, monkeypatch):
    raised = queue.SimpleQueue()
    monkeypatch.setattr(threading, "excepthook", raised.put)
    threads.start("fails", [].pop)
    threads.start("ends", int)
    assert raised.get(timeout=PATIENCE_S).exc_type is IndexError
    assert threads.join(PATIENCE_S) and threads._threads == set()


def test_without_threads_there_is_nothing_to_wait_for(threads):
    assert threads.join(0)
