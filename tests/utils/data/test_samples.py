"""Tables are columns; samples are a list of dicts to every reader, made of a table when somebody reads."""

import copy
import json
import math
import pickle
from collections import namedtuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.utils.data.collate_fn import default_collate
from ding.utils.data.plain_columns import from_plain, samples_of_state, to_plain
from ding.utils.data.samples import (
    Column,
    Kind,
    Samples,
    Table,
    columns_of,
    concatenate_items,
    listed,
    part_of,
    rows_of,
    table_of,
)
from ding.utils.msgpack_helper import pack, unpack

Pair = namedtuple("Pair", ["a", "b"])


def plain(count: int = 4, first: int = 0) -> list[dict]:
    return [{"n": n, "done": n == 2, "name": f"n{n}", "value": n / 2} for n in range(first, first + count)]


def table(count: int = 4) -> Table:
    packed = Table.of(plain(count))
    assert packed is not None
    return packed


def packed(count: int = 4) -> Samples:
    return Samples(table(count))


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
    empty = Samples(table().take(slice(0)))
    assert READS[read](empty) == []


def test_samples_answer_as_a_list():
    assert len(packed()) == 4 and bool(packed()) and not packed()[:0]
    assert packed() == plain() and plain() == packed() and packed() == packed() and packed() != plain(3)
    assert plain()[1] in packed() and {} not in packed()
    assert packed().index(plain()[2]) == 2 and packed().count(plain()[0]) == 1
    assert repr(packed()) == repr(plain()) and isinstance(packed(), list)
    with pytest.raises(IndexError):
        packed()[4]


def test_an_item_that_was_changed_is_what_everybody_reads_from_then_on():
    samples = packed()
    samples[1]["n"] = 70
    assert samples.table is None and table_of(samples) is None and samples[1]["n"] == 70
    assert default_collate([{"n": item["n"]} for item in samples])["n"].tolist() == [0, 70, 2, 3]
    assert Table.of(samples).columns["n"].values().tolist() == [0, 70, 2, 3]
    del samples[0]["done"]
    assert "done" not in samples[0] and len(samples) == 4
    samples[2] = {"n": 5}
    assert samples[2] == {"n": 5}


def test_a_slice_has_the_items_of_the_whole_and_the_rows_of_a_part_are_its_own():
    samples = packed()
    for item in samples[:2]:
        item["n"] += 9
    assert [item["n"] for item in samples] == [9, 10, 2, 3]
    samples = packed()
    rows = part_of(samples, 0, 2)
    rows[0]["n"] = 9
    assert samples.table is not None and samples == plain()
    assert part_of(samples, 1, None) == plain()[1:] and part_of(plain(), 0, 1) == plain()[:1]


def test_items_are_in_columns_until_somebody_looks():
    held, samples = table(), packed()
    assert table_of(held) is held and table_of(samples) is samples.table and table_of(plain()) is table_of(1) is None
    assert Table.of(held) is held and Table.of(samples) is samples.table
    assert listed(samples) is samples and listed(held).table is held and listed((1, 2)) == [1, 2]
    assert rows_of(held) == plain() and rows_of(samples) is samples and samples.table is not None


def test_a_whole_is_a_table_if_all_parts_are_in_columns_and_fit():
    whole = concatenate_items([table(2), packed(1)])
    assert isinstance(whole, Table) and whole.rows() == plain(2) + plain(1)
    assert concatenate_items([table(2), plain(1)]) == plain(2) + plain(1)
    assert concatenate_items([table(1), Table.of([{"m": 1}])]) == [*plain(1), {"m": 1}]
    samples = packed()
    assert concatenate_items([samples]) is samples and concatenate_items([]) == []


