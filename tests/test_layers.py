"""Imports go one way: no module imports from a layer above its own, and none imports, by detours, itself."""

import ast
import functools
import graphlib
import pathlib

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
    "reward_model": 3,
    "policy": 4,
    "worker": 5,
    "config": 6,
    "entry": 7,
    "recipes": 8,
    "bonus": 8,
    "example": 8,
}
MODULES = sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT)


@functools.cache
def imports_in(path):
    """The import statements of a module, also those of its functions and for types alone."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


def imports(path):
    """The packages of ding that a module imports from, and the modules of which it imports all names."""
    packages, stars = set(), []
    for node in imports_in(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            packages.update(package_of(node.module))
            stars += [node.module] * (node.names[0].name == "*")
        elif isinstance(node, ast.Import):
            packages.update(*(package_of(alias.name) for alias in node.names))
    return packages, stars


def package_of(module):
    return {module.split(".")[1]} if module.startswith("ding.") else set()


def is_upward(package, own):
    return LAYERS[package] > LAYERS[own] or (LAYERS[package] == LAYERS[own] and package != own)


def test_no_import_goes_up_and_none_takes_all_names():
    upward, all_names = [], []
    for path in MODULES:
        packages, stars = imports(path)
        own = path.relative_to(ROOT).parts[0]
        upward += [(str(path), package) for package in packages if is_upward(package, own)]
        all_names += [(str(path), module) for module in stars]
    assert len(MODULES) > 300
    assert (upward, all_names) == ([], [])


def name_of(path):
    return ".".join(("ding", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")


def imported_modules(path, names):
    """The modules that a module imports anywhere, in functions and for types alone too."""
    for node in imports_in(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            full = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in names else node.module for name in full)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_no_modules_import_each_other():
    names = {name_of(path): path for path in MODULES}
    graph = {name: {*imported_modules(path, names)} & names.keys() - {name} for name, path in names.items()}
    assert len(graph) > 250 and any(graph.values())
    graphlib.TopologicalSorter(graph).prepare()  # raises a CycleError, which names the circle
