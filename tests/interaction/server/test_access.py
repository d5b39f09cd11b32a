"""Who may talk to a master or slave at all, held against real servers."""

import hmac
import logging
import os
import socket

import pytest
import requests

from ding.interaction import Master, Slave
from ding.interaction.access import (
    draw_run_token,
    host_of,
    is_own_name,
    listed_hosts,
    read_run_token,
    require_token,
)
from ding.interaction.exception import SlaveResponseException
from tests.interaction.fakes import (
    DEADLINE_S,
    QUICK,
    Adder,
    Proxy,
    Watcher,
    current_of,
    outcome,
    pair,
    raw,
    self_token_of,
)

SECRET = "s3cret-" + "x" * 40


@pytest.fixture(params=[Adder, Watcher], ids=["slave", "master"])
def server(request):
    with request.param() as server:
        yield server


def ping(server, **headers):
    return outcome(raw(server.port, "GET", "/ping", headers={"Token": self_token_of(server), **headers}))


@pytest.mark.guarantees("strangers")
def test_a_host_that_is_not_this_server_is_a_403(server):
    own = f"127.0.0.1:{server.port}"
    for host in (
        "evil.example", f"evil.example:{server.port}", "", "...",
        f"127.0.0.1.evil.example:{server.port}", f"{own}x", f"{own}, evil.example",
        f"evil.example, {own}", f"@{own}", f"0x7f000001:{server.port}", f"[::1:{server.port}",
        f"{socket.gethostname()}.evil.example:{server.port}",
    ):  # fmt: skip
        assert ping(server, Host=host) == (403, 1), host


def test_addresses_names_of_this_machine_and_listed_hosts_pass(set_env):
    set_env(DING_HOSTS="tunnel.example,.any.example")
    with Adder() as slave:
        for host in ("127.0.0.1", "localhost", "LOCALHOST", "localhost.", "[::1]", "127.0.0.2", "tunnel.example"):
            assert ping(slave, Host=f"{host}:{slave.port}") == ping(slave, Host=host) == (200, 0), host
        assert ping(slave, Host="a.any.example") == (200, 0)
        assert ping(slave, Host="any.example") == (403, 1)


@pytest.mark.guarantees("strangers")
def test_any_origin_is_a_403(server):
    for origin in ("http://evil.example", f"http://127.0.0.1:{server.port}", "null", ""):
        assert ping(server, Origin=origin) == (403, 1), origin


def test_another_content_type_is_a_415(server):
    for kind in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/json",
    ):
        assert ping(server, **{"Content-Type": kind}) == (415, 1), kind
    for kind in ("application/msgpack", "APPLICATION/MSGPACK; charset=utf-8", ""):
        assert ping(server, **{"Content-Type": kind}) == (200, 0), kind


@pytest.mark.guarantees("strangers")
def test_a_body_over_the_limit_is_a_413(monkeypatch):
    monkeypatch.setattr("ding.interaction.server.DEFAULT_BODY_LIMIT", 1000)
    with Adder() as slave:
        head = {"Channel": "0", "Token": "T"}
        for body in (b"x" * 1001, b"x" * 100_000):
            assert outcome(raw(slave.port, "POST", "/connect", body, head)) == (413, 1)
        assert outcome(raw(slave.port, "POST", "/connect", b"x" * 1000, head)) == (400, 1)
        assert slave.ping()


def test_a_task_over_the_limit_of_the_slave_is_told_as_that(monkeypatch):
    monkeypatch.setattr("ding.interaction.server.DEFAULT_BODY_LIMIT", 2000)
    with pair() as (_, _, connection):
        for size in (3000, 3_000_000):
            with pytest.raises(SlaveResponseException) as error:
                connection.new_task({"text": "x" * size}).start()
            assert (error.value.status_code, error.value.code) == (413, 1)
        assert connection.new_task({"a": 1, "b": 1}).start().join(DEADLINE_S).result == {"sum": 2}


@pytest.mark.parametrize(
    "message",
    [
        b"GET\r\n\r\n",
        b"GET /ping HTTP/1.1\r\nX\r\n\r\n",
        b"GET /ping HTTP/1.1\r\nHost : a\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\0\r\n\r\n",
    ],
)
def test_what_is_no_http_is_a_400_and_ends_the_connection(server, message):
    with socket.create_connection(("127.0.0.1", server.port), DEADLINE_S) as connection:
        connection.sendall(message)
        assert connection.makefile("rb").read().startswith(b"HTTP/1.1 400 Bad Request\r\n")


