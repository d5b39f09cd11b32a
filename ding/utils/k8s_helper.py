"""The address of the operator that runs the workers of a job on Kubernetes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from ding.utils.config_helper import ConfigError

_URL = "KUBERNETES_SERVER_URL"
_NAMESPACE = "default"
_NAME = "dijob-example-coordinator"
_API_VERSION = "/v1alpha1"


def exist_operator_server() -> bool:
    """Return whether the environment variable `KUBERNETES_SERVER_URL` is set."""
    return bool(os.environ.get(_URL))


def get_operator_server_kwargs(cfg: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `OperatorServer`: `host`, `port`, `api_version`, `namespace` and `name`.

    Args:
        cfg: may have `system_addr`, which is `host:port` or a URL, and `api_version`. They override the environment
            variables `KUBERNETES_SERVER_URL` and `KUBERNETES_SERVER_API_VERSION`. Namespace and name are those of
            `KUBERNETES_POD_NAMESPACE` and `KUBERNETES_POD_NAME`. Requests use plain HTTP whatever the URL's scheme.

    Raises:
        ConfigError: the address is missing or invalid.

    Example:
        >>> get_operator_server_kwargs({"system_addr": "https://10.0.0.1:8080", "api_version": "v1"})["host"]
        '10.0.0.1'
    """
    address = cfg.get("system_addr") or os.environ.get(_URL)
    if not address:
        raise ConfigError(f"the operator has no address; set system_addr or the variable {_URL} to host:port")
    host, port = _split(str(address))
    return {
        "host": host,
        "port": port,
        "api_version": cfg.get("api_version") or os.environ.get("KUBERNETES_SERVER_API_VERSION", _API_VERSION),
        "namespace": os.environ.get("KUBERNETES_POD_NAMESPACE", _NAMESPACE),
        "name": os.environ.get("KUBERNETES_POD_NAME", _NAME),
    }


def _split(address: str) -> tuple[str, int]:
    try:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        host, port = parts.hostname, parts.port
    except ValueError:  # the port is not a number, or out of range
        host = port = None
    if not host or parts.username is not None:
        raise ConfigError(f"system_addr = {address!r} is not allowed; it must be host:port, or a URL")
    return host, port or (443 if parts.scheme == "https" else 80)
