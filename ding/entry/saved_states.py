"""The information that `ding state` shows about the states of a run; nothing else in them is read."""

from __future__ import annotations

import os
import time

from ding.utils.state_folder import FOLDER, StateError, StateFolder


def show_states(exp_name: str) -> tuple[list[tuple[str, ...]], list[str]]:
    """Return a row for each state of a run, and notes about the newest state.

    A row has file, time, reason, iteration, env steps, mean return, size, and whether the state is exact, as texts.

    Raises:
        StateError: there is no readable state.
    """
    path = os.path.join(exp_name, FOLDER)
    states = list(StateFolder(path).states())
    if not states:
        raise StateError(f"there is no state in {path!r}")
    rows: list[tuple[str, ...]] = []
    for saved in states:
        about = saved.about
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(about["time"]))
        shown = "-" if about["last_return"] is None else f"{about['last_return']:.1f}"
        counts = str(about["train_iter"]), str(about["env_step"])
        exact = "yes" if about["is_exact"] else "no"
        size = f"{saved.size_bytes / 1e6:.1f} MB"
        rows.append((os.path.basename(saved.path), when, about["reason"], *counts, shown, size, exact))
    newest = states[-1].about
    versions = ", ".join(f"{name} {version}" for name, version in newest["versions"].items())
    notes = [f"Written with {versions}.", *(f"Not exact: {reason}" for reason in newest["inexact"])]
    return rows, notes
