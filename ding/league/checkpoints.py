"""Copies of the checkpoints of players."""

from __future__ import annotations

import os
import shutil

from ding.utils.file_helper import atomic_write


def copy_checkpoint(source: str, target: str, follow_links: bool = False) -> None:
    """Copy a file of weights atomically, creating the folder of `target`.

    Args:
        source: path of the file.
        target: path of the copy.
        follow_links: whether `source` may be a symbolic link. It must be false for folders that other users can write
            to, because they could choose the file that is copied.

    Raises:
        FileNotFoundError: `source` does not exist.
        OSError: it is a symbolic link and `follow_links` is false, or the copy cannot be written.
    """
    flags = os.O_RDONLY | (0 if follow_links else getattr(os, "O_NOFOLLOW", 0))
    try:
        descriptor = os.open(source, flags)
    except FileNotFoundError as e:
        raise FileNotFoundError(e.errno, "no weights to copy; check that a learner has written them", source) from e
    with open(descriptor, "rb") as content, atomic_write(target) as copy:
        shutil.copyfileobj(content, copy)
