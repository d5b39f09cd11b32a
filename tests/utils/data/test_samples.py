"""Samples are a list of dicts to every reader, and columns as long as nobody reads."""

from __future__ import annotations

import copy
import json
import pickle
from collections import namedtuple

import numpy as np
import pytest
import torch

from ding.utils.data.collate_fn import default_collate
from ding.utils.data.samples import Column, Kind, Samples, items_at, last_rows, lengths_of, part_of, with_end_flags
from ding.utils.msgpack_helper import pack, unpack

Pair = namedtuple("Pair", ["a", "b"])


def plain(count: int = 4, first: int = 0) -> list[dict]:
    return [{"n": n, "done": n == 2, "name": f"n{n}", "value": n / 2} for n in range(first, first + count)]


def packed(count: int = 4) -> Samples:
    samples = Samples.of(plain(count))
    assert samples is not None and samples.columns is not None
    return samples


READS = {
    "list": list,
    "iteration": lambda samples: [item for item in samples],  # noqa: C416
    "reversed": lambda samples: list(reversed(samples))[::-1],
    "unpacking": lambda samples: [*samples],
    "plus a list": lambda samples: samples + [],
    "a list plus": lambda samples: [] + samples,  # noqa: RUF005
    "times": lambda samples: samples * 1,
    "extend": lambda samples: (made := [], made.extend(samples), made)[2],
    "in-place plus": lambda samples: (made := [], made.__iadd__(samples), made)[2],
    "slice assignment": lambda samples: (made := [], made.__setitem__(slice(None), samples), made)[2],
    "copy method": lambda samples: samples.copy(),
    "copy.copy": copy.copy,
    "copy.deepcopy": copy.deepcopy,
    "slice": lambda samples: samples[:],
    "index": lambda samples: [samples[i] for i in range(-len(samples), 0)],
    "pickle": lambda samples: pickle.loads(pickle.dumps(samples)),
    "msgpack": lambda samples: unpack(pack(samples)),
    "msgpack in a dict": lambda samples: unpack(pack({"samples": samples}))["samples"],
    "json": lambda samples: json.loads(json.dumps(samples)),
    "sorted": lambda samples: sorted(samples, key=lambda item: item["n"]),
    "sort": lambda samples: (samples.sort(key=lambda item: -item["n"]), samples.reverse(), samples)[2],
    "zip": lambda samples: [item for item, _ in zip(samples, range(10), strict=False)],
    "pop": lambda samples: [samples.pop(0) for _ in range(len(samples))],
    "map": lambda samples: list(map(dict, samples)),
    "star arguments": lambda samples: (lambda *items: list(items))(*samples),
    "filter": lambda samples: list(filter(None, samples)),
    "insert": lambda samples: (samples.insert(0, 1), samples.remove(1), samples)[2],
    "append": lambda samples: (samples.append(1), samples.__delitem__(-1), samples)[2],
}


@pytest.mark.parametrize("read", READS)
def test_every_way_to_read_samples_gives_their_dicts(read):
    assert READS[read](packed()) == plain()
    empty = Samples.of(plain(1))[:0]
    assert READS[read](empty) == []


def test_samples_answer_as_a_list():
    assert len(packed()) == 4 and bool(packed()) and not packed()[:0]
    assert packed() == plain() and plain() == packed() and packed() == packed() and packed() != plain(3)
    assert plain()[1] in packed() and {} not in packed()
    assert packed().index(plain()[2]) == 2 and packed().count(plain()[0]) == 1
    assert repr(packed()) == repr(plain()) and isinstance(packed(), list)
    with pytest.raises(IndexError):
        packed()[4]


def test_the_length_a_part_and_a_selection_make_no_item():
    samples = packed()
    part, chosen = part_of(samples, 1, 3), samples.take(np.array([3, 0, 0]))
    assert len(samples) == 4 and bool(samples) and len(part) == 2 and len(chosen) == 3
    assert samples.columns is not None and part.columns is not None and chosen.columns is not None
    assert part == plain()[1:3] and chosen == [plain()[3], plain()[0], plain()[0]]
    assert samples[::-1] == plain()[::-1] and samples.columns is None


def test_an_item_that_was_changed_is_what_everybody_reads_from_then_on():
    samples = packed()
    samples[1]["n"] = 70
    assert samples.columns is None and samples[1]["n"] == 70
    assert default_collate([{"n": item["n"]} for item in samples])["n"].tolist() == [0, 70, 2, 3]
    del samples[0]["done"]
    assert "done" not in samples[0] and len(samples) == 4
    samples[2] = {"n": 5}
    assert samples[2] == {"n": 5}


