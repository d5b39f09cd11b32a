"""Collectors and evaluators on several ranks: what is summed, told, logged and launched."""

import pytest
import torch

from ding.worker.collector.episode_serial_collector import EpisodeSerialCollector
from ding.worker.collector.players import (
    BattleEpisodeSerialCollector,
    BattleSampleSerialCollector,
)
from ding.worker.collector.sample_serial_collector import SampleSerialCollector
from tests.fakes import FakeManager, FakeWriter, ScriptedPolicy
from tests.worker.collector.battles import BattleManager, Player
from tests.worker.collector.ranks import as_rank

COLLECTORS = [
    EpisodeSerialCollector,
    BattleEpisodeSerialCollector,
    BattleSampleSerialCollector,
    SampleSerialCollector,
]


def build(cls, tb=None, lengths=(2, 2)):
    battle = "Battle" in cls.__name__
    env = (BattleManager if battle else FakeManager)(list(lengths))
    policy = [Player(), Player()] if battle else ScriptedPolicy()
    return cls(cls.default_config(), env, policy, tb or FakeWriter(), "exp")


@pytest.mark.differs(
    "supports ranks in the collector `sample` only: in others, each rank writes to the same TensorBoard "
    "folder and counts its own steps",
    "writes on rank 0 and counts the steps of all ranks",
)
@pytest.mark.parametrize("cls", COLLECTORS)
def test_the_counters_of_all_ranks_are_summed_in_one_reduction_a_collect(monkeypatch, cls):
    (reduced, _), tb = as_rank(monkeypatch, 0), FakeWriter()
    collector = build(cls, tb)
    collector.collect(4, train_iter=100)
    ((counts, op),) = reduced
    _, steps, episodes = counts.tolist()[:3]
    assert (counts.dtype, steps, op) == (torch.float64, 4.0 if "Sample" in cls.__name__ else 8.0, "sum")
    assert collector.envstep == 2 * steps and collector._total_episode_count == 2 * episodes
    tags = {tag: value for tag, value, _ in tb.scalars}
    assert tags["collector_iter/total_envstep_count"] == 2 * steps


@pytest.mark.parametrize("cls", COLLECTORS)
def test_other_ranks_collect_but_write_nothing_and_hold_no_statistics(monkeypatch, cls):
    as_rank(monkeypatch, 1)
    tb = FakeWriter()
    collector = build(cls, tb)
    collector.collect(4, train_iter=100)
    assert tb.scalars == [] and collector._tb_logger is None and collector._statistics.summary_count == 0
    assert collector.envstep > 0
