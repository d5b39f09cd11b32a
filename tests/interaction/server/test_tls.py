"""Masters and slaves that serve TLS with a certificate of the run's own authority."""

import contextlib
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from functools import partial

import pytest
import requests

from ding.interaction.exception import SlaveResponseException
from ding.interaction.server import guard
from ding.interaction.server.access import client_context, server_context
from ding.worker.transport.http_transport import HttpWorkerClient
from ding.worker.transport.transport import WorkerLost
from tests.interaction.fakes import DEADLINE_S, Adder, Gated, Watcher, configure_tls, make_certificate, pair


@pytest.fixture
def certify(tmp_path, monkeypatch):
    """Configures TLS with a certificate for a name."""
    return partial(configure_tls, monkeypatch, tmp_path)


@pytest.fixture(params=["", "s3cret"], ids=["without token", "with token"])
def token(request, monkeypatch):
    monkeypatch.setenv("DING_TOKEN", request.param)


@pytest.mark.differs(
    "messages are never encrypted",
    "they are if `DING_TLS_CERT` and `DING_TLS_KEY` name a certificate and its key",
)
def test_a_run_over_tls_works_like_any_other(certify, token):
    certify()
    with Adder(heartbeat_span=0.2) as slave, Watcher() as master:
        assert master.my_address.startswith("https://127.0.0.1:") and master.ping() and slave.ping()
        connection = master.new_connection("conn", "127.0.0.1", slave.port, https=True)
        with connection:
            for size in (1, 200_000):
                task = connection.new_task({"a": "x" * size, "b": "y"}).start().join(DEADLINE_S)
                assert task.result == {"sum": "x" * size + "y"}
            assert slave._Slave__link.session.address == master.my_address
            slave._Slave__heartbeat.beat(slave._Slave__link.session)
        assert slave.losses == master.losses == []


def test_a_certificate_of_another_authority_or_name_is_refused(certify, monkeypatch, tmp_path):
    certify("DNS:elsewhere.example")
    with Adder() as slave, Watcher() as master:
        connection = master.new_connection("conn", "127.0.0.1", slave.port, https=True)
        with pytest.raises(requests.ConnectionError, match=r"certificate verify failed: IP address mismatch"):
            connection.connect()
        monkeypatch.setenv("DING_TLS_CA", make_certificate(tmp_path, "IP:127.0.0.1")[0])
        with pytest.raises(requests.ConnectionError, match=r"certificate verify failed: self.signed certificate"):
            connection.connect()
        assert not slave.ping() and slave._Slave__link.session is None


def test_a_plain_client_is_told_at_once_that_the_server_speaks_tls(certify, token):
    certify()
    with Adder() as slave, Watcher(request_retries=1000, request_retry_waiting=DEADLINE_S) as master:
        with pytest.raises(SlaveResponseException, match="this server speaks TLS; use https") as error:
            master.new_connection("conn", "127.0.0.1", slave.port).connect()
        assert error.value.status_code == 400
        assert slave._Slave__link.session is None and slave.ping()


def test_a_tls_client_is_told_at_once_that_the_server_does_not_speak_tls(certify, token, monkeypatch):
    with Adder() as slave:
        certify()
        with (
            Watcher(request_retries=1000, request_retry_waiting=DEADLINE_S) as master,
            pytest.raises(requests.exceptions.SSLError, match="it does not speak TLS"),
        ):
            master.new_connection("conn", "127.0.0.1", slave.port, https=True).connect()
        with socket.create_connection(("127.0.0.1", slave.port), DEADLINE_S) as client:
            client.sendall(greeting())
            assert b"this server does not speak TLS" in client.makefile("rb").read()


@pytest.mark.differs(
    "a wrong protocol or certificate is a transport error like any other",
    "TLS to a plain server, plain HTTP to one with TLS, and a certificate that does not verify are told at once",
)
def test_a_certificate_that_does_not_verify_is_not_tried_again(certify, monkeypatch, tmp_path):
    certify()
    monkeypatch.setenv("DING_TLS_CA", make_certificate(tmp_path, "IP:127.0.0.1")[0])
    monkeypatch.setenv("DING_TLS_CERT", make_certificate(tmp_path, "IP:127.0.0.2")[0])
    monkeypatch.setenv("DING_TLS_KEY", str(tmp_path / "IP:127.0.0.2.key"))
    with Adder() as slave, Watcher(request_retries=1000, request_retry_waiting=DEADLINE_S) as master:
        with pytest.raises(requests.exceptions.SSLError, match="certificate verify failed"):
            master.new_connection("conn", "127.0.0.1", slave.port, https=True).connect()
        hub = HttpWorkerClient(master, "link", "127.0.0.1", slave.port, set())
        with pytest.raises(WorkerLost, match="refuses the connection: .*certificate verify failed"):
            hub.connect(10 * DEADLINE_S)


