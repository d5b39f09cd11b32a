"""Counts of episodes, and their summaries for the logs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ding.utils.data.nested import FLOAT32_MAX, has_nan, is_finite, leaves
from ding.utils.data.samples import IntArray
from ding.utils.object_state import SavedAttributes
from ding.worker.collector.env_round import Ended, RoundBlock, Steps, entry_of
from ding.worker.collector.rollout import RolloutListener

FloatArray = npt.NDArray[np.float64]


def per(amount: float, of: float) -> float:
    """Return `amount / of`; 0.0 if `of` is 0."""
    return amount / of if of else 0.0


def reported_return(info: Any, env_id: int) -> Any:
    """Return the return that the env reports in `info`, the last info of an episode.

    Raises:
        KeyError: the env did not report it.
        FloatingPointError: it is infinite.
    """
    try:
        value = info["eval_episode_return"]
    except KeyError:
        raise KeyError(
            f"env {env_id} ended an episode without info['eval_episode_return'], the return of the episode; "
            f"its info has {sorted(info)}"
        ) from None
    is_usual = type(value) is float and -FLOAT32_MAX <= value <= FLOAT32_MAX
    if not is_usual and not all(is_finite(leaf) or has_nan(leaf) for leaf in leaves(value)):
        raise FloatingPointError(
            f"env {env_id} ended an episode with info['eval_episode_return'] = {value!r}; report a return that is "
            "finite in float32"
        )
    return value


def episode_return(info: Any, env_id: int) -> float:
    """Return `reported_return` as a float (the mean of a vector-valued return)."""
    value = reported_return(info, env_id)
    if isinstance(value, float):
        return value
    return float(torch.mean(value.float()) if isinstance(value, torch.Tensor) else np.mean(value))


def _reported_returns(ended: Ended) -> list[float]:
    """Return `episode_return` of each episode; numbers within float32 need no call."""
    infos = ended.infos
    values: list[Any] = [info.get("eval_episode_return") if type(info) is dict else None for info in infos]
    if set(map(type, values)) == {float} and max(map(abs, values)) <= FLOAT32_MAX:
        return values
    return [episode_return(info, env_id) for env_id, info in zip(ended.env_ids, infos, strict=True)]


MAX_EPISODE_STEPS = 1_000_000  # in an evaluation, unless the config says otherwise


class StepLimit(RolloutListener):
    """A listener that ends an evaluation if an episode does not end.

    Args:
        limit: number of steps, abnormal ones included, within which an episode must end; None for no limit.

    Raises:
        RuntimeError: an env has taken `limit` steps since its last episode ended; raised by `on_steps` and
            `on_abnormal`.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = math.inf if limit is None else limit
        self._steps: IntArray = np.zeros(0, np.int64)  # steps since the last end of an episode, by env

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


# Episodes that are remembered one by one, and rounds with ends that are summed up together.
_LATEST, _MANY = 100, 256

# The number of an episode that does not count.
NO_EPISODE = -1

STATISTICS = ("mean", "std", "max", "min")


class ReturnSummary(SavedAttributes):
    """Mean, standard deviation, maximum and minimum of a stream of returns, in constant memory.

    The variances of parts are combined as in Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for
    computing sample variances" (1979).
    """

    _saved = ("count", "_mean", "_squares", "_max", "_min")

    def __init__(self) -> None:
        self.count = 0
        self._mean = 0.0
        self._squares = 0.0
        self._max = -math.inf
        self._min = math.inf

    def add(self, values: FloatArray) -> None:
        """Add returns [n >= 1]."""
        mean = float(values.mean())
        delta, total = mean - self._mean, self.count + len(values)
        self._squares += float(np.square(values - mean).sum()) + delta**2 * self.count * len(values) / total
        self._mean += delta * len(values) / total
        self.count = total
        self._max, self._min = max(self._max, float(values.max())), min(self._min, float(values.min()))

    def scalars(self, name: str) -> dict[str, float]:
        """Return `{name_mean, name_std, name_max, name_min}`; the standard deviation is that of the population."""
        std = math.sqrt(self._squares / self.count) if self.count else 0.0
        return {f"{name}_mean": self._mean, f"{name}_std": std, f"{name}_max": self._max, f"{name}_min": self._min}


