"""The command lines of the examples."""

from __future__ import annotations

import argparse
import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

from ding.entry.run_folder import mean_return
from ding.entry.serial_entry import run_serial
from ding.entry.serial_run import SerialRun
from ding.utils.pytorch_ddp_dist_helper import get_rank

MAX_ENV_STEP = 30_000
MAX_SECONDS = 300.0


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
    parser = _parser(main_config)
    parser.add_argument("--max-env-step", type=int, default=max_env_step, help="budget (default %(default)s)")
    args = parser.parse_args(argv)
    main = _with_seed(main_config, args.seed)
    outcome = train((main, create_config), seed=args.seed, max_env_step=args.max_env_step)
    return _tell(outcome.stop, mean_return(outcome.eval_info), main.env.stop_value, outcome.cfg.exp_name)


def run_on_workers(main_config: Any, create_config: Any, system_config: Any, argv: Sequence[str] | None = None) -> int:
    """Train with `--seed N` (0), for at most `--max-seconds`, on `--platform local` or `ray`, and print the outcome.

    Returns:
        The exit status: 0 if the stop value was reached, otherwise 1.
    """
    from ding.entry.parallel_run import run_parallel

    parser = _parser(main_config)
    parser.add_argument("--max-seconds", type=float, default=MAX_SECONDS, help="budget (default %(default)s)")
    parser.add_argument("--platform", choices=["local", "ray"], default="local", help="where workers run (%(default)s)")
    parser.add_argument("--address", help="of the Ray cluster to join; without one, a Ray of its own is started")
    args = parser.parse_args(argv)
    main = _with_seed(main_config, args.seed)
    outcome = run_parallel(
        (main, create_config, system_config),
        seed=args.seed,
        max_seconds=args.max_seconds,
        platform=args.platform,
        address=args.address,
    )
    reached = outcome.progress.last_return
    return _tell(outcome.stop, math.nan if reached is None else reached, main.env.stop_value, outcome.cfg.main.exp_name)


def _parser(main_config: Any) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=f"Train {main_config.exp_name} until its stop value is reached.")
    parser.add_argument("--seed", type=int, default=0, help="of everything random in the run (default 0)")
    return parser


def _with_seed(main_config: Any, seed: int) -> Any:
    main = copy.deepcopy(main_config)
    main.exp_name = f"{main.exp_name}_seed{seed}"
    return main


def _tell(is_solved: bool, reached: float, stop_value: float, folder: str) -> int:
    if get_rank() == 0:
        shown = "-" if math.isnan(reached) else f"{reached:.1f}"
        print(
            f"{'solved' if is_solved else 'NOT solved'}: mean return {shown} (stop value {stop_value}); "
            f"results are in ./{folder}/"
        )
    return 0 if is_solved else 1
