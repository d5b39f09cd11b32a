"""Which sample of a chunk the metadata mean."""

import pytest

from ding.worker.transport.chunk import pick_sample

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
