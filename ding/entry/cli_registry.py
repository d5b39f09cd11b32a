"""The content of the registries, for `ding -q` and `ding list`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
from collections.abc import Sequence
from pathlib import Path

import click

# Packages whose modules register classes.
_PACKAGES = ("ding.model", "ding.envs", "ding.data", "ding.league", "ding.policy", "ding.worker")


def show_registries(names: Sequence[str]) -> None:
    """Print the aliases in the registries called `names` with file and line; of all registries if `names` is empty.

    Call it before the rest of the package is imported: it sets `DIENGINEREGTRACE=ON`, which traces later registrations.

    Raises:
        UsageError: a registry is unknown.
        AssertionError: the registries were already imported without tracing.
    """
    os.environ.setdefault("DIENGINEREGTRACE", "ON")
    from tabulate import tabulate

    from ding.utils.registry_factory import registries

    unknown = [name for name in names if name not in registries]
    if unknown:
        raise click.UsageError(
            f"[ERROR]: not support registry name {', '.join(unknown)}; there are: {', '.join(registries)}"
        )
    for package in _PACKAGES:
        _import_registrations(package)
    for name in names or registries:
        places = registries[name].query_details()
        rows = [(alias, f"{file}#{line}") for alias, (file, line) in sorted(places.items())]
        click.echo(f"Available {name}: {len(rows)}")
        click.echo(tabulate(rows, headers=("alias", "file#line"), tablefmt="simple"))


def _import_registrations(package: str) -> None:
    """Import the modules of a package that register classes."""
    found = importlib.import_module(package)
    for module in pkgutil.walk_packages(found.__path__, f"{package}."):
        if not _registers(module.name):
            continue
        try:
            importlib.import_module(module.name)
        except ImportError as e:  # it needs a package that is not installed
            click.echo(f"{module.name} is left out: {e}", err=True)


def _registers(module: str) -> bool:
    spec = importlib.util.find_spec(module)
    source = None if spec is None or spec.origin is None else Path(spec.origin)
    return source is None or ".register(" in source.read_text(encoding="utf-8")
