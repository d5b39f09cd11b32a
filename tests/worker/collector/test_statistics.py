"""Summaries of episodes, and the counters of several ranks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.envs.env_manager.block import BlockStep
from ding.worker.collector.env_round import Batch, Ended, Steps
from ding.worker.collector.statistics import EpisodeStatistics, ReturnSummary


@settings(max_examples=50)
@given(st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=50))
def test_a_stream_of_returns_is_summed_up_as_numpy_does(values):
    summary = ReturnSummary()
    summary.add(np.array(values[:3]))
    summary.add(np.array(values[3:]))
    assert summary.scalars("r") == {
        "r_mean": pytest.approx(np.mean(values), abs=1e-6),
        "r_std": pytest.approx(np.std(values), abs=1e-4),
        "r_max": max(values),
        "r_min": min(values),
    }


def ended(env_id, length, seconds, value=1.0):
    step = BlockStep(
        [env_id],
        np.array([env_id]),
        None,
        None,
        np.array([True]),
        [{"eval_episode_return": value}],
        np.zeros(1),
        np.array([True]),
        any_ends=True,
    )
    steps = Steps(step, Batch([env_id], None), {}, Batch([env_id], None))
    return Ended([steps], np.array([0]), np.array([0]), step.ids, np.array([length]), np.array([seconds]))


class Pieces:
    """Makes samples of pieces of the running episodes, at once or later."""

    def __init__(self, env_num=2):
        self.statistics = EpisodeStatistics(env_num=env_num)
        self.waiting = []

    def close(self, *env_ids):
        self.waiting += [int(self.statistics.running[env_id]) for env_id in env_ids]

    def make(self, *samples):
        made, self.waiting = self.waiting[: len(samples)], self.waiting[len(samples) :]
        self.statistics.count_samples(np.array(made, np.int64), np.array(samples))


def test_the_samples_of_an_episode_count_whenever_they_are_made():
    pieces = Pieces()
    statistics = pieces.statistics
    pieces.close(0, 1)
    pieces.make(2, 5)
    assert statistics.summary()["train_sample_count"] == 0
    assert [statistics.train_samples(env_id) for env_id in (0, 1)] == [2, 5]
    pieces.close(0)
    statistics.on_ends(ended(0, 4, 0.5))
    assert statistics.summary()["train_sample_count"] == 2
    pieces.make(1)
    summary = statistics.summary()
    assert (summary["train_sample_count"], summary["avg_sample_per_episode"]) == (3, 3.0)
    assert summary["avg_train_sample_per_sec"] == 6.0
    statistics.on_ends(ended(0, 4, 0.5))  # an episode without samples, not the last one's again
    statistics.on_ends(ended(1, 4, 1.0))
    pieces.close(1)
    pieces.make(7)
    summary = statistics.summary()
    assert (summary["train_sample_count"], summary["avg_sample_per_episode"]) == (8, 8 / 3)
    assert summary["avg_train_sample_per_sec"] == 4.0
    assert [entry["train_sample"] for entry in statistics.latest] == [3, 0, 5]
    statistics.clear_summary()
    assert statistics.summary()["train_sample_count"] == 0
    statistics.on_ends(ended(1, 4, 1.0))  # an episode that was under way at the last log
    assert statistics.summary()["train_sample_count"] == 7