def test_deep_copies_have_items_and_objects_of_their_own():
    samples = Samples(Table.of([{"n": 0, "info": [1]}, {"n": 1, "info": [2, 3]}]))
    copied = copy.deepcopy(samples)
    copied[0]["info"].append(5)
    assert samples[0]["info"] == [1] and copied[0]["info"] == [1, 5]
    numbers = Samples(Table.of([{"n": 0}, {"n": 1}]))
    copied = copy.deepcopy(numbers)
    assert numbers.table is not None
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
    for seen in Table.of([item, item]).rows():
        assert repr(seen) == repr(item)
        assert seen["array"].dtype == np.int8 and seen["tensor"].dtype == torch.float16
        assert type(seen["zero"]) is np.ndarray and type(seen["nested"]["y"][1]) is Pair


def nbytes_held(value) -> int:
    if isinstance(value, torch.Tensor):
        return value.untyped_storage().nbytes()
    return value.nbytes if value.base is None else value.base.nbytes


@pytest.mark.parametrize("make", [torch.zeros, lambda *shape: np.zeros(shape)], ids=["tensor", "array"])
def test_an_item_holds_its_own_memory_and_no_more(make):
    samples = Table.of([{"obs": make(500), "act": make(1), "state": {"h": make(20)}} for _ in range(64)])
    item = samples.rows()[3]
    size = 521 * item["obs"].nbytes // 500
    held = nbytes_held(item["obs"]) + nbytes_held(item["act"]) + nbytes_held(item["state"]["h"])
    assert held <= 1.5 * size and len(pickle.dumps(item)) <= 1.5 * size + 8192


@pytest.mark.parametrize(
    "items", [[], [1], [{}], ["ab"], [{"a": 1}, {"b": 1}], [{"a": 1}, {"a": 1, "b": 2}], [[{"a": 1}]], [{"a": 1}, None]]
)
def test_what_are_no_dicts_with_the_same_keys_is_not_packed(items):
    assert Table.of(items) is None


def test_values_that_do_not_fit_together_stay_objects():
    mixed = [{"x": 1, "y": torch.zeros(2)}, {"x": 1.0, "y": torch.zeros(3)}]
    samples = Table.of(mixed)
    assert samples.columns["x"].kind is Kind.OBJECT and samples.columns["y"].kind is Kind.OBJECT
    rows = samples.rows()
    assert [type(item["x"]) for item in rows] == [int, float] and rows[1]["y"].shape == (3,)


def test_an_observation_that_two_items_share_is_packed_once():
    obs = [torch.full((3,), float(i)) for i in range(5)]
    samples = Table.of([{"obs": obs[i], "next_obs": obs[i + 1]} for i in range(4)])
    column, following = samples.columns["obs"], samples.columns["next_obs"]
    assert column.data is following.data and len(column.data) == 5
    rows = samples.rows()
    assert [(item["obs"][0].item(), item["next_obs"][0].item()) for item in rows] == [(i, i + 1) for i in range(4)]
    apart = Table.of([{"obs": torch.zeros(1), "next_obs": torch.zeros(1)} for _ in range(2)])
    assert apart.columns["obs"].data is not apart.columns["next_obs"].data


def test_joined_samples_are_those_of_all_parts_in_order():
    obs = [torch.full((2,), float(i)) for i in range(9)]
    items = [{"obs": obs[i], "next_obs": obs[i + 1], "n": i, "name": str(i)} for i in range(8)]
    parts = [Table.of(items[:3]), Table.of(items[3:5]), Table.of(items[5:])]
    joined = Table.joined(parts)
    assert joined.columns["obs"].data is joined.columns["next_obs"].data
    assert repr(joined.rows()) == repr(items)
    assert Table.joined(parts[:1]) is parts[0]
    assert Table.joined([table(), Table.of([{"m": 1}])]) is None


def test_columns_can_be_added_replaced_and_left_out():
    held = table()
    more = held.with_columns(n=Column(Kind.INT, np.array([4, 3, 2, 1])), more=Column(Kind.BOOL, np.ones(4, bool)))
    assert [(item["n"], item["more"]) for item in more.rows()] == [(4, True), (3, True), (2, True), (1, True)]
    assert more.without("n", "other").rows()[0].keys() == {"done", "name", "value", "more"}
    assert held.rows() == plain()
    assert len(held.without(*held.columns)) == 4


