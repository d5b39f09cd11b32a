"""Trajectories under way, as columns: whatever envs and policies give, the transitions are those of the steps."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ding.envs.env_manager.block import end_code
from ding.utils.data.samples import Table, columns_of, pack, rows_of
from ding.worker.collector.env_round import Batch
from ding.worker.collector.trajectory_block import SHOWN, TrajectoryBlock
from tests.worker.collector.memory import held_bytes, own_bytes


def record(block, env_ids, obs, next_obs, columns, dones, infos, collect_iter, dicts=None):
    codes = np.array([end_code(info) for info in infos], np.uint8)
    obs, next_obs = Batch(env_ids, obs), Batch(env_ids, next_obs)
    ids, ends = np.array(env_ids), np.zeros(len(env_ids), np.bool_)
    steps = SimpleNamespace(ids=ids, obs=obs, next_obs=next_obs, codes=codes, continues=True, active=None, ends=ends)
    steps.any_ends = False
    if dicts is None:
        block.add([block.note(steps, {**columns, "done": pack(list(dones))}, collect_iter)])
    else:
        block.add_dicts(steps, [dict(transition) for transition in dicts], collect_iter)


def take(block, env_id, goes_on=True):
    return rows_of(piece_of(block, env_id, goes_on))


def piece_of(block, env_id, goes_on=True):
    if not block.lengths[env_id]:
        return []
    block.close(np.array([env_id]))
    if not goes_on:
        block.split([env_id])
    (piece,) = block.take_closed()
    return piece


class Twin:
    """A `TrajectoryBlock`, of columns or dicts, and beside it what it is to hold."""

    def __init__(self, env_num=3, shape=(2,), dtype=np.float32, chained=True, dicts=False):
        self.block = TrajectoryBlock(env_num, chained)
        self.dicts = dicts
        self.shape, self.dtype = shape, dtype
        self.now = {env_id: self.obs(env_id, 0, 0) for env_id in range(env_num)}
        self.at = dict.fromkeys(range(env_num), (0, 0))
        self.expected = {env_id: [] for env_id in range(env_num)}

    def obs(self, env_id, episode, step):
        return np.full(self.shape, env_id * 10_000 + episode * 1_000 + step, self.dtype)

    def step(self, env_ids, info=lambda env_id, step: {}):
        dicts = self.dicts
        before = [self.now[env_id] for env_id in env_ids]
        for env_id in env_ids:
            episode, step = self.at[env_id]
            self.at[env_id] = episode, step + 1
            self.now[env_id] = self.obs(env_id, episode, step + 1)
        after = [self.now[env_id] for env_id in env_ids]
        steps = [self.at[env_id][1] for env_id in env_ids]
        infos = [info(env_id, step) for env_id, step in zip(env_ids, steps, strict=True)]
        rest = [{"step": step, "done": False} for step in steps]
        columns = {} if dicts else {"step": pack(steps)}
        if dicts:
            rest = [{"obs": SHOWN, "next_obs": SHOWN, **own, "mine": [own["step"]]} for own in rest]
        dones = [False] * len(steps)
        record(self.block, env_ids, pack(before), pack(after), columns, dones, infos, 7, rest if dicts else None)
        for env_id, b, a, own in zip(env_ids, before, after, rest, strict=True):
            mine = {"mine": [own["step"]]} if dicts else {}
            self.expected[env_id].append({"step": own["step"], "obs": b.tolist(), "next_obs": a.tolist(), **mine})

    def reset(self, env_id):
        self.at[env_id] = self.at[env_id][0] + 1, 0
        self.now[env_id] = self.obs(env_id, *self.at[env_id])

    def take(self, env_id, goes_on=True):
        if not goes_on:
            self.reset(env_id)
        expected, self.expected[env_id] = self.expected[env_id], []
        return take(self.block, env_id, goes_on), expected


def listed(items):
    keys = ("step", "obs", "next_obs", "mine")
    return [
        {key: item[key].tolist() if isinstance(item[key], torch.Tensor) else item[key] for key in keys if key in item}
        for item in items
    ]


def is_chain(items):
    return all(a["next_obs"] is b["obs"] for a, b in zip(items, items[1:], strict=False))


def test_transitions_are_those_of_the_env_whoever_steps_with_it():
    twin = Twin()
    for env_ids in ([0, 1, 2], [2, 0], [1], [0, 1, 2], [1, 2, 0]):
        twin.step(env_ids)
    for env_id in (2, 0, 1):
        items, expected = twin.take(env_id)
        assert len(items) == len(expected) and listed(items) == expected and is_chain(items)
        assert twin.block.lengths[env_id] == 0 and len(take(twin.block, env_id)) == 0


@pytest.mark.parametrize("kept", [("obs",), ("next_obs",), ()])
def test_policies_may_keep_only_some_observations(kept):
    under_way = TrajectoryBlock(1)
    for step in range(5):
        obs, next_obs = (pack([np.full(2, number, np.float32)]) for number in (step, step + 1))
        transition = {**dict.fromkeys(kept, SHOWN), "step": step}
        record(under_way, [0], obs, next_obs, {}, [False], [{}], 0, [transition])
    piece = piece_of(under_way, 0)
    assert isinstance(piece, Table)
    items = piece.rows()
    expected = [{"obs": [step] * 2, "next_obs": [step + 1] * 2, "step": step} for step in range(5)]
    assert listed(items) == [{key: item[key] for key in ("step", *kept)} for item in expected]


def test_a_next_observation_is_stored_once():
    twin = Twin(1, shape=(1000,))
    for _ in range(10):
        twin.step([0])
    samples = piece_of(twin.block, 0)
    arrays = {
        id(column.data): column.data for key in ("obs", "next_obs") for column in columns_of(samples.columns[key])
    }
    assert [len(data) for data in arrays.values()] == [11]


def test_the_pieces_of_an_env_share_the_observation_between_them():
    twin = Twin(2, shape=(1000,))
    for _ in range(3):
        for _ in range(2):
            twin.step([0, 1])
        twin.block.close(np.array([0, 1]))
        twin.block.split([1])
        twin.reset(1)
    samples = twin.block.closed_table()
    assert samples.lengths.tolist() == [2] * 6 and twin.block.closed_rows == 12
    obs, next_obs = samples.columns["obs"], samples.columns["next_obs"]
    assert obs.data is next_obs.data and len(np.union1d(obs.rows, next_obs.rows)) == 7 + 9
    assert [int(row["next_obs"][0] - row["obs"][0]) for row in samples.rows()] == [1] * 12


def test_a_table_has_the_pieces_in_the_order_of_their_ends_and_leaves_the_others():
    twin = Twin(3)
    for env_ids in ([0, 1, 2], [2, 0], [1, 2]):
        twin.step(env_ids)
    for env_id in (2, 0):
        twin.block.close(np.array([env_id]))
    table = twin.block.closed_table()
    assert listed(table.rows()) == twin.expected[2] + twin.expected[0] and table.lengths.tolist() == [3, 2]
    twin.block.drop_closed()
    assert twin.block.closed_rows == 0
    twin.step([0, 1, 2])
    twin.block.close(np.array([1]))
    assert listed(table.rows()) == twin.expected[2][:3] + twin.expected[0][:2], "what was taken stays valid"
    assert listed(twin.block.closed_table().rows()) == twin.expected[1] and len(twin.expected[1]) == 3
    twin.block.drop_closed()
    assert listed(twin.block.peek(0).rows()) == twin.expected[0][2:]


def test_another_episode_begins_with_its_own_observation():
    twin = Twin(1)
    for goes_on in (True, False, True):
        twin.step([0])
        items, expected = twin.take(0, goes_on)
        assert listed(items) == expected


def test_what_was_dropped_does_not_come_back():
    twin = Twin(2)
    twin.step([0, 1])
    twin.block.drop([0])
    twin.expected[0].clear()
    twin.reset(0)
    twin.step([0, 1])
    items, expected = twin.take(0)
    assert listed(items) == expected and len(items) == 1 and len(twin.take(1)[0]) == 2


@pytest.mark.parametrize("dicts", [False, True])
def test_a_gap_is_none_between_the_observations_of_a_transition(dicts):
    twin = Twin(1, dicts=dicts)
    twin.step([0])
    twin.block.split([0])
    twin.reset(0)
    twin.step([0])
    twin.step([0])
    items, expected = twin.take(0)
    assert listed(items) == expected
    assert [a["next_obs"] is b["obs"] for a, b in zip(items, items[1:], strict=False)] == [False, True]


@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
def test_observations_may_change_their_shape_or_dtype_on_the_way(shape):
    twin = Twin(2)
    twin.step([0, 1])
    twin.shape = shape
    twin.step([0, 1])
    twin.dtype = np.int64
    twin.step([0, 1])
    twin.step([0, 1])
    items, expected = twin.take(0)
    assert listed(items) == expected
    assert [item["next_obs"].dtype for item in items] == [torch.float32] * 2 + [torch.int64] * 2
    assert [item["obs"].dtype for item in items] == [torch.float32] * 3 + [torch.int64]


@pytest.mark.parametrize("dicts", [False, True])
def test_without_chaining_no_two_transitions_share_memory(dicts):
    twin = Twin(1, chained=False, dicts=dicts)
    for _ in range(3):
        twin.step([0])
    items = twin.take(0)[0]
    items[1]["obs"].fill_(-1)
    assert [int(item["next_obs"][0]) for item in items] == [1, 2, 3]


# End flags


def flags_of(items):
    return [(item.get("terminated"), item.get("truncated")) for item in items]


@pytest.mark.differs(
    "keeps nothing but `done` of how an episode ended",
    "adds `terminated` and `truncated` to the samples if the env reports them",
)
@pytest.mark.parametrize("dicts", [False, True])
@pytest.mark.parametrize(
    ("info", "expected"),
    [
        (lambda env_id, step: {}, [(None, None)] * 3),
        (lambda env_id, step: {"terminated": step == 3, "truncated": False}, [(False, False)] * 2 + [(True, False)]),
        (lambda env_id, step: {"truncated": np.bool_(step == 3)}, [(False, False)] * 2 + [(False, True)]),
        (lambda env_id, step: {"truncated": True} if step == 3 else {}, [(False, False)] * 2 + [(False, True)]),
        (lambda env_id, step: {"terminated": True} if step == 3 else {}, [(False, False)] * 2 + [(True, False)]),
    ],
)
def test_end_flags_are_those_that_were_told(info, expected, dicts):
    twin = Twin(1, dicts=dicts)
    for _ in range(3):
        twin.step([0], info)
    assert flags_of(twin.take(0)[0]) == expected


def test_an_end_of_which_nothing_is_told_is_terminal():
    twin = TrajectoryBlock(1)
    obs = pack([np.zeros(1)])
    for done, info in ((False, {"terminated": False}), (True, {}), (True, {"truncated": True})):
        record(twin, [0], obs, obs, {}, [done], [info], 0)
    assert flags_of(take(twin, 0)) == [(False, False), (True, False), (False, True)]


@pytest.mark.parametrize("dicts", [False, True])
def test_flags_that_only_the_last_step_tells_go_with_a_done_that_is_an_array(dicts):
    twin = TrajectoryBlock(1)
    obs = pack([np.zeros(1)])
    for ended, info in ((False, {}), (True, {}), (True, {"truncated": True})):
        done = torch.tensor([ended]) if dicts else np.array([ended])
        record(twin, [0], obs, obs, {}, [done], [info], 0, [{"done": done}] if dicts else None)
    assert flags_of(take(twin, 0)) == [(False, False), (True, False), (False, True)]


# Memory


@pytest.mark.parametrize("dicts", [False, True])
def test_a_sample_holds_its_own_bytes_and_not_its_round(dicts):
    def make():
        block, images = TrajectoryBlock(16), np.zeros((16, 84, 84, 4), np.uint8)
        for _ in range(3):
            rest = [{"obs": SHOWN, "next_obs": SHOWN} for _ in images] if dicts else None
            record(block, list(range(16)), pack(list(images)), pack(list(images)), {}, [False] * 16, [{}] * 16, 0, rest)
        return take(block, 0)[0]

    item, held = held_bytes(make)
    assert own_bytes(item) == 2 * 84 * 84 * 4
    assert held <= 1.5 * own_bytes(item) + 8192 and len(pickle.dumps(item)) <= 1.5 * own_bytes(item) + 8192


def test_transitions_with_different_keys_are_a_list_of_dicts():
    twin = TrajectoryBlock(1)
    obs = pack([np.zeros(1)])
    for i in range(3):
        more = {"extra": torch.zeros(1)} if i == 1 else {}
        record(twin, [0], obs, obs, {}, [False], [{}], 0, [{"obs": SHOWN, "next_obs": SHOWN, "i": i, **more}])
    items = take(twin, 0)
    assert [(item["i"], "extra" in item, item["obs"].tolist()) for item in items] == [
        (0, False, [0]),
        (1, True, [0]),
        (2, False, [0]),
    ]
    assert is_chain(items)
