"""The client, against servers that mistreat it."""

import contextlib
import socket
import struct
import threading
import time

import pytest
import requests

from ding.interaction.client import PeerClient
from tests.interaction.fakes import DEADLINE_S, Listener, free_port, read_message
from tests.worker.collector.parallel_fakes import in_thread

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
    return PeerClient("slave", ("127.0.0.1", port, https), {"Token": "T"}, None, 1, 0.01)


@contextlib.contextmanager
def served(serve):
    """An engine for a server that calls `serve(client, stream)` for each connection, and the server's sockets."""
    with Server(serve) as server:
        engine = engine_to(server.port)
        yield engine, server.sockets
        engine.close()


def exchange(engine, data=None, reply_s=DEADLINE_S, within_s=DEADLINE_S):
    return engine.request(
        "POST", "/x", data, timeout=(5.0, reply_s), deadline=time.monotonic() + within_s, most_retries=0
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
            assert (received.status_code, received.content.strip()) == (200, ENVELOPE)
        assert len(clients) == 1


def close(client):
    client.shutdown(socket.SHUT_RDWR)


def reset(client):
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.parametrize("end", [close, reset])
def test_a_connection_that_the_server_has_ended_is_replaced(end):
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


@pytest.mark.parametrize("options", [{"reply_s": 0.3}, {"within_s": 0.3}])
@pytest.mark.parametrize(
    ("begin", "drop"),
    [(b"HTTP/1.1 200 OK\r\n", b""), (OK[:-50], b""), (OK[:-50], b"x")],
    ids=["half a head", "half a body", "a slow body"],
)
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
    with pytest.raises(requests.ConnectionError):
        exchange(engine_to(free_port()))


def test_closing_ends_a_request_that_waits_for_its_reply():
    asked = threading.Event()

    def serve(client, stream):
        read_message(stream)
        asked.set()
        stream.read()

    with served(serve) as (pool, _):
        outcome = in_thread(exchange, pool)
        assert asked.wait(DEADLINE_S)
        pool.close()
        assert isinstance(outcome(), requests.ConnectionError)
