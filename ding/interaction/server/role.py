"""The public face of a master or slave."""

from __future__ import annotations

from ding.interaction.base.common import ControllableService
from ding.interaction.base.network import url_host
from ding.interaction.server.service import Service


class Role(ControllableService):
    """A server with threads of its own, used once. Its threads do not keep the interpreter alive: `join` it for that.

    All that it is made of is behind one attribute, so that subclasses may name theirs as they like.
    """

    def __init__(self, service: Service) -> None:
        self._interaction = service

    @property
    def host(self) -> str:
        """What it listens at."""
        return self._interaction.host

    @property
    def port(self) -> int:
        """The port it listens at; before `start`, the one it was given."""
        return self._interaction.port

    @property
    def channel(self) -> int:
        """Its channel."""
        return self._interaction.channel

    def start(self) -> None:
        """Listen, then serve; when this returns, requests are answered.

        Raises:
            RuntimeError: it was started or closed before.
            PermissionError: it would be reached from other machines without a token, or the token file is not private.
            ValueError: what stands for the token is none.
            OSError: the address cannot be listened at.
        """
        self._interaction.start()

    def shutdown(self) -> None:
        """Ask it to end, and return at once. May be called any number of times, from any thread, and before `start`."""
        self._interaction.shutdown()

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has been asked to end (at most `timeout` seconds), then a bounded time until it has ended.

        Threads that are stuck in code of the user are left behind, with a warning. They are told to end nevertheless.
        """
        self._interaction.join(timeout)

    def ping(self) -> bool:
        """Whether it answers a request of its own; False only where the request does not arrive.

        Raises:
            ResponseException: it refuses the request.
        """
        return self._interaction.ping()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {url_host(self.host)}:{self.port}, {self._interaction.state}>"
