"""Summaries of episodes, and the counters of several ranks."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.envs.env_manager.block import BlockStep
from ding.worker.collector.batch import Ended
from ding.worker.collector.sample_serial_collector import SampleSerialCollector
from ding.worker.collector.statistics import ENDED, PIECE, VOID, EpisodeStatistics, ReturnSummary, per
from tests.fakes import FakeManager, FakeWriter, ScriptedPolicy


def test_nothing_divided_by_nothing_is_zero():
    assert per(0, 0) == 0.0 and per(3, 0) == 0.0 and per(3, 2) == 1.5
    summary = EpisodeStatistics().summary()
    assert summary["avg_envstep_per_sec"] == 0.0 and summary["avg_episode_per_sec"] == 0.0


@settings(max_examples=50)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50))
def test_a_stream_of_returns_is_summed_up_as_numpy_does(values):
    summary = ReturnSummary()
    summary.add(values[:3])
    summary.add(values[3:])
    assert summary.scalars("r") == {
        "r_mean": pytest.approx(np.mean(values), abs=1e-6),
        "r_std": pytest.approx(np.std(values), abs=1e-4),
        "r_max": max(values),
        "r_min": min(values),
    }


@pytest.mark.parametrize("value", [2.0, 2, np.float32(2), np.array([2.0]), torch.tensor([2.0]), np.array([1.0, 3.0])])
def test_a_return_of_any_kind_counts_as_one_number(value):
    statistics = EpisodeStatistics()
    statistics.on_ends(ended(0, 5, 0.5, value))
    assert statistics.summary()["reward_mean"] == 2.0
    assert statistics.take_finished() == (1, 0.5) and statistics.take_finished() == (0, 0.0)


def ended(env_id, length, seconds, value=1.0):
    step = BlockStep(
        [env_id],
        np.array([env_id]),
        None,
        None,
        np.array([True]),
        [{"eval_episode_return": value}],
        None,
        None,
        np.zeros(1),
    )
    return Ended(step, np.array([0]), [length], [seconds])


def test_the_samples_of_an_episode_count_whenever_they_are_made():
    statistics = EpisodeStatistics(awaits_samples=True)
    statistics.note_pieces([(0, PIECE, 2), (1, PIECE, 5)])
    assert statistics.summary()["train_sample_count"] == 0 and statistics.train_samples == {0: 2, 1: 5}
    statistics.on_ends(ended(0, 4, 0.5))
    statistics.note_pieces([(0, PIECE, 1), (0, ENDED, 0)])
    summary = statistics.summary()
    assert (summary["train_sample_count"], summary["avg_sample_per_episode"]) == (3, 3.0)
    assert summary["avg_train_sample_per_sec"] == 6.0
    statistics.on_ends(ended(0, 4, 0.5))  # an episode without samples, not the last one's again
    statistics.on_ends(ended(1, 4, 1.0))
    statistics.note_pieces([(0, ENDED, 0), (1, ENDED, 0), (1, PIECE, 7)])
    summary = statistics.summary()
    assert (summary["train_sample_count"], summary["avg_sample_per_episode"]) == (8, 8 / 3)
    assert summary["avg_train_sample_per_sec"] == 4.0
    assert [entry["train_sample"] for entry in statistics.latest] == [3, 0, 5]
    statistics.clear_summary()
    assert statistics.summary()["train_sample_count"] == 0
    statistics.on_ends(ended(1, 4, 1.0))  # an episode that was under way at the last log
    statistics.note_pieces([(1, ENDED, 0)])
    assert statistics.summary()["train_sample_count"] == 7


def test_the_samples_of_a_void_episode_do_not_count():
    statistics = EpisodeStatistics(awaits_samples=True)
    statistics.note_pieces([(0, PIECE, 3), (0, VOID, 0), (0, PIECE, 2)])
    statistics.on_ends(ended(0, 4, 0.5))
    statistics.note_pieces([(0, ENDED, 0)])
    assert statistics.summary()["train_sample_count"] == 2


def test_the_counters_of_all_ranks_are_summed_in_one_reduction(monkeypatch, own_folder):
    calls = []

    def allreduce_data(tensor, op):
        calls.append((tensor.tolist()[:3], op))
        return tensor * 2

    monkeypatch.setattr("ding.worker.collector.serial_worker.get_world_size", lambda: 2)
    monkeypatch.setattr("ding.worker.collector.serial_worker.allreduce_data", allreduce_data)
    collector = SampleSerialCollector(
        SampleSerialCollector.default_config(), FakeManager([2, 2]), ScriptedPolicy(), FakeWriter(), "exp"
    )
    collector.collect(8)
    assert calls == [([8.0, 8.0, 4.0], "sum")]
    assert (collector.envstep, collector._total_train_sample_count, collector._total_episode_count) == (16, 16, 8)
