"""What the registries hold, for the command `ding -q`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
from collections.abc import Sequence
from pathlib import Path

import click

# Those whose modules register something.
_PACKAGES = ("ding.model", "ding.envs", "ding.data", "ding.league", "ding.policy", "ding.worker")


def show_registries(names: Sequence[str]) -> None:
    """Print aliases and places of all that is registered in the registries called `names`, in all without any.

    Registrations are traced from here on only, where nobody has set `DIENGINEREGTRACE=ON` before; so it is to be called
    before the rest of the package is imported.

    Raises:
        UsageError: there is no such registry.
        AssertionError: the registries were imported before, untraced.
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
    """Import the modules of a package that register something."""
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
