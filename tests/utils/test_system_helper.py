"""Addresses and ports, threads that tell their errors, and the address of an operator."""

import os
import socket
import threading

import pytest

from ding.utils import get_operator_server_kwargs
from ding.utils.system_helper import DaemonThreads, PropagatingThread, find_free_port, get_ip, get_pid


def test_the_process_and_its_machine_are_named(monkeypatch):
    assert get_pid() == os.getpid()
    socket.inet_aton(get_ip())
    monkeypatch.setattr(socket, "gethostbyname", lambda name: (_ for _ in ()).throw(socket.gaierror()))
    assert get_ip() == "127.0.0.1"


def test_a_free_port_can_be_bound_on_that_host():
    for host in ("127.0.0.1", "localhost", "0.0.0.0"):
        with socket.socket() as server:
            server.bind((host, find_free_port(host)))


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


VARIABLES = ("SERVER_URL", "SERVER_API_VERSION", "POD_NAMESPACE", "POD_NAME")


@pytest.fixture(autouse=True)
def _no_operator(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(f"KUBERNETES_{name}", raising=False)


def test_the_environment_says_where_it_is_and_who_asks(set_env):
    for name, value in zip(VARIABLES, ("10.0.0.1:8080", "v2", "ours", "job-coordinator"), strict=True):
        set_env(**{f"KUBERNETES_{name}": value})
    assert get_operator_server_kwargs({}) == {
        "host": "10.0.0.1",
        "port": 8080,
        "api_version": "v2",
        "namespace": "ours",
        "name": "job-coordinator",
    }


def test_the_config_comes_first_and_the_rest_has_defaults(monkeypatch, set_env):
    set_env(KUBERNETES_SERVER_URL="10.0.0.1:8080", KUBERNETES_SERVER_API_VERSION="v2")
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


def test_daemon_threads_are_waited_for_within_a_limit():
    threads, go = DaemonThreads(), threading.Event()
    for number in range(2):
        threads.start(f"t{number}", go.wait, 20)
    assert threads.join(0.01) is False
    go.set()
    assert threads.join(20)
