"""A line between the ranks of a process group, over which each one learns at once when another ends.

Every rank holds a connection to rank 0, which passes on what it hears. A rank says when it leaves and when it fails;
one whose connection breaks without a word was killed. That works for every backend and launcher, whether or not the
ranks wait in a collective operation.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_KILLED = (
    "it ended without leaving the group: a signal killed it (out of memory?), it called os._exit, or its host is gone; "
    "look at its output and at the system log"
)
_MAX_CAUSE = 2000
_EXIT_STATUS = 1


class RankFailedError(RuntimeError):
    """Another rank of the process group has failed, and this one cannot go on without it.

    Attributes:
        rank: number of the failed rank.
        cause: why it failed, in words.
    """

    def __init__(self, rank: int, cause: str, message: str) -> None:
        super().__init__(message)
        self.rank = rank
        self.cause = cause

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.rank, self.cause, str(self))


def end_process() -> None:
    """End this process now, whatever its threads are doing."""
    os._exit(_EXIT_STATUS)


def signal_main_thread() -> None:
    """Make the main thread leave what it does, where the program handles SIGTERM (by saving, say); else do nothing."""
    if callable(signal.getsignal(signal.SIGTERM)) and hasattr(signal, "pthread_kill"):
        ident = threading.main_thread().ident
        assert ident is not None
        signal.pthread_kill(ident, signal.SIGTERM)


class RankLine:
    """The connections of one rank, and a thread that listens to them.

    Where another rank fails, the next `check` raises; a process that is still there after `grace_s` (a third of it
    before the main thread is signalled) is ended, since its main thread may wait for ever in a library.

    Args:
        rank: of this process.
        names: what to call each rank, by its number.
        sockets: connected stream sockets by rank: on rank 0 one to each other rank, elsewhere one to rank 0.
        grace_s: seconds for an orderly end.
        on_failure: called in the listening thread when another rank fails.
        signal_main: called once in that case, after a third of `grace_s`.
        end: called in that case after `grace_s`.
    """

    def __init__(
        self,
        rank: int,
        names: Sequence[str],
        sockets: Mapping[int, socket.socket],
        grace_s: float,
        on_failure: Callable[[], None] | None = None,
        signal_main: Callable[[], None] = signal_main_thread,
        end: Callable[[], None] = end_process,
    ) -> None:
        self._rank = rank
        self._names = names
        self._sockets = dict(sockets)
        self._grace_s = grace_s
        self._on_failure = on_failure
        self._signal_main = signal_main
        self._end = end
        self._failure: RankFailedError | None = None
        self._left: dict[int, float] = {}  # rank -> when, by the monotonic clock
        self._news = threading.Condition()
        self._sending = threading.Lock()
        self._is_ending = False
        self._closed = threading.Event()
        self._threads = [threading.Thread(target=self._listen, name="rank line", daemon=True)]
        self._threads[0].start()

    @property
    def failure(self) -> RankFailedError | None:
        """The first failure of another rank, or None."""
        return self._failure

    def check(self) -> None:
        """Raise the first failure of another rank, if there is one.

        Raises:
            RankFailedError: always a new one, so that tracebacks do not add up.
        """
        failure = self._failure
        if failure is not None:
            raise RankFailedError(failure.rank, failure.cause, str(failure))

    def wait_for_failure(self, seconds: float) -> None:
        """Wait for the news that another rank has failed, at most so long, and `check`."""
        with self._news:
            self._news.wait_for(lambda: self._failure is not None, seconds)
        self.check()

    def first_left(self, seconds: float = 0.0) -> str | None:
        """The name of a rank that left the group in an orderly way at least so many seconds ago, or None."""
        now = time.monotonic()
        left = list(self._left.items())  # a copy, since the listening thread adds to it
        return next((self._names[rank] for rank, when in left if now - when >= seconds), None)

    def fail(self, error: BaseException) -> None:
        """Tell the others that this rank fails, and why."""
        self._is_ending = True
        cause = f"{type(error).__name__}: {error}"[:_MAX_CAUSE]
        self._send({"rank": self._rank, "failed": cause}, self._sockets)

    def leave(self, timeout_s: float) -> None:
        """Tell the others that this rank is done, and wait until they are, at most so long.

        Raises:
            RankFailedError: another rank failed before.
        """
        self._send({"rank": self._rank, "left": True}, self._sockets)
        with self._news:
            self._news.wait_for(lambda: self._failure is not None or len(self._left) == len(self._names) - 1, timeout_s)
        self.check()

    def close(self) -> None:
        """Hang up and end the threads. Idempotent."""
        self._closed.set()
        for connection in self._sockets.values():
            with contextlib.suppress(OSError):  # the other side may have gone first
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(5)
        self.drop()

    def drop(self) -> None:
        """Give up this process's hold on the connections, which live on in the process that made them."""
        for connection in self._sockets.values():
            connection.close()

    def _listen(self) -> None:
        received = dict.fromkeys(self._sockets, b"")
        with selectors.DefaultSelector() as selector:
            for rank, connection in self._sockets.items():
                selector.register(connection, selectors.EVENT_READ, rank)
            while selector.get_map() and not self._closed.is_set():
                for key, _ in selector.select():
                    peer = int(key.data)
                    data = _receive(self._sockets[peer])
                    *lines, received[peer] = (received[peer] + data).split(b"\n")
                    for line in lines:
                        self._hear(peer, json.loads(line))
                    if not data:
                        selector.unregister(key.fileobj)
                        self._hear_end_of(peer)

    def _hear(self, peer: int, news: dict[str, Any]) -> None:
        self._send(news, [other for other in self._sockets if other != peer])
        if "failed" in news:
            self._note_failure(int(news["rank"]), str(news["failed"]))
        else:
            with self._news:
                self._left[int(news["rank"])] = time.monotonic()
                self._news.notify_all()

    def _hear_end_of(self, peer: int) -> None:
        is_known = peer in self._left or (self._failure is not None and self._failure.rank == peer)
        if not is_known and not self._closed.is_set():
            self._hear(peer, {"rank": peer, "failed": _KILLED})

    def _note_failure(self, rank: int, cause: str) -> None:
        if self._failure is not None:  # later ones follow from the first
            return
        message = f"{self._names[rank]} failed, and rank {self._rank} cannot go on without it: {cause}"
        if not self._is_ending:  # before anything else, since the process may end soon
            logging.getLogger("ding").error("%s", message)
        with self._news:
            self._failure = RankFailedError(rank, cause, message)
            self._news.notify_all()
        if self._is_ending:
            return
        self._threads.append(threading.Thread(target=self._enforce, name="rank line grace", daemon=True))
        self._threads[-1].start()
        if self._on_failure is not None:
            self._on_failure()

    def _enforce(self) -> None:
        if self._closed.wait(self._grace_s / 3):
            return
        self._signal_main()
        if self._closed.wait(self._grace_s * 2 / 3):
            return
        logging.getLogger("ding").critical(
            "rank %d has not ended %.0f s after a failure of another rank: its process is ended now",
            self._rank,
            self._grace_s,
        )
        self._end()

    def _send(self, news: Mapping[str, Any], ranks: Any) -> None:
        line = json.dumps(news).encode() + b"\n"
        with self._sending:
            for rank in ranks:
                with contextlib.suppress(OSError):  # a rank that is gone is heard of by the listening thread
                    self._sockets[rank].sendall(line)


def _receive(connection: socket.socket) -> bytes:
    try:
        return connection.recv(4096)
    except OSError:
        return b""
