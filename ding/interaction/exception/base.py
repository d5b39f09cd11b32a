"""The exception for the status error of a peer, with the fields of its reply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ding.interaction.base.app import get_values_from_response

if TYPE_CHECKING:
    import requests


class ResponseException(Exception):
    """A peer refused a request. Its text is the message of the reply.

    Args:
        error: the status error.
        values: `get_values_from_response` of its reply, if the caller has them.

    Raises:
        ValueError: the reply is not JSON.
        KeyError: it is not an envelope.
    """

    def __init__(self, error: requests.HTTPError, values: tuple[int, bool, int, str, Any] | None = None) -> None:
        values = values or get_values_from_response(error.response)
        self._status_code, self._success, self._code, self._message, self._data = values
        super().__init__(self._message)

    @property
    def status_code(self) -> int:
        """The HTTP status."""
        return self._status_code

    @property
    def success(self) -> bool:
        """False."""
        return self._success

    @property
    def code(self) -> int:
        """The code in the reply."""
        return self._code

    @property
    def message(self) -> str:
        """The message of the reply; `''` if it has none."""
        return self._message

    @property
    def data(self) -> Any:
        """The data of the reply, such as that of a refusal; `{}` if it has none."""
        return {} if self._data is None else self._data