@pytest.mark.parametrize("kind", [Adder, Watcher], ids=["slave", "master"])
def test_an_unusable_file_of_authorities_is_an_error_at_start(certify, monkeypatch, kind):
    certify()
    monkeypatch.setenv("DING_TLS_CA", __file__)
    with pytest.raises(ssl.SSLError, match="DING_TLS_CA = .* holds no certificate"):
        kind().start()
    monkeypatch.delenv("DING_TLS_CERT")
    monkeypatch.delenv("DING_TLS_KEY")
    with pytest.raises(ssl.SSLError, match="DING_TLS_CA = .* holds no certificate"):  # clients need it too
        kind().start()


def test_a_refused_body_is_answered_over_tls(certify):
    certify()
    with Adder(body_limit=1000) as slave, Watcher() as master:
        connection = master.new_connection("conn", "127.0.0.1", slave.port, https=True)
        with connection, pytest.raises(SlaveResponseException, match="Request Entity Too Large: the limit is 1000"):
            connection.new_task({"text": "x" * 2000}).start()


def test_a_client_that_does_not_finish_the_handshake_does_not_keep_the_server_from_ending(certify):
    certify()
    with socket.socket() as silent:
        with Adder() as slave:
            silent.connect(("127.0.0.1", slave.port))
            assert slave.ping()  # a later connection was served, so this one was accepted
            began = time.monotonic()
        assert time.monotonic() - began < 1.3
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("slave")]


def test_half_of_a_certificate_and_its_key_is_an_error_at_start(monkeypatch, tmp_path):
    for name, missing in (("DING_TLS_CERT", "DING_TLS_KEY"), ("DING_TLS_KEY", "DING_TLS_CERT")):
        with monkeypatch.context() as patch, pytest.raises(ValueError, match=f"^{missing} is not set"):
            patch.setenv(name, "some.pem")
            Adder().start()
    (tmp_path / "empty").touch()
    for path, error in ((tmp_path / "none", FileNotFoundError), (tmp_path / "empty", ssl.SSLError)):
        with monkeypatch.context() as patch, pytest.raises(error):
            patch.setenv("DING_TLS_CERT", str(path))
            patch.setenv("DING_TLS_KEY", str(path))
            Adder().start()


@pytest.mark.parametrize("variable", ["DING_TLS_CERT", "DING_TLS_KEY"])
def test_an_unusable_file_of_a_server_is_named_with_its_variable(certify, monkeypatch, tmp_path, variable):
    certify()
    for path, error, reason in (
        (tmp_path / "none.pem", FileNotFoundError, "cannot be read: No such file"),
        (tmp_path, IsADirectoryError, "cannot be read: Is a directory"),
        (__file__, ssl.SSLError, ".*not a certificate and its key in PEM"),
    ):
        monkeypatch.setenv(variable, str(path))
        with pytest.raises(error, match=f"{variable} = '{path}' .*{reason}"):
            server_context()


def test_an_encrypted_key_is_refused_instead_of_asking_for_its_password(certify, monkeypatch, tmp_path):
    certify()
    encrypted = str(tmp_path / "encrypted.key")
    command = ["openssl", "ec", "-in", os.environ["DING_TLS_KEY"], "-aes256", "-passout", "pass:secret", "-out"]
    subprocess.run([*command, encrypted], check=True, capture_output=True, timeout=DEADLINE_S)
    monkeypatch.setenv("DING_TLS_KEY", encrypted)
    with pytest.raises(ValueError, match="the key that DING_TLS_KEY names is encrypted"):
        server_context()


def test_an_unusable_file_of_authorities_is_named_by_the_client(certify, monkeypatch, tmp_path):
    certify()
    with Adder() as slave, Watcher() as master:
        connection = master.new_connection("conn", "127.0.0.1", slave.port, https=True)
        for path, reason in (
            (tmp_path / "none.pem", "cannot be read: No such file"),
            (__file__, "holds no certificate"),
        ):
            monkeypatch.setenv("DING_TLS_CA", str(path))
            with pytest.raises(requests.ConnectionError, match=f"DING_TLS_CA = '{path}' {reason}"):
                connection.connect()


