"""What is shipped: the source distribution, its metadata, and which packages a serial training needs."""

import json
import os
import pkgutil
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import ding
from tests import benchmarks

ROOT = Path(__file__).parents[1]

_TRAIN_WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {missing}:
            raise ImportError("not installed: " + name)

sys.meta_path.insert(0, Missing())
from ding.entry import serial_pipeline
from ding.example.cartpole_dqn import create_config, main_config

main_config.exp_name = "run"
main_config.policy.eval.evaluator.eval_freq = 1000
serial_pipeline((main_config, create_config), seed=0, max_train_iter=3)
"""


@pytest.fixture
def source(tmp_path):
    """A folder with the files that are tracked, and their names."""
    pytest.importorskip("setuptools")
    folder = tmp_path / "source"
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if tracked.returncode:
        pytest.skip("this is no checkout")
    names = tracked.stdout.splitlines()
    for name in names:
        if (ROOT / name).is_file():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    return folder, names


def test_the_source_distribution_has_what_building_testing_and_reading_it_needs(tmp_path, source):
    folder, tracked = source
    command = [sys.executable, "setup.py", "-q", "sdist", "--dist-dir", str(tmp_path)]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        shipped = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {name for name in tracked if not name.startswith(".")}
    assert wanted - shipped == set()


def test_the_citation_names_the_version_that_is_shipped():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (.+)$", text, re.M)[1] == ding.__version__


def test_serial_training_imports_nothing_that_only_parallel_training_and_files_need(tmp_path):
    script = _TRAIN_WITHOUT.format(missing={"flask", "werkzeug", "tornado", "requests", "ray", "lz4", "cloudpickle"})
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, capture_output=True, timeout=120)
    assert (tmp_path / "run" / "ckpt").is_dir()


@pytest.mark.slow
def test_a_type_checker_sees_the_annotations_from_outside(tmp_path, source):
    installed = tmp_path / "installed"
    command = [sys.executable, "setup.py", "-q", "build", "--build-lib", str(installed)]
    subprocess.run(command, cwd=source[0], check=True, capture_output=True)
    (tmp_path / "user.py").write_text(
        "from ding.worker.replay_buffer.naive_buffer import NaiveReplayBuffer\n\nreveal_type(NaiveReplayBuffer.count)\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "user.py"]
    # An editable installation does not count: type checkers do not follow its import hook.
    env = {**os.environ, "PYTHONPATH": str(installed)}
    result = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=300)
    assert "missing library stubs or py.typed" not in result.stdout
    assert ') -> int"' in result.stdout, result.stdout
    assert "Success" in result.stdout


# `import ding.worker` stays light: what only some users need is loaded when it is used.


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


# The benchmarks, which no other test runs, still fit the package.


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
