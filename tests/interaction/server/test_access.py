"""Who may talk to a master or slave at all, held against real servers."""

import hmac
import logging
import multiprocessing
import socket

import pytest
import requests

from ding.interaction import Master, Slave
from ding.interaction.exception import SlaveResponseException
from ding.interaction.http_client import get_host_ip
from ding.interaction.server.access import draw_run_token
from ding.interaction.server.signing import SCHEME
from tests.interaction.fakes import DEADLINE_S, QUICK, Adder, Proxy, Signer, Watcher, outcome, pair, raw

SECRET = "s3cret-" + "x" * 40


@pytest.fixture(params=[Adder, Watcher], ids=["slave", "master"])
def server(request):
    with request.param() as server:
        yield server


def ping(server, **headers):
    return outcome(raw(server.port, "GET", "/ping", headers={"Token": server._Role__self_token, **headers}))


@pytest.mark.differs(
    "requests of web pages, under foreign host names, are served",
    "any `Origin` and any foreign `Host` is a 403",
)
def test_a_host_that_is_not_this_server_is_a_403(server):
    own = f"127.0.0.1:{server.port}"
    for host in (
        "evil.example", f"evil.example:{server.port}", "127.0.0.1:1", "localhost", "127.0.0.1", "", "...",
        f"127.0.0.1.evil.example:{server.port}", f"198.51.100.1:{server.port}", f"{own}x", f"{own}, evil.example",
        f"evil.example, {own}", f"@{own}", f"0x7f000001:{server.port}", f"[::1:{server.port}",
        f"{socket.gethostname()}.evil.example:{server.port}",
    ):  # fmt: skip
        assert ping(server, Host=host) == (403, 1), host


def test_the_names_of_this_machine_pass_with_the_port(server):
    for host in ("127.0.0.1", "localhost", "LOCALHOST", "localhost.", "[::1]", "127.0.0.2"):
        assert ping(server, Host=f"{host}:{server.port}") == (200, 0), host


def test_listed_hosts_pass(monkeypatch):
    monkeypatch.setenv("DING_HOSTS", "tunnel.example:8000,any.example")
    with Adder() as slave:
        assert ping(slave, Host="tunnel.example:8000") == ping(slave, Host="any.example") == (200, 0)
        assert ping(slave, Host="tunnel.example") == (403, 1)
    with Adder(allowed_hosts=["other.example"]) as slave:  # instead of those of the environment
        assert ping(slave, Host="other.example") == (200, 0)
        assert ping(slave, Host="any.example") == (403, 1)


def test_the_advertised_host_of_a_master_passes_with_its_port():
    with Watcher(my_address="https://gateway.example/prefix") as master:
        assert ping(master, Host="gateway.example:443") == (200, 0)
        assert ping(master, Host="gateway.example:80") == ping(master, Host="gateway.example") == (403, 1)


def test_any_origin_is_a_403(server):
    for origin in ("http://evil.example", f"http://127.0.0.1:{server.port}", "null", ""):
        assert ping(server, Origin=origin) == (403, 1), origin


def test_another_content_type_is_a_415(server):
    for kind in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonp",
    ):
        assert ping(server, **{"Content-Type": kind}) == (415, 1), kind
    for kind in ("application/json", "APPLICATION/JSON; charset=utf-8", ""):
        assert ping(server, **{"Content-Type": kind}) == (200, 0), kind


@pytest.mark.differs("bodies of any size and content type are read", "413 and 415")
def test_a_body_over_the_limit_is_a_413_also_in_chunks():
    with Adder(body_limit=1000) as slave:
        head = {"Channel": "0", "Token": "T"}
        for body in (b"x" * 1001, b"x" * 100_000):
            assert outcome(raw(slave.port, "POST", "/connect", body, head)) == (413, 1)
        assert outcome(raw(slave.port, "POST", "/connect", b"x" * 1000, head)) == (400, 1)
        chunks = {**head, "Transfer-Encoding": "chunked"}
        assert outcome(raw(slave.port, "POST", "/connect", iter([b"x" * 600] * 2), chunks)) == (413, 1)
        assert outcome(raw(slave.port, "POST", "/connect", iter([b"x" * 300] * 2), chunks)) == (400, 1)
        assert slave.ping()


