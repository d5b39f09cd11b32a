"""The command line that the serial examples share."""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Sequence
from typing import Any

from ding.entry.progress import mean_return
from ding.entry.serial_entry import run_serial

MAX_ENV_STEP = 30_000


def run(main_config: Any, create_config: Any, argv: Sequence[str] | None = None) -> int:
    """Train with `--seed N` (0), up to `--max-env-step` env steps; print the outcome and where its files are.

    Returns:
        the exit status: 0 when the stop value was reached, else 1.
    """
    parser = argparse.ArgumentParser(description=f"Train {main_config.exp_name} until its stop value is reached.")
    parser.add_argument("--seed", type=int, default=0, help="of everything random in the run (default 0)")
    parser.add_argument("--max-env-step", type=int, default=MAX_ENV_STEP, help="budget (default %(default)s)")
    args = parser.parse_args(argv)
    main = copy.deepcopy(main_config)
    main.exp_name = f"{main.exp_name}_seed{args.seed}"
    start = time.perf_counter()
    outcome = run_serial((main, create_config), seed=args.seed, max_env_step=args.max_env_step)
    seconds = time.perf_counter() - start
    print(
        f"{'solved' if outcome.stop else 'NOT solved'}: mean return {mean_return(outcome.eval_info):.1f} "
        f"(stop value {main.env.stop_value}) after {outcome.collector.envstep} env steps, "
        f"{outcome.learner.train_iter} iterations and {seconds:.1f} s; results are in ./{outcome.cfg.exp_name}/"
    )
    return 0 if outcome.stop else 1
