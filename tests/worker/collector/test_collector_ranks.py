"""Collectors and evaluators on several ranks: what is summed, told, logged and launched."""

import datetime

import pytest
import torch
import torch.distributed as dist
from torch import multiprocessing as mp

from ding.worker.collector.episode_serial_collector import EpisodeSerialCollector
from ding.worker.collector.metric_serial_evaluator import MetricSerialEvaluator
from ding.worker.collector.players import (
    BattleEpisodeSerialCollector,
    BattleInteractionSerialEvaluator,
    BattleSampleSerialCollector,
)
from ding.worker.collector.sample_serial_collector import SampleSerialCollector
from tests.fakes import FakeManager, FakeWriter, ScriptedPolicy
from tests.worker.collector.battles import BattleManager, Player
from tests.worker.collector.test_metric_serial_evaluator import HALF, RIGHT, Accuracy, Doubling

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


def as_rank(monkeypatch, rank, size=2):
    """Let this process be one of `size` ranks that are all alike; returns the reductions it took part in."""
    calls = []

    def allreduce_data(tensor, op):
        calls.append((tensor.dtype, tensor.tolist()[:3], op))
        return tensor * size

    monkeypatch.setattr("ding.worker.collector.base_serial_collector.get_rank", lambda: rank)
    monkeypatch.setattr("ding.worker.collector.base_serial_collector.get_world_size", lambda: size)
    monkeypatch.setattr("ding.worker.collector.base_serial_collector.allreduce_data", allreduce_data)
    return calls


@pytest.mark.differs(
    "supports ranks in the collector `sample` only: in others, each rank writes to the same TensorBoard "
    "folder and counts its own steps",
    "writes on rank 0 and counts the steps of all ranks",
)
@pytest.mark.parametrize("cls", COLLECTORS)
def test_the_counters_of_all_ranks_are_summed_in_one_reduction_a_collect(monkeypatch, cls):
    calls, tb = as_rank(monkeypatch, 0), FakeWriter()
    collector = build(cls, tb)
    collector.collect(4, train_iter=100)
    ((dtype, (_, steps, episodes), op),) = calls
    assert (dtype, steps, op) == (torch.float64, 4.0 if "Sample" in cls.__name__ else 8.0, "sum")
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


def _work_as_rank(rank, folder, results):
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=2,
        timeout=datetime.timedelta(seconds=60),
    )
    try:
        told = {}
        for cls in COLLECTORS:
            tb = FakeWriter()
            collector = build(cls, tb, lengths=(2, 2 + rank))
            collector.collect(4, train_iter=100)
            told[cls.__name__] = collector.envstep, bool(tb.scalars)
        cfg = BattleInteractionSerialEvaluator.default_config()
        cfg.stop_value = 2.0
        evaluator = BattleInteractionSerialEvaluator(
            cfg, BattleManager([2 + rank]), [Player(), Player()], FakeWriter(), "exp"
        )
        told["battle"] = evaluator.eval(train_iter=1, n_episode=1), evaluator.env.closed
        cfg = MetricSerialEvaluator.default_config()
        for multi_gpu in (False, True):
            cfg.multi_gpu = multi_gpu
            loader = [*RIGHT, *HALF] if rank == 0 else HALF[:1]
            metric = MetricSerialEvaluator(cfg, (loader, Accuracy()), Doubling(), FakeWriter(), "exp")
            told[f"metric {multi_gpu}"] = metric.eval(train_iter=1)
        results[rank] = told
    finally:
        dist.destroy_process_group()


@pytest.mark.slow
def test_two_ranks_agree_on_counts_and_results(own_folder):
    with mp.Manager() as manager:
        results = manager.dict()
        mp.spawn(_work_as_rank, (str(own_folder), results), nprocs=2)
        first, second = (results[rank] for rank in range(2))
    steps = {"EpisodeSerialCollector": 18, "BattleEpisodeSerialCollector": 18}
    for cls in COLLECTORS:
        name = cls.__name__
        assert first[name][0] == second[name][0] and (first[name][1], second[name][1]) == (True, False)
        assert first[name][0] == steps.get(name, first[name][0])
    infos = [[{"eval_episode_return": 2.0, "result": "wins"}], [{"eval_episode_return": 12.0, "result": "losses"}]]
    assert first["battle"] == ((True, infos), False) and second["battle"] == ((True, infos), True)
    assert first["metric False"] == second["metric False"] == (False, {"acc": 75.0})
    assert first["metric True"] == second["metric True"] == (False, {"acc": 70.0})
