"""Counts of episodes, and their summaries for the logs."""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch

from ding.utils.data.samples import IntArray
from ding.utils.object_state import attributes_state, load_attributes_state
from ding.worker.collector.batch import Ended, Steps, entry_of
from ding.worker.collector.rollout import Listener


def per(amount: float, of: float) -> float:
    """`amount / of`; 0.0 if `of` is 0."""
    return amount / of if of else 0.0


def reported_return(info: Any, env_id: int) -> Any:
    """The return of the episode that ended with this `info`, as the env reports it.

    Raises:
        KeyError: the env did not report it.
    """
    try:
        return info["eval_episode_return"]
    except KeyError:
        raise KeyError(
            f"env {env_id} ended an episode without info['eval_episode_return'], the return of the episode; "
            f"its info has {sorted(info)}"
        ) from None


def episode_return(info: Any, env_id: int) -> float:
    """`reported_return` as a float (the mean of a vector-valued return)."""
    value = reported_return(info, env_id)
    if isinstance(value, float):
        return value
    return float(torch.mean(value.float()) if isinstance(value, torch.Tensor) else np.mean(value))


def _returns(ended: Ended) -> list[float]:
    values = ended.column("eval_episode_return")
    if values is not None:
        return values
    return [episode_return(info, env_id) for env_id, info in zip(ended.env_ids, ended.infos, strict=True)]


# What happens to an env: a piece of its trajectory becomes samples, its episode ends, or is void.
PIECE, ENDED, VOID = "piece", "ended", "void"

MAX_EPISODE_STEPS = 1_000_000  # of an evaluation, unless the config says otherwise


