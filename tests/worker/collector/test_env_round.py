"""Copies of what envs return, as columns: as items, as one batch, and by player."""

import numpy as np
import pytest
import torch

from ding.envs.env_manager.block import DictBlocks
from ding.worker.collector.env_round import Batch, Steps, check_finite, entries_of, entry_of, is_same, tensorised
from tests.fakes import Timestep

PAIRS = np.arange(12.0, dtype=np.float32).reshape(3, 2, 2)  # [envs, players, 2]


def batch_of(items):
    return Batch.copied(list(range(len(items))), items)


def listed(item):
    if isinstance(item, dict):
        return {key: listed(value) for key, value in item.items()}
    if isinstance(item, list | tuple):
        return type(item)(listed(value) for value in item)
    return item.tolist() if hasattr(item, "tolist") else item


def test_arrays_of_one_shape_become_one_batch_and_the_items_are_views_of_it():
    items = [np.array([1, 2], np.uint8), np.array([3, 4], np.uint8)]
    batch = batch_of(items)
    assert batch.stacked.dtype == np.uint8 and batch.stacked.tolist() == [[1, 2], [3, 4]]
    assert all(np.shares_memory(row, batch.stacked) for row in batch.rows)
    items[0][:] = 0
    assert batch.rows[0].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("items", "stacked"),
    [
        ([{"a": np.ones(1), "b": {"c": np.array([i])}} for i in range(2)], {"a": [[1], [1]], "b": {"c": [[0], [1]]}}),
        ([torch.tensor([1.0]), torch.tensor([2.0])], [[1.0], [2.0]]),
        ([3, 5], [3, 5]),
        ([np.array(3), np.array(5)], [3, 5]),
        ([np.array([1.0]), np.array([1.0, 2.0])], None),
        ([["a", [1]], ["b", [2]]], None),
        ([[1.0, 2.0], [3.0, 4.0]], None),
        ([np.array(["a"]), np.array(["b"])], None),
        ([{"a": np.zeros(1)}, {"b": np.zeros(1)}], None),
        ([(np.zeros(1), np.zeros(2))] * 2, None),
    ],
)
def test_the_items_are_as_they_were_and_stacked_where_they_can_be(items, stacked):
    batch = batch_of(items)
    assert [type(row) for row in batch.rows] == [type(item) for item in items]
    assert listed(batch.rows) == listed(items) and listed(batch.stacked) == stacked
    assert listed(batch.stacked_input()) == stacked and listed(list(batch.seen().values())) == listed(items)


@pytest.mark.parametrize(
    "make",
    [
        lambda: [np.array([1.0]), np.array([1.0, 2.0])],
        lambda: [{"a": [[1]]}, {"b": [[2]]}],
        lambda: [torch.ones(1), torch.ones(2)],
        lambda: [[np.array([1.0]), np.array([[2.0]])], [np.array([1.0]), np.array([[2.0]])]],
        lambda: [[1.0, 2.0], [3.0, 4.0]],
    ],
)
def test_what_an_env_does_to_what_it_returned_changes_no_copy(make):
    items = make()
    batch = batch_of(items)
    before = listed(batch.rows)
    for item in items:
        for part in item.values() if isinstance(item, dict) else item if isinstance(item, list) else [item]:
            if hasattr(part, "shape"):
                part[:] = -9.0
            elif isinstance(part, list):
                part[0].append(9)
        if isinstance(item, list):
            item[0] = -9.0
    assert listed(batch.rows) == before


def test_a_policy_may_be_shown_float32_tensors():
    items = [{"a": np.array([1, 2], np.uint8)}, {"a": np.array([3, 4], np.uint8)}]
    stacked, seen = batch_of(items).stacked_input(as_float=True), batch_of(items).seen(as_float=True)
    assert stacked["a"].dtype is torch.float32 and stacked["a"].tolist() == [[1, 2], [3, 4]]
    assert seen[1]["a"].dtype is torch.float32 and seen[1]["a"].tolist() == [3, 4]
    ragged = batch_of([np.array([1.0]), np.array([1.0, 2.0])])
    assert ragged.stacked_input(as_float=True) is None
    assert [row.dtype for row in ragged.seen(as_float=True).values()] == [torch.float32] * 2


def test_some_envs_of_a_batch_in_another_order():
    batch = Batch.copied([4, 2, 7], [{"a": np.array([float(i)]), "b": str(i)} for i in (4, 2, 7)])
    chosen = batch.of_envs([7, 4])
    assert chosen.env_ids == [7, 4] and listed(chosen.rows) == [{"a": [7.0], "b": "7"}, {"a": [4.0], "b": "4"}]


# NaN and infinities

STEPS = np.array([0, 0, 0, 5, 7])  # by env


