"""The addresses of this machine, and how addresses are written."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
# Reserved for documentation (RFC 5737): no machine has it, so packets to it take the default route.
_ELSEWHERE = "203.0.113.1"


def get_host_ip() -> str:
    """Return the address at which other machines reach this one, without sending anything; 127.0.0.1 if offline."""
    source = _source_address(_ELSEWHERE)
    if source is not None:
        return str(source)
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


def split_http_address(address: str, default_port: int | None = None) -> tuple[str | None, int, bool, str]:
    """Return `(host, port, https, path)` of an HTTP address.

    The port is the one in the address, else `default_port`, else 443 for https and 80 otherwise. The path is empty or
    begins with `/`. The host is None if the address has no scheme.

    Raises:
        ValueError: the port is not an integer in [0, 65535].

    Example:
        >>> split_http_address("https://example.com:8000/this/is")
        ('example.com', 8000, True, '/this/is')
    """
    parts = urlsplit(address)
    https = parts.scheme == "https"
    port = parts.port if parts.port is not None else default_port
    if port is None:
        port = 443 if https else 80
    return parts.hostname, port, https, parts.path


def literal(host: str) -> _Address | None:
    """Return the IP address that the text `host` is (with or without the brackets of IPv6); None for a name."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address


def resolve(host: str) -> list[_Address]:
    """Return the addresses of `host`; an empty list if it cannot be resolved."""
    try:
        found = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    addresses = (literal(str(entry[4][0]).split("%")[0]) for entry in found)
    return [address for address in addresses if address is not None]


def is_loopback(host: str) -> bool:
    """Return whether all addresses of `host` can be reached from this machine only."""
    addresses = resolve(host)
    return bool(addresses) and all(address.is_loopback for address in addresses)


def is_wildcard(host: str) -> bool:
    """Return whether binding to `host` means all interfaces."""
    address = literal(host)
    return address is not None and address.is_unspecified


def is_own(address: _Address) -> bool:
    """Return whether `address` belongs to this machine, without sending anything."""
    if address.is_loopback:
        return True
    # A machine talks to its own address from that address.
    return _source_address(str(address)) == address


def _source_address(destination: str) -> _Address | None:
    """Return the address of this machine from which packets to `destination` are sent; None if there is no route."""
    family = socket.AF_INET6 if ":" in destination else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((destination, 9))
        except OSError:
            return None
        return literal(str(probe.getsockname()[0]).split("%")[0])


def url_host(host: str) -> str:
    """Return `host` as it is written in a URL: IPv6 addresses in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
