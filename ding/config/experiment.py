"""The folder of an experiment: claiming it, and what is written there about the project."""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import os
import shutil
import subprocess
import time
from pathlib import Path

from ding.utils.pytorch_ddp_dist_helper import broadcast_object_list, get_rank, get_world_size

GIT_TIMEOUT_S = 1.0


def claim_experiment(exp_name: str, renew: bool = True) -> str:
    """Create the folder `exp_name` (relative to the current directory) and return the name that was taken.

    Where the folder exists and `renew` is true, a time stamp is appended, and a counter if that exists too: no two
    runs ever get the same name, even when they start at the same moment. With `renew` false an existing folder is used.
    Rank 0 decides, the other ranks of a process group get its answer.

    Raises:
        OSError: the folder cannot be created or written to; on every rank.
    """
    answer: list[object] = [None]
    if get_rank() == 0:
        try:
            answer[0] = _claim(exp_name, renew)
        except OSError as e:
            reason = f"cannot create the experiment folder {os.path.abspath(exp_name)!r}: {e.strerror or e}"
            answer[0] = type(e)(e.errno, f"{reason}; choose another exp_name or working directory")
    if get_world_size() > 1:
        broadcast_object_list(answer, 0)
    if isinstance(answer[0], OSError):
        raise answer[0]
    return str(answer[0])


def _claim(exp_name: str, renew: bool) -> str:
    stamp = time.strftime("%y%m%d_%H%M%S")
    candidates = itertools.chain(
        (exp_name, f"{exp_name}_{stamp}"), (f"{exp_name}_{stamp}_{count}" for count in itertools.count(1))
    )
    for name in candidates if renew else (exp_name,):
        try:
            os.makedirs(name, exist_ok=False)
        except FileExistsError:
            continue
        return name
    if not os.path.isdir(exp_name):
        raise NotADirectoryError(errno.ENOTDIR, "it exists and is not a folder")
    if not os.access(exp_name, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "it exists and is read-only")
    return exp_name


class StartFolder:
    """Deletes the folder of an experiment on leaving a `with` block by an exception, unless `keep` was called.

    What existed before the block stays, and so do parents that hold something else.

    Args:
        exp_name: the folder as the config names it.

    Attributes:
        taken: the name that was taken for it; None as long as there is none.
    """

    def __init__(self, exp_name: str) -> None:
        path = Path(str(exp_name)).absolute()  # what is no name is refused when the config is compiled
        self._known = {folder for folder in (path, *path.parents) if folder.exists()}
        self._is_kept = False
        self.taken: str | None = None

    def keep(self) -> None:
        """The start has succeeded."""
        self._is_kept = True

    def __enter__(self) -> StartFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        if kind is None or self._is_kept or self.taken is None or get_rank() != 0:
            return
        path = Path(self.taken).absolute()
        if path in self._known:
            return
        shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):  # another run has put something there
            for parent in path.parents:
                if parent in self._known:
                    break
                parent.rmdir()


def save_project_state(exp_name: str) -> None:
    """Write the git state of the current directory to `<exp_name>/git_log.txt` and `git_diff.txt`.

    The log holds `git describe` and the last five commits with their statistics. Outside a git working tree, or without
    git, nothing is written; work that takes longer than GIT_TIMEOUT_S is given up and logged.
    """
    if not _in_working_tree(Path.cwd()):
        return
    deadline = time.monotonic() + GIT_TIMEOUT_S
    try:
        describe = _git(deadline, "describe", "--always", "--tags")
        log = _git(deadline, "log", "--stat", "-n", "5")
        diff = _git(deadline, "diff", "--no-ext-diff")
    except (OSError, subprocess.SubprocessError) as e:
        logging.getLogger("ding").warning("the git state is not saved in %s: %s", exp_name, e)
        return
    Path(exp_name, "git_log.txt").write_bytes(describe + b"\n" + log)
    Path(exp_name, "git_diff.txt").write_bytes(diff)


def _in_working_tree(folder: Path) -> bool:
    # A look at the file system, so that runs outside a repository pay for no process.
    return any((parent / ".git").exists() for parent in (folder, *folder.parents))


def _git(deadline: float, *arguments: str) -> bytes:
    """What git prints; a failure (a repository without commits, for one) is part of the text."""
    done = subprocess.run(
        ["git", "--no-pager", "--no-optional-locks", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=max(deadline - time.monotonic(), 0.01),
        check=False,
    )
    return done.stdout
