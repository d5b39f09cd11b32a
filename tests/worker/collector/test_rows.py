"""Batches of what envs returned, cut by player."""

import numpy as np
import pytest
import torch

from ding.worker.collector.frames import FrameKeeper, StepBatch
from ding.worker.collector.rows import Rows, entries_of, entry_of
from tests.fakes import Timestep

PAIRS = np.arange(12.0, dtype=np.float32).reshape(3, 2, 2)  # [envs, players, 2]


@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_a_player_of_a_batch_is_a_view_of_it(make):
    rows = Rows.copied([4, 2, 7], [make(pair.tolist()) for pair in PAIRS])
    second = rows.of_player(1)
    assert second.stacked.tolist() == PAIRS[:, 1].tolist() and second[2].tolist() == PAIRS[1, 1].tolist()
    assert rows.of_player(1) is second and [t.tolist() for t in second.tensors()] == PAIRS[:, 1].tolist()
    rows.stacked[1, 1, 0] = -1.0
    assert float(second.stacked[1][0]) == -1.0


@pytest.mark.parametrize("make", [list, tuple])
def test_sequences_of_arrays_are_copied_part_by_part(make):
    items = [make([np.array([1.0, i]), np.array([[2.0, i, i]])]) for i in range(2)]
    rows = Rows.copied([0, 1], items)
    items[1][0][:] = -9.0
    assert type(rows[1]) is make and [part.tolist() for part in rows[1]] == [[1.0, 1.0], [[2.0, 1.0, 1.0]]]
    assert rows.stacked is None and rows.of_player(0).stacked.tolist() == [[1.0, 0.0], [1.0, 1.0]]
    assert rows.of_player(1) is rows.parts[1]
    with pytest.raises(ValueError, match="nothing for player 2"):
        rows.of_player(2)


@pytest.mark.parametrize(
    "items", [[[1.0, 2.0], [3.0, 4.0]], [["a", "b"], ["c", "d"]], [[np.zeros(1)] * 2, [np.zeros(1)] * 3]]
)
def test_other_sequences_have_no_parts_and_players_all_the_same(items):
    rows = Rows.copied([0, 1], items)
    assert rows.parts == () and list(rows.of_player(1).values()) == [item[1] for item in items]


def test_items_keyed_by_player_are_cut_and_can_be_stacked():
    rows = Rows.copied([0, 1], [{0: np.array([1.0]), 1: np.array([i])} for i in range(2)])
    assert rows.of_player(1).stack().stacked.tolist() == [[0], [1]]


def test_a_player_of_gathered_rows_has_the_very_items_and_tensors():
    first = Rows.copied([0, 1], list(PAIRS[:2]))
    second = Rows.copied([2], list(PAIRS[2:]))
    rows = Rows.gathered([2, 0], [(second, 0), (first, 0)])
    mine = rows.of_player(1)
    assert mine[0] is first.of_player(1)[0] and mine.tensors()[0] is second.of_player(1).tensors()[0]
    assert mine.stacked is None and mine.stack().stacked.tolist() == [[10.0, 11.0], [2.0, 3.0]]


def test_the_next_observation_of_a_player_is_the_very_object_kept_from_its_step():
    for make in (np.array, list):
        keeper = FrameKeeper()
        after = {i: make([np.array([i, p], np.float32) for p in range(2)]) for i in range(3)}
        kept = keeper.keep({i: Timestep(obs, np.zeros((2, 1)), False, [{}, {}]) for i, obs in after.items()})
        assert keeper.observe(after).of_player(1)[2] is kept.obs.of_player(1)[2]
        keeper.forget(1)
        new = make([np.array([9, p], np.float32) for p in range(2)])
        seen = keeper.observe({**after, 1: new}).of_player(1)
        assert seen.stack().stacked.tolist() == [[0.0, 1.0], [9.0, 1.0], [2.0, 1.0]]
        assert seen.tensors()[2] is kept.obs.of_player(1).tensors()[2]


def test_a_step_of_a_player_has_its_fields_and_those_of_all():
    class Wide(Timestep):
        pass

    raw = {
        0: Wide(PAIRS[0], PAIRS[0, :, :1], np.array(False), ["a", "b"]),
        1: Wide(PAIRS[1], PAIRS[1, :, :1], [False, True], ("a", "b")),
    }
    steps = StepBatch(raw).of_player(1)
    first, second = steps.timesteps()
    assert type(first) is Wide and first.obs.tolist() == [2.0, 3.0] and first.reward.tolist() == [2.0]
    assert first.done.shape == () and first.info == "b" and second.done is True
    assert [bool(done) for done in steps.dones()] == [False, True] and steps.infos() == ["b", "b"]


def test_an_entry_that_is_missing_is_named():
    assert entry_of({1: "x"}, 1) == "x" and entries_of(("ab", [3, 4]), 1) == ["b", 4]
    for item in ([1], {}, 3.0, np.zeros(1), None):
        with pytest.raises(ValueError, match="nothing for player 1"):
            entry_of(item, 1)


@pytest.mark.parametrize("bad", [[np.zeros(1), np.array([np.nan])], [1.0, float("nan")], [{"a": np.array([np.nan])}]])
def test_a_nan_within_a_sequence_names_the_env(bad):
    with pytest.raises(FloatingPointError, match="of env 3 holds NaN"):
        FrameKeeper().observe({3: bad})


@pytest.mark.parametrize(
    ("first", "second", "place"),
    [
        ({"a": np.zeros(1)}, {"a": np.array([np.nan, 0.0])}, r"\['a'\]"),
        (["x", [0.0]], ["x", [float("nan")]], r"\[1\]"),
        (torch.zeros(1), torch.tensor([np.nan, 0.0]), ""),
        (torch.zeros(1), torch.tensor([np.nan]), ""),
    ],
)
def test_a_nan_in_what_does_not_stack_names_the_place(first, second, place):
    steps = {i: Timestep(obs, np.zeros(1), False, {}) for i, obs in enumerate((first, second))}
    with pytest.raises(FloatingPointError, match=f"the observation{place} of env 1"):
        FrameKeeper().keep(steps)


def test_a_nan_within_ragged_sequences_names_the_place():
    ragged = {0: [np.zeros(1), np.zeros(2)], 1: [np.zeros(1), np.array([np.nan, 0.0, 0.0])]}
    with pytest.raises(FloatingPointError, match=r"the observation\[1\] of env 1"):
        FrameKeeper().keep({i: Timestep(obs, np.zeros(1), False, {}) for i, obs in ragged.items()})
