"""Dicts of rows that are made when they are asked for."""

import copy
import pickle

import pytest

from ding.utils.data.env_batch import EnvBatch

ITEMS = {3: "row 10", 7: "row 20"}


def lazy():
    def make():
        calls.append("made")
        return [f"row {x}" for x in (10, 20)]

    calls = []
    return EnvBatch([3, 7], make, [10, 20]), calls


def test_the_keys_are_there_before_any_item():
    batch, calls = lazy()
    assert list(batch) == list(batch.keys()) == list(reversed(batch))[::-1] == [3, 7]
    assert len(batch) == 2 and 7 in batch and 5 not in batch and batch
    assert not calls


@pytest.mark.parametrize(
    "read",
    [
        dict,
        lambda batch: {**batch},
        lambda batch: dict(batch.items()),
        lambda batch: dict(zip(batch, batch.values(), strict=True)),
        lambda batch: {env_id: batch[env_id] for env_id in batch},
        lambda batch: {env_id: batch.get(env_id) for env_id in batch},
        lambda batch: batch.copy(),
        lambda batch: dict(copy.copy(batch)),
        lambda batch: dict(copy.deepcopy(batch)),
        lambda batch: dict(pickle.loads(pickle.dumps(batch))),
        lambda batch: batch | {},
        lambda batch: {} | batch,
        lambda batch: dict([batch.popitem(), batch.popitem()][::-1]),
        lambda batch: {env_id: batch.pop(env_id) for env_id in list(batch)},
        lambda batch: {env_id: batch.setdefault(env_id, "other") for env_id in batch},
    ],
)
def test_every_way_of_reading_gives_the_items(read):
    batch, calls = lazy()
    assert read(batch) == ITEMS
    assert calls == ["made"]


def test_another_dict_is_updated_with_the_items():
    for update in (dict.update, dict.__ior__):
        target = {3: None, 5: "own"}
        update(target, lazy()[0])
        assert target == {**ITEMS, 5: "own"}


def test_it_compares_and_prints_as_the_dict_it_is():
    assert lazy()[0] == ITEMS and lazy()[0] == lazy()[0]
    assert lazy()[0] != {**ITEMS, 3: "other"} and lazy()[0] != {3: None, 7: None}
    assert repr(lazy()[0]) == repr(ITEMS)


def test_what_is_written_is_not_overwritten_by_the_items():
    batch, _ = lazy()
    batch[3] = "mine"
    del batch[7]
    batch.update({8: "new"})
    batch |= {9: "newer"}
    assert batch == {3: "mine", 8: "new", 9: "newer"}
    batch.clear()
    assert not batch and dict(batch) == {}


def test_the_items_are_made_once():
    batch, calls = lazy()
    assert batch[3] is batch[3]
    assert len(calls) == 1


def test_once_an_item_was_looked_at_there_is_no_batch_any_more():
    for batch in (lazy()[0], EnvBatch([3, 7], ["row 10", "row 20"], [10, 20])):
        assert batch.stacked == [10, 20] and list(batch) == [3, 7] and batch.stacked == [10, 20]
        batch[3] = "mine"
        assert batch.stacked is None and batch == {3: "mine", 7: "row 20"}


def test_a_copy_has_the_items_only():
    twin = copy.copy(lazy()[0])
    assert type(twin) is EnvBatch and twin.stacked is None and twin == ITEMS


def test_a_batch_of_another_length_is_refused_and_stays_unread():
    batch = EnvBatch([1, 2], [0], [0])
    for _ in range(2):
        with pytest.raises(ValueError, match="zip"):
            batch[1]
        assert batch.stacked == [0]
