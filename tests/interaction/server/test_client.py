"""The client, against servers that mistreat it."""

import contextlib
import gzip
import json
import socket
import struct
import threading
import time

import pytest
import requests

from ding.interaction.exception import SlaveResponseException
from ding.interaction.server import client as client_module
from ding.interaction.server.client import Peers
from tests.interaction.fakes import DEADLINE_S, Listener, free_port, read_message

ENVELOPE = b'{"success": true, "code": 0, "message": "", "data": null}'
OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(ENVELOPE), ENVELOPE)


class Server(Listener):
    """Calls `serve(client, stream)` for each connection."""

    def __init__(self, serve):
        super().__init__()
        self._serve_stream = serve

    def serve(self, client):
        with client.makefile("rb") as stream:
            self._serve_stream(client, stream)


def engine_to(port, https=False):
    return Peers("slave", 0, 1, 0.01, None).engine(("127.0.0.1", port, https, ""), "T")


@contextlib.contextmanager
def served(serve):
    """An engine for a server that calls `serve(client, stream)` for each connection, and the server's sockets."""
    with Server(serve) as server:
        engine = engine_to(server.port)
        yield engine, server.sockets
        engine.close()


def exchange(engine, data=None, reply_s=DEADLINE_S, within_s=DEADLINE_S):
    return engine._exchange(
        "POST", "x", json.dumps(data or {}).encode(), None, (5.0, reply_s), time.monotonic() + within_s
    )


def answering(*replies):
    """Serves `replies` in turn, and again."""

    def serve(client, stream):
        while True:
            for reply in replies:
                if not read_message(stream):
                    return
                client.sendall(reply)

    return serve


def test_a_connection_in_use_is_closed_after_its_exchange_if_the_engine_was_closed_meanwhile():
    asked, go, has_ended, ends = threading.Event(), threading.Event(), threading.Event(), []

    def serve(client, stream):
        read_message(stream)
        asked.set()
        assert go.wait(DEADLINE_S)
        client.sendall(OK)
        ends.append(stream.read())  # until the client closes its side
        has_ended.set()

    with Server(serve) as server:
        engine = engine_to(server.port)
        replies = []
        thread = threading.Thread(target=lambda: replies.append(exchange(engine)))
        thread.start()
        assert asked.wait(DEADLINE_S)
        engine.close()
        go.set()
        thread.join(DEADLINE_S)
        assert replies[0].status_code == 200
        assert has_ended.wait(DEADLINE_S) and ends == [b""]


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "reply",
    [
        OK,
        CHUNKED + b"%x\r\n%s\r\n1\r\n \r\n0\r\n\r\n" % (len(ENVELOPE), ENVELOPE),
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
    ],
)
def test_one_connection_carries_all_exchanges(reply):
    with served(answering(reply)) as (pool, clients):
        for _ in range(5):
            received = exchange(pool)
            assert (received.status_code, received.reason, received.content.strip()) == (200, "OK", ENVELOPE)
        assert len(clients) == 1


@pytest.mark.parametrize(
    "reply", [b"HTTP/1.1 200 OK\r\n\r\n" + ENVELOPE, OK.replace(b" OK\r\n", b" OK\r\nConnection: close\r\n")]
)
def test_a_connection_that_ends_with_the_reply_is_not_used_again(reply):
    def serve(client, stream):
        read_message(stream)
        client.sendall(reply)

    with served(serve) as (pool, clients):
        for count in (1, 2, 3):
            assert exchange(pool).content == ENVELOPE and len(clients) == count


def close(client):
    client.shutdown(socket.SHUT_RDWR)


def reset(client):
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def send_unasked(client):
    client.sendall(OK)


@pytest.mark.parametrize("end", [close, reset, send_unasked])
def test_a_connection_that_the_server_has_ended_or_sent_something_on_meanwhile_is_replaced(end):
    ended = threading.Event()

    def serve(client, stream):
        read_message(stream)
        client.sendall(OK)
        assert received.wait(DEADLINE_S)
        end(client)
        stream.close()
        client.close()
        ended.set()

    with served(serve) as (pool, clients):
        for count in (1, 2, 3):
            received = threading.Event()
            assert exchange(pool).content == ENVELOPE and len(clients) == count
            received.set()
            assert ended.wait(DEADLINE_S)
            ended.clear()


@pytest.mark.parametrize(
    "reply",
    [b"", b"HTTP/1.1 200", OK[:-1], CHUNKED + b"2\r\n{}", b"none\r\n\r\n"],
)
def test_half_a_reply_is_a_connection_error(reply):
    def serve(client, stream):
        read_message(stream)
        client.sendall(reply)

    with served(serve) as (pool, _), pytest.raises(requests.ConnectionError):
        exchange(pool)


def test_a_reply_without_end_is_given_up(monkeypatch):
    monkeypatch.setattr(client_module, "_REPLY_LIMIT", 10_000)

    def serve(client, stream):
        read_message(stream)
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            client.sendall(b"x" * 1000)

    with served(serve) as (pool, _), pytest.raises(requests.ConnectionError, match="more than 10000 bytes"):
        exchange(pool)


@pytest.mark.parametrize("options", [{"reply_s": 0.3}, {"within_s": 0.3}])
@pytest.mark.parametrize("drop", [b"", b"x"])
@pytest.mark.parametrize("begin", [b"HTTP/1.1 200 OK\r\n", OK[:-50]], ids=["head", "body"])
def test_a_server_that_is_mute_or_slow_runs_into_the_limit(options, begin, drop):
    ended = threading.Event()

    def serve(client, stream):
        read_message(stream)
        client.sendall(begin)
        while not ended.wait(0.05):
            client.sendall(drop)

    with served(serve) as (pool, _):
        begin_s = time.monotonic()
        with pytest.raises(requests.Timeout):
            exchange(pool, **options)
        assert time.monotonic() - begin_s < DEADLINE_S / 2
        ended.set()


def test_nobody_there_is_a_connection_error():
    with pytest.raises(requests.ConnectionError, match="was not reached"):
        exchange(engine_to(free_port()))


def test_who_does_not_accept_is_a_timeout():
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        with contextlib.ExitStack() as stack:
            for _ in range(2):  # as many as wait in the queue of the listener
                waiting = stack.enter_context(socket.socket())
                waiting.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    waiting.connect(("127.0.0.1", port))
            begin_s = time.monotonic()
            with pytest.raises(requests.ConnectTimeout):
                exchange(engine_to(port), within_s=0.3)
            assert time.monotonic() - begin_s < DEADLINE_S / 2


def test_a_refusal_is_read_also_where_it_comes_before_all_is_sent():
    refusal = b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"

    def serve(client, stream):
        stream.readline()
        client.sendall(refusal)
        client.shutdown(socket.SHUT_WR)
        stream.read(1_000_000)

    with served(serve) as (pool, _):
        with pytest.raises(SlaveResponseException) as error:
            exchange(pool, {"text": "x" * 50_000_000})
        assert error.value.status_code == 413


def test_a_reply_is_not_decompressed():
    bomb = gzip.compress(b"0" * 100_000_000)
    reply = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s" % (len(bomb), bomb)
    with served(answering(reply)) as (pool, _), pytest.raises(SlaveResponseException, match="not come from a master"):
        exchange(pool)


def test_a_server_without_a_certificate_that_counts_is_none_over_https():
    def serve(client, stream):
        stream.read(1)

    with served(serve) as (plain, _):
        pool = engine_to(plain._address[1], https=True)
        with pytest.raises(requests.ConnectionError):
            exchange(pool)