def test_a_task_over_the_limit_of_the_slave_is_told_as_that():
    with pair(Adder(body_limit=2000)) as (_, _, connection):
        for size in (3000, 3_000_000):
            with pytest.raises(SlaveResponseException, match="Request Entity Too Large") as error:
                connection.new_task({"text": "x" * size}).start()
            assert (error.value.status_code, error.value.code) == (413, 1)
        assert connection.new_task({"a": 1, "b": 1}).start().join(DEADLINE_S).result == {"sum": 2}


@pytest.mark.parametrize(
    "message",
    [
        b"GET\r\n\r\n",
        b"GET /ping HTTP/1.1\r\nX\r\n\r\n",
        b"GET /ping HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /ping HTTP/1.1\r\nHost: a\r\n b\r\n\r\n",
        b"GET /ping HTTP/1.1\r\nHost : a\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\0\r\n\r\n",
    ],
)
def test_what_is_no_http_is_a_400_and_ends_the_connection(server, message):
    with socket.create_connection(("127.0.0.1", server.port), DEADLINE_S) as connection:
        connection.sendall(message)
        assert connection.makefile("rb").read().startswith(b"HTTP/1.1 400 Bad Request\r\n")


@pytest.mark.parametrize(
    "framing",
    [
        "Content-Length: 2\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: gzip",
        "Transfer-Encoding: chunked, gzip",
        *[f"Content-Length: {length}" for length in ("x", "-1", "1_0", "\xb2")],
    ],
)
def test_a_body_whose_end_two_servers_might_see_at_different_places_is_a_400(server, framing):
    with socket.create_connection(("127.0.0.1", server.port), DEADLINE_S) as connection:
        head = f"GET /ping HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nToken: {server._Role__self_token}\r\n"
        connection.sendall(f"{head}{framing}\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n".encode("latin-1"))
        assert connection.makefile("rb").read().startswith(b"HTTP/1.1 400 Bad Request\r\n")


def test_a_request_without_host_is_a_403(server):
    with socket.create_connection(("127.0.0.1", server.port), DEADLINE_S) as connection:
        connection.sendall(b"GET /ping HTTP/1.0\r\nToken: " + server._Role__self_token.encode() + b"\r\n\r\n")
        assert b" 403 Forbidden" in connection.makefile("rb").read()


@pytest.mark.parametrize("kind", ["slave", "master"])
def test_with_a_token_every_request_is_signed_with_it(monkeypatch, kind):
    monkeypatch.setenv("DING_TOKEN", SECRET)
    with (Adder if kind == "slave" else Watcher)() as server:
        for value in (
            None,
            "",
            SECRET,
            f"Bearer {SECRET}",
            f"Basic {SECRET}",
            f"{SCHEME} {SECRET}",
            f"{SCHEME} session=",
        ):
            headers = {} if value is None else {"Authorization": value}
            assert ping(server, **headers) == (401, 1), value
        signer, own = Signer(server.port, kind, SECRET), {"Token": server._Role__self_token}
        assert outcome(raw(server.port, "GET", "/ping", headers=signer.sign("GET", "/ping", headers=own))) == (200, 0)
        foreign = {**signer.sign("GET", "/ping", headers=own), "Host": "evil.example"}
        assert outcome(raw(server.port, "GET", "/ping", headers=foreign)) == (403, 1)
        assert outcome(raw(server.port, "GET", "/nowhere")) == (401, 1)
        assert outcome(raw(server.port, "GET", "/nowhere", headers=signer.sign("GET", "/nowhere"))) == (404, 1)
        assert server.ping()


