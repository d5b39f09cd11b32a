"""How much memory is free, read from made-up proc and control group files."""

from __future__ import annotations

from pathlib import Path

import pytest

from ding.data.free_memory import free_memory

GIB = 2**30


@pytest.fixture
def system(tmp_path):
    return System(tmp_path)


class System:
    """A proc file system and a mount of control groups in a folder; 8 GiB are available on the machine."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.groups = folder / "proc", folder / "cgroup"
        self.write(self.proc / "meminfo", f"MemTotal: 999 kB\nMemFree: 5 kB\nMemAvailable:  {8 * 2**20} kB\n")

    def write(self, path: Path, text: object) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")

    def is_in(self, *lines: str) -> None:
        self.write(self.proc / "self" / "cgroup", "\n".join(lines))

    def group_v2(self, path: str, used: int, stat: str = "anon 1", **files: object) -> None:
        self.write(self.groups / path / "memory.current", used)
        self.write(self.groups / path / "memory.stat", stat)
        for name, value in files.items():
            self.write(self.groups / path / f"memory.{name}", value)

    def group_v1(self, path: str, used: int, limit: int, inactive: int = 0) -> None:
        folder = self.groups / "memory" / path
        self.write(folder / "memory.usage_in_bytes", used)
        self.write(folder / "memory.limit_in_bytes", limit)
        self.write(folder / "memory.stat", f"inactive_file 77\ntotal_inactive_file {inactive}")

    def free(self) -> int | None:
        return free_memory(self.proc, self.groups)


def test_without_control_groups_it_is_what_the_machine_has_available(system):
    assert system.free() == 8 * GIB


def test_a_limit_of_a_version_2_group_counts(system):
    system.is_in("0::/job")
    system.group_v2("job", used=1 * GIB, max=3 * GIB)
    assert system.free() == 2 * GIB


def test_file_contents_that_can_be_given_up_count_as_free(system):
    system.is_in("0::/job")
    system.group_v2("job", used=3 * GIB, stat=f"anon 5\ninactive_file {2 * GIB}\nactive_file 9", max=3 * GIB)
    assert system.free() == 2 * GIB


def test_the_limit_beyond_which_a_group_is_throttled_counts_too(system):
    system.is_in("0::/job")
    system.group_v2("job", used=0, max="max", high=GIB)
    assert system.free() == GIB


def test_the_group_that_leaves_least_counts(system):
    system.is_in("0::/outer/inner")
    system.group_v2("outer", used=3 * GIB, max=4 * GIB)
    system.group_v2("outer/inner", used=1 * GIB, max=4 * GIB)
    assert system.free() == 1 * GIB


def test_a_container_that_sees_its_own_group_as_the_root_is_understood(system):
    system.is_in("0::/")
    system.group_v2(".", used=1 * GIB, max=2 * GIB)
    assert system.free() == 1 * GIB


@pytest.mark.parametrize("path", ["/kubepods/pod1/not-mounted-here", "/../../elsewhere"])
def test_a_path_outside_of_what_is_mounted_leaves_the_groups_that_are(system, path):
    system.is_in(f"0::{path}")
    system.group_v2(".", used=1 * GIB, max=2 * GIB)
    assert system.free() == 1 * GIB


def test_a_limit_of_a_version_1_group_counts(system):
    system.is_in("12:cpu,cpuacct:/job", "4:hugetlb,memory:/job", "0::/")
    system.group_v1("job", used=2 * GIB, limit=3 * GIB, inactive=GIB)
    system.group_v1(".", used=5 * GIB, limit=9223372036854771712)
    assert system.free() == 2 * GIB


def test_more_than_the_limit_in_use_leaves_nothing(system):
    system.is_in("0::/job")
    system.group_v2("job", used=3 * GIB, max=2 * GIB)
    assert system.free() == 0


def test_a_group_without_a_limit_changes_nothing(system):
    system.is_in("0::/job")
    system.group_v2("job", used=1 * GIB, max="max")
    assert system.free() == 8 * GIB


def test_where_the_system_does_not_tell_it_is_unknown(tmp_path):
    assert free_memory(tmp_path / "proc", tmp_path / "cgroup") is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "meminfo").write_bytes(b"\xff\xfe")
    assert free_memory(tmp_path / "proc", tmp_path / "cgroup") is None


def test_on_this_machine_it_is_a_positive_amount_or_unknown():
    free = free_memory()
    assert free is None or free > 0