class EpisodeStatistics(RolloutListener):
    """A listener that sums up the finished episodes until they are logged.

    Args:
        players: number of players, each with an info of its own; None if infos are not by player.

    Attributes:
        players: as given.
        reward_names: the names of the returns in the summary: `reward`, or `reward0`, `reward1`, ...
        running: an array [env_num], the number of the running episode of each env; no two episodes have the same.
        finished, seconds: number and total duration of the episodes that ended since the last `take_finished`.
    """

    _saved = (
        *("running", "finished", "seconds", "_first", "_next", "_made", "_is_over"),
        *("_recent", "_latest", "_returns", "_steps", "_samples", "_summed_seconds"),
    )

    def __init__(self, players: int | None = None, env_num: int = 0) -> None:
        self.players = players
        self.reward_names = ("reward",) if players is None else tuple(f"reward{player}" for player in range(players))
        self.finished = 0
        self.seconds = 0.0
        # Of each episode from `_first` on: the samples made of it so far, and whether it is summed up.
        self._first = self._next = 0
        self._made: IntArray = np.zeros(0, np.int64)
        self._is_over = np.zeros(0, np.bool_)
        # Of the episodes that have ended: `running`, the returns [P, players], steps and seconds; by round, and the
        # latest of those that are summed up.
        self._recent: list[tuple[Any, ...]] = []
        self._latest: list[Any] = []
        self.begin_episodes(env_num)
        self.clear_summary()

    def begin_episodes(self, env_num: int) -> None:
        """Begin an episode in each env; those that were under way do not count."""
        self.running: IntArray = np.zeros(env_num, np.int64)
        self._begin(np.arange(env_num))

    def _begin(self, ids: IntArray) -> None:
        self.running[ids] = np.arange(self._next, self._next + len(ids))
        self._next += len(ids)
        missing = self._next - self._first - len(self._made)
        if missing > 0:
            more = missing + len(self._made)
            self._made = np.append(self._made, np.zeros(more, np.int64))
            self._is_over = np.append(self._is_over, np.zeros(more, np.bool_))

    def on_ends(self, ended: Ended) -> None:
        if self.players is None:
            known = ended.returns
            values: Any = _reported_returns(ended) if known is None else known
            returns = np.array(values, np.float64)[:, None]
        else:  # all are read before any is noted: an info that lacks its return leaves the summary whole
            rows = list(zip(ended.env_ids, ended.infos, strict=True))
            players = range(self.players)
            returns = np.array([[episode_return(entry_of(info, p), env_id) for p in players] for env_id, info in rows])
        ids, begun = ended.ids, self._next
        numbers = self.running[ids]
        earlier, later = ended.pairs
        numbers[later] = begun + earlier  # these began with the end of the one before
        self._begin(ids)
        self._recent.append((numbers, returns, ended.steps, ended.seconds))
        self.finished += len(ids)
        self.seconds += float(ended.seconds.sum())
        if len(self._recent) >= _MANY:
            self._sum_up()

    def numbers_of(self, rounds: RoundBlock) -> IntArray:
        """Return the numbers of the episodes [T, K] of T rounds, before `on_ends` hears of their ends."""
        running = self.running[rounds.ids]
        if not rounds.any_ends:
            return np.broadcast_to(running, rounds.ends.shape)
        numbers = np.full(rounds.ends.shape, -1)
        rows, columns = rounds.ends[:-1].nonzero()
        numbers[rows + 1, columns] = np.arange(self._next, self._next + len(rows))
        numbers[0] = running
        return np.maximum.accumulate(numbers, axis=0)  # later episodes have larger numbers

    def on_abnormal(self, env_id: int) -> None:
        self._begin(np.array([env_id]))

    on_restart = on_abnormal

    def count_samples(self, numbers: IntArray, samples: IntArray) -> None:
        """Count the samples [n] that were made of parts of the episodes `numbers` [n], which may have ended."""
        places = numbers - self._first
        if np.count_nonzero(places < 0):  # episodes that were logged, or void, at the last log, or `NO_EPISODE`
            known = places >= 0
            places, samples = places[known], samples[known]
        np.add.at(self._made, places, samples)
        is_over = self._is_over[places]
        if np.count_nonzero(is_over):
            self._samples += int(samples[is_over].sum())

    def take_finished(self) -> tuple[int, float]:
        """Return the number and the total duration (seconds) of the episodes that ended since the last call."""
        taken = self.finished, self.seconds
        self.finished, self.seconds = 0, 0.0
        return taken

    def clear_summary(self) -> None:
        """Begin a new summary."""
        self._sum_up()
        self._returns = tuple(ReturnSummary() for _ in self.reward_names)
        self._latest = []
        self._steps = self._samples = 0
        self._summed_seconds = 0.0
        self._forget(self.running)

    def _forget(self, kept: IntArray) -> None:
        """Forget the samples of the episodes before the first of `kept`."""
        gone = int(kept.min(initial=self._next)) - self._first
        self._first += gone
        self._made, self._is_over = self._made[gone:].copy(), self._is_over[gone:].copy()

    def _sum_up(self) -> None:
        """Add the recent episodes to the summary."""
        if not self._recent:
            return
        episodes = list(map(np.concatenate, zip(*self._recent, strict=True)))
        self._recent = []
        numbers, returns, steps, seconds = episodes
        for summary, values in zip(self._returns, returns.T, strict=True):
            summary.add(values)
        places = numbers - self._first
        self._is_over[places] = True
        self._samples += int(self._made[places].sum())
        self._steps += int(steps.sum())
        self._summed_seconds += float(seconds.sum())
        known = [self._latest, episodes] if self._latest else [episodes]
        self._latest = [np.concatenate(parts)[-_LATEST:] for parts in zip(*known, strict=True)]
        self._forget(np.append(self.running, self._latest[0]))

    @property
    def latest(self) -> list[dict[str, Any]]:
        """The latest episodes in the summary, each with reward (of each player), time, step and train_sample."""
        self._sum_up()
        if not self._latest:
            return []
        numbers, *fields = self._latest
        made = self._made[numbers - self._first]
        return [
            {**dict(zip(self.reward_names, values, strict=True)), "time": time, "step": step, "train_sample": samples}
            for values, step, time, samples in zip(*(part.tolist() for part in (*fields, made)), strict=True)
        ]

    @property
    def summary_count(self) -> int:
        """The number of episodes in the summary."""
        self._sum_up()
        return self._returns[0].count

    def summary(self) -> dict[str, float]:
        """Return the summary of the episodes since `clear_summary`: counts, averages, seconds, speeds, returns."""
        episodes = self.summary_count
        returns = [summary.scalars(name) for name, summary in zip(self.reward_names, self._returns, strict=True)]
        return {
            "episode_count": episodes,
            "envstep_count": self._steps,
            "train_sample_count": self._samples,
            "avg_envstep_per_episode": per(self._steps, episodes),
            "avg_sample_per_episode": per(self._samples, episodes),
            "avg_envstep_per_sec": per(self._steps, self._summed_seconds),
            "avg_train_sample_per_sec": per(self._samples, self._summed_seconds),
            "avg_episode_per_sec": per(episodes, self._summed_seconds),
            "collect_time": self._summed_seconds,
            **{key: value for scalars in returns for key, value in scalars.items()},
        }


class TaskEpisodes(RolloutListener):
    """A listener that counts steps and episodes, and keeps the returns by env.

    Args:
        return_of: takes the last info of an episode and the env's id, and returns the return of the episode.

    Attributes:
        steps: number of normal steps, including those of episodes that were dropped later.
        count: number of episodes that have ended.
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
        """Return whether an episode has ended since the last call."""
        has_news, self._has_news = self._has_news, False
        return has_news

    def returns(self, env_num: int) -> list[list[float]]:
        """Return the returns of each of the envs, in the order of their episodes."""
        return [list(self._returns.get(env_id, ())) for env_id in range(env_num)]

    def summary(self, duration_s: float, samples: int) -> dict[str, Any]:
        """Return the counts, the averages (0 if there is nothing) and the returns, env by env, for a finish info."""
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
