"""Masters and slaves that serve TLS with a certificate of the run's own authority."""

import contextlib
import os
import socket
import ssl
import subprocess
from functools import partial

import pytest
import requests

from ding.interaction import server as server_module
from ding.interaction.access import RunToken, certificate_of, client_context, server_context
from ding.interaction.http_client import get_host_ip
from tests.interaction.fakes import DEADLINE_S, Adder, Gated, Watcher, configure_tls, current_of, make_certificate, pair


@pytest.fixture
def certify(tmp_path, monkeypatch):
    """Configures TLS with a certificate for a name."""
    return partial(configure_tls, monkeypatch, tmp_path)


@pytest.fixture(params=["", "s3cret"], ids=["without token", "with token"])
def token(request, set_env):
    set_env(DING_TOKEN=request.param)


@pytest.mark.differs(
    "sends secrets with each request, and never encrypts messages",
    "encrypts them off loopback, with a certificate derived from the token, or your own",
)
@pytest.mark.guarantees("strangers")
def test_off_loopback_both_ends_use_the_certificate_of_the_run(set_env):
    set_env(DING_TOKEN="s3cret" * 5)
    slave, master = Adder("0.0.0.0"), Watcher("0.0.0.0")
    with slave, master:
        assert master.my_address == f"https://{get_host_ip()}:{master.port}"
        for host in (get_host_ip(), "0.0.0.0"):
            with master.new_connection("conn", host, slave.port) as connection:
                assert connection.run({"a": 1, "b": 1}, DEADLINE_S)[1] == {"sum": 2}
        assert slave.ping() and master.ping()
        # A server that does not know the token cannot pose as one of the run, nor read the token.
        set_env(DING_TOKEN="another" * 5)
        with Watcher() as stranger, pytest.raises(requests.exceptions.SSLError):
            stranger.new_connection("conn", get_host_ip(), slave.port).connect()


def test_equal_tokens_make_equal_certificates_that_nobody_else_trusts():
    certificate_of.cache_clear()
    one = certificate_of("a" * 32)
    certificate_of.cache_clear()
    assert certificate_of("a" * 32) == one != certificate_of("b" * 32)
    assert one[0].startswith("-----BEGIN CERTIFICATE-----") and "PRIVATE KEY" in one[1]
    assert client_context(RunToken("a" * 32)).verify_mode is ssl.CERT_REQUIRED


def test_a_run_over_tls_works_like_any_other(certify, token):
    certify()
    with Adder(heartbeat_span=0.2) as slave, Watcher() as master:
        assert master.my_address.startswith("https://127.0.0.1:") and master.ping() and slave.ping()
        with master.new_connection("conn", "127.0.0.1", slave.port) as connection:
            for size in (1, 200_000):
                task = connection.new_task({"a": "x" * size, "b": "y"}).start().join(DEADLINE_S)
                assert task.result == {"sum": "x" * size + "y"}
            assert current_of(slave).session.address == master.my_address
        assert slave.losses == master.losses == []


@pytest.mark.guarantees("strangers")
def test_a_certificate_of_another_authority_or_name_is_refused(certify, set_env, tmp_path):
    certify("DNS:elsewhere.example")
    with Adder() as slave, Watcher() as master:
        connection = master.new_connection("conn", "127.0.0.1", slave.port)
        with pytest.raises(requests.ConnectionError, match=r"certificate verify failed: IP address mismatch"):
            connection.connect()
        set_env(DING_TLS_CA=make_certificate(tmp_path, "IP:127.0.0.1")[0])
        with pytest.raises(requests.ConnectionError, match=r"certificate verify failed: self.signed certificate"):
            master.new_connection("conn", "127.0.0.1", slave.port).connect()
        assert not slave.ping() and current_of(slave).session is None


@pytest.mark.guarantees("strangers")
def test_handshakes_that_fail_are_not_logged(certify, caplog):
    certify()
    with Adder() as slave:
        for message in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello"):
            with socket.create_connection(("127.0.0.1", slave.port), DEADLINE_S) as client:
                client.sendall(message)
                with contextlib.suppress(ConnectionResetError):
                    while client.recv(100):
                        pass
        assert slave.ping() and not caplog.records


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
def test_an_unusable_file_of_a_server_is_named_with_its_variable(certify, set_env, tmp_path, variable):
    certify()
    for path, error, reason in (
        (tmp_path / "none.pem", FileNotFoundError, "cannot be read: No such file"),
        (tmp_path, IsADirectoryError, "cannot be read: Is a directory"),
        (__file__, ssl.SSLError, ".*not a certificate and its key in PEM"),
    ):
        set_env(**{variable: path})
        with pytest.raises(error, match=f"{variable} = '{path}' .*{reason}"):
            server_context("127.0.0.1", None)


def test_an_encrypted_key_is_refused_instead_of_asking_for_its_password(certify, set_env, tmp_path):
    certify()
    encrypted = str(tmp_path / "encrypted.key")
    command = ["openssl", "ec", "-in", os.environ["DING_TLS_KEY"], "-aes256", "-passout", "pass:secret", "-out"]
    subprocess.run([*command, encrypted], check=True, capture_output=True, timeout=DEADLINE_S)
    set_env(DING_TLS_KEY=encrypted)
    with pytest.raises(ValueError, match="the key that DING_TLS_KEY names is encrypted"):
        server_context("127.0.0.1", None)


@pytest.mark.parametrize(
    "name, error, reason",
    [("none.pem", FileNotFoundError, "cannot be read"), ("empty.pem", ssl.SSLError, "holds no certificate")],
)
def test_an_unusable_file_of_authorities_is_named(set_env, tmp_path, name, error, reason):
    (tmp_path / "empty.pem").touch()
    set_env(DING_TLS_CA=tmp_path / name)
    with pytest.raises(error, match=f"DING_TLS_CA = .*{name}' {reason}"):
        client_context(None)


def test_on_loopback_servers_speak_plain_http():
    assert server_context("127.0.0.1", None) is None
    with pair(Gated()) as (master, _, _):
        assert master.my_address.startswith("http://")


def greeting():
    """The first message of a client's handshake."""
    sent = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), sent, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()


@pytest.mark.guarantees("strangers")
@pytest.mark.parametrize("half", [False, True], ids=["nothing sent", "half a handshake"])
def test_of_the_clients_that_do_not_finish_their_handshake_the_oldest_give_way(certify, monkeypatch, half):
    certify()
    monkeypatch.setattr(server_module, "_MOST_STRANGERS", 5)
    with Adder() as slave, contextlib.ExitStack() as stack:
        silent = []
        for _ in range(20):
            silent.append(stack.enter_context(socket.create_connection(("127.0.0.1", slave.port), DEADLINE_S)))
            silent[-1].sendall(greeting() if half else b"")
        for client in silent[:15]:
            with contextlib.suppress(ConnectionResetError):
                while client.recv(10_000):  # the server's part of the handshake, up to the end
                    pass
        assert slave.ping()
        newest = silent[-1]
        newest.sendall(b"" if half else greeting())
        assert newest.recv(1) == b"\x16"  # a message of the handshake: this one goes on
        assert len(slave._Role__server._server.streams) <= 7
