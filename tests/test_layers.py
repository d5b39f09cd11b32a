"""Imports go one way: no module imports from a layer above its own."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1] / "ding"
LAYERS = {
    "utils": 0,
    "torch_utils": 1,
    "rl_utils": 1,
    "model": 2,
    "envs": 2,
    "interaction": 2,
    "data": 2,
    "league": 3,
    "bonus": 3,
    "reward_model": 3,
    "policy": 4,
    "worker": 5,
    "config": 6,
    "entry": 7,
    "example": 8,
}
MODULES = sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT)


def imported_packages(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("ding."):
            yield node.module.split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (name.name.split(".")[1] for name in node.names if name.name.startswith("ding."))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_import_goes_up(path):
    own = path.relative_to(ROOT).parts[0]
    upward = {
        package
        for package in imported_packages(path)
        if LAYERS[package] > LAYERS[own] or (LAYERS[package] == LAYERS[own] and package != own)
    }
    assert upward == set()


def test_no_star_imports():
    for path in MODULES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        stars = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.names[0].name == "*"]
        assert not stars, path