def test_a_request_without_host_is_a_403(server):
    with socket.create_connection(("127.0.0.1", server.port), DEADLINE_S) as connection:
        connection.sendall(b"GET /ping HTTP/1.0\r\nToken: " + self_token_of(server).encode() + b"\r\n\r\n")
        assert b" 403 Forbidden" in connection.makefile("rb").read()


@pytest.mark.guarantees("strangers")
def test_with_a_token_every_request_must_carry_it(set_env):
    set_env(DING_TOKEN=SECRET)
    for kind in (Adder, Watcher):
        with kind() as server:
            for value in (None, "", SECRET, f"Bearer {SECRET}x", f"Bearer {SECRET[:-1]}", f"Basic {SECRET}"):
                headers = {} if value is None else {"Authorization": value}
                assert ping(server, **headers) == (401, 1), value
            own = {"Authorization": f"Bearer {SECRET}"}
            assert ping(server, **own) == (200, 0)
            assert ping(server, Authorization=f"BEARER {SECRET}") == (200, 0)
            assert ping(server, **own, Host="evil.example") == (403, 1)
            assert outcome(raw(server.port, "GET", "/nowhere")) == (401, 1)
            assert outcome(raw(server.port, "GET", "/nowhere", headers=own)) == (404, 1)
            assert server.ping()


@pytest.mark.guarantees("strangers")
def test_every_secret_is_compared_in_a_time_that_does_not_tell_where_it_differs(monkeypatch, set_env):
    set_env(DING_TOKEN=SECRET)
    with pair() as (master, slave, _):
        session_token, compared, compare = current_of(slave).session.token, [], hmac.compare_digest

        def note(one, other):
            compared.append((one.decode(), other.decode()))
            return compare(one, other)

        headers = {"Channel": "0", "Token": "wrong", "Authorization": f"Bearer {SECRET}"}
        for server, method, path, own in (
            (master, "GET", "/ping", self_token_of(master)),
            (master, "DELETE", "/shutdown", self_token_of(master)),
            (slave, "GET", "/ping", self_token_of(slave)),
            (slave, "GET", "/heartbeat", session_token),
            (slave, "PUT", "/tasks/c9bf9e57-1685-4c89-bafb-ff5af830be8a", session_token),
            (slave, "DELETE", "/disconnect", session_token),
        ):
            with monkeypatch.context() as patch:
                patch.setattr(hmac, "compare_digest", note)
                assert outcome(raw(server.port, method, path, headers=headers))[0] == 403
            assert (SECRET, SECRET) in compared and ("wrong", own) in compared, path
            compared.clear()


@pytest.mark.guarantees("strangers")
@pytest.mark.differs(
    "listens on all interfaces, and obeys the first process that connects",
    "listens on this machine, and elsewhere with a token only",
)
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "198.51.100.1", "unknown.invalid"])
@pytest.mark.parametrize("kind", [Adder, Watcher], ids=["slave", "master"])
def test_off_loopback_a_server_without_token_does_not_start(monkeypatch, kind, host):
    def no_socket(*args, **kwargs):
        raise AssertionError("a socket was made")

    server = kind(host)
    monkeypatch.setattr(socket, "create_server", no_socket)
    with pytest.raises(PermissionError, match="needs a token: put a secret into the environment variable DING_TOKEN"):
        server.start()
    server.close()


def test_the_token_is_not_sent_on_to_where_a_reply_points(set_env):
    set_env(DING_TOKEN=SECRET)
    with Adder() as slave, Watcher() as master, Proxy(slave.port) as elsewhere, Proxy(slave.port) as proxy:
        target = f"http://127.0.0.1:{elsewhere.port}/connect".encode()
        proxy._forward = lambda request: (
            b"HTTP/1.1 307 Temporary Redirect\r\nLocation: " + target + b"\r\nContent-Length: 0\r\n\r\n"
        )
        with pytest.raises(SlaveResponseException) as error:
            master.new_connection("conn", "127.0.0.1", proxy.port).connect()
        assert error.value.status_code == 307 and len(proxy.requests) == 1 and elsewhere.requests == []


