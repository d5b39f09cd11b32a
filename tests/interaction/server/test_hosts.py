import pytest

from ding.interaction.access import host_of, is_own_name, listed_hosts


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("Example.COM", "example.com"), ("example.com.:80", "example.com"), ("[::1]:7", "::1"), ("[::1]", "::1"),
        ("a_b-c.d:65535", "a_b-c.d"), ("", None), (".", None), ("..:80", None), (":80", None), ("a b", None),
        ("a:b", None), ("a:123456", None), ("::1", None), ("a,b", None), ("a@b", None), ("a\n", None),
    ],
)  # fmt: skip
def test_hosts_are_read_strictly(text, host):
    assert host_of(text) == host


def test_names_and_domains_can_be_listed(monkeypatch):
    assert listed_hosts() == ()
    monkeypatch.setenv("DING_HOSTS", "one, two:5 ,.example.com,")
    listed = listed_hosts()
    for name in ("one", "two:6", "a.example.com"):
        assert is_own_name(name, "127.0.0.1", listed)
    for name in ("example.com", "oneexample.com", "", None):
        assert not is_own_name(name, "127.0.0.1", listed)
    monkeypatch.setenv("DING_HOSTS", "http://x/")
    with pytest.raises(ValueError, match="'http://x/' is no host"):
        listed_hosts()


def test_the_name_of_the_machine_counts_off_loopback(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "Machine.lan")
    for name in ("machine", "machine.svc.cluster.local:5"):
        assert is_own_name(name, "0.0.0.0", ()) and not is_own_name(name, "127.0.0.1", ())
    for name in ("evil.example", "xmachine", "evil.machine"):
        assert not is_own_name(name, "0.0.0.0", ())
    assert is_own_name("host.EXAMPLE:5", "Host.example", ())
