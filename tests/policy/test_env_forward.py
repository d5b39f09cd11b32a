"""Observations as the input of a model."""

import numpy as np
import pytest
import torch

from ding.policy.common_utils import acting_input, model_input, stack_observations


def test_a_plain_dict_is_collated_in_its_order():
    data = {7: np.full(2, 7, dtype=np.uint8), 3: np.full(2, 3, dtype=np.uint8)}
    stacked = stack_observations(data)
    assert stacked.tolist() == [[7, 7], [3, 3]]
    assert stacked.dtype == torch.uint8


def test_observations_of_one_element_keep_their_axis():
    rows = np.zeros((2, 1), dtype=np.float32)
    assert acting_input(rows).shape == stack_observations(dict(enumerate(rows))).shape == (2, 1)


def test_members_of_one_element_lose_theirs_stacked_or_not():
    rows = np.zeros((2, 1), dtype=np.float32)
    assert acting_input({"a": rows})["a"].shape == (2,)
    assert stack_observations({i: {"a": row} for i, row in enumerate(rows)})["a"].shape == (2,)


def test_a_read_only_batch_is_copied():
    rows = np.zeros((2, 3), dtype=np.float32)
    rows.flags.writeable = False
    assert acting_input(rows).shape == (2, 3)


def test_the_model_gets_float32_whatever_is_stored():
    obs = {"image": torch.ones(2, dtype=torch.uint8), "state": [torch.ones(2, dtype=torch.float64)], "name": "x"}
    converted = model_input(obs)
    assert converted["image"].dtype == converted["state"][0].dtype == torch.float32
    assert converted["name"] == "x"
    already = torch.ones(2)
    assert model_input(already) is already


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
def test_integers_stay_for_the_embeddings_of_a_model(dtype):
    words = torch.ones(2, dtype=dtype)
    assert model_input({"words": words})["words"] is words
    assert model_input(words, torch.bfloat16, integers=True).dtype == torch.bfloat16
