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


def next_values(data, values):
    """The values after each sample, as returns of one step have them."""
    data.estimate(values, scale=1.0, gamma=1.0, gae_lambda=0.0)
    return (data.columns["unscaled_return"] - data.columns["reward"]).tolist()


def test_an_observation_within_a_trajectory_is_there_once():
    data = data_of(two_pieces(), ignore_done=True)
    assert data.observations[:, 0].tolist() == [0, 1, 2, 10, 11, 3, 12]
    assert data.acted_on[:, 0].tolist() == [0, 1, 2, 10, 11]
    assert next_values(data, torch.arange(7.0)) == [1, 2, 5, 4, 6]


def test_copies_of_observations_are_rows_of_their_own():
    samples = [{**sample, "next_obs": sample["next_obs"].clone()} for sample in two_pieces()]
    data = data_of(samples, ignore_done=True)
    assert next_values(data, data.observations[:, 0]) == [1, 2, 3, 11, 12]
    assert len(data.observations) == 10


def test_the_next_observations_may_be_left_out():
    samples = [{key: value for key, value in s.items() if key != "next_obs"} for s in two_pieces()]
    assert len(data_of(samples, with_next=False).observations) == 5


def test_dict_observations_are_stacked_by_key():
    data = data_of(two_pieces(make_obs=lambda i: {"a": torch.full((2,), float(i)), "mask": torch.tensor([1, i])}))
    assert data.observations["a"].shape == (7, 2)
    assert data.observations["mask"][:, 1].tolist() == [0, 1, 2, 10, 11, 3, 12]
    (minibatch,) = data.minibatches(KEYS, 8, rng_of(0))
    assert minibatch["obs"]["mask"][:, 1].tolist() == minibatch["action"].tolist()
    assert [len(part["a"]) for part in data.parts(data.observations, 3)] == [3, 3, 1]


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


def test_nested_columns_are_shuffled_alike():
    data = data_of(two_pieces())
    value = data.columns["value"]
    data.columns["nested"] = {"list": [value, None], "tensor": value}
    for batch in data.minibatches(("value", "nested"), 2, rng_of(0)):
        assert torch.equal(batch["nested"]["list"][0], batch["value"])
        assert batch["nested"]["list"][1] is None
        assert torch.equal(batch["nested"]["tensor"], batch["value"])


def test_parts_of_several_columns_stay_together():
    data = data_of(two_pieces())
    parts = list(data.parts([data.acted_on, data.columns["action"]], 2))
    assert [len(action) for _, action in parts] == [2, 2, 1]
    assert all(obs[:, 0].tolist() == action.tolist() for obs, action in parts)


# --- the scale of values ---


def test_the_scale_is_the_deviation_of_all_returns():
    norm, returns = ValueNorm(), torch.randn(3, 50, generator=torch.Generator().manual_seed(0)) * 7 + 100
    for batch in returns:
        norm.take_in(batch, all_ranks=False)
    assert norm.mean == pytest.approx(returns.mean().item(), rel=1e-4)
    # The start counts as 1e-4 of a return of 0.
    assert norm.std == pytest.approx(returns.std(correction=0).item(), rel=1e-3)


def test_equal_returns_have_no_deviation():
    norm = ValueNorm(epsilon=0)
    norm.take_in(torch.full((3, 2), 0.1), all_ranks=False)
    assert norm.std == pytest.approx(1e-4)


def test_the_scale_counts_the_returns_of_all_ranks(monkeypatch):
    others = torch.tensor([2.0, 40.0, 1000.0], dtype=torch.float64)  # number, sum, squares
    monkeypatch.setattr("ding.policy.actor_critic.allreduce_data", lambda sums, op: sums.add_(others))
    norm = ValueNorm(epsilon=0)
    norm.take_in(torch.tensor([0.0, 0.0]), all_ranks=True)
    assert norm.mean == pytest.approx(10) and norm.std == pytest.approx((1000 / 4 - 100) ** 0.5)