def test_without_a_certificate_servers_speak_plain_http():
    assert server_context() is None
    with pair(Gated()) as (master, _, _):
        assert master.my_address.startswith("http://")


def greeting():
    """The first message of a client's handshake."""
    sent = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), sent, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()


def unfinished(stack, port, message, address="127.0.0.1"):
    """A client that begins a handshake with `message`, and sends no more."""
    client = stack.enter_context(socket.socket())
    client.settimeout(DEADLINE_S)
    client.bind((address, 0))
    client.connect(("127.0.0.1", port))
    client.sendall(message)
    return client


def is_closed(client):
    """Whether the server ends the connection, waiting for that."""
    try:
        while client.recv(10_000):  # the server's part of the handshake
            pass
    except ConnectionResetError:
        pass
    return True


@pytest.mark.parametrize("half", [False, True], ids=["nothing sent", "half a handshake"])
@pytest.mark.parametrize(
    ("limit", "addresses"),
    [
        ("_MOST_NEW", ["127.0.0.1"] * 20),
        pytest.param(
            "_MOST_NEW_OF_ALL",
            [f"127.0.0.{2 + number}" for number in range(20)],
            marks=pytest.mark.skipif(sys.platform != "linux", reason="elsewhere 127.0.0.1 is the only such address"),
        ),
    ],
)
def test_of_the_clients_that_do_not_finish_their_handshake_the_oldest_give_way(
    certify, monkeypatch, limit, addresses, half
):
    certify()
    monkeypatch.setattr(guard, limit, 5)
    with Adder() as slave, contextlib.ExitStack() as stack:
        message = greeting() if half else b""
        silent = [unfinished(stack, slave.port, message, address) for address in addresses]
        assert all(is_closed(client) for client in silent[:15])
        assert slave.ping()
        newest = silent[-1]
        newest.sendall(b"" if half else greeting())
        assert newest.recv(1) == b"\x16"  # a message of the handshake: this one goes on
        assert slave._Role__server.connection_count <= 7


def test_a_client_that_does_not_finish_its_handshake_is_closed_after_a_while(certify, monkeypatch):
    certify()
    monkeypatch.setattr(guard, "_ADMISSION_S", 0.2)
    with Adder() as slave, contextlib.ExitStack() as stack:
        assert is_closed(unfinished(stack, slave.port, b""))
        assert is_closed(unfinished(stack, slave.port, greeting()[:20]))


def test_a_request_that_comes_with_the_end_of_the_handshake_is_answered(certify):
    certify()
    context = client_context()
    with Adder() as slave, socket.create_connection(("127.0.0.1", slave.port), DEADLINE_S) as plain:
        request = f"GET /ping HTTP/1.1\r\nHost: 127.0.0.1:{slave.port}\r\nToken: {slave._Role__self_token}\r\n\r\n"
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                plain.sendall(outgoing.read())
                incoming.write(plain.recv(10_000))
        client.write(request.encode())
        plain.sendall(outgoing.read())  # the last message of the handshake, and the request
        while True:
            try:
                assert client.read(15) == b"HTTP/1.1 200 OK"
                break
            except ssl.SSLWantReadError:
                incoming.write(plain.recv(10_000))


def over_tls(port):
    plain = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
    return client_context().wrap_socket(plain, server_hostname="127.0.0.1")


def own_ping(slave):
    head = f"GET /ping HTTP/1.1\r\nHost: 127.0.0.1:{slave.port}\r\nToken: {slave._Role__self_token}\r\n\r\n"
    return head.encode()


def test_the_last_reply_over_tls_ends_the_connection(certify):
    certify()
    with Adder() as slave, over_tls(slave.port) as client:
        client.sendall(own_ping(slave).replace(b"\r\n", b"\r\nConnection: close\r\n", 1) * 2)
        reply = b""
        while received := client.recv(10_000):
            reply += received
        assert reply.count(b"HTTP/1.1 ") == 1


def test_what_is_no_tls_after_the_handshake_ends_the_connection(certify):
    certify()
    with Adder() as slave:
        with socket.socket(fileno=over_tls(slave.port).detach()) as plain:
            plain.settimeout(DEADLINE_S)
            plain.sendall(own_ping(slave))
            received = b""
            with contextlib.suppress(ConnectionResetError):
                while data := plain.recv(10_000):
                    received += data
            assert b"HTTP" not in received
        assert slave.ping()
