"""The file in which a coordinator keeps its state."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ding.utils.compression_helper import compress, expand
from ding.utils.data.plain_columns import from_plain, to_plain
from ding.utils.data.samples import Samples
from ding.utils.data.samples import pack as pack_column
from ding.utils.file_helper import atomic_write
from ding.utils.msgpack_helper import pack, unpack

STATE_FILE = "coordinator_state.msgpack"
_FORMAT, _VERSION = "ding-coordinator", 2
# Lists of so many items are written as a column; the dict that stands for one has this key.
_LONG, _COLUMN = 16, "__column__"


class RunIdentity(NamedTuple):
    """What tells a run from others."""

    exp_name: str
    seed: int | None


class StateError(ValueError):
    """A file holds no state that a run could go on from."""


def write_state(path: str, run: RunIdentity, state: dict[str, Any]) -> int:
    """Write a state of plain values and arrays; the file appears whole. Returns its size in bytes.

    Long lists are written as columns, for those of the metadata of samples above all have much in common.

    Raises:
        TypeError, ValueError: there is something in the state that cannot be written; see `pack`.
        OSError: the file cannot be written.
    """
    body = compress(pack(_with_columns(state)), level=1)
    head = {"format": _FORMAT, "version": _VERSION, **run._asdict(), "checksum": zlib.crc32(body)}
    content = pack({**head, "body": body})
    with atomic_write(path) as file:
        file.write(content)
    return len(content)


def read_state(path: str, run: RunIdentity) -> dict[str, Any]:
    """The state that `write_state` has written for this run. Nothing in the file is executed.

    Raises:
        FileNotFoundError: there is no such file.
        StateError: it is damaged, of another version, or of another run.
    """
    content = _read(path)
    found = RunIdentity(content.get("exp_name", ""), content.get("seed"))
    if found != run:
        raise StateError(
            f"{path} is the state of another run: exp_name = {found.exp_name!r}, seed = {found.seed!r}; this one has "
            f"exp_name = {run.exp_name!r}, seed = {run.seed!r}; remove the file, or set coordinator.resume to False"
        )
    try:
        state: dict[str, Any] = _without_columns(unpack(expand(content["body"])))
        return state
    except (LookupError, MemoryError, TypeError, ValueError) as e:
        raise StateError(f"{path} is damaged ({e}); {_REMEDY}") from e


def _with_columns(value: Any) -> Any:
    if type(value) is list and len(value) >= _LONG:
        return {_COLUMN: to_plain(Samples({_COLUMN: pack_column(value)}))}
    if isinstance(value, Mapping):
        if _COLUMN in value:
            raise ValueError(f"a dict with the key {_COLUMN!r} cannot be kept")
        return {key: _with_columns(item) for key, item in value.items()}
    return value


def _without_columns(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if _COLUMN in value:
        return [item[_COLUMN] for item in from_plain(value[_COLUMN])]
    return {key: _without_columns(item) for key, item in value.items()}


def _read(path: str) -> dict[str, Any]:
    try:
        content: Any = unpack(Path(path).read_bytes())
    except (MemoryError, ValueError) as e:
        raise StateError(f"{path} is damaged, or no state of a coordinator ({e}); {_REMEDY}") from e
    if not isinstance(content, dict) or content.get("format") != _FORMAT or content.get("version") != _VERSION:
        raise StateError(f"{path} is no state of a coordinator of version {_VERSION}; {_REMEDY}")
    body = content.get("body")
    if not isinstance(body, bytes) or zlib.crc32(body) != content.get("checksum"):
        raise StateError(f"{path} is damaged: its checksum is wrong; {_REMEDY}")
    return content


_REMEDY = "remove it to begin anew"


def remove_state(path: str) -> None:
    """Remove the file, if it is there."""
    if os.path.exists(path):
        os.remove(path)
