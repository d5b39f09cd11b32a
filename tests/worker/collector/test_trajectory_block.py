"""Trajectories under way, as columns: whatever envs and policies give, the transitions are those of the steps."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ding.envs.env_manager.block import end_code
from ding.utils.data.samples import pack, rows_of
from ding.worker.collector.env_round import Batch
from ding.worker.collector.trajectory_block import SHOWN, TrajectoryBlock


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


# End flags


def flags_of(items):
    return [(item.get("terminated"), item.get("truncated")) for item in items]


@pytest.mark.differs(
    "keeps only `done`, and loses how an episode ended",
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
