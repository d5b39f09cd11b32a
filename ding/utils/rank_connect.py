"""Connects the ranks of a process group with rank 0 by sockets that only they can open."""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
import socket
import time
from collections.abc import Callable
from typing import Any

_HELLO_LIMIT = 4096
_HELLO_TIMEOUT_S = 5.0
_REACH_PORT = 9  # of a datagram socket that sends nothing


def connect_ranks(
    rank: int, world_size: int, master: str, share: Callable[[list[Any]], None], timeout_s: float
) -> tuple[list[str], dict[int, socket.socket]]:
    """Connect every other rank with rank 0; all ranks call this together.

    Rank 0 listens on the address by which this host reaches `master`, the loopback one where both are the same host. A
    connection counts once it has sent the secret that `share` carried.

    Args:
        share: fills a list with the one of rank 0, on all ranks.

    Returns:
        what to call each rank in messages, and the sockets by rank.

    Raises:
        TimeoutError: a rank did not connect within `timeout_s`, or rank 0 could not be reached.
    """
    deadline = time.monotonic() + timeout_s
    name = f"rank {rank} (process {os.getpid()} on {socket.gethostname()})"
    if rank != 0:
        offer: list[Any] = [None]
        share(offer)
        host, port, secret = offer[0]
        return _dial(host, port, secret, rank, name, deadline)
    with contextlib.closing(_listen_near(master, world_size)) as server:
        secret = secrets.token_hex(16)
        host, port = server.getsockname()[:2]
        share([(host, port, secret)])
        return _gather(server, world_size, secret, name, deadline)


def _listen_near(master: str, backlog: int) -> socket.socket:
    """A listening socket on the address from which this host would talk to `master`."""
    family, _, _, _, address = socket.getaddrinfo(master, _REACH_PORT, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)
        own = probe.getsockname()[0]
    server = socket.socket(family, socket.SOCK_STREAM)
    try:
        server.bind((own, 0))
        server.listen(backlog)
    except OSError:
        server.close()
        raise
    return server


def _gather(
    server: socket.socket, world_size: int, secret: str, name: str, deadline: float
) -> tuple[list[str], dict[int, socket.socket]]:
    names = {0: name}
    sockets: dict[int, socket.socket] = {}
    try:
        while len(names) < world_size:
            server.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                connection = server.accept()[0]
            except TimeoutError:
                missing = sorted(set(range(world_size)) - set(names))
                raise TimeoutError(f"ranks {missing} joined the group, but did not connect to rank 0 in time") from None
            hello = _hello(connection, secret)
            if hello is None:
                connection.close()
                continue
            names[int(hello["rank"])] = str(hello["name"])
            sockets[int(hello["rank"])] = connection
        roster = [names[rank] for rank in range(world_size)]
        for connection in sockets.values():
            _prepare(connection).sendall(json.dumps(roster).encode() + b"\n")
    except BaseException:
        for connection in sockets.values():
            connection.close()
        raise
    return roster, sockets


def _hello(connection: socket.socket, secret: str) -> dict[str, Any] | None:
    """What a rank says of itself; None for somebody who does not know the secret."""
    connection.settimeout(_HELLO_TIMEOUT_S)
    try:
        hello = json.loads(_read_line(connection, _HELLO_LIMIT))
        is_known = hmac.compare_digest(str(hello["secret"]).encode(), secret.encode())
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return hello if is_known else None


def _dial(
    host: str, port: int, secret: str, rank: int, name: str, deadline: float
) -> tuple[list[str], dict[int, socket.socket]]:
    connection = None
    try:
        connection = socket.create_connection((host, port), max(deadline - time.monotonic(), 0.001))
        hello = {"secret": secret, "rank": rank, "name": name}
        connection.sendall(json.dumps(hello).encode() + b"\n")
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        roster = json.loads(_read_line(connection))
    except (OSError, ValueError) as e:
        if connection is not None:
            connection.close()
        raise TimeoutError(f"rank {rank} could not connect to rank 0 at {host}:{port}: {e}") from e
    return roster, {0: _prepare(connection)}


def _read_line(connection: socket.socket, limit: int | None = None) -> bytes:
    """The bytes up to a newline, read one by one so that nothing after it is taken.

    Raises:
        ValueError: the other side hung up before, or the line is longer than `limit`.
    """
    line = bytearray()
    while limit is None or len(line) < limit:
        byte = connection.recv(1)
        if byte == b"\n":
            return bytes(line)
        if not byte:
            raise ValueError("the connection was closed")
        line += byte
    raise ValueError(f"a line of more than {limit} bytes")


def _prepare(connection: socket.socket) -> socket.socket:
    """Blocking, without delay, and noticing within half a minute that the other host is gone."""
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return connection
