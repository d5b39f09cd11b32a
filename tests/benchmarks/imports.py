"""Seconds that `import ding.worker` costs over `import torch`, each in a fresh interpreter, in turn.

`python -m tests.benchmarks.imports`
"""

import subprocess
import sys
from functools import partial

from tests.benchmarks.harness import Report, medians, run


def seconds(statement: str) -> float:
    """How long a fresh interpreter takes over `statement`, its own start not counted."""
    program = f"import time; start = time.perf_counter(); {statement}; print(time.perf_counter() - start)"
    return float(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout)


def measure(report: Report) -> None:
    names = ("torch", "torch, ding.worker")
    alone, both = medians({name: partial(seconds, f"import {name}") for name in names}, 7, warm_ups=1).values()
    print(f"import torch {alone:.2f} s, import torch, ding.worker {both:.2f} s")
    report.line("import ding.worker over import torch", "s", both - alone, "allowed", 0.3, at_most=1.0)


if __name__ == "__main__":
    sys.exit(run(measure))
