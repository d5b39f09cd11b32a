import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.utils.data.plain_columns import from_plain
from ding.utils.data.samples import Samples
from ding.utils.msgpack_helper import pack, unpack
from ding.worker.transport.chunk import (
    decode_chunk,
    encode_chunk,
    pack_batches,
    pick_sample,
    to_content,
    unpack_batches,
)
from tests.worker.transport.sites import assert_same

VALUES = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "x", "ü"]) | st.floats(allow_nan=False)


def transition(i):
    return {
        "obs": {"image": torch.full((2, 3), i, dtype=torch.uint8), "speed": np.array([i, i], np.float64)},
        "action": torch.tensor(i),
        "reward": np.array(i, np.float32),
        "done": i % 2 == 0,
        "collect_iter": i,
        "note": None if i else "first",
    }


@pytest.mark.parametrize("compressor", ["lz4", "zlib", "none"])
def test_samples_come_back_with_their_types_dtypes_and_shapes(compressor):
    samples = [transition(i) for i in range(5)]
    assert_same(list(decode_chunk(encode_chunk(samples, compressor), compressor)), samples)


def test_samples_come_and_go_in_columns_and_what_they_share_is_in_the_chunk_once():
    obs = torch.rand(9, 1000)
    samples = [{"obs": obs[i], "reward": float(i), "steps": [obs[i, :2]] * 3} for i in range(8)]
    for sample, after in zip(samples, [*samples[1:], {"obs": obs[8]}], strict=True):
        sample["next_obs"] = after["obs"]
    data = encode_chunk(samples, "none")
    assert len(data) < 1.05 * obs.nbytes
    decoded = decode_chunk(data, "none")
    assert isinstance(decoded, Samples)
    obs_column, next_column = decoded.table.columns["obs"], decoded.table.columns["next_obs"]
    assert obs_column.data is next_column.data and (next_column.values() == obs[1:].numpy()).all()
    assert_same(list(decode_chunk(encode_chunk(decoded, "none"), "none")), samples)
    assert decoded.table is not None
    assert_same(list(decoded), samples)


def test_sequences_and_samples_that_differ_in_form_come_back():
    samples = [[transition(0), transition(1)], [transition(2)]]
    assert_same(decode_chunk(encode_chunk(samples)), samples)
    uneven = [{"x": torch.zeros(2)}, {"x": torch.zeros(3)}, {"x": 1.5}, {"y": "z"}]
    assert_same(decode_chunk(encode_chunk(uneven)), uneven)


def test_samples_with_gradients_are_stored_without_them():
    (sample,) = decode_chunk(encode_chunk([{"logit": torch.ones(2, requires_grad=True)}]))
    assert not sample["logit"].requires_grad


def test_no_sample_is_no_chunk():
    with pytest.raises(ValueError, match="a chunk needs at least one sample"):
        encode_chunk([])


def test_an_unknown_compressor_is_an_error():
    with pytest.raises(KeyError):
        encode_chunk([{}], "gzip")


@pytest.mark.parametrize(
    "content",
    [
        [],
        {"size": 1},
        {"items": []},
        torch.zeros(2),
        3,
    ],
)
def test_what_is_no_chunk_is_an_error(content):
    with pytest.raises(ValueError, match="the data is not a chunk of samples"):
        decode_chunk(pack(content), "none")


@pytest.mark.parametrize("compressor", ["none", "lz4", "zlib"])
def test_every_truncation_of_a_chunk_is_an_error(compressor):
    data = encode_chunk([transition(i) for i in range(2)], compressor)
    for length in range(len(data)):
        with pytest.raises(ValueError):
            decode_chunk(data[:length], compressor)


# Messages.


@settings(max_examples=100)
@given(st.lists(st.dictionaries(st.sampled_from("abcd"), VALUES, max_size=4), max_size=5))
def test_rows_come_back_from_a_message_whatever_their_keys_and_values_are(rows):
    again = from_plain(unpack(pack(to_content(rows))))
    assert again == rows
    assert [{key: type(row[key]) for key in row} for row in again] == [{k: type(row[k]) for k in row} for row in rows]


@given(st.lists(st.integers(0, 3), max_size=4), st.booleans())
def test_batches_come_back_from_a_message_as_they_were(sizes, same_keys):
    numbers = iter(range(100))
    batches = [[{"a": next(numbers), "b": 1} if same_keys else {"a": 0} for _ in range(size)] for size in sizes]
    assert unpack_batches(unpack(pack(pack_batches(batches)))) == batches


@pytest.mark.parametrize("sizes", [[], [1], [3]])
def test_batches_of_other_sizes_than_the_message_says_are_an_error(sizes):
    message = {**pack_batches([[{"a": 1}], [{"a": 2}]]), "batch_sizes": sizes}
    with pytest.raises(ValueError, match="got 2 samples; the sizes add up to"):
        unpack_batches(message)


# Which sample of a chunk the metadata mean.

STEPS = [{"x": n} for n in range(4)]


@pytest.mark.parametrize(
    ("meta", "sample"),
    [
        ({}, {"x": 0}),
        ({"data_index": 3}, {"x": 3}),
        ({"data_index": 1, "unroll_len": 2}, {"x": 1}),
        ({"unroll_split_begin": 2}, {"x": 2}),
        ({"unroll_split_begin": 2, "unroll_len": 1}, {"x": 2}),
        ({"unroll_split_begin": 1, "unroll_len": 3}, [{"x": 1}, {"x": 2}, {"x": 3}]),
    ],
)
def test_samples_are_found_by_their_index_or_as_a_part_of_a_trajectory(meta, sample):
    steps = sample if isinstance(sample, list) else [sample]
    expected = [{**step, **meta} for step in steps]
    assert pick_sample(STEPS, meta) == (expected if isinstance(sample, list) else expected[0])


@pytest.mark.parametrize("meta", [{"data_index": 4}, {"data_index": -1}, {"unroll_split_begin": 2, "unroll_len": 3}])
def test_what_is_not_there_is_an_error(meta):
    with pytest.raises(ValueError, match="the chunk 'c' has 4 samples"):
        pick_sample(STEPS, {"data_id": "c", **meta})
