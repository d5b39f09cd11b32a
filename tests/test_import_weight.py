"""`import ding.worker` stays light: what only some users need is loaded when it is used."""

import json
import subprocess
import sys

import pytest

HEAVY = (
    "flask", "tensorboardX", "gymnasium", "gym", "requests", "yaml", "tabulate", "tornado", "google.protobuf",
    "numba", "torch._dynamo", "cv2", "imageio", "moviepy",
)  # fmt: skip


PACKAGES = ["ding.utils", "ding.envs", "ding.envs.gym_env", "ding.worker", "ding.config", "ding.entry", "ding.bonus"]
PROGRAM = """
import importlib, json, sys
import torch
loaded = {"torch": sorted(sys.modules)}
for package in sys.argv[1:]:
    importlib.import_module(package)
    loaded[package] = sorted(sys.modules)
print(json.dumps(loaded))
"""


@pytest.fixture(scope="module")
def loaded():
    """The modules that are loaded when torch and then, one after the other, the packages have been imported."""
    command = [sys.executable, "-c", PROGRAM, *PACKAGES]
    run = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    return {package: set(names) for package, names in json.loads(run.stdout).items()}


@pytest.mark.differs(
    "imports example envs with `ding.config`, and compiles its segment trees with numba for seconds",
    "imports no env package; the trees are numpy",
)
@pytest.mark.parametrize("package", PACKAGES)
def test_importing_loads_no_heavy_package(package, loaded):
    assert [name for name in HEAVY if name in loaded[package] - loaded["torch"]] == []


def test_importing_the_utilities_loads_no_package_for_files(loaded):
    assert [name for name in ("lz4", "msgpack", "cloudpickle") if name in loaded["ding.utils"] - loaded["torch"]] == []


def test_importing_the_workers_loads_neither_policies_nor_what_only_parallel_training_needs(loaded):
    unused = ("ding.policy", "ding.model", "ding.interaction")
    assert [name for name in unused if name in loaded["ding.worker"]] == []
