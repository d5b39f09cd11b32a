"""The page "Differences from DI-engine", made of the marks `differs` of the tests that prove them."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Iterator
from fnmatch import fnmatchcase

from marks import ROOT, marks_of

HEAD = """# Differences from DI-engine

This page lists what DI-engine 0.5 gets wrong or lacks, and what ding does instead, with a test for each row. Everything
else that DI-engine documents works the same.
"""
# The sections of the page with the tests that belong there; of patterns that match, the longest counts.
SECTIONS = {
    "Collectors": ("worker/collector/*",),
    "Evaluators": ("worker/collector/*evaluator*", "worker/collector/test_vector_eval_monitor.py"),
    "Learner and hooks": ("worker/learner/*", "worker/transport/test_shared_folder.py"),
    "Replay buffers and segment tree": (
        "data/*",
        "worker/replay_buffer/*",
        "utils/test_segment_tree.py",
        "worker/test_worker_package.py",
    ),
    "Policies, models and losses": (
        "compat/*",
        "model/*",
        "policy/*",
        "rl_utils/*",
        "torch_utils/network/*",
        "utils/test_batch_methods.py",
    ),
    "Envs and env managers": ("envs/*",),
    "Configuration and `serial_pipeline`": ("*", "config/*", "dist/*", "entry/*"),
    "Utilities": ("torch_utils/*", "utils/*"),
    "Masters and slaves": ("interaction/*",),
    "Parallel training": (
        "entry/test_dist_*",
        "entry/test_faults_of_roles.py",
        "entry/test_parallel*",
        "entry/test_ray*",
        "entry/test_supervisor.py",
        "entry/test_two_hosts.py",
        "entry/test_worker_process.py",
        "worker/adapter/*",
        "worker/collector/*parallel_collector.py",
        "worker/collector/comm/*",
        "worker/coordinator/*",
        "worker/transport/*",
    ),
    "Leagues": ("league/*",),
}


def page() -> str:
    """Returns the page."""
    parts = [HEAD]
    for section, rows in by_section().items():
        lines = [f"| {original} | {ours} | `{test}` |" for original, ours, test in rows]
        parts.append("\n".join([f"## {section}", "", "| DI-engine | ding | test |", "|---|---|---|", *lines]) + "\n")
    return "\n".join(parts)


@functools.cache
def by_section() -> dict[str, list[tuple[str, str, str]]]:
    """Returns (what DI-engine does, what we do, test) of all marks, in the order of the files."""
    found: dict[str, list[tuple[str, str, str]]] = {section: [] for section in SECTIONS}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        found[section_of(path.relative_to(ROOT / "tests").as_posix())] += rows_of(path)
    return found


def section_of(path: str) -> str:
    """Returns the section of a file of tests."""
    fits = [
        (len(pattern), name)
        for name, patterns in SECTIONS.items()
        for pattern in patterns
        if fnmatchcase(path, pattern)
    ]
    return max(fits)[1]


def rows_of(path: pathlib.Path) -> Iterator[tuple[str, str, str]]:
    """Yields the rows of the tests in a file.

    Raises:
        ValueError: a mark has anything but two texts.
    """
    for texts, test, line in marks_of(path, "differs"):
        if len(texts) != 2:
            raise ValueError(f"{path}:{line}: @pytest.mark.differs takes two texts, what DI-engine does and what we do")
        yield texts[0], texts[1], f"{path.relative_to(ROOT).as_posix()}::{test}"
