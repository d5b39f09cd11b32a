"""Seconds that `import ding.worker` costs over `import torch`, each in a fresh interpreter, in turn.

`python -m tests.benchmarks.imports`
"""

from __future__ import annotations

import statistics
import subprocess
import sys

from tests.benchmarks.report import Report

ROUNDS = 7
GOAL_S = 0.3


def seconds(statement: str) -> float:
    """How long a fresh interpreter takes over `statement`, its own start not counted."""
    program = f"import time; start = time.perf_counter(); {statement}; print(time.perf_counter() - start)"
    return float(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout)


def main() -> int:
    seconds("import torch, ding.worker")
    alone, both = [], []
    for _ in range(ROUNDS):
        alone.append(seconds("import torch"))
        both.append(seconds("import torch, ding.worker"))
    extra = statistics.median(b - a for a, b in zip(alone, both, strict=True))
    print(f"import torch {statistics.median(alone):.2f} s, import torch, ding.worker {statistics.median(both):.2f} s")
    report = Report()
    report.line("import ding.worker over import torch", "s", extra, "allowed", GOAL_S, at_most=1.0)
    return report.exit_status()


if __name__ == "__main__":
    sys.exit(main())
