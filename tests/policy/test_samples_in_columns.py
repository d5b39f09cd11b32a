"""Policies learn from samples in columns what they learn from dicts, and make columns of columns."""

import numpy as np
import pytest
import torch

from ding.policy.common_utils import default_preprocess_learn
from ding.policy.on_policy_data import OnPolicyData
from ding.utils.data.samples import Samples, Table
from tests.policy.samples import make_batch
from tests.same_state import assert_same

OBSERVATIONS = {
    "vector": lambda: torch.rand(4),
    "one number": lambda: torch.rand(1),
    "array of one": lambda: np.random.rand(1),
    "image": lambda: torch.randint(0, 255, (2, 3, 3), dtype=torch.uint8),
    "dict": lambda: {"pos": torch.rand(2), "goal": torch.rand(1)},
    "scalar": lambda: 0.5,
}
CHANGES = {
    "plain": {},
    "continuous action": {"action": torch.rand(1)},
    "flags": {"terminated": False, "truncated": True, "done": True},
    "truncated only": {"truncated": True, "done": True},
    "done tensor": {"done": torch.tensor([True])},
    "weights": {"IS": 0.5, "priority_IS": torch.ones(1), "weight": torch.ones(1)},
    "nstep": {"reward": torch.rand(3), "value_gamma": 0.9},
    "action list": {"action": [torch.tensor([1]), torch.tensor([0])]},
    "text": {"replay_unique_id": "b_1", "nothing": "x"},
}


@pytest.mark.parametrize("obs", OBSERVATIONS)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("keys", [None, ("obs", "next_obs", "action", "reward", "done")])
def test_a_batch_of_columns_is_that_of_the_dicts(obs, change, keys):
    make_obs = OBSERVATIONS[obs]
    data = [{**sample, "obs": make_obs(), "next_obs": make_obs(), **CHANGES[change]} for sample in make_batch(4)]
    for kwargs in ({}, {"use_nstep": True}, {"ignore_done": True}):
        samples = Samples(Table.of(data))
        assert_same(
            default_preprocess_learn(samples, keys=keys, **kwargs), default_preprocess_learn(data, keys=keys, **kwargs)
        )
        assert samples.table is not None


def test_equal_row_numbers_of_different_arrays_are_not_the_same_observation():
    stored = [Table.of([{"obs": torch.full((2,), float(start + i))} for i in range(4)]) for start in (0, 10)]
    index = np.arange(3)
    obs, next_obs = stored[0].columns["obs"].take(index), stored[1].columns["obs"].take(index + 1)
    samples = Samples(Table.of(make_batch(3)).with_columns(obs=obs, next_obs=next_obs))
    data = OnPolicyData(samples, ignore_done=False, with_next=True)
    assert data.observations[:, 0].tolist() == [0, 1, 2, 11, 12, 13]


def test_next_observations_that_are_not_those_of_the_next_sample_come_after_all_others():
    rows = Table.of([{"obs": torch.full((2,), float(i))} for i in range(5)]).columns["obs"]
    index = np.array([0, 1, 3])  # after the second sample begins another fragment
    samples = Samples(Table.of(make_batch(3)).with_columns(obs=rows.take(index), next_obs=rows.take(index + 1)))
    data = OnPolicyData(samples, ignore_done=False, with_next=True)
    assert data.observations[:, 0].tolist() == [0, 1, 3, 2, 4]
