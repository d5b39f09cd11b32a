"""Programs that tests run in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from ding.entry.cli import cli

ROOT = Path(__file__).parents[1]


def environment(**variables):
    """What a program needs to import the package and its tests, with one thread."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "OMP_NUM_THREADS": "1", **variables}


def run_python(*arguments, timeout=300, cwd=None, **variables):
    """What has become of `python` with these arguments."""
    command = [sys.executable, *map(str, arguments)]
    how = {"capture_output": True, "text": True, "timeout": timeout, "cwd": cwd}
    return subprocess.run(command, env=environment(**variables), **how)


def printed(*arguments, **how):
    """What `python` with these arguments prints, when all is well."""
    done = run_python(*arguments, **how)
    assert done.returncode == 0, done.stderr
    return done.stdout


def ding(*arguments, status=0, **how):
    """What the command `ding` prints in this process, which ends with this status."""
    words = [str(argument) for argument in arguments]
    result = CliRunner().invoke(cli, words, prog_name="ding", catch_exceptions=False, **how)
    assert result.exit_code == status, result.output
    return result.output
