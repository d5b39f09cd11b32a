"""Batches of observations in, per-env outputs out."""

import numpy as np
import pytest
import torch

from ding.policy.env_forward import model_input, split_output, stack_observations
from ding.utils.data.env_batch import EnvBatch


def test_a_plain_dict_is_collated_in_its_order():
    data = {7: np.full(2, 7, dtype=np.uint8), 3: np.full(2, 3, dtype=np.uint8)}
    stacked = stack_observations(data)
    assert stacked.tolist() == [[7, 7], [3, 3]]
    assert stacked.dtype == torch.uint8


def test_a_stacked_batch_is_not_stacked_again():
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    stacked = stack_observations(EnvBatch([0, 1], rows, rows))
    assert stacked.data_ptr() == rows.ctypes.data
    nested = stack_observations(EnvBatch([0, 1], [{"a": r} for r in rows], {"a": rows}))
    assert nested["a"].data_ptr() == rows.ctypes.data


def test_observations_of_one_element_keep_their_axis():
    rows = np.zeros((2, 1), dtype=np.float32)
    assert stack_observations(EnvBatch([0, 1], rows, rows)).shape == (2, 1)
    assert stack_observations({0: torch.zeros(1), 1: torch.zeros(1)}).shape == (2, 1)


def test_members_of_one_element_lose_theirs_stacked_or_not():
    rows = np.zeros((2, 1), dtype=np.float32)
    members = [{"a": row} for row in rows]
    assert stack_observations(EnvBatch([0, 1], members, {"a": rows}))["a"].shape == (2,)
    assert stack_observations(EnvBatch([0, 1], members))["a"].shape == (2,)


def test_a_batch_that_could_not_be_stacked_is_collated():
    data = EnvBatch([0, 1], [torch.zeros(2), torch.ones(2)], None)
    assert stack_observations(data).tolist() == [[0, 0], [1, 1]]


def test_a_read_only_batch_is_copied():
    rows = np.zeros((2, 3), dtype=np.float32)
    rows.flags.writeable = False
    assert stack_observations(EnvBatch([0, 1], rows, rows)).shape == (2, 3)


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


def test_outputs_are_rows_with_scalars_of_one_element():
    output = {"action": torch.tensor([1, 0]), "logit": torch.rand(2, 3)}
    result = split_output([4, 2], output)
    assert list(result) == [4, 2]
    assert result.stacked is output
    assert result[4]["action"].tolist() == [1]
    assert torch.equal(result[2]["logit"], output["logit"][1])


def test_outputs_of_several_heads_are_tuples_per_env():
    output = {"action": [torch.tensor([1, 0]), torch.tensor([2, 3])]}
    result = split_output([0, 1], output)
    assert [a.tolist() for a in result[1]["action"]] == [[0], [3]]
    assert isinstance(result[1]["action"], tuple)
