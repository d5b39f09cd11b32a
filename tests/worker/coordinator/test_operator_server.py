"""What is asked of an operator, and what it may answer."""

import socket

import pytest
import requests

from ding.worker.coordinator.operator_server import OperatorServer, make_operator_server
from tests.worker.coordinator.operators import PATIENCE_S, FakeOperator, envelope


@pytest.fixture
def operator():
    operator = FakeOperator()
    yield operator
    operator.close()


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