class StepLimit(Listener):
    """Refuses an evaluation in which an env does not end its episodes.

    Args:
        limit: steps, abnormal ones included, that an env may take to end an episode; None for any number.

    Raises:
        RuntimeError: an env has taken `limit` steps since its last episode, which has not ended. From `on_steps` and
            `on_abnormal`.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = math.inf if limit is None else limit
        self._steps: IntArray = np.zeros(0, np.int64)  # by env

    def on_steps(self, steps: Steps) -> None:
        count = self._counted(steps.ids)
        count[steps.ids[steps.ends]] = 0
        if count.max() >= self._limit:
            self._refuse(int(count.argmax()))

    def on_abnormal(self, env_id: int) -> None:
        if self._counted(np.array([env_id]))[env_id] >= self._limit:
            self._refuse(env_id)

    def _counted(self, ids: IntArray) -> IntArray:
        missing = int(ids.max()) + 1 - len(self._steps)
        if missing > 0:
            self._steps = np.append(self._steps, np.zeros(missing, np.int64))
        self._steps[ids] += 1
        return self._steps

    def _refuse(self, env_id: int) -> None:
        raise RuntimeError(
            f"env {env_id} has ended no evaluation episode for {self._limit} steps; give the env a time limit, or "
            "raise policy.eval.evaluator.max_episode_steps (None for no limit)"
        )


# Episodes that are remembered one by one.
_LATEST = 100

STATISTICS = ("mean", "std", "max", "min")


class ReturnSummary:
    """Mean, standard deviation, maximum and minimum of a stream of returns, in constant memory.

    The variance is updated as in Welford, "Note on a method for calculating corrected sums of squares and products"
    (1962).
    """

    def __init__(self) -> None:
        self.count = 0
        self._mean = 0.0
        self._squares = 0.0
        self._max = -math.inf
        self._min = math.inf

    def add(self, values: Iterable[float]) -> None:
        for value in values:
            self.count += 1
            delta = value - self._mean
            self._mean += delta / self.count
            self._squares += delta * (value - self._mean)
            self._max = max(self._max, value)
            self._min = min(self._min, value)

    def scalars(self, name: str) -> dict[str, float]:
        """`{name_mean, name_std, name_max, name_min}`; the deviation is that of the population."""
        std = math.sqrt(self._squares / self.count) if self.count else 0.0
        return {f"{name}_mean": self._mean, f"{name}_std": std, f"{name}_max": self._max, f"{name}_min": self._min}


class EpisodeStatistics(Listener):
    """Sums up the finished episodes until they are logged.

    Args:
        players: number of players, each with an info of its own; None where the info is that of the only one.
        awaits_samples: the number of samples of each episode comes later, by `note_pieces`.

    Attributes:
        players: as given.
        reward_names: the names of the returns in the summary: `reward`, or `reward0`, `reward1`, ...
        train_samples: `{env_id: number}` of samples made of the episodes under way.
        latest: the latest of the episodes in the summary: reward (of each player), time, step, train_sample.
        finished: number of episodes that ended since the last `take_finished`.
        seconds: their total duration.
    """

    def __init__(self, players: int | None = None, awaits_samples: bool = False) -> None:
        self.players = players
        self._awaits_samples = awaits_samples
        self._awaiting: defaultdict[int, deque[dict[str, Any]]] = defaultdict(deque)
        self.reward_names = ("reward",) if players is None else tuple(f"reward{player}" for player in range(players))
        self.train_samples: Counter[int] = Counter()
        self.finished = 0
        self.seconds = 0.0
        self.clear_summary()

    def state_dict(self) -> dict[str, Any]:
        return attributes_state(self)

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        load_attributes_state(self, state)
        return []

    def on_ends(self, ended: Ended) -> None:
        env_ids, players = ended.env_ids, self.players
        if players is None:
            returns = [_returns(ended)]
        else:  # all are read before any is noted: an info that lacks its return leaves the summary whole
            rows = list(zip(env_ids, ended.infos, strict=True))
            returns = [[episode_return(entry_of(info, p), env_id) for env_id, info in rows] for p in range(players)]
        for summary, values in zip(self._returns, returns, strict=True):
            summary.add(values)
        lengths, seconds = ended.lengths, ended.seconds
        for env_id, length, cost, *values in zip(env_ids, lengths, seconds, *returns, strict=True):
            entry = dict(zip(self.reward_names, values, strict=True))
            entry.update(time=cost, step=length, train_sample=0)
            self.latest.append(entry)
            if self._awaits_samples:
                self._awaiting[env_id].append(entry)
        self._steps += sum(lengths)
        self._seconds += sum(seconds)
        self.finished += len(env_ids)
        self.seconds += sum(seconds)

    def note_pieces(self, events: Iterable[tuple[int, str, int]]) -> None:
        """Count the samples that were made of pieces, by their episodes; see `TrajectoryCutter.take_events`."""
        for env_id, what, number in events:
            if what == PIECE:
                self.train_samples[env_id] += number
                continue
            total = self.train_samples.pop(env_id, 0)
            if what == ENDED:
                self._samples += total
                self._awaiting[env_id].popleft()["train_sample"] = total

    def forget_pieces(self) -> None:
        """The samples of the episodes that await theirs are lost."""
        self._awaiting.clear()

    def take_finished(self) -> tuple[int, float]:
        """Number and total duration (seconds) of the episodes that ended since the last call."""
        taken = self.finished, self.seconds
        self.finished, self.seconds = 0, 0.0
        return taken

    def clear_summary(self) -> None:
        """Begin a new summary."""
        self._returns = tuple(ReturnSummary() for _ in self.reward_names)
        self.latest: deque[dict[str, Any]] = deque(maxlen=_LATEST)
        self._steps = 0
        self._samples = 0
        self._seconds = 0.0

    @property
    def summary_count(self) -> int:
        """Episodes in the summary."""
        return self._returns[0].count

    def summary(self) -> dict[str, float]:
        """The finished episodes since `clear_summary`: counts, averages, seconds, speeds, returns."""
        episodes = self.summary_count
        returns = [summary.scalars(name) for name, summary in zip(self.reward_names, self._returns, strict=True)]
        return {
            "episode_count": episodes,
            "envstep_count": self._steps,
            "train_sample_count": self._samples,
            "avg_envstep_per_episode": per(self._steps, episodes),
            "avg_sample_per_episode": per(self._samples, episodes),
            "avg_envstep_per_sec": per(self._steps, self._seconds),
            "avg_train_sample_per_sec": per(self._samples, self._seconds),
            "avg_episode_per_sec": per(episodes, self._seconds),
            "collect_time": self._seconds,
            **{key: value for scalars in returns for key, value in scalars.items()},
        }


class TaskEpisodes(Listener):
    """Counts steps and episodes, and keeps the returns by env.

    Args:
        return_of: takes the info that ended an episode and the env's id, and returns its return.

    Attributes:
        steps: normal steps, those of episodes that were dropped later included.
        count: episodes that have ended.
    """

    def __init__(self, return_of: Callable[[Any, int], float] = episode_return) -> None:
        self._return_of = return_of
        self.steps = self.count = 0
        self._returns: dict[int, list[float]] = defaultdict(list)
        self._has_news = False

    def on_steps(self, steps: Steps) -> None:
        self.steps += len(steps.env_ids)

    def on_ends(self, ended: Ended) -> None:
        for env_id, info in zip(ended.env_ids, ended.infos, strict=True):
            self._returns[env_id].append(self._return_of(info, env_id))
            self.count += 1
        self._has_news = True

    def take_news(self) -> bool:
        """Whether an episode has ended since the last call."""
        has_news, self._has_news = self._has_news, False
        return has_news

    def returns(self, env_num: int) -> list[list[float]]:
        """The returns of each of the envs, in the order of their episodes."""
        return [list(self._returns.get(env_id, ())) for env_id in range(env_num)]

    def summary(self, duration_s: float, samples: int) -> dict[str, Any]:
        """The counts, averages (0 of nothing) and returns, env by env, of a finish info."""
        returns = [value for env_id in sorted(self._returns) for value in self._returns[env_id]]
        return {
            "real_episode_count": self.count,
            "step_count": self.steps,
            "sample_count": samples,
            "avg_time_per_episode": per(duration_s, self.count),
            "avg_time_per_step": per(duration_s, self.steps),
            "avg_time_per_train_sample": per(duration_s, samples),
            "avg_step_per_episode": per(self.steps, self.count),
            "avg_sample_per_episode": per(samples, self.count),
            "reward_mean": float(np.mean(returns)) if returns else 0.0,
            "reward_std": float(np.std(returns)) if returns else 0.0,
            "reward_raw": returns,
        }