@pytest.mark.differs(
    "the time that comparing a token takes reveals how much of it is right",
    "secrets are compared in constant time",
)
def test_every_secret_is_compared_in_a_time_that_does_not_tell_where_it_differs(monkeypatch):
    monkeypatch.setenv("DING_TOKEN", SECRET)
    with pair(Adder(heartbeat_span=DEADLINE_S)) as (master, slave, _):
        session_token = slave._Slave__link.session.token
        signers = {server: Signer(server.port, kind, SECRET) for server, kind in ((master, "master"), (slave, "slave"))}
        compared, compare = [], hmac.compare_digest

        def note(one, other):
            compared.append((one.decode(), other.decode()))
            return compare(one, other)

        for server, method, path, own in (
            (master, "GET", "/ping", master._Role__self_token),
            (master, "DELETE", "/shutdown", master._Role__self_token),
            (master, "GET", "/slave/heartbeat", None),  # looked up by its digest
            (master, "PUT", "/slave/task/complete", None),
            (slave, "GET", "/ping", slave._Role__self_token),
            (slave, "POST", "/task/new", session_token),
            (slave, "DELETE", "/disconnect", session_token),
        ):
            headers = signers[server].sign(method, path, headers={"Channel": "0", "Token": "wrong"})
            signature = headers["Authorization"].rpartition("=")[2]
            with monkeypatch.context() as patch:
                patch.setattr(hmac, "compare_digest", note)
                assert outcome(raw(server.port, method, path, headers=headers))[0] == 403
            assert compared == [(signature, signature)] + ([("wrong", own)] if own else []), path
            compared.clear()


def test_masters_and_slaves_use_the_token_on_their_own(monkeypatch):
    monkeypatch.setenv("DING_TOKEN", SECRET)
    with pair(Adder(heartbeat_span=0.2)) as (master, slave, connection):
        session = master._Master__table.get("conn")
        assert connection.new_task({"a": 1, "b": 1}).start().join(DEADLINE_S).result == {"sum": 2}
        slave._Slave__heartbeat.beat(slave._Slave__link.session)
        assert session.connection is connection and connection.is_connected


def test_a_master_with_another_token_is_told_what_to_do(monkeypatch):
    monkeypatch.setenv("DING_TOKEN", SECRET)
    with Adder() as slave:
        monkeypatch.setenv("DING_TOKEN", "another")
        with Watcher() as master:
            connection = master.new_connection("conn", "127.0.0.1", slave.port)
            with pytest.raises(SlaveResponseException, match="DING_TOKEN") as error:
                connection.connect()
            assert (error.value.status_code, error.value.code) == (401, 1)
            assert "conn" not in master


@pytest.mark.differs(
    "masters and slaves listen on all interfaces, and obey the first process that connects",
    "on this machine only, unless there is a token; off loopback none starts without one",
)
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "198.51.100.1", "unknown.invalid"])
@pytest.mark.parametrize("kind", [Adder, Watcher], ids=["slave", "master"])
def test_off_loopback_a_server_without_token_does_not_start(monkeypatch, kind, host):
    def no_socket(*args, **kwargs):
        raise AssertionError("a socket was made")

    server = kind(host)
    monkeypatch.setattr("ding.interaction.server.guard._listen", no_socket)
    with pytest.raises(PermissionError, match="needs a token: put a secret into the environment variable DING_TOKEN"):
        server.start()
    server.close()


def test_off_loopback_both_ends_work_with_a_token(monkeypatch):
    monkeypatch.setenv("DING_TOKEN", SECRET)
    slave, master = Adder("0.0.0.0"), Watcher("0.0.0.0")
    with slave, master:
        assert master.my_address == f"http://{get_host_ip()}:{master.port}"
        for host in ("127.0.0.1", get_host_ip()):
            with master.new_connection("conn", host, slave.port) as connection:
                assert connection.new_task({"a": 1, "b": 1}).start().join(DEADLINE_S).result == {"sum": 2}
        assert slave.ping() and master.ping()
        signer, own = Signer(slave.port, "slave", SECRET), {"Token": slave._Role__self_token}

        def status(name):
            headers = {**signer.sign("GET", "/ping", headers=own), "Host": f"{name}:{slave.port}"}
            return outcome(raw(slave.port, "GET", "/ping", headers=headers))

        machine = socket.gethostname()
        for name in ("198.51.100.5", machine, f"{machine}.svc.cluster.local"):
            assert status(name) == (200, 0)
        for name in ("evil.example", f"x{machine}", f"evil.{machine}"):
            assert status(name) == (403, 1)


