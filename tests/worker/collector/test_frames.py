"""Copies of what envs return."""

import numpy as np
import pytest
import torch

from ding.worker.collector.frames import FrameKeeper
from ding.worker.collector.stacking import nan_rows, stack_rows
from tests.fakes import Timestep


def step(obs, reward=1.0, done=False):
    return Timestep(obs, np.array([reward], np.float32), done, {})


def test_arrays_of_one_shape_become_one_batch_and_its_rows():
    items = [np.array([1, 2], np.uint8), np.array([3, 4], np.uint8)]
    rows, stacked = stack_rows(items)
    assert stacked.dtype == np.uint8 and stacked.tolist() == [[1, 2], [3, 4]]
    assert all(np.shares_memory(row, stacked) for row in rows)
    items[0][:] = 0
    assert rows[0].tolist() == [1, 2]


def test_dict_observations_are_stacked_key_by_key():
    items = [{"a": np.array([1.0]), "b": {"c": np.array([i])}} for i in range(2)]
    rows, stacked = stack_rows(items)
    assert stacked["a"].tolist() == [[1.0], [1.0]] and stacked["b"]["c"].tolist() == [[0], [1]]
    assert rows[1]["b"]["c"].tolist() == [1]


def test_tensors_are_stacked_as_tensors():
    items = [torch.tensor([1.0]), torch.tensor([2.0])]
    rows, stacked = stack_rows(items)
    items[0].zero_()
    assert stacked.tolist() == [[1.0], [2.0]] and rows[0].tolist() == [1.0]


def test_ragged_arrays_are_copied_one_by_one_without_a_batch():
    items = [np.array([1.0]), np.array([1.0, 2.0])]
    rows, stacked = stack_rows(items)
    items[1][:] = 0
    assert stacked is None and rows[1].tolist() == [1.0, 2.0]


def test_foreign_observations_are_deep_copied():
    items = [["a", [1]], ["b", [2]]]
    rows, stacked = stack_rows(items)
    items[0][1].append(9)
    assert stacked is None and rows == [["a", [1]], ["b", [2]]]


def test_scalar_observations_make_a_flat_batch():
    rows, stacked = stack_rows([3, 5])
    assert rows == [3, 5] and stacked.tolist() == [3, 5]


def test_nan_is_found_by_row_and_key_and_infinity_is_not_nan():
    stacked = {"a": np.zeros((2, 2)), "b": np.array([[np.inf, -np.inf], [0.0, np.nan]])}
    assert list(nan_rows(stacked)) == [(1, "['b']")]


def test_the_next_observation_is_the_very_object_kept_from_the_step():
    keeper = FrameKeeper()
    raw = {0: np.array([0.0]), 1: np.array([1.0])}
    keeper.observe(raw)
    after = {0: np.array([2.0]), 1: np.array([3.0])}
    kept = keeper.keep({i: step(obs) for i, obs in after.items()})
    seen = keeper.observe(after)
    assert seen[0] is kept.obs[0] and seen[1] is kept.obs[1]
    assert seen.stacked.tolist() == [[2.0], [3.0]]


def test_an_env_that_begins_an_episode_is_observed_anew_even_in_the_same_array():
    keeper = FrameKeeper()
    buffer, other = np.array([5.0]), np.array([7.0])
    keeper.keep({0: step(buffer, done=True), 1: step(other)})
    keeper.forget(0)
    buffer[:] = 0.0
    seen = keeper.observe({0: buffer, 1: other})
    assert seen.stacked.tolist() == [[0.0], [7.0]]


def test_who_goes_on_keeps_its_observation_where_another_begins_an_episode():
    keeper = FrameKeeper()
    after = {i: np.array([float(i)], np.float32) for i in range(3)}
    kept = keeper.keep({i: step(obs) for i, obs in after.items()})
    keeper.forget(1)
    seen = keeper.observe({**after, 1: np.array([9.0], np.float32)})
    assert seen.stacked.tolist() == [[0.0], [9.0], [2.0]]
    assert seen[0] is kept.obs[0] and seen[2] is kept.obs[2] and seen[1].tolist() == [9.0]
    tensors = dict(zip(seen.env_ids, seen.tensors(), strict=True))
    assert tensors[0] is kept.obs.tensors()[0] and tensors[2] is kept.obs.tensors()[2]
    assert tensors[1].tolist() == [9.0] and kept.obs.tensors()[1].tolist() == [1.0]


@pytest.mark.parametrize("begin", [np.array([9.5]), np.array([9.0, 9.0], np.float32), torch.tensor([9.0])])
def test_an_episode_may_begin_with_an_observation_of_another_kind(begin):
    keeper = FrameKeeper()
    after = {0: np.array([0.0], np.float32), 1: np.array([1.0], np.float32)}
    keeper.keep({i: step(obs) for i, obs in after.items()})
    keeper.forget(1)
    seen = keeper.observe({0: after[0], 1: begin})
    assert seen[0].tolist() == [0.0] and seen[1].tolist() == begin.tolist()
    assert seen.stacked is None or seen.stacked[1].tolist() == begin.tolist()


def test_a_choice_of_rows_holds_the_very_items_and_tensors():
    kept = FrameKeeper().keep({i: step(np.array([float(i)])) for i in (4, 2, 7)}).obs
    chosen = kept.of_envs([7, 4])
    assert list(chosen) == [7, 4] and chosen[7] is kept[7]
    assert chosen.tensors()[0] is kept.tensors()[2] and chosen.tensors()[1] is kept.tensors()[0]
    assert kept.of_envs([4, 2, 7]) is kept


def test_without_sharing_every_observation_is_a_copy_of_its_own():
    keeper = FrameKeeper(share_next_obs=False)
    raw = np.array([1.0])
    kept = keeper.keep({0: step(raw)})
    seen = keeper.observe({0: raw})
    assert seen[0] is not kept.obs[0] and not np.shares_memory(seen[0], kept.obs[0])


def test_what_an_env_does_to_its_arrays_changes_nothing_kept():
    keeper = FrameKeeper()
    raw, reward = np.array([1.0]), np.array([2.0], np.float32)
    kept = keeper.keep({0: Timestep(raw, reward, False, {})})
    raw[:], reward[:] = 9.0, 9.0
    assert kept.obs[0].tolist() == [1.0] and kept.rewards[0].tolist() == [2.0]


def test_a_nan_observation_names_the_env():
    with pytest.raises(FloatingPointError, match="the observation of env 4 holds NaN"):
        FrameKeeper().observe({3: np.array([0.0]), 4: np.array([np.nan])})


def test_a_nan_in_a_nested_ragged_observation_names_the_key():
    obs = {3: {"a": np.array([0.0])}, 4: {"a": np.array([0.0, np.nan])}}
    with pytest.raises(FloatingPointError, match=r"the observation\['a'\] of env 4"):
        FrameKeeper().observe(obs)


def test_a_nan_reward_names_the_env():
    with pytest.raises(FloatingPointError, match="the reward of env 2 holds NaN"):
        FrameKeeper().keep({2: step(np.array([0.0]), reward=np.nan)})


def test_timesteps_keep_their_type_and_further_fields():
    class Wide(Timestep):
        pass

    kept = FrameKeeper().keep({0: Wide(np.array([0.0]), np.array([0.0]), False, {"k": 1})}).timesteps()
    assert type(kept[0]) is Wide and kept[0].info == {"k": 1}
