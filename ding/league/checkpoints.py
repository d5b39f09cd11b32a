"""Files of weights of the players of a league."""

from __future__ import annotations

import os
import shutil

from ding.utils.file_helper import atomic_write


def copy_checkpoint(source: str, target: str, follow_links: bool = False) -> None:
    """Copy a file of weights; `target` appears whole, with its folder.

    Args:
        follow_links: whether `source` may be a symbolic link. Not in a folder that others can write to: they would
            choose which file is copied.

    Raises:
        FileNotFoundError: there is no `source`.
        OSError: it is a symbolic link, or the copy cannot be written.
    """
    flags = os.O_RDONLY | (0 if follow_links else getattr(os, "O_NOFOLLOW", 0))
    try:
        descriptor = os.open(source, flags)
    except FileNotFoundError as e:
        raise FileNotFoundError(e.errno, "there are no weights to copy; has a learner written them?", source) from e
    with open(descriptor, "rb") as content, atomic_write(target) as copy:
        shutil.copyfileobj(content, copy)
