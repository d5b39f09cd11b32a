import pytest

from ding.interaction.server.access import HostList, OwnNames, may_report_to, parse_address, split_host


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Example.COM", ("example.com", None)),
        ("example.com.:80", ("example.com", 80)),
        ("[::1]:7", ("::1", 7)),
        ("[::1]", ("::1", None)),
        ("a_b-c.d:65535", ("a_b-c.d", 65535)),
        ("", None),
        (".", None),
        ("..:80", None),
        (":80", None),
        ("a b", None),
        ("a:b", None),
        ("a:123456", None),
        ("::1", None),
        ("a,b", None),
        ("a@b", None),
        ("a\n", None),
    ],
)
def test_hosts_are_split_strictly(text, parts):
    assert split_host(text) == parts


def test_a_list_has_names_ports_and_domains():
    hosts = HostList(["one", " two:5 ", ".example.com", ""])
    assert hosts.has("one", 1) and hosts.has("two", 5) and hosts.has("a.example.com", 1)
    assert not any(hosts.has(*host) for host in [("two", 6), ("example.com", 1), ("oneexample.com", 1), ("", 1)])


def test_an_empty_list_has_nothing():
    assert not HostList([]).has("", 0) and not HostList().has("localhost", 1)


def names(host, port=5, advertised=None, listed=()):
    return OwnNames((host, port), advertised, HostList(listed))


def test_a_machine_without_a_name_goes_by_none(monkeypatch):
    for machine in ("", "localhost"):
        monkeypatch.setattr("socket.gethostname", lambda machine=machine: machine)
        assert not names("0.0.0.0").accept("localhost.evil:5") and not names("0.0.0.0").accept(".evil:5")
        assert names("0.0.0.0").accept("localhost:5")


def test_a_bound_name_passes(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "machine.lan")
    assert names("Host.example").accept("host.EXAMPLE:5") and names("0.0.0.0").accept("machine:5")


def test_no_port_means_the_standard_one():
    assert names("127.0.0.1", 80).accept("localhost") and not names("127.0.0.1", 81).accept("localhost")


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("http://127.0.0.1:7235", ("127.0.0.1", 7235, False, "")),
        ("HTTPS://gateway.example/a/b/", ("gateway.example", 443, True, "/a/b/")),
        ("http://[::1]:5", ("::1", 5, False, "")),
    ],
)
def test_addresses_of_masters_are_parsed(address, parts):
    assert parse_address(address) == parts


@pytest.mark.parametrize("address", ["http://", "http:///path", "http://x:0", "http://x:70000", "http://x y", "x", ""])
def test_other_addresses_are_refused(address):
    with pytest.raises(ValueError):
        parse_address(address)


@pytest.mark.parametrize(
    ("host", "peer", "allowed"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("localhost", "127.0.0.1", True),
        ("::1", "127.0.0.1", True),
        ("127.0.0.1", "::ffff:127.0.0.1", True),
        ("0.0.0.0", "127.0.0.1", True),
        ("198.51.100.1", "127.0.0.1", False),
        ("198.51.100.1", "198.51.100.1", True),
        ("198.51.100.1", "::ffff:198.51.100.1", True),
        ("198.51.100.1", "198.51.100.2", False),
        ("127.0.0.1", "198.51.100.2", False),
        ("0.0.0.0", "198.51.100.2", False),
        ("fe80::1", "fe80::1%eth0", True),
        ("unknown.invalid", "127.0.0.1", False),
        ("127.0.0.1", "", False),
        ("127.0.0.1", "no address", False),
    ],
)
def test_a_slave_answers_to_where_it_was_called_from(host, peer, allowed):
    assert may_report_to(host, 80, peer, HostList([])) is allowed


def test_every_address_of_a_name_must_be_that_of_the_caller(monkeypatch):
    from ding.interaction.http_client import literal

    both = [literal("198.51.100.1"), literal("198.51.100.2")]
    monkeypatch.setattr("ding.interaction.server.access.resolve", lambda host: both)
    assert not may_report_to("two.example", 80, "198.51.100.1", HostList([]))
    assert may_report_to("two.example", 80, "198.51.100.1", HostList(["two.example"]))
