"""Which address a master may have its slaves report to."""

from __future__ import annotations

import re

from ding.interaction.base.network import is_own, literal, resolve, split_http_address
from ding.interaction.server.hosts import HostList

_PRINTABLE_URL = re.compile(r"https?://[!-~]{1,2000}", re.IGNORECASE)


def parse_address(address: str) -> tuple[str, int, bool, str]:
    """`(host, port, https, path)` of the address of a master.

    Raises:
        ValueError: it is no plain http or https URL.
    """
    if not _PRINTABLE_URL.fullmatch(address) or any(mark in address for mark in "@?#\\"):
        raise ValueError("it must be http://host[:port][/path] or https://...")
    host, port, https, path = split_http_address(address)
    if not host or not port:
        raise ValueError("it has no host, or the port 0")
    return host, port, https, path


def may_report_to(host: str, port: int, peer: str, listed: HostList) -> bool:
    """Whether a slave may send requests to `host` because the peer at the address `peer` asks for it.

    A slave answers to where it was called from: every address of `host` must be that of the peer, or, for a peer on
    this machine, any of this machine. Others, such as a proxy before the master, must be listed.
    """
    if listed.has(host, port):
        return True
    caller = literal(peer.split("%")[0])
    addresses = resolve(host)
    if caller is None or not addresses:
        return False
    is_here = is_own(caller)
    return all(a == caller or (is_here and (is_own(a) or a.is_unspecified)) for a in addresses)
