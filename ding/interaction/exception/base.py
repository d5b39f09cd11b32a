"""A status error of a peer, as an exception with the fields of its reply."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

from ding.interaction.base.app import CommonErrorCode, get_values_from_response

if TYPE_CHECKING:
    import requests
    from typing_extensions import Self


class ResponseException(Exception):
    """A peer refused a request. Its text is the message of the reply.

    Args:
        error: the status error.
        values: `get_values_from_response` of its reply, where the caller has them already.

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
        """What the peer says; `''` where it says nothing."""
        return self._message

    @property
    def data(self) -> Any:
        """What the peer adds, such as the data of a refusal; `{}` where it adds nothing."""
        return {} if self._data is None else self._data


class Code(IntEnum):
    """A number in a reply, written as `NAME = number, "what it means"`."""

    def __new__(cls, number: int, meaning: str) -> Self:
        member = int.__new__(cls, number)
        member._value_ = number
        member.__doc__ = meaning
        return member


def exceptions_of(
    prefix: str, codes: type[Code], general: type[ResponseException]
) -> dict[int, type[ResponseException]]:
    """A subclass of `general` for each code, named by `prefix` and the words of the code's name."""
    made: dict[int, type[ResponseException]] = {}
    for code in codes:
        name = prefix + "".join(word.capitalize() for word in code.name.split("_"))
        made[code] = type(name, (general,), {"__doc__": code.__doc__, "__module__": general.__module__})
    return made


def specific_or_general(
    by_code: dict[int, type[ResponseException]], general: type[ResponseException], error: requests.HTTPError
) -> ResponseException:
    """The exception for a reply of any kind: also one from something else on the way, which knows no such codes."""
    try:
        values = get_values_from_response(error.response)
        return by_code.get(values[2], general)(error, values)
    except (ValueError, KeyError, TypeError):
        status = error.response.status_code
        message = f"{status} {error.response.reason}: the reply does not come from a master or slave"
        return general(error, (status, False, CommonErrorCode.COMMON_FAILURE, message, {}))
