"""Files of buffer items: code-free msgpack, written atomically."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_FORMAT = "ding-buffer"
_VERSION = 1


def write_data_file(file_name: str, kind: str, items: list[Any], notes: dict[str, Any] | None = None) -> None:
    """Write `items` to `file_name`. Creates parent folders; an existing file is replaced atomically.

    Args:
        kind: What the items are; `read_data_file` requires the same.
        notes: Further data about the items as a whole.
    """
    from ding.utils.file_helper import atomic_write
    from ding.utils.msgpack_helper import pack

    packed = pack({"format": _FORMAT, "version": _VERSION, "kind": kind, "items": items, "notes": notes or {}})
    with atomic_write(file_name, mode="wb") as file:
        file.write(packed)


def read_data_file(file_name: str, kind: str) -> tuple[list[Any], dict[str, Any]]:
    """Returns the items and notes of a file that `write_data_file` wrote.

    Raises:
        ValueError: If the file is of another kind or version, or cannot be decoded.
    """
    from ding.utils.msgpack_helper import unpack

    content = Path(file_name).read_bytes()
    try:
        data = unpack(content)
    except Exception as error:
        raise ValueError(f"{file_name!r} is not a buffer data file: it cannot be decoded as msgpack") from error
    if not isinstance(data, dict) or data.get("format") != _FORMAT or data.get("version") != _VERSION:
        raise ValueError(f"{file_name!r} is not a buffer data file of version {_VERSION}; write it with save_data")
    if data["kind"] != kind:
        raise ValueError(
            f"{file_name!r} holds {data['kind']}, not {kind}: it was saved by another type of buffer; load it there"
        )
    return data["items"], data.get("notes", {})