# Samples as plain values: what comes back is what was given, and what is the same is in there once.


SIZE = 20
# One list of values for a key.
COLUMNS = st.one_of(
    *(
        st.lists(values, min_size=SIZE, max_size=SIZE)
        for values in (
            st.integers(),
            st.integers(-300, 300),
            st.just(7),
            st.booleans(),
            st.just(True),
            st.floats(),
            st.sampled_from([0.0, -0.0]),
            st.just(-0.0),
            st.none(),
            st.sampled_from(["a", "b"]),
            st.text(max_size=2),
            st.one_of(st.none(), st.booleans(), st.integers(-1, 1), st.sampled_from(["", "1"])),
            st.lists(st.integers(0, 3), min_size=2, max_size=2),
            st.lists(st.integers(0, 3), max_size=2),
            st.tuples(st.integers(0, 1), st.text(max_size=1)),
            st.fixed_dictionaries({"x": st.integers(0, 2), "y": st.sampled_from(["p", "q"])}),
            st.builds(lambda n: np.full(2, n, np.int16), st.integers(0, 9)),
            st.builds(lambda n: torch.full((2, 1), n, dtype=torch.uint8), st.integers(0, 9)),
            st.builds(np.float32, st.integers(0, 9)),
        )
    )
)


def same(one, other):
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        assert all(same(one[key], other[key]) for key in one)
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other) and all(map(same, one, other))
    elif isinstance(one, (np.ndarray, torch.Tensor, np.generic)):
        assert one.dtype == other.dtype and one.shape == other.shape and (one == other).all()
    elif isinstance(one, float):
        assert math.isnan(one) and math.isnan(other) or (one, math.copysign(1, one)) == (other, math.copysign(1, other))
    else:
        assert one == other
    return True


@settings(max_examples=150)
@given(st.dictionaries(st.sampled_from("abcde"), COLUMNS, min_size=1))
def test_samples_come_back_with_the_types_of_their_values(by_key):
    samples = [dict(zip(by_key, values, strict=True)) for values in zip(*by_key.values(), strict=True)]
    again = from_plain(unpack(pack(to_plain(samples))))
    assert same(list(again), samples)


def test_rows_that_two_columns_share_are_in_there_once_and_shared_again():
    rows = np.arange(9.0)
    obs, next_obs = (Column(Kind.TENSOR, rows, np.arange(8) + i) for i in (0, 1))
    plain = unpack(pack(to_plain(Samples(Table({"obs": obs, "next_obs": next_obs})))))
    assert [block.tolist() for block in plain["blocks"]] == [rows.tolist()]
    one, other = columns_of(from_plain(plain).table.columns)
    assert one.data is other.data and other.values().tolist() == rows[1:].tolist()


def test_samples_that_were_chosen_out_of_others_come_back():
    samples = Table.of([{"name": f"n{i}", "x": np.full(2, i), "k": i} for i in range(10)])
    chosen = samples.take(np.array([7, 7, 1]))
    again = from_plain(unpack(pack(to_plain(chosen))))
    assert [(s["name"], s["x"].tolist(), s["k"]) for s in again] == [("n7", [7, 7], 7)] * 2 + [("n1", [1, 1], 1)]


def test_what_are_no_dicts_with_the_same_keys_is_listed():
    for samples in ([], [{}], [1, "a"], [{"a": 1}, {"b": 1}], [[{"a": 1}]]):
        assert from_plain(unpack(pack(to_plain(samples)))) == samples


@pytest.mark.parametrize(
    "state", [3, [], torch.zeros(2), {}, {"items": 3}, {"samples": 3}, {"items": [{"samples": {}}]}]
)
def test_what_is_no_state_of_samples_is_an_error(state):
    with pytest.raises(ValueError, match="(state|data) is not samples"):
        samples_of_state(state)
