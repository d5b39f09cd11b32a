"""The command line of the serial examples."""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Sequence
from typing import Any

from ding.entry.progress import mean_return
from ding.entry.serial_entry import run_serial
from ding.entry.workers import SerialRun
from ding.utils.pytorch_ddp_dist_helper import get_rank

MAX_ENV_STEP = 30_000


def run(
    main_config: Any,
    create_config: Any,
    argv: Sequence[str] | None = None,
    train: Callable[..., SerialRun] = run_serial,
    max_env_step: int = MAX_ENV_STEP,
) -> int:
    """Train with `--seed N` (0) up to `--max-env-step` env steps, and print the outcome and where its files are.

    Args:
        train: the pipeline, such as `run_serial`.
        max_env_step: the default budget.

    Returns:
        The exit status: 0 if the stop value was reached, otherwise 1.
    """
    parser = argparse.ArgumentParser(description=f"Train {main_config.exp_name} until its stop value is reached.")
    parser.add_argument("--seed", type=int, default=0, help="of everything random in the run (default 0)")
    parser.add_argument("--max-env-step", type=int, default=max_env_step, help="budget (default %(default)s)")
    args = parser.parse_args(argv)
    main = copy.deepcopy(main_config)
    main.exp_name = f"{main.exp_name}_seed{args.seed}"
    outcome = train((main, create_config), seed=args.seed, max_env_step=args.max_env_step)
    if get_rank() != 0:
        return 0 if outcome.stop else 1
    print(
        f"{'solved' if outcome.stop else 'NOT solved'}: mean return {mean_return(outcome.eval_info):.1f} "
        f"(stop value {main.env.stop_value}); results are in ./{outcome.cfg.exp_name}/"
    )
    return 0 if outcome.stop else 1
