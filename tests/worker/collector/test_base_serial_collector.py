"""CachePool, TrajBuffer, to_tensor_transitions and the factories."""

import numpy as np
import pytest
import torch
from easydict import EasyDict

from ding.utils.registry_factory import SERIAL_COLLECTOR_REGISTRY
from ding.worker.collector.base_serial_collector import (
    INF,
    CachePool,
    TrajBuffer,
    create_serial_collector,
    get_serial_collector_cls,
    to_tensor_transitions,
)
from ding.worker.collector.episode_serial_collector import EpisodeSerialCollector
from ding.worker.collector.players import BattleEpisodeSerialCollector, BattleSampleSerialCollector
from ding.worker.collector.sample_serial_collector import SampleSerialCollector
from tests.fakes import FakeManager, FakeWriter, ScriptedPolicy
from tests.worker.collector.battles import BattleManager, Player
from tests.worker.collector.ranks import as_rank


def transitions(n=4, **extra):
    rng = np.random.default_rng(0)
    return [
        {
            "obs": rng.random((2, 3)),
            "next_obs": rng.random((2, 3)),
            "action": np.array([i]),
            "reward": rng.random((1,)),
            "done": False,
            **extra,
        }
        for i in range(n)
    ]


def test_cache_pool_holds_an_item_or_the_list_of_items_of_a_slot():
    pool = CachePool("obs", 3)
    pool.update({0: "a", 1: "b"})
    assert (pool[0], pool[1], pool[2]) == ("a", "b", None)
    pool.update([{0: 1}, {0: 2}])
    assert pool[0] == [1, 2] and pool[1] == "b"
    pool.reset(0)
    assert pool[0] is None


def test_cache_pool_deep_copies_when_asked():
    item = [1]
    pool = CachePool("obs", 1, deepcopy=True)
    pool.update({0: item})
    item.append(2)
    assert pool[0] == [1]


@pytest.mark.parametrize(("maxlen", "kept"), [(3, [2, 3, 4]), (None, [0, 1, 2, 3, 4]), (INF, [0, 1, 2, 3, 4])])
def test_traj_buffer_drops_from_the_front_beyond_its_bound(maxlen, kept):
    buffer = TrajBuffer(maxlen)
    for i in range(5):
        buffer.append(i)
    assert buffer == kept


def test_traj_buffer_deep_copies_when_asked():
    buffer, item = TrajBuffer(2, deepcopy=True), [1]
    buffer.append(item)
    item.append(2)
    assert buffer == [[1]]


def test_shared_next_obs_is_the_following_obs_itself():
    data = transitions()
    out = to_tensor_transitions(data)
    for i, row in enumerate(out):
        assert all(isinstance(row[key], torch.Tensor) for key in ("obs", "next_obs", "action", "reward"))
        assert row["obs"].dtype == torch.float32 and type(row["done"]) is bool
        if i + 1 < len(out):
            assert row["next_obs"] is out[i + 1]["obs"]
    assert torch.equal(out[-1]["next_obs"], torch.tensor(data[-1]["next_obs"], dtype=torch.float32))
    assert all(isinstance(row["obs"], np.ndarray) for row in data)


def test_an_empty_fragment_is_refused():
    with pytest.raises(IndexError):
        to_tensor_transitions([])


def test_the_class_is_found_by_its_type_and_a_missing_type_is_an_assertion_that_lists_them():
    assert get_serial_collector_cls(EasyDict(type="sample")) is SampleSerialCollector
    with pytest.raises(AssertionError):
        get_serial_collector_cls(EasyDict())


def test_modules_in_import_names_are_imported_before_the_class_is_looked_up(tmp_path, monkeypatch):
    (tmp_path / "my_collector.py").write_text(
        "from ding.utils.registry_factory import SERIAL_COLLECTOR_REGISTRY\n"
        "SERIAL_COLLECTOR_REGISTRY.register('mine', dict)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert get_serial_collector_cls(EasyDict(type="mine", import_names=["my_collector"])) is dict
    SERIAL_COLLECTOR_REGISTRY.pop("mine")


def test_an_unknown_type_names_the_registered_ones():
    with pytest.raises(KeyError):
        create_serial_collector(EasyDict(type="smaple"))


# Collectors and evaluators on several ranks: what is summed, told, logged and launched.


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
