"""What is asked of an operator, and what it may answer."""

import logging
import queue
import socket
import threading

import pytest
import requests

from ding.worker.coordinator import operator_server
from ding.worker.coordinator.operator_server import OperatorServer, OperatorSync, make_operator_server
from ding.worker.transport.transport import WorkerLost
from tests.worker.coordinator.operators import PATIENCE_S, envelope
from tests.worker.coordinator.operators import operator as operator


@pytest.fixture
def server(operator):
    server = OperatorServer("127.0.0.1", operator.port, namespace="ours", name="job")
    server.set_worker_type("coordinator")
    yield server
    server.close()


def test_replicas_are_listed_for_the_process_that_asks(operator, server):
    operator.listed = {"collectors": ["a:1"], "learners": []}
    assert server.get_replicas() == (True, 0, "ok", {"collectors": ["a:1"], "learners": []})
    assert operator.parameters == {"namespace": "ours", "coordinator": "job"}
    server.set_worker_type("aggregator")
    server.get_replicas()
    assert operator.parameters == {"namespace": "ours", "aggregator": "job"}
    server.get_replicas("other")
    assert operator.parameters == {"namespace": "ours", "name": "other"}


def test_what_is_not_known_of_the_pod_is_not_said(operator):
    server = OperatorServer("127.0.0.1", operator.port)
    server.get_replicas("other")
    assert operator.parameters == {"name": "other"}


def test_changes_are_asked_for_in_the_name_of_the_coordinator(operator, server):
    data = {"collectors": {"replicas": 2, "cpu": "0.5"}, "learners": {"replicas": 1}}
    assert server.post_replicas(data) == (True, 0, "ok", {})
    server.post_replicas_failed(collectors=("c1",), learners=["l1"])
    server.delete_replicas(n_collectors=2)
    own = {"namespace": "ours", "coordinator": "job"}
    assert [operator.requests.get(timeout=PATIENCE_S) for _ in range(3)] == [
        ("POST", "replicas", {}, {**data, **own}),
        ("POST", "replicas/failed", {}, {"collectors": ["c1"], "learners": ["l1"], **own}),
        ("DELETE", "replicas", {}, {"collectors": {"replicas": 2}, "learners": {"replicas": 0}, **own}),
    ]
    assert data.keys() == {"collectors", "learners"}


def test_a_refusal_is_returned(operator, server):
    operator.answers["POST", "replicas"] = envelope(None, False, 7, "no room"), 200
    assert server.post_replicas({}) == (False, 7, "no room", {})


@pytest.mark.parametrize("status", [404, 503])
def test_an_error_status_is_told_with_the_url(operator, server, status):
    operator.answers["GET", "replicas"] = "<h1>out of order</h1>", status
    with pytest.raises(requests.RequestException, match=f"{status} .*/v1alpha1/replicas") as error:
        server.get_replicas()
    assert error.value.response.status_code == status and operator.lists == 1


@pytest.mark.parametrize("reply", ["no JSON", [1], {"data": 1}])
def test_another_form_of_reply_is_told_with_the_url_and_the_reply(operator, server, reply):
    operator.answers["POST", "replicas"] = reply, 200
    with pytest.raises(requests.RequestException, match="/v1alpha1/replicas answered with no envelope"):
        server.post_replicas({})


def test_an_operator_that_cannot_be_reached_is_told_with_its_url(monkeypatch):
    monkeypatch.setattr("ding.worker.coordinator.operator_server.RETRY_WAIT_S", 0.01)
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        server = OperatorServer("127.0.0.1", taken.getsockname()[1])
        for act in (lambda: server.get_replicas("x"), lambda: server.post_replicas({})):
            with pytest.raises(requests.ConnectionError):
                act()


def test_the_port_follows_the_scheme():
    assert OperatorServer("op").url == "http://op:80/v1alpha1"
    assert OperatorServer("op", https=True, api_version="/v2").url == "https://op:443/v2"
    assert OperatorServer("op", api_version="/v2").api_version == "/v2"


def test_only_coordinators_and_aggregators_may_ask():
    with pytest.raises(AssertionError, match="'learner' is not allowed; it must be one of coordinator, aggregator"):
        OperatorServer("op").set_worker_type("learner")


def test_who_asks_must_be_known():
    with pytest.raises(AssertionError, match="call set_worker_type first, or give a name"):
        OperatorServer("op").get_replicas()


def test_the_config_names_the_operator(operator):
    server = make_operator_server({"system_addr": f"https://127.0.0.1:{operator.port}"}, "coordinator")
    assert server.get_replicas()[0] is True
    assert operator.parameters == {"namespace": "default", "coordinator": "dijob-example-coordinator"}


# Workers join and leave as the operator lists them, whatever the operator or a worker does.


LOGGER = logging.getLogger("test_operator")
LOST = WorkerLost("it was lost")


class Roster:
    """Notes who joins and leaves; a function in `acts` is called first: `acts["join"](name)`."""

    def __init__(self):
        self.told, self.acts = queue.SimpleQueue(), {}

    def join(self, kind, name, host, port):
        self.acts.get("join", lambda name: None)(name)
        self.told.put(("join", kind, name, host, port))

    def leave(self, kind, name):
        self.acts.get("leave", lambda name: None)(name)
        self.told.put(("leave", kind, name))

    def expect(self, *what):
        told = self.told.get(timeout=PATIENCE_S)
        assert told[: len(what)] == what
        return told

    def nothing_more(self):
        return self.told.empty()


