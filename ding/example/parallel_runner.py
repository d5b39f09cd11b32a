"""The command line of the parallel examples."""

from __future__ import annotations

import argparse
import copy
from collections.abc import Sequence
from typing import Any

MAX_SECONDS = 300.0


def run(main_config: Any, create_config: Any, system_config: Any, argv: Sequence[str] | None = None) -> int:
    """Train with `--seed N` (0), for at most `--max-seconds`, on `--platform local` or `ray`, and print the outcome.

    Returns:
        The exit status: 0 if the stop value was reached, otherwise 1.
    """
    from ding.entry.parallel_run import run_parallel

    parser = argparse.ArgumentParser(description=f"Train {main_config.exp_name} until its stop value is reached.")
    parser.add_argument("--seed", type=int, default=0, help="of everything random in the run (default 0)")
    parser.add_argument("--max-seconds", type=float, default=MAX_SECONDS, help="budget (default %(default)s)")
    parser.add_argument("--platform", choices=["local", "ray"], default="local", help="where workers run (%(default)s)")
    parser.add_argument("--address", help="of the Ray cluster to join; without one, a Ray of its own is started")
    args = parser.parse_args(argv)
    main = copy.deepcopy(main_config)
    main.exp_name = f"{main.exp_name}_seed{args.seed}"
    where = {"platform": args.platform, "address": args.address}
    outcome = run_parallel((main, create_config, system_config), seed=args.seed, max_seconds=args.max_seconds, **where)
    reached = outcome.progress.last_return
    mean_return = "-" if reached is None else f"{reached:.1f}"
    print(
        f"{'solved' if outcome.stop else 'NOT solved'}: mean return {mean_return} (stop value {main.env.stop_value}); "
        f"results are in ./{outcome.cfg.main.exp_name}/"
    )
    return 0 if outcome.stop else 1
