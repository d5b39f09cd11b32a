"""`import ding.worker` stays light: what only some users need is loaded when it is used."""

import subprocess
import sys

import pytest

HEAVY = (
    "flask", "tensorboardX", "gymnasium", "gym", "requests", "yaml", "tabulate", "httptools", "google.protobuf",
    "numba", "torch._dynamo",
)  # fmt: skip


@pytest.mark.parametrize("package", ["ding.worker", "ding.config", "ding.entry"])
def test_importing_loads_no_heavy_package(package):
    program = f"import sys, {package}; print('\\n'.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    assert [name for name in HEAVY if name in loaded] == []


def test_importing_the_workers_loads_no_policies():
    program = "import sys, ding.worker; print('ding.policy' in sys.modules, 'ding.model' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
        == "False False\n"
    )
