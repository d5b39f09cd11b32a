"""Changing the replicas of a job on Kubernetes, through the pod of its coordinator."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

_KINDS = ("collector", "learner")
_URL_VARIABLE = "KUBERNETES_SERVER_URL"
_API = "v1alpha1"
_TIMEOUT_S = 60.0


def dist_add_replicas(
    replicas_type: str,
    kubeconfig: str | None,
    replicas: int,
    coordinator_name: str,
    namespace: str,
    cpus: int = 0,
    gpus: int = 0,
    memory: str | None = None,
) -> str:
    """Have the operator start further workers of a job.

    The request is sent with `kubectl` and, in the coordinator's pod, `curl`; no shell is involved.

    Args:
        replicas_type: 'collector' or 'learner'.
        kubeconfig: path of the config file of `kubectl`; None for its default.
        replicas: number of workers.
        coordinator_name: the pod of the coordinator.
        namespace: the namespace of the job.
        cpus, gpus, memory: resources of each worker; 0 and None leave them to the operator.

    Returns:
        The message of the operator.

    Raises:
        AssertionError: the pod or the namespace is missing, or the type is unknown.
        ValueError: a value is not allowed.
        RuntimeError: `kubectl`, `curl` or the operator has failed; the error has its message.
    """
    _check(replicas_type, coordinator_name, namespace)
    _at_least("replicas", replicas, 1)
    needs = {"cpus": cpus, "gpus": gpus, "memory": memory}
    for name in ("cpus", "gpus"):
        _at_least(name, needs[name], 0)
    own = {"replicas": replicas, **{name: need for name, need in needs.items() if need}}
    return _ask("POST", "replicas", {f"{replicas_type}s": own}, kubeconfig, coordinator_name, namespace)


def dist_delete_replicas(
    replicas_type: str, kubeconfig: str | None, replicas: int, coordinator_name: str, namespace: str
) -> str:
    """Have the operator end workers of a job; see `dist_add_replicas`."""
    _check(replicas_type, coordinator_name, namespace)
    _at_least("replicas", replicas, 1)
    own = {f"{replicas_type}s": {"replicas": replicas}}
    return _ask("DELETE", "replicas", own, kubeconfig, coordinator_name, namespace)


def dist_restart_replicas(
    replicas_type: str, kubeconfig: str | None, coordinator_name: str, namespace: str, restart_pod_name: str
) -> str:
    """Have the operator restart workers of a job; see `dist_add_replicas`.

    Args:
        restart_pod_name: the pods of the workers, separated by commas.
    """
    _check(replicas_type, coordinator_name, namespace)
    if not restart_pod_name:
        raise AssertionError("a restart needs the name of the pod (--restart-pod-name)")
    pods = [name.strip() for name in restart_pod_name.split(",")]
    return _ask("POST", "replicas/failed", {f"{replicas_type}s": pods}, kubeconfig, coordinator_name, namespace)


def _check(replicas_type: str, coordinator_name: str, namespace: str) -> None:
    if replicas_type not in _KINDS:
        raise AssertionError(f"replicas of the type {replicas_type!r} are not allowed; it must be one of {_KINDS}")
    if not coordinator_name or not namespace:
        raise AssertionError(
            "the name of the coordinator's pod (--coordinator-name) and the namespace (--namespace) must be given; got "
            f"{coordinator_name!r} and {namespace!r}"
        )


def _at_least(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or value < least:
        raise ValueError(f"{name} = {value!r} is not allowed; it must be an integer of at least {least}")


def _ask(
    method: str, path: str, own: Mapping[str, Any], kubeconfig: str | None, coordinator_name: str, namespace: str
) -> str:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise RuntimeError("kubectl, which sends the request, is not installed or not on the PATH")
    in_pod = [kubectl, *([f"--kubeconfig={kubeconfig}"] if kubeconfig else []), "exec"]
    in_pod += [f"--namespace={namespace}", f"pod/{coordinator_name}", "--"]
    address = _run([*in_pod, "printenv", _URL_VARIABLE]).strip()
    parts = urlsplit(address if "://" in address else f"http://{address}")
    if not parts.hostname or parts.username is not None:
        raise RuntimeError(f"{_URL_VARIABLE} in the pod {coordinator_name} is {address!r}, which is not an address")
    body = json.dumps({"namespace": namespace, "coordinator": coordinator_name, **own})
    url = f"http://{parts.netloc}/{_API}/{path}"
    reply = _run(
        [*in_pod, "curl", "--silent", "--show-error", "--max-time", "30", "--request", method]
        + ["--header", "Content-Type: application/json", "--data-raw", body, url]
    )
    return _message(reply, url)


def _run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"there was no answer within {_TIMEOUT_S:g} s: {list(command)}") from None
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode} of {list(command)}: {done.stderr.strip()}")
    return done.stdout


def _message(reply: str, url: str) -> str:
    try:
        content = json.loads(reply)
        is_done, message = bool(content["success"]), str(content.get("message") or "")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise RuntimeError(f"the operator at {url} answered in no known form: {reply[:200]!r}") from None
    if not is_done:
        raise RuntimeError(f"the operator at {url} refuses: {message}")
    return message
