"""The marks of tests that pages are made of, read from the source of the tests."""

from __future__ import annotations

import ast
import pathlib
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[1]


def marks_of(path: pathlib.Path, name: str) -> Iterator[tuple[list[str], str, int]]:
    """Yields (arguments, name of the test, line) of the marks `pytest.mark.<name>` in a file.

    Raises:
        ValueError: a mark has anything but texts that are not empty.
    """
    text = path.read_text(encoding="utf-8")
    if f"pytest.mark.{name}" not in text:
        return
    for node in _definitions(ast.parse(text).body):
        for mark in node.decorator_list:
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == f"pytest.mark.{name}":
                texts = [value.value for value in mark.args if isinstance(value, ast.Constant)]
                given = [value for value in texts if isinstance(value, str) and value]
                if not given or len(given) != len(mark.args) or mark.keywords:
                    raise ValueError(f"{path}:{mark.lineno}: @pytest.mark.{name} takes texts, not {ast.unparse(mark)}")
                yield given, node.name, mark.lineno


def _definitions(body: list[ast.stmt]) -> Iterator[ast.ClassDef | ast.FunctionDef]:
    for node in body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            yield node
        if isinstance(node, ast.ClassDef):
            yield from _definitions(node.body)