def test_a_slice_has_the_items_of_the_whole_and_a_part_of_columns_items_of_its_own():
    samples = packed()
    for item in samples[:2]:
        item["n"] += 9
    assert [item["n"] for item in samples] == [9, 10, 2, 3]
    samples = packed()
    part = part_of(samples, 0, 2)
    part[0]["n"] = 9
    assert samples.columns is not None and samples == plain() and part[0]["n"] == 9
    assert part_of(samples, 1, None) == plain()[1:] and part_of(plain(), 0, 1) == plain()[:1]


def test_deep_copies_have_items_and_objects_of_their_own():
    samples = Samples.of([{"n": 0, "info": [1]}, {"n": 1, "info": [2, 3]}])
    copied = copy.deepcopy(samples)
    copied[0]["info"].append(5)
    assert samples[0]["info"] == [1] and copied[0]["info"] == [1, 5]
    numbers = Samples.of([{"n": 0}, {"n": 1}])
    copied = copy.deepcopy(numbers)
    assert numbers.columns is not None
    copied[0]["n"] = 8
    assert numbers == [{"n": 0}, {"n": 1}]


def test_items_are_what_was_given_kind_dtype_and_shape():
    item = {
        "tensor": torch.ones(2, dtype=torch.float16),
        "array": np.ones((1, 2), np.int8),
        "zero": np.array(3.0, np.float32),
        "scalar": np.float32(1.5),
        "float": 0.1,
        "int": -3,
        "bool": True,
        "text": "a",
        "none": None,
        "nested": {"x": torch.zeros(1), "y": (1, Pair(2.0, [torch.ones(1)]))},
        "steps": [torch.zeros(2), torch.ones(2)],
        "strings": np.array(["a"]),
        "large": 2**70,
    }
    samples = Samples.of([item, item])
    for seen in (samples[0], samples[1]):
        assert repr(seen) == repr(item)
        assert seen["array"].dtype == np.int8 and seen["tensor"].dtype == torch.float16
        assert type(seen["zero"]) is np.ndarray and type(seen["nested"]["y"][1]) is Pair


def nbytes_held(value) -> int:
    if isinstance(value, torch.Tensor):
        return value.untyped_storage().nbytes()
    return value.nbytes if value.base is None else value.base.nbytes


@pytest.mark.parametrize("make", [torch.zeros, lambda *shape: np.zeros(shape)], ids=["tensor", "array"])
def test_an_item_holds_its_own_memory_and_no_more(make):
    samples = Samples.of([{"obs": make(500), "act": make(1), "state": {"h": make(20)}} for _ in range(64)])
    item = samples[3]
    size = 521 * item["obs"].nbytes // 500
    held = nbytes_held(item["obs"]) + nbytes_held(item["act"]) + nbytes_held(item["state"]["h"])
    assert held <= 1.5 * size and len(pickle.dumps(item)) <= 1.5 * size + 8192


def test_what_was_packed_may_change_and_the_samples_do_not():
    items = [{"obs": torch.zeros(2), "act": np.zeros(1)} for _ in range(3)]
    samples = Samples.of(items)
    for item in items:
        item["obs"] += 1
        item["act"] += 1
        item["new"] = 1
    assert all(item["obs"].sum() == 0 and item["act"].sum() == 0 and len(item) == 2 for item in samples)


@pytest.mark.parametrize(
    "items", [[], [1], [{}], ["ab"], [{"a": 1}, {"b": 1}], [{"a": 1}, {"a": 1, "b": 2}], [[{"a": 1}]], [{"a": 1}, None]]
)
def test_what_are_no_dicts_with_the_same_keys_is_not_packed(items):
    assert Samples.of(items) is None


def test_values_that_do_not_fit_together_stay_objects():
    mixed = [{"x": 1, "y": torch.zeros(2)}, {"x": 1.0, "y": torch.zeros(3)}]
    samples = Samples.of(mixed)
    assert samples.columns["x"].kind is Kind.OBJECT and samples.columns["y"].kind is Kind.OBJECT
    assert [type(item["x"]) for item in samples] == [int, float] and samples[1]["y"].shape == (3,)


def test_an_observation_that_two_items_share_is_packed_once():
    obs = [torch.full((3,), float(i)) for i in range(5)]
    samples = Samples.of([{"obs": obs[i], "next_obs": obs[i + 1]} for i in range(4)])
    column, following = samples.columns["obs"], samples.columns["next_obs"]
    assert column.data is following.data and len(column.data) == 5
    assert [(item["obs"][0].item(), item["next_obs"][0].item()) for item in samples] == [(i, i + 1) for i in range(4)]
    apart = Samples.of([{"obs": torch.zeros(1), "next_obs": torch.zeros(1)} for _ in range(2)])
    assert apart.columns["obs"].data is not apart.columns["next_obs"].data


