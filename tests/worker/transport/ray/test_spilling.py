"""Samples under way stay within the object store."""

import json
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("ray")

ROOT = pathlib.Path(__file__).resolve().parents[4]


@pytest.mark.slow
def test_many_collectors_do_not_make_a_small_object_store_spill():
    command = [sys.executable, "-m", "tests.worker.transport.ray.spilling"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
    seen = json.loads(run.stdout.splitlines()[-1])
    assert seen["spilled_by_others"] > 0
    assert seen["pushed"] == 8 * 24 * 64  # 340 MiB through a store of 80 MiB
    assert seen["batches"] > 0
    assert seen["spilled_by_samples"] == 0
