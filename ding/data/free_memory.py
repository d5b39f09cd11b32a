"""How much memory this process can still take, told by the machine and by the limits of its control groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_GROUPS = Path("/sys/fs/cgroup")


class _Files(NamedTuple):
    """Names of the files of a control group."""

    limits: tuple[str, ...]
    used: str
    # Key in memory.stat: cached file contents, counted as used, that are given up before the limit counts.
    reclaimable: str


_VERSION_1 = _Files(("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file")
_VERSION_2 = _Files(("memory.max", "memory.high"), "memory.current", "inactive_file")


def free_memory(proc: Path | None = None, groups: Path | None = None) -> int | None:
    """Bytes of host memory that can be taken without swapping; None where the system does not tell.

    The least of what the machine has available and of what the control groups around this process (version 1 or 2, as
    containers and batch systems set them) leave.

    Args:
        proc: where the proc file system is mounted, `/proc` by default.
        groups: where control groups are mounted, `/sys/fs/cgroup` by default.
    """
    proc, groups = proc or _PROC, groups or _GROUPS
    return min([*_of_machine(proc), *_of_groups(proc, groups)], default=None)


def _of_machine(proc: Path) -> Iterator[int]:
    for line in _read(proc / "meminfo").splitlines():
        name, _, amount = line.partition(":")
        if name == "MemAvailable":
            yield int(amount.split()[0]) * 1024


def _of_groups(proc: Path, groups: Path) -> Iterator[int]:
    """What each group above this process leaves, in each hierarchy that can limit memory."""
    for line in _read(proc / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            mount, files = groups, _VERSION_2
        elif "memory" in controllers.split(","):
            mount, files = groups / "memory", _VERSION_1
        else:
            continue
        # A path outside of what is mounted here, as containers see them, leaves the groups that are.
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts) + 1):
            yield from _left_in(mount.joinpath(*parts[:depth]), files)


def _left_in(group: Path, files: _Files) -> Iterator[int]:
    used = _read(group / files.used).strip()
    if not used.isdecimal():
        return
    stat = dict(line.split(" ", 1) for line in _read(group / "memory.stat").splitlines() if " " in line)
    held = int(used) - int(stat.get(files.reclaimable, 0))
    for name in files.limits:
        limit = _read(group / name).strip()
        if limit.isdecimal():  # else "max", or there is no such file
            yield max(0, int(limit) - held)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""
