"""The benchmarks, which no other test runs, still fit the package."""

import pkgutil
import subprocess
import sys

from tests import benchmarks

PEERS = {"stable_baselines3", "tianshou", "cpprb", "envpool"}  # of the extras `bench` and `envpool`
IMPORT_ALL = f"""
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(f"tests.benchmarks.{{name}}")
    except ModuleNotFoundError as e:
        if e.name not in {PEERS}:
            raise
"""


def test_benchmarks_import_what_the_package_has():
    names = [module.name for module in pkgutil.iter_modules(benchmarks.__path__)]  # some register what they measure
    result = subprocess.run([sys.executable, "-c", IMPORT_ALL, *names], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert {"collect", "vector", "ppo"} <= set(names)
