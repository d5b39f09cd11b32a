"""File names that come from a peer: plain names under a root, never a path out of it."""

from __future__ import annotations

import os

_MAX_LENGTH = 200


def check_plain_name(name: object) -> str:
    """`name`, if it names a file in a folder and nothing else.

    Raises:
        ValueError: it is no str, is empty or long, begins with a dot, or holds a separator or control character.
    """
    if not isinstance(name, str):
        raise ValueError(f"a file name must be a str, got {name!r:.200}")
    is_plain = 0 < len(name) <= _MAX_LENGTH and not name.startswith(".") and name.isprintable()
    if not is_plain or any(character in name for character in "/\\:"):
        raise ValueError(
            f"the file name {name[:_MAX_LENGTH]!r} is not allowed: it must be a plain name of at most {_MAX_LENGTH} "
            "characters, without '/', '\\' and ':', that does not begin with a dot"
        )
    return name


def name_under(root: str, path: str) -> str:
    """The plain name of a file directly under `root`, given as that name or as a path that begins with `root`.

    Raises:
        ValueError: the file would lie elsewhere.
    """
    if not isinstance(path, str):
        raise ValueError(f"a file name must be a str, got {path!r:.200}")
    folder, name = os.path.split(path)
    if folder and os.path.abspath(folder) == os.path.abspath(root):
        return check_plain_name(name)
    return check_plain_name(path)
