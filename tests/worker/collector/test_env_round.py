"""Copies of what envs return, as columns: as items, as one batch, and by player."""

import numpy as np
import pytest
import torch

from ding.worker.collector.env_round import Batch, check_finite


def batch_of(items):
    return Batch.copied(list(range(len(items))), items)


def listed(item):
    if isinstance(item, dict):
        return {key: listed(value) for key, value in item.items()}
    if isinstance(item, list | tuple):
        return type(item)(listed(value) for value in item)
    return item.tolist() if hasattr(item, "tolist") else item


# NaN and infinities

STEPS = [0, 0, 0, 5, 7].__getitem__  # by env


@pytest.mark.differs(
    "trains on a NaN or infinite observation or reward, and takes an infinite return for the best one",
    "stops collecting and evaluating, and names the env, the key and the step",
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
        check_finite(batch.env_ids, STEPS, batch.node)


def test_a_mask_that_is_added_to_logits_may_be_minus_infinity():
    item = {"action_mask": np.array([-np.inf, 0.0]), "players": [{"action_mask": np.array([0.0, -np.inf])}]}
    check_finite([0, 1], STEPS, batch_of([item, item]).node)
    item["action_mask"][1] = np.nan
    with pytest.raises(FloatingPointError, match=r"\['action_mask'\] of env . holds NaN"):
        check_finite([0, 1], STEPS, batch_of([item, item]).node)
