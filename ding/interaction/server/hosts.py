"""Names of machines: those of a server, and those of other machines of the run."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable

from ding.interaction.base.network import is_loopback, is_own, literal, resolve, split_http_address

HOSTS_VARIABLE = "DING_HOSTS"
_HOST_HEADER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?", re.ASCII)


def split_host(text: str) -> tuple[str, int | None] | None:
    """Return `(host, port)` of `host[:port]`, lower case and without brackets; None for any other text."""
    match = _HOST_HEADER.fullmatch(text)
    if match is None or not match[1].strip("."):
        return None
    return match[1].lower().strip("[]").rstrip("."), int(match[2]) if match[2] else None


class HostList:
    """A list of hosts: `name`, `name:port`, or `.domain` for all names in a domain.

    Args:
        entries: the hosts; None for those in the environment variable `DING_HOSTS`, separated by commas.

    Raises:
        ValueError: an entry is malformed.
    """

    def __init__(self, entries: Iterable[str] | None = None) -> None:
        if entries is None:
            entries = os.environ.get(HOSTS_VARIABLE, "").split(",")
        self._entries: list[tuple[str, int | None]] = []
        for entry in filter(None, map(str.strip, entries)):
            parts = split_host(entry)
            if parts is None:
                raise ValueError(f"{entry!r} is no host; entries of {HOSTS_VARIABLE} are name, name:port or .domain")
            self._entries.append(parts)

    def has(self, host: str, port: int) -> bool:
        """Return whether `host` is listed, for this port or for any."""
        return any(
            (name == host or (name.startswith(".") and host.endswith(name))) and listed_port in (None, port)
            for name, listed_port in self._entries
        )


class OwnNames:
    """The hosts that requests to a server may name.

    A web page can resolve its own name to this machine and so make a browser send requests here; but then the name is
    in the `Host` header. Off loopback, where a token is required, IP addresses are accepted, too.

    Args:
        bound: the host and port the server listens at.
        advertised: the host and port of the address that is sent to peers, if any.
        listed: further hosts.
    """

    def __init__(self, bound: tuple[str, int], advertised: tuple[str, int] | None, listed: HostList) -> None:
        self._bound_host, self._port = bound[0].lower().strip("[]"), bound[1]
        self._advertised = advertised
        self._listed = listed
        self._is_local = is_loopback(self._bound_host)
        self._machine = socket.gethostname().lower() or "localhost"
        self._accepted: str | None = None  # the last header: clients send the same one each time

    def accept(self, header: str | None) -> bool:
        """Return whether a request with this `Host` header is meant for the server."""
        if header is not None and header == self._accepted:
            return True
        is_accepted = self._judge(header)
        if is_accepted:
            self._accepted = header
        return is_accepted

    def _judge(self, header: str | None) -> bool:
        parts = split_host(header or "")
        if parts is None:
            return False
        host, port = parts[0], 80 if parts[1] is None else parts[1]
        if (host, port) == self._advertised or self._listed.has(host, port):
            return True
        return port == self._port and self._is_own(host)

    def _is_own(self, host: str) -> bool:
        address = literal(host)
        if host in (self._bound_host, "localhost") or (address is not None and address.is_loopback):
            return True
        if self._is_local:
            return False
        # A machine is addressed by its name alone or within domains, as pods of a cluster are.
        return address is not None or (
            self._machine != "localhost" and host.split(".")[0] == self._machine.split(".")[0]
        )


_PRINTABLE_URL = re.compile(r"https?://[!-~]{1,2000}", re.IGNORECASE)


def parse_address(address: str) -> tuple[str, int, bool, str]:
    """Return `(host, port, https, path)` of the address of a master.

    Raises:
        ValueError: it is not a plain http or https URL.
    """
    if not _PRINTABLE_URL.fullmatch(address) or any(mark in address for mark in "@?#\\"):
        raise ValueError("it must be http://host[:port][/path] or https://...")
    host, port, https, path = split_http_address(address)
    if not host or not port:
        raise ValueError("it has no host, or the port 0")
    return host, port, https, path


def may_report_to(host: str, port: int, peer: str, listed: HostList) -> bool:
    """Return whether a slave may send requests to `host` at the request of the peer at the address `peer`.

    A slave reports only to the machine that called it: every address of `host` must be that of the peer or, for a peer
    on this machine, one of this machine. Others, such as a proxy before the master, must be listed.
    """
    if listed.has(host, port):
        return True
    caller = literal(peer.split("%")[0])
    addresses = resolve(host)
    if caller is None or not addresses:
        return False
    is_here = is_own(caller)
    return all(a == caller or (is_here and (is_own(a) or a.is_unspecified)) for a in addresses)
