"""The benchmarks, which no other test runs, still fit the package."""

import importlib
import pkgutil

import pytest

from tests import benchmarks

PEERS = {"waitress", "stable_baselines3", "tianshou", "cpprb", "envpool"}  # of the extras `bench` and `envpool`


@pytest.mark.parametrize("name", [module.name for module in pkgutil.iter_modules(benchmarks.__path__)])
def test_a_benchmark_imports_what_the_package_has(name):
    try:
        importlib.import_module(f"tests.benchmarks.{name}")
    except ModuleNotFoundError as e:
        if e.name not in PEERS:
            raise
        pytest.skip(f"{e.name} is not installed")
