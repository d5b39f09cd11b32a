"""Stubs of the packages whose exports are looked up in a table, so that type checkers and editors know them."""

from __future__ import annotations

import ast
import importlib
import pathlib
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[1]
HEAD = "# Written by docs/generate.py: the exports of the table in __init__.py, for type checkers and editors.\n\n"


def stubs() -> dict[str, str]:
    """Returns the text of each stub by its path in the docs, which is outside of them."""
    defined = _definitions()
    found = {}
    for path in sorted((ROOT / "ding").rglob("__init__.py")):
        text = path.read_text(encoding="utf-8")
        if ("lazy_names(" in text or "exports(" in text) and "TYPE_CHECKING" not in text:
            package = ".".join(path.parent.relative_to(ROOT).parts)
            stub = path.with_suffix(".pyi").relative_to(ROOT).as_posix()
            found[f"../{stub}"] = HEAD + "\n".join(_lines(package, defined)) + "\n"
    return found


def _definitions() -> dict[str, list[str]]:
    """Returns the modules that define a name."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "ding").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for name in _names_of(ast.parse(path.read_text(encoding="utf-8"))):
            found.setdefault(name, []).append(module)
    return found


def _names_of(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            yield node.name
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def _lines(package: str, defined: dict[str, list[str]]) -> list[str]:
    exporter = importlib.import_module(package)
    imports, others = [], []
    for name in exporter.__all__:
        value = getattr(exporter, name)
        homes = [m for m in defined.get(name, ()) if getattr(importlib.import_module(m), name, None) is value]
        near = next((module for module in homes if module.startswith(f"{package}.")), homes[0] if homes else None)
        if near is None:  # a class that is made when the package is imported
            others.append(f"{name}: Any")
        else:
            imports.append(f"from {near} import {name} as {name}")
    return (["from typing import Any", ""] if others else []) + sorted(imports) + ([""] if others else []) + others