def test_joined_samples_are_those_of_all_parts_in_order():
    obs = [torch.full((2,), float(i)) for i in range(9)]
    items = [{"obs": obs[i], "next_obs": obs[i + 1], "n": i, "name": str(i)} for i in range(8)]
    parts = [Samples.of(items[:3]), Samples.of(items[3:5]), Samples.of(items[5:])]
    joined = Samples.joined(parts)
    assert joined.columns["obs"].data is joined.columns["next_obs"].data
    assert repr(list(joined)) == repr(items)
    assert Samples.joined(parts[:1]) is parts[0]
    parts[0][0]["n"] = 5
    assert Samples.joined(parts) is None
    assert Samples.joined([packed(), Samples.of([{"m": 1}])]) is None


def test_the_lengths_of_fragments_stay_with_all_samples_and_not_with_a_selection():
    samples, lengths = packed(), np.array([3, 1])
    assert samples.lengths is None
    samples.lengths = lengths
    samples.set_column("n", None)
    for same in (samples, samples.with_columns(), samples.compact(), Samples(samples.columns, lengths=lengths)):
        assert same.lengths is lengths
    others = [samples.take(slice(0, 4)), samples.take(np.arange(4)), part_of(samples, 0, 4), Samples.joined([samples])]
    assert [other.lengths for other in (*others, Samples.joined([samples, samples]))] == [None] * 5
    samples.set_column("name", None)
    samples.set_column("value", None)
    assert copy.deepcopy(samples).lengths is lengths


def test_items_that_are_not_several_fragments_are_one():
    samples = packed()
    assert lengths_of(samples).tolist() == lengths_of(plain()).tolist() == [4]
    assert last_rows(samples).tolist() == last_rows(plain()).tolist() == [3]
    assert last_rows([]).tolist() == []
    samples.lengths = np.array([0, 1, 0, 3, 0])
    assert lengths_of(samples) is samples.lengths and last_rows(samples).tolist() == [0, 3]
    chosen = items_at(samples, last_rows(samples))
    assert chosen.columns is not None and chosen == items_at(plain(), np.array([0, 3])) == [plain()[0], plain()[3]]


def test_joined_samples_fill_in_the_end_flags_that_some_lack():
    told = Samples.of([{"done": True, "terminated": False, "truncated": True}])
    untold = Samples.of([{"done": True}, {"done": False}])
    joined = Samples.joined([told, untold])
    assert [(item["terminated"], item["truncated"]) for item in joined] == [
        (False, True),
        (True, False),
        (False, False),
    ]


@pytest.mark.parametrize(
    "done",
    [np.array([True, False]), np.array([[1.0], [0.0]], np.float32), np.array([[True, True], [True, False]])],
)
def test_end_flags_follow_from_done(done):
    columns = with_end_flags({"done": Column(Kind.TENSOR, done)}, ("terminated", "truncated"))
    assert columns["terminated"].data.tolist() == [True, False] and columns["truncated"].data.tolist() == [False, False]


def test_end_flags_need_a_done_and_only_those_that_are_asked_for_are_filled_in():
    assert with_end_flags({"n": Column(Kind.INT, np.zeros(1, np.int64))}, ("terminated",)).keys() == {"n"}
    done = {"done": Column(Kind.BOOL, np.array([True])), "truncated": Column(Kind.BOOL, np.array([True]))}
    filled = with_end_flags(done, ("terminated",))
    assert filled["terminated"].data.tolist() == [False] and with_end_flags(done, ()).keys() == done.keys()


def test_end_flags_that_sequences_miss_are_filled_in_step_by_step():
    done = Column(Kind.BOOL, np.array([[False, True], [True, True]]), None, steps=True)
    filled = with_end_flags({"done": done}, ("terminated", "truncated"))
    assert Samples(filled)[0] == {"done": [False, True], "terminated": [False, True], "truncated": [False, False]}


def test_columns_can_be_added_and_replaced():
    samples = packed().with_columns(
        n=Column(Kind.INT, np.array([4, 3, 2, 1])), more=Column(Kind.BOOL, np.ones(4, bool))
    )
    assert [(item["n"], item["more"]) for item in samples] == [(4, True), (3, True), (2, True), (1, True)]
    with pytest.raises(AssertionError, match="an item was accessed"):
        samples.take(np.array([0]))
    with pytest.raises(AssertionError, match="an item was accessed"):
        samples.with_columns()


def test_compare_and_add_of_two_samples_look_at_both():
    one, other = packed(2), packed(2)
    assert one + other == plain(2) * 2
    one, other = packed(2), packed(2)
    one += other
    assert len(one) == 4 and one == plain(2) * 2
    one = packed(2)
    one.extend(packed(1))
    assert len(one) == 3 and one[2] == plain(1)[0]
