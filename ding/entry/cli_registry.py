"""The content of the registries, for `ding -q` and `ding list`.

It is read from the sources, as importing all modules that register something takes seconds, mostly for torch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

import ding

_ROOT = Path(ding.__file__).parent
# What examples register is known only in runs of their configs.
_EXAMPLES = _ROOT / "example"


def show_registries(names: Sequence[str]) -> None:
    """Print the aliases in the registries `names`, or in all if it is empty, with file and line.

    Raises:
        UsageError: a registry is unknown.
    """
    from tabulate import tabulate

    from ding.utils import registry_factory

    registries = registry_factory.registries
    unknown = [name for name in names if name not in registries]
    if unknown:
        raise click.UsageError(
            f"[ERROR]: not support registry name {', '.join(unknown)}; there are: {', '.join(registries)}"
        )
    variables = {id(value): variable for variable, value in vars(registry_factory).items()}
    found = registrations(_ROOT, _EXAMPLES)
    for name in names or registries:
        places = found.get(variables[id(registries[name])], {})
        rows = [(alias, f"{file}#{line}") for alias, (file, line) in sorted(places.items())]
        click.echo(f"Available {name}: {len(rows)}")
        click.echo(tabulate(rows, headers=("alias", "file#line"), tablefmt="simple"))


def show_recipes() -> None:
    """Print the recipes, each with policy, envs, measured results, and file."""
    from tabulate import tabulate

    from ding.entry.recipes import all_recipes

    rows = []
    for recipe in all_recipes():
        measured = "; ".join(f"{env_id}: {outcome}" for env_id, outcome in recipe.measured.items()) or "not measured"
        rows.append((recipe.name, recipe.policy, " ".join(recipe.envs), measured))
    click.echo(f"Available recipes: {len(rows)}, in {_ROOT / 'recipes'}")
    click.echo(tabulate(rows, headers=("recipe", "policy", "envs", "measured"), tablefmt="simple"))


def registrations(root: Path, *left_out: Path) -> dict[str, dict[str, tuple[str, int]]]:
    """Return what the decorators `@SOME_REGISTRY.register("alias")` in the files under `root` register.

    Args:
        left_out: folders to leave out.

    Returns:
        A dict `{"SOME_REGISTRY": {alias: (file, line of the decorator)}}`.
    """
    found: dict[str, dict[str, tuple[str, int]]] = {}
    for path in sorted(root.rglob("*.py")):
        if any(folder in path.parents for folder in left_out):
            continue
        source = path.read_text(encoding="utf-8")
        if "_REGISTRY.register(" in source:  # parsing takes most of the time
            for registry, alias, line in _decorators(ast.parse(source)):
                found.setdefault(registry, {})[alias] = str(path), line
    return found


def _decorators(tree: ast.Module) -> Iterator[tuple[str, str, int]]:
    """Yield `(registry, alias, line)` for the classes and functions of a module."""
    for node in tree.body:
        if not isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            continue
        for decorator in node.decorator_list:
            match decorator:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id=registry), attr="register"),
                    args=[ast.Constant(value=str(alias)), *_],
                ):
                    yield registry, alias, decorator.lineno