@pytest.mark.parametrize(
    ("first", "second", "place"),
    [
        (np.zeros(1), np.array([np.nan]), ""),
        (np.zeros(1, np.float16), np.array([np.nan], np.float16), ""),
        ({"a": 0, "b": {"c": np.zeros(1)}}, {"a": 0, "b": {"c": np.array([np.nan])}}, r"\['b'\]\['c'\]"),
        ({"a": np.zeros(1)}, {"a": np.array([np.nan, 0.0])}, r"\['a'\]"),
        (["x", [0.0]], ["x", [float("nan")]], r"\[1\]"),
        (torch.zeros(1), torch.tensor([np.nan, 0.0]), ""),
        (torch.zeros(1), torch.tensor([np.nan]), ""),
        (0.0, float("nan"), ""),
        ([np.zeros(1), np.zeros(2)], [np.zeros(1), np.array([np.nan, 0.0, 0.0])], r"\[1\]"),
        ([1.0, 2.0], [1.0, float("nan")], ""),
        ([{"a": np.zeros(1)}], [{"a": np.array([np.nan])}], r"\[0\]\['a'\]"),
    ],
)
def test_a_nan_names_the_env_the_place_and_the_step(first, second, place):
    batch = Batch.copied([3, 4], [first, second])
    with pytest.raises(FloatingPointError, match=f"the observation{place} of env 4 holds NaN at step 7"):
        check_finite("the observation", batch.node, batch.env_ids, STEPS)


@pytest.mark.differs(
    "an infinite observation or reward is trained on, and an infinite return is the best one",
    "collecting and evaluating stop and name the env, the key and the step, as for NaN; so for 1e39, inf in float32",
)
@pytest.mark.parametrize(
    ("first", "second", "place"),
    [
        (np.zeros(1), np.array([np.inf]), ""),
        (np.zeros(1), np.array([1e39]), ""),
        (np.zeros(1, np.float32), np.array([-np.inf], np.float32), ""),
        (np.zeros(1, np.float16), np.array([np.inf], np.float16), ""),
        (np.zeros(1, np.complex128), np.array([1e39j]), ""),
        ({"a": np.zeros(1)}, {"a": np.array([0.0, np.inf])}, r"\['a'\]"),
        (torch.zeros(1), torch.tensor([np.inf]), ""),
        (torch.zeros(1, dtype=torch.float64), torch.tensor([1e39], dtype=torch.float64), ""),
        (0.0, 1e39, ""),
        (np.float32(0), np.float32("-inf"), ""),
        ([1.0, 2.0], [1.0, float("inf")], ""),
        ({"action_mask": np.zeros(1)}, {"action_mask": np.array([np.inf])}, r"\['action_mask'\]"),
    ],
)
def test_an_infinity_names_the_env_the_place_and_the_step(first, second, place):
    batch = Batch.copied([3, 4], [first, second])
    with pytest.raises(FloatingPointError, match=rf"the observation{place} of env 4 holds inf .* at step 7 of"):
        check_finite("the observation", batch.node, batch.env_ids, STEPS)


def test_a_large_observation_is_shown_in_one_line():
    node = batch_of([np.full((84, 84), np.inf)]).node
    with pytest.raises(FloatingPointError, match=r"^.{1,400}$"):
        check_finite("the observation", node, [0], STEPS)


@pytest.mark.parametrize("item", [np.full(2, 3e38, np.float32), np.full(2, -3e38), torch.full((2,), 3e38), 3e38, 1])
def test_the_largest_numbers_are_finite(item):
    check_finite("the observation", batch_of([item, item]).node, [0, 1], STEPS)


def test_a_mask_that_is_added_to_logits_may_be_minus_infinity():
    item = {"action_mask": np.array([-np.inf, 0.0]), "players": [{"action_mask": np.array([0.0, -np.inf])}]}
    check_finite("the observation", batch_of([item, item]).node, [0, 1], STEPS)
    item["action_mask"][1] = np.nan
    with pytest.raises(FloatingPointError, match=r"\['action_mask'\] of env . holds NaN"):
        check_finite("the observation", batch_of([item, item]).node, [0, 1], STEPS)


# Players


@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_a_player_of_a_batch_is_a_view_of_it(make):
    batch = Batch.copied([4, 2, 7], [make(pair.tolist()) for pair in PAIRS])
    second = batch.of_player(1)
    assert second.stacked.tolist() == PAIRS[:, 1].tolist() and second.rows[1].tolist() == PAIRS[1, 1].tolist()
    assert batch.of_player(1) is second
    batch.stacked[1, 1, 0] = -1.0
    assert float(second.stacked[1][0]) == -1.0


@pytest.mark.parametrize("make", [list, tuple, lambda parts: dict(enumerate(parts))])
def test_players_may_see_things_of_different_shapes(make):
    batch = batch_of([make([np.array([1.0, i]), np.array([[2.0, i, i]])]) for i in range(2)])
    assert listed(batch.of_player(0).stacked) == [[1.0, 0.0], [1.0, 1.0]]
    assert listed(batch.of_player(1).stacked) == [[[2.0, 0.0, 0.0]], [[2.0, 1.0, 1.0]]]
    with pytest.raises(ValueError, match="nothing for player 2"):
        batch.of_player(2)


@pytest.mark.parametrize(
    "items",
    [[["a", "b"], ["c", "d"]], [[np.zeros(1)] * 2, [np.zeros(1)] * 3], [[1.0, 2.0], [3.0, 4.0]], [(0, 1), (2, 3)]],
)
def test_players_of_other_sequences_get_their_entries(items):
    assert listed(batch_of(items).of_player(1).rows) == listed([item[1] for item in items])


