"""What is shipped: the source distribution, its metadata, and which packages a serial training needs."""

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import ding

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
