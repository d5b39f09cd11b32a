"""The page "Differences from DI-engine", made of the marks `differs` of the tests that prove them."""

from __future__ import annotations

import ast
import functools
import pathlib
from collections.abc import Iterator
from fnmatch import fnmatchcase

ROOT = pathlib.Path(__file__).resolve().parents[1]
HEAD = """# Differences from DI-engine

What DI-engine 0.5 does wrong or does not do, and what this package does instead. Each row is the mark `differs` of the
test that proves it. Everything else that its documentation describes is meant to behave the same.
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
        "utils/test_random_generators.py",
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
        found[section_of(path.relative_to(ROOT / "tests").as_posix())] += marks_of(path)
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


def marks_of(path: pathlib.Path) -> Iterator[tuple[str, str, str]]:
    """Yields the rows of the tests in a file.

    Raises:
        ValueError: a mark has anything but two texts.
    """
    text = path.read_text(encoding="utf-8")
    if "pytest.mark.differs" not in text:
        return
    for node in _definitions(ast.parse(text).body):
        for mark in node.decorator_list:
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.differs":
                texts = [value.value for value in mark.args if isinstance(value, ast.Constant)]
                if len(texts) != 2 or mark.keywords or not all(isinstance(value, str) and value for value in texts):
                    raise ValueError(
                        f"{path}:{mark.lineno}: @pytest.mark.differs takes two texts, what DI-engine does and what "
                        f"this package does, not {ast.unparse(mark)}"
                    )
                yield texts[0], texts[1], f"{path.relative_to(ROOT).as_posix()}::{node.name}"


def _definitions(body: list[ast.stmt]) -> Iterator[ast.ClassDef | ast.FunctionDef]:
    for node in body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            yield node
        if isinstance(node, ast.ClassDef):
            yield from _definitions(node.body)
