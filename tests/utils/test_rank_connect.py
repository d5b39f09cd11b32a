"""How ranks find rank 0, here as threads of one process."""

import json
import queue
import socket
import threading

import pytest

from ding.utils import rank_connect
from ding.utils.rank_connect import connect_ranks

LONG_S = 10


class Sharing:
    """Carries what rank 0 shares to the others."""

    def __init__(self, others):
        self._offers = queue.Queue()
        self._others = others

    def __call__(self, offer):
        if offer[0] is None:
            offer[0] = self._offers.get(timeout=LONG_S)
        else:
            for _ in range(self._others):
                self._offers.put(offer[0])


def connect_all(n, share):
    results = {}

    def run(rank):
        results[rank] = connect_ranks(rank, n, "localhost", share, LONG_S)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)
    return [results[rank] for rank in range(n)]


def close(results):
    for _, sockets in results:
        for connection in sockets.values():
            connection.close()


def test_each_rank_is_connected_with_rank_0_and_all_know_all_names():
    results = connect_all(3, Sharing(2))
    names = [names for names, _ in results]
    assert names[0] == names[1] == names[2]
    assert [name.split(" (process ")[0] for name in names[0]] == ["rank 0", "rank 1", "rank 2"]
    assert [sorted(sockets) for _, sockets in results] == [[1, 2], [0], [0]]
    for rank in (1, 2):
        results[rank][1][0].sendall(b"%d" % rank)
        assert results[0][1][rank].recv(10) == b"%d" % rank
        assert results[0][1][rank].gettimeout() is None
    close(results)


def test_a_local_master_is_listened_to_on_the_loopback_address_only():
    with rank_connect._listen_near("localhost", 1) as server:
        assert server.getsockname()[0] in ("127.0.0.1", "::1")


@pytest.mark.parametrize(
    "hello",
    [b"GET / HTTP/1.0\n", b'{"rank": 1}\n', b'["secret"]\n', b'{"secret": "no", "rank": 1}\n', b"", b"x" * 5000],
)
def test_a_stranger_is_hung_up_on_and_does_not_count(hello):
    sharing = Sharing(1)

    def share(offer):
        if offer[0] is not None:
            with socket.create_connection(tuple(offer[0][:2]), LONG_S) as stranger:
                stranger.sendall(hello)
                stranger.shutdown(socket.SHUT_WR)
        sharing(offer)

    results = connect_all(2, share)
    assert [sorted(sockets) for _, sockets in results] == [[1], [0]]
    close(results)


def test_ranks_that_do_not_come_are_named():
    with pytest.raises(TimeoutError, match=r"ranks \[1, 2\] joined the group, but did not connect to rank 0 in time"):
        connect_ranks(0, 3, "localhost", lambda offer: None, 0.05)


def test_a_gathering_that_fails_hangs_up_on_those_that_came():
    connected = []

    def share(offer):
        host, port, secret = offer[0]
        connected.append(socket.create_connection((host, port), LONG_S))
        connected[0].sendall(json.dumps({"secret": secret, "rank": 1, "name": "rank 1"}).encode() + b"\n")

    with pytest.raises(TimeoutError, match=r"ranks \[2\] joined"):
        connect_ranks(0, 3, "localhost", share, 0.3)
    assert connected[0].recv(1) == b""
    connected[0].close()


def test_a_rank_0_that_cannot_be_reached_is_named():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

        def share(offer):
            offer[0] = ("127.0.0.1", port, "secret")

        with pytest.raises(TimeoutError, match=f"rank 1 could not connect to rank 0 at 127.0.0.1:{port}"):
            connect_ranks(1, 2, "localhost", share, LONG_S)


def test_a_rank_0_that_hangs_up_is_named():
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=lambda: server.accept()[0].close()).start()

        def share(offer):
            offer[0] = (*server.getsockname(), "secret")

        with pytest.raises(TimeoutError, match="rank 1 could not connect to rank 0"):
            connect_ranks(1, 2, "localhost", share, LONG_S)


def test_an_address_that_cannot_be_listened_on_leaves_no_socket_open(monkeypatch):
    made = []

    class Refusing(socket.socket):
        def bind(self, address):
            made.append(self)
            raise OSError("in use")

    monkeypatch.setattr(rank_connect.socket, "socket", Refusing)
    with pytest.raises(OSError, match="in use"):
        rank_connect._listen_near("127.0.0.1", 1)
    assert made[0].fileno() == -1
