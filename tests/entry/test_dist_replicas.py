"""Asking an operator for replicas, through a `kubectl` that notes what it was called with."""

import json
import os
import stat
import sys

import pytest

from ding.entry.dist_entry import dist_add_replicas, dist_delete_replicas, dist_restart_replicas

KUBECTL = """#!{python} -SE
import json, os, sys
folder = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(folder, "calls"), "a") as f:
    f.write(json.dumps(sys.argv[1:]) + "\\n")
name = "address" if "printenv" in sys.argv else "reply"
with open(os.path.join(folder, name)) as f:
    text = f.read()
if text.startswith("fail"):
    sys.exit(text)
sys.stdout.write(text)
"""
IN_POD = ["exec", "--namespace=default", "pod/job-coordinator", "--"]
JOB = {"coordinator_name": "job-coordinator", "namespace": "default"}


@pytest.fixture
def kubectl(tmp_path, monkeypatch):
    """A folder with the command, and with what it answers."""
    path = tmp_path / "kubectl"
    path.write_text(KUBECTL.format(python=sys.executable))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "address").write_text("operator.di:8080\n")
    (tmp_path / "reply").write_text(json.dumps({"success": True, "code": 0, "message": "done; thanks", "data": None}))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def calls(folder):
    return [json.loads(line) for line in (folder / "calls").read_text().splitlines()]


def request(folder):
    """Method, URL and body of the request in the pod."""
    *_, call = calls(folder)
    return call[call.index("--request") + 1], call[-1], json.loads(call[call.index("--data-raw") + 1])


def test_replicas_are_added_from_within_the_coordinators_pod(kubectl):
    said = dist_add_replicas("collector", "some/config", 2, **JOB, cpus=4, gpus=0, memory="4Gi")
    assert said == "done; thanks"
    ask_address, ask = calls(kubectl)
    assert ask_address == ["--kubeconfig=some/config", *IN_POD, "printenv", "KUBERNETES_SERVER_URL"]
    assert ask[: len(IN_POD) + 2] == ["--kubeconfig=some/config", *IN_POD, "curl"]
    method, url, body = request(kubectl)
    assert (method, url) == ("POST", "http://operator.di:8080/v1alpha1/replicas")
    wanted = {"replicas": 2, "cpus": 4, "memory": "4Gi"}
    assert body == {"namespace": "default", "coordinator": "job-coordinator", "collectors": wanted}


def test_replicas_are_deleted(kubectl):
    (kubectl / "address").write_text("https://operator.di:8080")
    dist_delete_replicas("learner", None, 1, **JOB)
    assert calls(kubectl)[0] == [*IN_POD, "printenv", "KUBERNETES_SERVER_URL"]
    method, url, body = request(kubectl)
    assert (method, url, body["learners"]) == ("DELETE", "http://operator.di:8080/v1alpha1/replicas", {"replicas": 1})


def test_replicas_are_restarted(kubectl):
    dist_restart_replicas("collector", None, **JOB, restart_pod_name="job-collector-0, job-collector-3")
    method, url, body = request(kubectl)
    assert (method, url) == ("POST", "http://operator.di:8080/v1alpha1/replicas/failed")
    assert body["collectors"] == ["job-collector-0", "job-collector-3"]


@pytest.mark.differs(
    "builds replica commands as text for a shell",
    "starts them without a shell, and raises their errors",
)
def test_no_shell_reads_what_the_user_gives(kubectl):
    hostile = "x; touch hacked #"
    dist_restart_replicas("collector", None, hostile, hostile, hostile)
    assert calls(kubectl)[0][:3] == ["exec", f"--namespace={hostile}", f"pod/{hostile}"]
    assert request(kubectl)[2]["collectors"] == [hostile] and not os.path.exists("hacked")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dist_add_replicas("worker", None, 1, "c", "n"), "'worker' are not allowed"),
        (lambda: dist_add_replicas("collector", None, 1, "", "n"), "--coordinator-name"),
        (lambda: dist_delete_replicas("collector", None, 1, "c", None), "--namespace"),
        (lambda: dist_restart_replicas("collector", None, "c", "n", ""), "--restart-pod-name"),
    ],
)
def test_what_must_be_given_is_asked_for(call, message):
    with pytest.raises(AssertionError, match=message):
        call()


@pytest.mark.parametrize(
    ("count", "needs", "name"),
    [(0, {}, "replicas"), (1, {"cpus": -1}, "cpus"), (1, {"gpus": 0.5}, "gpus")],
)
def test_numbers_that_make_no_sense_are_refused(count, needs, name):
    with pytest.raises(ValueError, match=f"{name} = .* is not allowed"):
        dist_add_replicas("collector", None, count, **JOB, **needs)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("address", "fail: no such pod", "no such pod"),
        ("address", "\n", "not an address"),
        ("reply", "<html>", "unknown answer"),
        ("reply", '{"success": false, "message": "too many"}', "refuses: too many"),
    ],
)
def test_what_goes_wrong_on_the_way_is_told(kubectl, file, text, message):
    (kubectl / file).write_text(text)
    with pytest.raises(RuntimeError, match=message):
        dist_delete_replicas("collector", None, 1, **JOB)


def test_a_machine_without_kubectl_says_so(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(RuntimeError, match="kubectl.* is not installed"):
        dist_delete_replicas("collector", None, 1, **JOB)
