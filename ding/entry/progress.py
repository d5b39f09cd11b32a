"""What a training run shows and leaves behind: a line on the terminal, one record per evaluation, the final result."""

from __future__ import annotations

import json
import math
import os
import pickle
import sys
import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ding.utils.config_helper import ConfigError, Rule
from ding.utils.file_helper import atomic_write

if TYPE_CHECKING:
    from ding.worker.coordinator.run_state import Progress

UNLIMITED = int(1e10)


class ProgressLine:
    """One line on standard error with env steps, steps per second, iterations, last and best return.

    Shown only where standard error is a terminal (and `enabled`); otherwise every method does nothing.
    """

    def __init__(self, max_env_step: int = UNLIMITED, enabled: bool = True) -> None:
        self._bar: Any = None
        self._best = -math.inf
        self._shown: dict[str, Any] = {}
        if enabled and sys.stderr.isatty():
            self._bar = _bar(total=max_env_step if max_env_step < UNLIMITED else None, unit="step")

    def advance(self, envstep: int, train_iter: int) -> None:
        """Move to these totals."""
        if self._bar is not None:
            self._shown["iter"] = train_iter
            self._bar.set_postfix(self._shown, refresh=False)
            self._bar.update(envstep - self._bar.n)

    def evaluated(self, mean_return: float) -> None:
        """Show the mean return of an evaluation."""
        self._best = max(self._best, mean_return)
        self._shown.update({"return": f"{mean_return:.1f}", "best": f"{self._best:.1f}"})
        if self._bar is not None:
            self._bar.set_postfix(self._shown)

    def close(self) -> None:
        """Leave the line as it is. May be called any number of times."""
        if self._bar is not None:
            self._bar.close()


def _bar(**kwargs: Any) -> Any:
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[type-arg]
        monitor_interval = 0  # no watching thread

    return Bar(dynamic_ncols=True, **kwargs)


class ParallelProgressLine:
    """One line on standard error: samples and updates per second, how old policies are, last and best return.

    Shown only where standard error is a terminal; otherwise every method does nothing.
    """

    def __init__(self) -> None:
        self._bar: Any = _bar(bar_format="{desc}") if sys.stderr.isatty() else None
        self._samples, self._updates = _Rate(), _Rate()

    def say(self, text: str) -> None:
        """Write a line above."""
        if self._bar is not None:
            self._bar.write(text, file=sys.stderr)

    def show(self, progress: Progress) -> None:
        """Show how a run stands."""
        if self._bar is None:
            return
        now = time.perf_counter()
        samples, updates = self._samples.at(now, progress.samples), self._updates.at(now, progress.train_iter)
        self._bar.set_description_str(
            f"{progress.env_steps} steps, {samples:.0f} samples/s, {progress.train_iter} iter, "
            f"{updates:.0f} updates/s, policy lag {progress.policy_lag}, return {_shown(progress.last_return)}, "
            f"best {_shown(progress.best_return)}"
        )

    def close(self) -> None:
        """Leave the line as it is. May be called any number of times."""
        if self._bar is not None:
            self._bar.close()


def _shown(mean_return: float | None) -> str:
    return "-" if mean_return is None else f"{mean_return:.1f}"


class _Rate:
    """How fast a count grows, over about the last three seconds."""

    _MEMORY_S = 3.0

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def at(self, now_s: float, count: int) -> float:
        """The rate per second, once `count` is known for the time `now_s`."""
        self._seen.append((now_s, count))
        while len(self._seen) > 2 and now_s - self._seen[1][0] > self._MEMORY_S:
            self._seen.popleft()
        first_s, first = self._seen[0]
        return (count - first) / (now_s - first_s) if now_s > first_s else 0.0


def append_evaluation(exp_name: str, seed: int, train_iter: int, envstep: int, evaluator: Any, info: Any) -> None:
    """Append one JSON line to `<exp_name>/eval.jsonl`.

    Its keys: train_iter, env_step, seed, returns (one an episode), lengths (env steps of each episode) and seconds.
    Lengths and seconds come from `evaluator.last_eval`; both are null for an evaluator that does not record it.
    """
    last = getattr(evaluator, "last_eval", None)
    record = {
        "train_iter": train_iter,
        "env_step": envstep,
        "seed": seed,
        "returns": episode_returns(info) if last is None else _plain(last.returns),
        "lengths": None if last is None else _plain(last.lengths),
        "seconds": None if last is None else float(last.seconds),
    }
    append_record(exp_name, record)


def append_record(exp_name: str, record: Mapping[str, Any]) -> None:
    """Append one JSON line to `<exp_name>/eval.jsonl`, see `append_evaluation`."""
    with open(os.path.join(exp_name, "eval.jsonl"), "a", encoding="utf-8") as f:
        f.write(json.dumps(record) + "\n")


def write_result(exp_name: str, stop: bool, envstep: int, train_iter: int, info: Any) -> None:
    """Pickle the outcome of a run, in plain Python types, to `<exp_name>/result.pkl`.

    Args:
        info: what the last evaluation returned; without one, `eval_value` is NaN and `eval_value_raw` empty.
    """
    returns = episode_returns(info)
    result = {
        "stop": bool(stop),
        "env_step": int(envstep),
        "train_iter": int(train_iter),
        "eval_value": mean_return(info),
        "eval_value_raw": returns,
        "finish_time": time.ctime(),
    }
    with atomic_write(os.path.join(exp_name, "result.pkl"), "wb") as f:
        pickle.dump(result, f)


def episode_returns(info: Any) -> list[Any]:
    """The returns in what an evaluation returned, in plain Python types; [] where it has none."""
    return list(_plain((info or {}).get("eval_episode_return", [])))


def mean_return(info: Any) -> float:
    """The mean of `episode_returns`, NaN without any."""
    returns = episode_returns(info)
    return float(np.mean(returns)) if returns else math.nan


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def check_limits(rule: Rule, **limits: Any) -> None:
    """Refuse limits that `rule` does not accept.

    Raises:
        ConfigError: one is refused.
    """
    for name, limit in limits.items():
        allowed = rule(limit)
        if allowed is not None:
            raise ConfigError(f"{name} = {limit!r} is not allowed; it must be {allowed}, or left out for no limit")


def set_limits(main: Any, system: Any, max_train_iter: int, max_env_step: int) -> None:
    """Write the limits into the two configs, in place; the config's own count, too."""
    learner = main.setdefault("policy", {}).setdefault("learn", {}).setdefault("learner", {})
    if max_train_iter < UNLIMITED:
        learner["train_iterations"] = int(min(max_train_iter, learner.get("train_iterations", max_train_iter)))
    if max_env_step < UNLIMITED:
        coordinator = system.setdefault("coordinator", {})
        coordinator["max_env_step"] = min(max_env_step, coordinator.get("max_env_step", max_env_step))
