"""What a slave knows of its master."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ding.interaction.base.common import RecentIds
from ding.interaction.server.credentials import same_secret

if TYPE_CHECKING:
    from ding.interaction.server.peer import PeerEngine

_numbers = itertools.count(1)


class MasterSession:
    """One connection, from `/connect` until it is ended; a later one is another object.

    Args:
        token: what both sides prove themselves with.
        address: where the master listens.
        engine: requests to it.
        request_id: that of the request that connected; the same request may come twice.

    Attributes:
        number: see `session_number`.
    """

    def __init__(self, token: str, address: str, engine: PeerEngine, request_id: str) -> None:
        self.number = next(_numbers)
        self.token = token
        self.address = address
        self.engine = engine
        self.request_id = request_id
        self.tasks = RecentIds()  # that were accepted
        self.ended = threading.Event()

    def end(self) -> None:
        """Let go of the master; whoever waits to try a request again gives up."""
        self.ended.set()
        self.engine.close()


class Order(NamedTuple):
    """A task that was accepted."""

    session: MasterSession
    task_id: str
    data: Any


class Link:
    """The current connection of a slave, if any, and the task that keeps it busy. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._session: MasterSession | None = None
        self._order: Order | None = None
        self._is_reporting = False

    @property
    def session(self) -> MasterSession | None:
        """The current connection."""
        return self._session

    @property
    def order(self) -> Order | None:
        """The task that is waiting or being run."""
        return self._order

    @property
    def is_quiet(self) -> bool:
        """Whether there is neither a task nor a result on its way."""
        return self._order is None and not self._is_reporting

    def matches(self, token: str) -> MasterSession | None:
        """The current connection, if `token` is its token."""
        session = self._session
        return session if session is not None and same_secret(token, session.token) else None

    def open(self, session: MasterSession) -> None:
        """Be connected."""
        with self._changed:
            self._session = session
            self._changed.notify_all()

    def end(self, session: MasterSession) -> bool:
        """Be connected no more; False where `session` was not current."""
        with self._changed:
            if self._session is not session:
                return False
            self._session = None
            self._changed.notify_all()
        session.end()
        return True

    def take(self, order: Order) -> None:
        """Be busy with `order`."""
        with self._changed:
            self._order = order
            order.session.tasks.add(order.task_id)

    def release(self, order: Order) -> bool:
        """Be free again, to report the result of `order`; False where somebody else does that."""
        with self._changed:
            if self._order is not order:
                return False
            self._order = None
            self._is_reporting = True
            self._changed.notify_all()
            return True

    def reported(self) -> None:
        """Be done with the report."""
        with self._changed:
            self._is_reporting = False
            self._changed.notify_all()

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until `predicate` is true, which is looked at after each change and each `wake`."""
        with self._changed:
            return self._changed.wait_for(predicate, timeout)

    def wake(self) -> None:
        """Have those who wait look again."""
        with self._changed:
            self._changed.notify_all()
