"""The episode buffer: whole episodes in, whole episodes out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ding.utils.data.samples import Samples, Table


def episode(number: int, length: int) -> list[dict]:
    return [{"obs": torch.tensor([float(number), float(i)]), "n": number} for i in range(length)]


def episodes(*lengths: int, first: int = 0) -> list[list[dict]]:
    return [episode(first + i, length) for i, length in enumerate(lengths)]


@pytest.mark.differs("fails in `episode_len` of an episode buffer that is not full", "leaves out empty slots")
def test_lengths_are_those_of_the_stored_episodes_by_slot(make_episode):
    buffer = make_episode(3)
    assert buffer.episode_len == []
    buffer.push(episodes(4, 2), 6)
    assert buffer.episode_len == [4, 2]
    buffer.push(episodes(7, 5, first=2), 18)
    assert buffer.episode_len == [5, 2, 7]
    buffer._data[1] = None
    buffer._valid_count -= 1
    assert buffer.episode_len == [5, 7]


def test_sampling_gives_whole_episodes(make_episode):
    buffer = make_episode(4)
    buffer.push(episodes(4, 2, 3), 9)
    batch = buffer.sample(3, 0)
    assert sorted((each[0]["n"], len(each)) for each in batch) == [(0, 4), (1, 2), (2, 3)]
    assert buffer.sample(4, 0) is None
    assert len(buffer.sample(4, 0, replace=True)) == 4


def test_an_episode_of_chosen_transitions_keeps_what_is_no_number(make_episode):
    buffer = make_episode(1)
    transitions = Table.of([{"name": f"step {i}", "n": i} for i in range(4)])
    buffer.push([Samples(transitions.take(np.array([3, 1])))], 2)
    assert buffer.sample(1, 0) == [[{"name": "step 3", "n": 3}, {"name": "step 1", "n": 1}]]


def test_what_is_handed_out_is_the_callers(make_episode):
    buffer = make_episode(2)
    buffer.push(episodes(2), 2)
    first, second = buffer.sample(2, 0, replace=True)
    first[0]["adv"] = 1.0
    first.pop()
    assert len(second) == 2 and "adv" not in second[0]
    assert buffer.episode_len == [2] and "adv" not in buffer._data[0][0]
    second[1]["obs"] += 5
    assert buffer._data[0][1]["obs"].tolist() == [0, 1]