@pytest.mark.differs(
    "replies may redirect requests, with their tokens, to other servers",
    "redirects between masters and slaves are errors",
)
def test_the_token_is_not_sent_on_to_where_a_reply_points(monkeypatch):
    monkeypatch.setenv("DING_TOKEN", SECRET)
    with Adder() as slave, Watcher() as master, Proxy(slave.port) as elsewhere, Proxy(slave.port) as proxy:
        target = f"http://127.0.0.1:{elsewhere.port}/connect".encode()
        proxy._forward = lambda request: (
            b"HTTP/1.1 307 Temporary Redirect\r\nLocation: " + target + b"\r\nContent-Length: 0\r\n\r\n"
        )
        with pytest.raises(SlaveResponseException) as error:
            master.new_connection("conn", "127.0.0.1", proxy.port).connect()
        assert error.value.status_code == 307 and len(proxy.requests) == 1 and elsewhere.requests == []


def test_tokens_stand_in_no_log_and_no_text(monkeypatch, caplog):
    monkeypatch.setenv("DING_TOKEN", SECRET)
    caplog.set_level(logging.DEBUG)
    secrets = [SECRET]
    texts = []
    with Adder(heartbeat_span=0.2) as slave, Watcher(request_retries=1) as master:
        connection = master.new_connection("conn", "127.0.0.1", slave.port)
        secrets += [master._Role__self_token, slave._Role__self_token]
        for data in ({"a": 1, "b": 1}, {"raise": "x"}):
            with connection:
                secrets.append(slave._Slave__link.session.token)
                task = connection.new_task(data).start().join(DEADLINE_S)
                texts += [
                    repr(task.result),
                    repr(vars(connection)),
                    repr(vars(master)),
                    repr(vars(slave._Slave__link.session)),
                ]
        with pytest.raises(SlaveResponseException) as refused:
            connection.disconnect()
        connection.connect()
        secrets.append(slave._Slave__link.session.token)
        slave.close()
        with pytest.raises(requests.ConnectionError) as unreached:
            connection.disconnect()
        texts += [f"{e.value!r} {e.value}" for e in (refused, unreached)]
        assert "DING" not in repr(master._Role__peers.run_token) and SECRET not in repr(master._Role__peers.run_token)
    assert caplog.text
    assert not [secret for secret in secrets if secret in caplog.text]
    # The objects' own attributes hold the protocol's tokens; the run's token shows nowhere.
    assert not [text for text in texts if SECRET in text]
    assert not [s for s in secrets for e in (refused, unreached) if s in f"{e.value!r} {e.value}"]


def test_a_token_for_this_machine_only_is_none_off_loopback(monkeypatch):
    server = Adder("0.0.0.0", run_token=draw_run_token())
    with pytest.raises(PermissionError, match="needs a token"):
        server.start()
    server.close()


def tell_key(slave, connection):
    connection.send(slave._Role__peers.run_token.key)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_does_not_know_the_token():
    """Such a child is an env of a collector, in a process of its own."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    token = draw_run_token()
    key = token.key
    with Adder(run_token=token) as slave:
        process = context.Process(target=tell_key, args=(slave, theirs), daemon=True)
        process.start()
        assert ours.poll(DEADLINE_S) and ours.recv() != key
        process.join(DEADLINE_S)
        assert token.key == key and slave.ping()


def test_the_environment_cannot_switch_tracebacks_in_replies_on(monkeypatch):
    monkeypatch.setenv("FLASK_DEBUG", "1")

    class Broken(Adder):
        def _before_connection(self, data):
            raise ZeroDivisionError("inside")

    with Broken() as slave:
        body = '{"master": {"address": "http://127.0.0.1:9"}, "data": {}}'
        status, reply = raw(slave.port, "POST", "/connect", body, {"Channel": "0", "Token": "T"})
        assert status == 500
        assert reply == {"success": False, "code": 1, "message": "ZeroDivisionError: inside", "data": None}


def test_defaults_listen_on_this_machine_only():
    for host in (None, "auto", ""):
        assert Master(host, **QUICK).host == "127.0.0.1"
    assert issubclass(Adder, Slave) and Adder().host == "127.0.0.1"


def test_a_wrong_address_of_the_master_is_told_at_construction():
    for address in ("gateway.example", "ftp://gateway.example", "http://x@gateway.example", "http://gateway.example?x"):
        with pytest.raises(ValueError, match="my_address = .* is not allowed"):
            Master(my_address=address)


def test_a_wrong_entry_of_the_hosts_is_told_at_construction(monkeypatch):
    monkeypatch.setenv("DING_HOSTS", "http://x/")
    with pytest.raises(ValueError, match="'http://x/' is no host"):
        Master()