def test_a_reward_of_a_player_is_a_number_where_the_envs_give_one_array_for_all():
    rows = batch_of([np.array([1.0, 2.0], np.float32)] * 2).of_player(1).rows
    assert rows == [2.0, 2.0] and {type(row) for row in rows} == {np.float32}


def test_a_step_of_a_player_has_its_fields_and_those_of_all():
    class Wide(Timestep):
        pass

    raw = {
        0: Wide(PAIRS[0], PAIRS[0, :, :1], np.array(False), ["a", "b"]),
        1: Wide(PAIRS[1], PAIRS[1, :, :1], [False, True], ("a", "b")),
    }
    block = DictBlocks().block_of(raw, [])
    obs = Batch.copied([0, 1], [PAIRS[2], PAIRS[2]])
    steps = Steps(block, obs, {}, Batch([0, 1], block.obs)).of_player(1, {0: "x", 1: "y"})
    first, second = steps.timesteps()
    assert type(first) is Wide and first.obs.tolist() == [2.0, 3.0] and first.reward.tolist() == [2.0]
    assert first.done.shape == () and first.info == "b" and second.done is True
    assert [bool(done) for done in steps.dones] == [False, True] and steps.infos == ["b", "b"]
    assert steps.obs.rows[0].tolist() == PAIRS[2, 1].tolist() and steps.output == {0: "x", 1: "y"}
    assert steps.ends.tolist() == [False, False]


def test_timesteps_keep_their_type_and_further_fields_and_share_no_memory_with_the_envs():
    class Wide(Timestep):
        pass

    obs, reward = np.array([1.0]), np.array([2.0], np.float32)
    block = DictBlocks().block_of({0: Wide(obs, reward, False, {"k": 1})}, [])
    steps = Steps(block, batch_of([obs]), {}, Batch([0], block.obs))
    obs[:], reward[:] = 9.0, 9.0
    (step,) = steps.timesteps()
    assert type(step) is Wide and step.info == {"k": 1}
    assert (step.obs.tolist(), step.reward.tolist()) == ([1.0], [2.0])


def test_an_entry_that_is_missing_is_named():
    assert entry_of({1: "x"}, 1) == "x" and entries_of(("ab", [3, 4]), 1) == ["b", 4]
    for item in ([1], {}, 3.0, np.zeros(1), None):
        with pytest.raises(ValueError, match="nothing for player 1"):
            entry_of(item, 1)


# Conversions


@pytest.mark.parametrize(
    ("items", "expected", "dtype"),
    [
        ([np.zeros(2)] * 2, [[0, 0]] * 2, torch.float32),
        ([np.zeros(2, np.uint8)] * 2, [[0, 0]] * 2, torch.uint8),
        ([torch.zeros(2, dtype=torch.float64)] * 2, [[0, 0]] * 2, torch.float64),
        ([[1.0, 2.0], [3.0, 4.0]], [[1, 2], [3, 4]], torch.float32),
        ([(True, False)] * 2, [[True, False]] * 2, torch.bool),
        ([np.zeros(1), np.zeros(2)], [[0], [0, 0]], torch.float32),
    ],
)
def test_arrays_and_lists_of_numbers_become_tensors(items, expected, dtype):
    rows = tensorised(batch_of(items).node).items()
    assert [row.tolist() for row in rows] == expected and {row.dtype for row in rows} == {dtype}


@pytest.mark.parametrize("items", [[1, 2], [1.5, 2.5], [True, False], ["a", "b"], [None, None], [np.float64(1)] * 2])
def test_numbers_text_and_none_stay_what_they_are(items):
    rows = tensorised(batch_of(items).node).items()
    assert rows == items and [type(row) for row in rows] == [type(item) for item in items]


def test_the_content_of_observations_is_compared():
    one = {"a": [np.zeros(2), torch.ones(1)], "b": "x", "c": 3}
    assert is_same(one, {"a": [np.zeros(2), torch.ones(1)], "b": "x", "c": 3})
    for key, other in (("a", [np.zeros(2), torch.zeros(1)]), ("a", [np.zeros(2)]), ("b", "y"), ("c", 4)):
        assert not is_same(one, {**one, key: other})
    assert not is_same(one, {"a": one["a"]}) and not is_same(np.zeros(2), np.zeros(3))


@pytest.mark.parametrize("ragged", [[np.zeros(2), [1.0]], (np.zeros(3), 1.0)])
def test_observations_of_different_structure_differ(ragged):
    for other in (np.zeros(2), 1.0, {"a": np.zeros(2)}, "x"):
        assert not is_same(ragged, other) and not is_same(other, ragged)


def test_arrays_of_objects_are_compared_item_by_item():
    def made(value, text="a"):
        return np.array([np.full(3, value), text], dtype=object)

    assert is_same(made(1.0), made(1.0))
    assert not is_same(made(1.0), made(2.0)) and not is_same(made(1.0), made(1.0, "b"))
    assert not is_same(made(1.0), np.array([np.full(3, 1.0)], dtype=object))
