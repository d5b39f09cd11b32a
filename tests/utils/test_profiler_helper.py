import os
import pstats
import subprocess
import sys

import pytest

import ding
from ding.utils.time_helper import Profiler


def busy():
    return sum(i * i for i in range(1000))


def functions_of(path):
    return {name for _, _, name in pstats.Stats(str(path)).stats}


def test_what_ran_between_start_and_stop_is_in_three_files(tmp_path):
    profiler = Profiler()
    profiler.profile(str(tmp_path / "new"))
    busy()
    profiler.stop()
    profiler.stop()
    base = tmp_path / "new" / f"profile_{os.getpid()}"
    assert "busy" in functions_of(f"{base}.prof")
    for order, words in (("cumulative", "Ordered by: cumulative time"), ("tottime", "Ordered by: internal time")):
        text = (tmp_path / "new" / f"{base.name}_{order}.txt").read_text()
        assert words in text and "(busy)" in text
    assert len(os.listdir(tmp_path / "new")) == 3


def test_it_can_run_again_but_not_twice_at_once(tmp_path):
    profiler = Profiler()
    profiler.profile(str(tmp_path / "a"))
    with pytest.raises(RuntimeError, match="is running for"):
        profiler.profile(str(tmp_path / "b"))
    profiler.stop()
    profiler.profile(str(tmp_path / "c"))
    profiler.stop()
    assert sorted(os.listdir(tmp_path)) == ["a", "c"]


def test_without_stop_the_files_are_written_at_exit(tmp_path):
    program = (
        "from ding.utils.time_helper import Profiler\n"
        "def work(): return sum(range(1000))\n"
        "Profiler().profile()\n"
        "work()\n"
    )
    env = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(ding.__file__))}
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, cwd=tmp_path, env=env, timeout=120, capture_output=True, check=True)
    assert run.stdout == b""
    (prof,) = (tmp_path / "tmp").glob("*.prof")
    assert "work" in functions_of(prof)
