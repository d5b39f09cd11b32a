import socket
import threading

import pytest

from ding.interaction.base import get_host_ip, split_http_address
from ding.interaction.http_client import is_loopback, is_wildcard, url_host


def test_the_address_of_this_machine_reaches_a_server_on_it():
    with socket.create_server(("0.0.0.0", 0)) as server:
        accepted = []
        thread = threading.Thread(target=lambda: accepted.append(server.accept()))
        thread.start()
        socket.create_connection((get_host_ip(), server.getsockname()[1]), 20).close()
        thread.join(20)
        accepted[0][0].close()


@pytest.mark.parametrize(
    ("address", "default_port", "parts"),
    [
        ("http://1.2.3.4", None, ("1.2.3.4", 80, False, "")),
        ("https://1.2.3.4", None, ("1.2.3.4", 443, True, "")),
        ("http://example.com:8888", None, ("example.com", 8888, False, "")),
        ("https://example.com:8787/this/is", None, ("example.com", 8787, True, "/this/is")),
        ("https://example.com/this", 5, ("example.com", 5, True, "/this")),
        ("http://example.com:80/", 5, ("example.com", 80, False, "/")),
        ("http://[::1]:5/x", None, ("::1", 5, False, "/x")),
        ("example.com/x", None, (None, 80, False, "example.com/x")),
    ],
)
def test_addresses_are_split(address, default_port, parts):
    assert split_http_address(address, default_port) == parts


@pytest.mark.parametrize("address", ["http://x:abc", "http://x:70000", "http://x:-1"])
def test_a_port_that_is_none_is_refused(address):
    with pytest.raises(ValueError, match=r"[Pp]ort"):
        split_http_address(address)


@pytest.mark.parametrize(
    ("host", "loopback", "wildcard"),
    [
        ("127.0.0.1", True, False),
        ("localhost", True, False),
        ("::1", True, False),
        ("[::1]", True, False),
        ("0.0.0.0", False, True),
        ("::", False, True),
        ("198.51.100.1", False, False),
        ("unknown.invalid", False, False),
        ("", False, False),
    ],
)
def test_kinds_of_hosts_are_told_apart(host, loopback, wildcard):
    if host:
        assert is_loopback(host) is loopback
    assert is_wildcard(host) is wildcard


def test_ipv6_stands_in_brackets_in_urls():
    assert [url_host(h) for h in ("::1", "[::1]", "1.2.3.4", "x.y")] == ["[::1]", "[::1]", "1.2.3.4", "x.y"]