@pytest.mark.guarantees("strangers")
def test_tokens_stand_in_no_log_and_no_text(set_env, caplog):
    set_env(DING_TOKEN=SECRET)
    caplog.set_level(logging.DEBUG)
    secrets = [SECRET]
    texts = []
    with Adder(heartbeat_span=0.2) as slave, Watcher(request_retries=1) as master:
        connection = master.new_connection("conn", "127.0.0.1", slave.port)
        secrets += [self_token_of(master), self_token_of(slave)]
        for data in ({"a": 1, "b": 1}, {"raise": "x"}):
            with connection:
                secrets.append(current_of(slave).session.token)
                task = connection.new_task(data).start().join(DEADLINE_S)
                texts += [
                    repr(task.result),
                    repr(vars(connection)),
                    repr(vars(master)),
                    repr(vars(current_of(slave).session)),
                ]
        with pytest.raises(SlaveResponseException) as refused:
            connection.disconnect()
        connection.connect()
        secrets.append(current_of(slave).session.token)
        slave.close()
        with pytest.raises(requests.ConnectionError) as unreached:
            connection.disconnect()
        texts += [f"{e.value!r} {e.value}" for e in (refused, unreached)]
    assert caplog.text
    assert not [secret for secret in secrets if secret in caplog.text]
    # The objects' own attributes hold the protocol's tokens; the run's token shows nowhere.
    assert not [text for text in texts if SECRET in text]
    assert not [s for s in secrets for e in (refused, unreached) if s in f"{e.value!r} {e.value}"]


@pytest.mark.guarantees("strangers")
def test_defaults_listen_on_this_machine_only():
    for host in (None, "auto", ""):
        assert Master(host, **QUICK).host == "127.0.0.1"
    assert issubclass(Adder, Slave) and Adder().host == "127.0.0.1"


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


def test_names_and_domains_can_be_listed(set_env):
    assert listed_hosts() == ()
    set_env(DING_HOSTS="one, two:5 ,.example.com,")
    listed = listed_hosts()
    for name in ("one", "two:6", "a.example.com"):
        assert is_own_name(name, "127.0.0.1", listed)
    for name in ("example.com", "oneexample.com", "", None):
        assert not is_own_name(name, "127.0.0.1", listed)
    set_env(DING_HOSTS="http://x/")
    with pytest.raises(ValueError, match="'http://x/' is no host"):
        listed_hosts()


def test_the_name_of_the_machine_counts_off_loopback(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "Machine.lan")
    for name in ("machine", "machine.svc.cluster.local:5"):
        assert is_own_name(name, "0.0.0.0", ()) and not is_own_name(name, "127.0.0.1", ())
    for name in ("evil.example", "xmachine", "evil.machine"):
        assert not is_own_name(name, "0.0.0.0", ())
    assert is_own_name("host.EXAMPLE:5", "Host.example", ())


def token_file(tmp_path, text="from-file\n", mode=0o600):
    path = tmp_path / "token"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_the_variable_comes_before_the_file(set_env, tmp_path):
    set_env(DING_TOKEN_FILE=token_file(tmp_path))
    assert read_run_token().is_in("Bearer from-file")
    set_env(DING_TOKEN="from-variable")
    assert read_run_token().is_in("Bearer from-variable")


@pytest.mark.guarantees("strangers")
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o700, 0o666])
def test_a_file_that_others_may_use_is_refused(set_env, tmp_path, mode):
    path = token_file(tmp_path, mode=mode)
    set_env(DING_TOKEN_FILE=path)
    with pytest.raises(PermissionError, match=f"has mode {mode:04o}: it must be 0600") as error:
        read_run_token()
    assert path in str(error.value) and "from-file" not in str(error.value)


def test_a_file_of_another_user_is_refused(monkeypatch, set_env, tmp_path):
    set_env(DING_TOKEN_FILE=token_file(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(PermissionError):
        read_run_token()


def test_a_missing_file_is_told(set_env, tmp_path):
    set_env(DING_TOKEN_FILE=tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        read_run_token()


@pytest.mark.parametrize("text", ["", " \n", "two words", "line\nline", "umläut"])
def test_what_is_no_token_is_refused_without_showing_it(set_env, tmp_path, text):
    set_env(DING_TOKEN_FILE=token_file(tmp_path, text))
    with pytest.raises(ValueError, match="holds no token") as error:
        read_run_token()
    assert not text.strip() or text not in str(error.value)


def test_a_token_is_drawn_where_there_is_none_and_leaves_pages_open(set_env):
    one, other = draw_run_token(), draw_run_token()
    assert one.secret != other.secret and len(one.secret) == 64 and not one.guards_pages
    set_env(DING_TOKEN="from-variable")
    assert draw_run_token().is_in("Bearer from-variable") and draw_run_token().guards_pages


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "::1", "[::1]"])
def test_loopback_needs_no_token(host):
    require_token(host, None)
