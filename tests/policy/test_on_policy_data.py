"""A collection as one batch: what is stacked, where the next observation of each sample is, minibatches."""

import pytest
import torch

from ding.policy.actor_critic import ValueNorm
from ding.policy.on_policy_data import OnPolicyData
from tests.generators import rng_of

KEYS = ("action", "value", "weight")


def trajectory(length, start, make_obs=lambda i: torch.full((2,), float(i))):
    """Samples whose `next_obs` is the next one's `obs`, and whose numbers count from `start`."""
    observations = [make_obs(start + i) for i in range(length + 1)]
    return [
        {
            "obs": observations[i],
            "next_obs": observations[i + 1],
            "action": torch.tensor([start + i]),
            "logit": torch.zeros(3),
            "value": torch.tensor([float(start + i)]),
            "adv": torch.zeros(1),
            "reward": torch.ones(1),
            "done": i == length - 1,
            "traj_flag": i == length - 1,
        }
        for i in range(length)
    ]


def two_pieces(**kwargs):
    return trajectory(3, 0, **kwargs) + trajectory(2, 10, **kwargs)


def data_of(samples, **kwargs):
    return OnPolicyData(samples, **{"ignore_done": False, "with_next": True, **kwargs})


@pytest.mark.parametrize(("flags", "bootstraps"), [({}, False), ({"terminated": False}, True)])
@pytest.mark.parametrize("ignore_done", [False, True])
def test_estimates_stop_at_the_end_of_a_piece(flags, bootstraps, ignore_done):
    samples = [{**sample, **flags} for sample in two_pieces()]
    data = data_of(samples, ignore_done=ignore_done)
    values = data.observations[:, 0]  # an observation's number is its value
    data.estimate(values, scale=2.0, gamma=1.0, gae_lambda=1.0)
    ends = [6.0, 24.0] if bootstraps or ignore_done else [0.0, 0.0]
    assert data.columns["unscaled_return"].tolist() == [3 + ends[0], 2 + ends[0], 1 + ends[0], 2 + ends[1], 1 + ends[1]]
    assert data.columns["value"].tolist() == [0, 1, 2, 10, 11]
    expected = data.columns["unscaled_return"] - 2 * data.columns["value"]
    assert torch.equal(data.columns["adv"], expected)


@pytest.mark.parametrize("order", [1, -1])
def test_each_piece_decides_for_itself_whether_it_bootstraps(order):
    pieces = [trajectory(3, 0), trajectory(2, 10), trajectory(1, 20)]
    pieces[0][-1]["truncated"] = True  # an env that tells no more than this
    pieces[1][-1].update(terminated=True, truncated=False)
    data = data_of([sample for piece in pieces[::order] for sample in piece])
    data.estimate(data.observations[:, 0], scale=1.0, gamma=1.0, gae_lambda=1.0)
    returns = [[3 + 3.0, 2 + 3.0, 1 + 3.0], [2.0, 1.0], [1.0]]
    assert data.columns["unscaled_return"].tolist() == [value for piece in returns[::order] for value in piece]


def test_minibatches_cover_all_samples_and_the_last_is_filled_up():
    data = data_of(two_pieces())
    batches = list(data.minibatches(KEYS, 2, rng_of(0)))
    order = rng_of(0).permutation(5)
    picked = [[0, 1, 2, 10, 11][i] for i in order]
    expected = [picked[0:2], picked[2:4], picked[3:5]]
    assert [batch["action"].tolist() for batch in batches] == expected
    assert [batch["obs"][:, 0].tolist() for batch in batches] == expected
    assert [batch["value"].tolist() for batch in batches] == expected
    assert all(batch["weight"] is None for batch in batches)


def test_a_batch_larger_than_the_data_is_all_of_it():
    (batch,) = data_of(two_pieces()).minibatches(KEYS, 64, rng_of(0))
    assert sorted(batch["action"].tolist()) == [0, 1, 2, 10, 11]


# --- the scale of values ---


def test_the_scale_is_the_deviation_of_all_returns():
    norm, returns = ValueNorm(), torch.randn(3, 50, generator=torch.Generator().manual_seed(0)) * 7 + 100
    for batch in returns:
        norm.take_in(batch, all_ranks=False)
    assert norm.mean == pytest.approx(returns.mean().item(), rel=1e-4)
    # The start counts as 1e-4 of a return of 0.
    assert norm.std == pytest.approx(returns.std(correction=0).item(), rel=1e-3)
