"""The folder of an experiment: its creation, and the git state in it."""

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
    """Create the folder `exp_name` (relative to the current directory) and return its final name.

    If the folder exists and `renew` is true, a time stamp is appended, and a counter if necessary: two runs never get
    the same name, even if they start at the same time. If `renew` is false, an existing folder is used. Rank 0 chooses
    the name and sends it to the other ranks.

    Raises:
        OSError: on every rank, if the folder cannot be created or written to.
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
    """Context manager that deletes the folder of an experiment on an exception, unless `keep` was called.

    Folders that existed before, and parents with other contents, are not deleted.

    Args:
        exp_name: the folder in the config.

    Attributes:
        taken: the final name of the folder; None before it is created.
    """

    def __init__(self, exp_name: str) -> None:
        path = Path(str(exp_name)).absolute()  # compilation refuses values that are not names
        self._known = {folder for folder in (path, *path.parents) if folder.exists()}
        self._is_kept = False
        self.taken: str | None = None

    def keep(self) -> None:
        """Keep the folder even after an exception."""
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
        with contextlib.suppress(OSError):  # another run has written to a parent
            for parent in path.parents:
                if parent in self._known:
                    break
                parent.rmdir()


def save_project_state(exp_name: str) -> None:
    """Write the git state of the current directory to `<exp_name>/git_log.txt` and `git_diff.txt`.

    The log holds `git describe` and the last five commits with their statistics. Nothing is written outside a git
    working tree. If git fails or takes longer than GIT_TIMEOUT_S, a warning is logged instead.
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
    # Checked without git, so that no process is started outside a repository.
    return any((parent / ".git").exists() for parent in (folder, *folder.parents))


def _git(deadline: float, *arguments: str) -> bytes:
    """Return the output of git, including its error messages, such as that of a repository without commits."""
    done = subprocess.run(
        ["git", "--no-pager", "--no-optional-locks", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=max(deadline - time.monotonic(), 0.01),
        check=False,
    )
    return done.stdout