@pytest.fixture
def roster():
    return Roster()


@pytest.fixture
def make(operator, roster):
    made = []

    def make(kinds=("learner", "collector"), reports_failures=True, is_started=True, port=None):
        server = OperatorServer("127.0.0.1", port or operator.port, namespace="ours", name="job")
        server.set_worker_type("coordinator")
        sync = OperatorSync(server, kinds, roster.join, roster.leave, LOGGER, 0.01, reports_failures)
        made.append(sync)
        if is_started:
            sync.start()
        return sync

    yield make
    for sync in made:
        sync.close()
        assert sync._threads.join(PATIENCE_S)
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith(("period_sync", "operator_"))]


def test_workers_join_when_they_are_listed_and_leave_when_they_are_not(operator, roster, make):
    operator.listed = {"collectors": ["c.ours:1"], "learners": {"l.ours:2": {}}}
    make()
    told = sorted([roster.told.get(timeout=PATIENCE_S) for _ in range(2)])
    assert told == [("join", "collector", "c.ours:1", "c.ours", 1), ("join", "learner", "l.ours:2", "l.ours", 2)]
    operator.see()
    assert roster.nothing_more()
    operator.listed = {"collectors": [], "learners": ["l.ours:2"]}
    roster.expect("leave", "collector", "c.ours:1")
    operator.listed = {"collectors": ["c.ours:1"]}
    told = sorted([roster.told.get(timeout=PATIENCE_S) for _ in range(2)])
    assert told == [("join", "collector", "c.ours:1", "c.ours", 1), ("leave", "learner", "l.ours:2")]


def fail_once(roster):
    def fail(name):
        roster.acts.clear()
        raise ConnectionError("nobody there")

    roster.acts["join"] = fail


@pytest.mark.parametrize(("name", "pod"), [("pod.ours:1", "pod"), ("pod:1", "pod"), ("10.0.0.7:1", "10.0.0.7")])
def test_a_worker_that_cannot_join_is_reported_by_its_pod_and_tried_again(operator, roster, make, caplog, name, pod):
    fail_once(roster)
    operator.listed = {"collectors": [name]}
    make()
    roster.expect("join", "collector", name)
    method, path, _, body = operator.requests.get(timeout=PATIENCE_S)
    assert (method, path, body["collectors"], body["learners"]) == ("POST", "replicas/failed", [pod], [])
    assert f"collector {name} could not be connected: nobody there" in caplog.text
    operator.see()
    assert operator.requests.empty() and roster.nothing_more()


def test_a_lost_worker_is_reported_and_joins_again_while_it_is_listed(operator, roster, make):
    operator.listed = {"learners": ["l.ours:1"]}
    sync = make()
    roster.expect("join")
    operator.see()
    assert sync.lost("learner", "l.ours:1", LOST) is True
    assert operator.requests.get(timeout=PATIENCE_S)[3]["learners"] == ["l"]
    roster.expect("join", "learner", "l.ours:1")
    assert sync.lost("learner", "learner0", LOST) is False


def test_while_the_operator_fails_the_workers_stay_and_it_is_told_once(operator, roster, make, caplog):
    caplog.set_level(logging.INFO)
    operator.listed = {"learners": ["l:1"]}
    make()
    roster.expect("join")
    operator.answers["GET", "replicas"] = "out of order", 500
    operator.see(4)
    assert caplog.text.count("the workers are left as they are") == 1
    assert "/v1alpha1/replicas" in caplog.text
    operator.answers["GET", "replicas"] = envelope(None, False, 3, "not now"), 200
    operator.see()
    operator.answers["GET", "replicas"] = envelope(["l:2"]), 200
    operator.see()
    assert roster.nothing_more()
    del operator.answers["GET", "replicas"]
    operator.listed = {}
    roster.expect("leave", "learner", "l:1")


# The first workers.


@pytest.fixture
def soon(monkeypatch):
    monkeypatch.setattr(operator_server, "RETRY_S", 0.01)


def test_workers_are_asked_for_again_while_the_operator_is_not_ready(operator, make, soon):
    replies = [("busy", 503), (envelope(None, False, 3, "not yet"), 200), (envelope(), 200)]
    operator.answers["POST", "replicas"] = lambda: replies.pop(0)
    make(is_started=False).request_replicas({"learners": {"replicas": 1}}, PATIENCE_S)
    bodies = [operator.requests.get(timeout=PATIENCE_S)[3] for _ in range(3)]
    assert bodies == [{"learners": {"replicas": 1}, "namespace": "ours", "coordinator": "job"}] * 3


@pytest.mark.parametrize("answer", [("busy", 503), (envelope(None, False, 3, "no room"), 200)])
def test_an_operator_that_gives_nothing_in_time_is_an_error(operator, make, soon, answer):
    operator.answers["POST", "replicas"] = answer
    with pytest.raises(ConnectionError):
        make(is_started=False).request_replicas({"learners": {}}, 0.05)


def test_workers_that_do_not_come_are_an_error_with_the_reason(operator, roster, make):
    def fail(name):
        raise ConnectionError("nobody there")

    roster.acts["join"] = fail
    operator.listed = {"learners": ["l:1"]}
    sync = make()
    operator.requests.get(timeout=PATIENCE_S)
    with pytest.raises(ConnectionError):
        sync.wait_for(lambda: False, "a learner", 0.05)
    sync.close()
    with pytest.raises(ConnectionError):
        sync.wait_for(lambda: False, "a learner", PATIENCE_S)
