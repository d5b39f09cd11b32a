"""Train samples out of trajectories, with exact contents."""

import copy
from collections import deque

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.rl_utils.adder import (
    append_null_steps,
    get_gae,
    get_gae_with_default_last_value,
    get_nstep_return_data,
    get_train_sample,
)
from ding.rl_utils.returns import gae, gae_data
from ding.utils.data.samples import Samples, Table, pack


def make_trajectory(length, last_done=False, **extra):
    """obs of step i is [i], its reward [i + 1]."""
    return [
        dict(
            obs=torch.tensor([float(i)]),
            next_obs=torch.tensor([float(i + 1)]),
            action=torch.tensor([i]),
            reward=torch.tensor([float(i + 1)]),
            done=last_done and i == length - 1,
            **extra,
        )
        for i in range(length)
    ]


def test_one_step_leaves_the_trajectory_alone():
    data = make_trajectory(3)
    assert get_nstep_return_data(data, 1) is data
    assert "value_gamma" not in data[0]


def test_nstep_rows_look_n_steps_ahead_and_stop_at_the_last():
    samples = get_nstep_return_data(make_trajectory(4, last_done=True), 3, gamma=0.5)
    assert [s["reward"].tolist() for s in samples] == [[1, 2, 3], [2, 3, 4], [3, 4, 0], [4, 0, 0]]
    assert [s["next_obs"].item() for s in samples] == [3, 4, 4, 4]
    assert [s["done"] for s in samples] == [False, True, True, True]
    assert [s["obs"].item() for s in samples] == [0, 1, 2, 3]


@pytest.mark.differs(
    "n-step returns and advantages need rewards in tensors: a number is a TypeError",
    "numbers count, too",
)
@pytest.mark.parametrize("number", [float, np.float64, np.float32, int, np.asarray])
@pytest.mark.parametrize("in_columns", [False, True])
def test_rewards_that_are_numbers_count_as_those_in_tensors(number, in_columns):
    data = [{**step, "reward": number(step["reward"].item())} for step in make_trajectory(4, last_done=True)]
    samples = get_nstep_return_data(Samples(Table(pack(data))) if in_columns else data, 3, gamma=0.5)
    assert [s["reward"].tolist() for s in samples] == [[1, 2, 3], [2, 3, 4], [3, 4, 0], [4, 0, 0]]
    assert {s["reward"].dtype for s in samples} == {torch.float32}


def test_advantages_of_rewards_that_are_numbers_are_those_of_rewards_in_tensors():
    def advantages(number):
        data = [{**step, "reward": number(step["reward"]), "value": torch.ones(1)} for step in make_trajectory(4)]
        return [s["adv"].tolist() for s in get_gae(data, torch.zeros(1), 0.9, 0.8)]

    assert (
        advantages(float) == advantages(lambda reward: np.float64(reward.item())) == advantages(lambda reward: reward)
    )


@pytest.mark.differs(
    "tail rows of an unfinished n-step piece bootstrap with gamma one power short",
    "gamma to the number of rewards summed",
)
def test_a_tail_row_discounts_its_value_by_the_steps_it_sums():
    samples = get_nstep_return_data(make_trajectory(4), 3, gamma=0.9)
    assert [s["value_gamma"] for s in samples] == pytest.approx([0.9**3, 0.9**3, 0.9**2, 0.9])


def test_a_piece_no_longer_than_n_steps_has_only_tail_rows():
    samples = get_nstep_return_data(make_trajectory(2), 3, gamma=0.9)
    assert [s["reward"].tolist() for s in samples] == [[1, 2, 0], [2, 0, 0]]
    assert [s["value_gamma"] for s in samples] == pytest.approx([0.9**2, 0.9])


@pytest.mark.differs("n-step processing changes the caller's transitions", "gives new dicts, leaves the input alone")
def test_nstep_rows_do_not_change_the_trajectory():
    data = make_trajectory(4)
    before = copy.deepcopy(data)
    samples = get_nstep_return_data(data, 2)
    assert samples is not data
    assert [d.keys() for d in data] == [d.keys() for d in before]
    assert all(torch.equal(d["reward"], b["reward"]) for d, b in zip(data, before, strict=True))


@pytest.mark.differs("n-step rows know only `done`", "they also take `terminated` and `truncated` from their last step")
def test_nstep_rows_take_how_the_episode_ended_from_their_last_step():
    data = make_trajectory(3, last_done=True, terminated=False, truncated=False)
    data[-1]["truncated"] = True
    samples = get_nstep_return_data(data, 2)
    assert [s["truncated"] for s in samples] == [False, True, True]
    assert [s["terminated"] for s in samples] == [False, False, False]


def test_nstep_reward_may_be_summed_up():
    samples = get_nstep_return_data(make_trajectory(3), 2, cum_reward=True, gamma=0.5)
    assert [s["reward"].tolist() for s in samples] == [[2.0], [3.5], [3.0]]


def test_value_gamma_can_be_left_out():
    assert all(
        "value_gamma" not in s for s in get_nstep_return_data(make_trajectory(3), 2, correct_terminate_gamma=False)
    )


def test_without_next_obs_none_is_made_up():
    data = [{k: v for k, v in t.items() if k != "next_obs"} for t in make_trajectory(3)]
    assert all("next_obs" not in s for s in get_nstep_return_data(data, 2))


def test_agents_keep_their_axis_before_the_steps():
    data = make_trajectory(2)
    for i, transition in enumerate(data):
        transition["reward"] = torch.tensor([[i + 1.0], [10.0 * (i + 1)]])
    assert get_nstep_return_data(data, 2)[0]["reward"].tolist() == [[1.0, 2.0], [10.0, 20.0]]


@settings(max_examples=30)
@given(length=st.integers(1, 9), nstep=st.integers(2, 5), done=st.booleans())
def test_nstep_rows_bootstrap_to_the_same_return_as_single_steps(length, nstep, done):
    """With a value function that is exact for the rewards to come, every row has the target of the true return."""
    gamma = 0.9
    data = make_trajectory(length, last_done=done)
    beyond = 0.0 if done else 7.0
    returns = [beyond]
    for transition in reversed(data):
        returns.insert(0, transition["reward"].item() + gamma * returns[0])
    for i, sample in enumerate(get_nstep_return_data(data, nstep, gamma=gamma)):
        value = returns[int(sample["next_obs"].item())] * (1 - sample["done"])
        target = sum(gamma**k * r for k, r in enumerate(sample["reward"].tolist())) + sample["value_gamma"] * value
        assert target == pytest.approx(returns[i], rel=1e-5)


def naive_nstep(data, nstep, gamma, cum_reward):
    """The samples of a trajectory piece, step by step; only its last transition may be an end."""
    samples = []
    for i in range(len(data)):
        reach = data[i : i + nstep]
        sample = {**data[i], **{key: reach[-1][key] for key in ("done", "terminated", "truncated") if key in data[i]}}
        sample["next_obs"] = data[i + nstep]["obs"] if i + nstep < len(data) else data[-1]["next_obs"]
        rewards = [transition["reward"] for transition in reach]
        if cum_reward:
            sample["reward"] = sum(gamma**k * reward for k, reward in enumerate(rewards))
        else:
            sample["reward"] = torch.cat(rewards + [torch.zeros(1)] * (nstep - len(reach)))
        sample["value_gamma"] = gamma ** len(reach)
        samples.append(sample)
    return samples


@settings(max_examples=60)
@given(
    length=st.integers(1, 9),
    nstep=st.integers(2, 6),
    cum_reward=st.booleans(),
    gamma=st.sampled_from([0.5, 0.9, 1.0]),
    end=st.sampled_from([(False, False, False), (True, True, False), (True, False, True)]),
    flags=st.sampled_from([(), ("terminated", "truncated"), ("truncated",)]),
)
def test_nstep_samples_equal_their_naive_twins_to_the_order_of_their_keys(length, nstep, cum_reward, gamma, end, flags):
    data = make_trajectory(length, **dict.fromkeys(flags, False))
    data[-1].update(
        {key: flag for key, flag in zip(("done", "terminated", "truncated"), end, strict=True) if key in data[-1]}
    )
    expected = naive_nstep(data, nstep, gamma, cum_reward)
    for sample, twin in zip(get_nstep_return_data(data, nstep, cum_reward, gamma=gamma), expected, strict=True):
        assert list(sample) == list(twin)
        assert torch.allclose(sample.pop("reward"), twin.pop("reward"))
        assert all(sample[key] is twin[key] for key in ("obs", "next_obs", "action"))
        assert {key: sample[key] for key in sample.keys() - {"obs", "next_obs", "action"}} == {
            key: twin[key] for key in twin.keys() - {"obs", "next_obs", "action"}
        }
        assert type(sample["value_gamma"]) is float


@pytest.mark.parametrize("flags", [{"truncated": True}, {"terminated": True}, {"terminated": False, "truncated": True}])
def test_an_nstep_sample_has_the_flags_that_its_last_step_tells_and_no_others(flags):
    data = make_trajectory(4, last_done=True)
    data[-1].update(flags)
    samples = get_nstep_return_data(data, 2)
    assert [{key: s[key] for key in ("terminated", "truncated") if key in s} for s in samples] == [{}, {}, flags, flags]
    data[0].update(terminated=False, truncated=False)
    samples = get_nstep_return_data(data, 2)
    assert [{key: s[key] for key in ("terminated", "truncated") if key in s} for s in samples] == [{}, {}, flags, flags]


@pytest.mark.differs("n-step returns reach beyond an episode that ends within a piece", "they end with it")
def test_an_nstep_sample_does_not_reach_beyond_an_end_within_the_piece():
    data = make_trajectory(4)
    data[1]["done"] = torch.tensor([True])
    data[2]["obs"] = torch.tensor([-1.0])  # of the next episode
    samples = get_nstep_return_data(data, 2, gamma=0.5)
    assert [s["reward"].tolist() for s in samples] == [[1, 2], [2, 0], [3, 4], [4, 0]]
    assert [s["next_obs"].item() for s in samples] == [2, 2, 4, 4]
    assert [s["value_gamma"] for s in samples] == [0.25, 0.5, 0.25, 0.5]
    assert [bool(s["done"]) for s in samples] == [True, True, False, False]


def test_unroll_of_one_leaves_the_trajectory_alone():
    data = make_trajectory(3)
    assert get_train_sample(data, 1) is data


def obs_of(samples):
    return [[obs.item() for obs in sample["obs"]] for sample in samples]


def test_residual_steps_are_filled_up_from_the_piece_before():
    assert obs_of(get_train_sample(make_trajectory(5), 3)) == [[0, 1, 2], [2, 3, 4]]


def test_residual_steps_may_be_dropped():
    assert obs_of(get_train_sample(make_trajectory(5), 3, "drop")) == [[0, 1, 2]]


@pytest.mark.parametrize(("kind", "length"), [("null_padding", 4), ("last", 1)])
def test_null_steps_fill_up_at_the_end(kind, length):
    data = make_trajectory(length, value_gamma=0.9, terminated=False)
    sample = get_train_sample(data, 3, kind)[-1]
    last = float(length - 1)
    assert obs_of([sample]) == [[last, 0, 0]]
    assert [r.item() for r in sample["reward"]] == [last + 1, 0, 0]
    assert [a.item() for a in sample["action"]] == [length - 1, 0, 0]
    assert sample["done"] == [False, True, True]
    assert sample["terminated"] == [False, True, True]
    assert sample["value_gamma"] == [0.9, 0.0, 0.0]
    assert "null" not in sample


def test_null_steps_of_dict_observations_and_given_null_steps():
    data = [{"obs": {"a": torch.ones(2)}, "action": [torch.ones(1)], "reward": torch.ones(1), "done": False}]
    sample = get_train_sample(data, 2, "null_padding")[0]
    assert sample["obs"]["a"][1].tolist() == [0.0, 0.0]
    given_null = {"obs": {"a": torch.full((2,), 5.0)}, "action": [torch.ones(1)], "reward": torch.ones(1), "done": True}
    sample = get_train_sample(data, 2, "null_padding", given_null)[0]
    assert sample["obs"]["a"][1].tolist() == [5.0, 5.0]


NOT_YET = {"terminated": False, "truncated": False}


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        ({}, {"terminated": True, "truncated": False}, {"terminated": True, "truncated": False}),
        ({}, {"terminated": False, "truncated": True}, {"terminated": False, "truncated": True}),
        ({}, {"truncated": True}, {"truncated": True}),
        ({}, {"terminated": True}, {"terminated": True}),
        (NOT_YET, {}, {"terminated": True, "truncated": False}),
        (NOT_YET, {"truncated": True}, {"terminated": False, "truncated": True}),
        (NOT_YET, {"terminated": False}, {"terminated": False, "truncated": True}),
    ],
)
def test_a_flag_that_some_steps_tell_is_told_of_all_steps_of_a_piece(first, last, expected):
    data = make_trajectory(4, last_done=True)
    data[0].update(first)
    data[-1].update(last)
    before = copy.deepcopy(data)
    pieces = get_train_sample(data, 2)
    for flag in ("terminated", "truncated"):
        found = [piece.get(flag) for piece in pieces]
        assert found == ([[False, False], [False, expected[flag]]] if flag in expected else [None, None])
    assert [piece["done"] for piece in pieces] == [[False, False], [False, True]]
    assert [transition.keys() for transition in data] == [transition.keys() for transition in before]


def test_a_null_step_is_terminated_and_not_truncated():
    data = make_trajectory(1, last_done=True, truncated=True)
    sample = get_train_sample(data, 2, "null_padding")[0]
    assert sample["truncated"] == [True, False]


def test_copied_steps_are_copies():
    data = make_trajectory(3)
    pieces = get_train_sample(data, 2)
    pieces[1]["obs"][0] += 100
    assert data[1]["obs"].item() == 1


def test_unknown_way_to_fill_up_is_refused():
    with pytest.raises(AssertionError, match="'first'"):
        get_train_sample(make_trajectory(3), 2, "first")


def test_gae_is_written_into_every_transition():
    data = make_trajectory(3)
    for i, transition in enumerate(data):
        transition["value"] = torch.tensor([float(i)])
    result = get_gae(data, torch.tensor([9.0]), 0.9, 0.8)
    assert result is data
    value, next_value = torch.tensor([0.0, 1.0, 2.0]), torch.tensor([1.0, 2.0, 9.0])
    expected = gae(gae_data(value, next_value, torch.tensor([1.0, 2.0, 3.0]), None, None), 0.9, 0.8)
    assert torch.allclose(torch.cat([t["adv"] for t in data]), expected)
    assert data[0]["adv"].shape == (1,)


def test_an_unfinished_piece_gives_up_its_last_transition_for_its_value():
    data = make_trajectory(3)
    for i, transition in enumerate(data):
        transition["value"] = torch.tensor([float(i)])
    unfinished = get_gae_with_default_last_value(copy.deepcopy(data), False, 0.9, 0.8)
    assert len(unfinished) == 2
    expected = get_gae(copy.deepcopy(data[:2]), torch.tensor([2.0]), 0.9, 0.8)
    assert [t["adv"] for t in unfinished] == [t["adv"] for t in expected]
    finished = get_gae_with_default_last_value(copy.deepcopy(data), True, 0.9, 0.8)
    assert len(finished) == 3
    assert [t["adv"] for t in finished] == [t["adv"] for t in get_gae(data, torch.zeros(1), 0.9, 0.8)]


def test_the_last_row_of_an_unfinished_piece_needs_only_a_value():
    data = [{**t, "value": torch.tensor([2.0 * i])} for i, t in enumerate(make_trajectory(3))]
    expected = get_gae(copy.deepcopy(data[:2]), torch.tensor([4.0]), 0.9, 0.8)
    found = get_gae_with_default_last_value([*data[:2], {"value": torch.tensor([4.0])}], False, 0.9, 0.8)
    assert [t["adv"] for t in found] == [t["adv"] for t in expected]


@pytest.mark.parametrize("finished", [False, True])
def test_a_row_without_a_reward_is_named_where_there_must_be_one(finished):
    data = [*({**t, "value": torch.ones(1)} for t in make_trajectory(2)), {"value": torch.ones(1)}]
    with pytest.raises(KeyError, match=r"transition 2 of 3 has no 'reward', only 'value'; .*done=False"):
        if finished:
            get_gae_with_default_last_value(data, True, 0.9, 0.8)
        else:
            get_gae(data, torch.zeros(1), 0.9, 0.8)


@pytest.mark.differs(
    "a null step of `get_train_sample` has the values of the first of the steps that are left over",
    "it goes on from the last of them",
)
def test_a_null_step_goes_on_from_the_last_step():
    steps = [{**t, "logit": torch.tensor([float(i)])} for i, t in enumerate(make_trajectory(5))]
    padded = get_train_sample(steps, 3, "null_padding")[-1]
    assert torch.cat(padded["logit"]).tolist() == [3.0, 4.0, 4.0]
    assert padded["done"] == [False, False, True]


@pytest.mark.differs(
    "the default last value of GAE is zero where a time limit ended the episode",
    "the last transition is given up and lends its value, as for an unfinished piece",
)
@pytest.mark.parametrize(
    ("done", "flags", "goes_on"),
    [
        (True, {"truncated": True}, True),
        (True, {"truncated": True, "terminated": False}, True),
        (True, {"truncated": True, "terminated": True}, False),
        (True, {"truncated": False}, False),
        (False, {"terminated": True}, True),
    ],
)
def test_a_piece_that_was_cut_off_bootstraps_as_an_unfinished_one(done, flags, goes_on):
    data = [{**t, "value": torch.tensor([2.0 * i])} for i, t in enumerate(make_trajectory(3, last_done=done))]
    data[-1].update(flags)
    found = get_gae_with_default_last_value(copy.deepcopy(data), done, 0.9, 0.8)
    expected = get_gae(data[:2], torch.tensor([4.0]), 0.9, 0.8) if goes_on else get_gae(data, torch.zeros(1), 0.9, 0.8)
    assert [t["adv"] for t in found] == [t["adv"] for t in expected]


def test_a_trajectory_may_be_a_deque():
    data = [{**t, "value": torch.tensor([2.0 * i])} for i, t in enumerate(make_trajectory(3))]
    expected = get_gae(copy.deepcopy(data[:2]), torch.tensor([4.0]), 0.9, 0.8)
    found = get_gae_with_default_last_value(deque(data), False, 0.9, 0.8)
    assert [t["adv"] for t in found] == [t["adv"] for t in expected]
    assert len(get_nstep_return_data(deque(data), 2)) == 3


def test_an_unfinished_single_step_has_no_sample():
    data = make_trajectory(1)
    data[0]["value"] = torch.zeros(1)
    assert get_gae_with_default_last_value(data, False, 0.9, 0.8) == []


# --- transitions in columns ---


def assert_alike(one, other):
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_alike(one[key], other[key])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_alike(a, b)
    elif isinstance(one, torch.Tensor):
        assert one.dtype is other.dtype and one.shape == other.shape and torch.equal(one, other)
    else:
        assert one == other


def fragment_of(length, *, done=False, nested=False, flags=(), agents=None):
    generator = torch.Generator().manual_seed(length)
    shape = (1,) if agents is None else (agents, 1)
    obs = [torch.rand(3, generator=generator) for _ in range(length + 1)]
    if nested:
        obs = [{"pos": one, "goal": one[:1] * 2} for one in obs]
    rows = []
    for i in range(length):
        is_last = i == length - 1
        row = {
            "obs": obs[i],
            "next_obs": obs[i + 1],
            "action": torch.tensor([i]),
            "reward": torch.rand(shape, generator=generator),
            "value": torch.rand(1, generator=generator),
            "done": done and is_last,
            "collect_iter": 3,
        }
        row.update({flag: is_last and flag == flags[-1] for flag in flags})
        rows.append(row)
    return rows


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("flags", [(), ("terminated",), ("terminated", "truncated")])
@pytest.mark.parametrize("length", [1, 2, 3, 7])
def test_nstep_samples_of_columns_equal_those_of_dicts(length, flags, nested):
    rows = fragment_of(length, done=True, nested=nested, flags=flags)
    for nstep, how in ((1, {}), (3, {}), (3, {"cum_reward": True}), (2, {"correct_terminate_gamma": False})):
        data = Samples(Table.of(rows))
        samples = get_nstep_return_data(data, nstep, gamma=0.97, **how)
        assert isinstance(samples, Samples) and samples.table is not None
        assert samples.table.columns["obs"] is data.table.columns["obs"]
        assert_alike(list(samples), get_nstep_return_data(rows, nstep, gamma=0.97, **how))
        assert_alike(list(data), rows)


def test_next_observations_of_nstep_samples_in_columns_share_those_of_the_fragment():
    data = Samples(Table.of(fragment_of(7)))
    columns = get_nstep_return_data(data, 3, gamma=0.9).table.columns
    assert columns["next_obs"].data is columns["obs"].data and len(columns["obs"].data) == 8


def test_rewards_of_agents_in_columns_equal_those_of_dicts():
    rows = fragment_of(5, agents=2)
    assert_alike(list(get_nstep_return_data(Samples(Table.of(rows)), 3)), get_nstep_return_data(rows, 3))


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("length", [1, 2, 6])
def test_advantages_in_columns_equal_those_of_dicts(length, done):
    rows = fragment_of(length, done=done)
    data = Samples(Table.of(rows))
    samples = get_gae_with_default_last_value(data, done, 0.99, 0.95)
    expected = get_gae_with_default_last_value(rows, done, 0.99, 0.95)
    if expected:
        assert isinstance(samples, Samples) and samples.table is not None
    assert_alike(list(samples), expected)


def test_advantages_are_written_into_the_list_that_was_given():
    data = Samples(Table.of(fragment_of(3)))
    assert get_gae(data, torch.zeros(1), 0.99, 0.95) is data and "adv" in data.table.columns
    assert "adv" in data[0]


@pytest.mark.parametrize("last_fn_type", ["drop", "last", "null_padding"])
@pytest.mark.parametrize("length", [2, 3, 6, 7])
def test_unrolled_columns_equal_unrolled_dicts(length, last_fn_type):
    rows = fragment_of(length, nested=True, flags=("terminated",))
    for i, row in enumerate(rows):
        row["prev_state"] = {"h": torch.full((1, 1, 2), float(i)), "c": torch.full((1, 1, 2), -float(i))}
        row["value_gamma"] = 0.5
    data = Samples(Table.of(rows))
    before = copy.deepcopy(list(Samples(Table.of(rows))))
    pieces = get_train_sample(data, 3, last_fn_type)
    assert isinstance(pieces, Samples) and pieces.table is not None
    assert_alike(list(pieces), get_train_sample(rows, 3, last_fn_type))
    assert_alike(list(data), before)


def test_unrolled_columns_tell_null_steps_where_the_steps_do():
    pieces = get_train_sample(Samples(Table.of([{**row, "null": False} for row in fragment_of(2)])), 3)
    assert pieces[0]["null"] == [False, False, True]


def test_null_steps_can_be_appended_to_a_whole_trajectory():
    rows = fragment_of(3, nested=True, flags=("terminated",))
    data = Samples(Table.of(rows))
    longer = append_null_steps(data, 2)
    assert isinstance(longer, Samples) and longer.table is not None and "null" not in data.table.columns
    assert longer.table.columns["null"].values().tolist() == [False] * 3 + [True] * 2
    assert append_null_steps(data, 0).table.columns["null"].values().tolist() == [False] * 3
    of_dicts = append_null_steps(rows, 2)
    assert_alike(list(longer), [{key: row[key] for key in longer[0]} for row in of_dicts])
    assert longer[3]["obs"]["pos"].tolist() == [0, 0, 0] and longer[3]["done"] is True and longer[3]["reward"] == 0


def test_given_null_steps_fill_up_columns_too():
    null = {**fragment_of(1)[0], "reward": torch.full((1,), 7.0)}
    pieces = get_train_sample(Samples(Table.of(fragment_of(2))), 3, "null_padding", null)
    assert pieces[0]["reward"][2] == 7


def test_transitions_that_were_changed_make_changed_samples():
    data = Samples(Table.of(fragment_of(4)))
    data[0]["reward"] = torch.tensor([100.0])
    assert get_nstep_return_data(data, 2)[0]["reward"][0] == 100
    assert get_gae(data, torch.zeros(1), 1.0, 1.0)[0]["adv"] > 90


@pytest.mark.parametrize("empty", [[], deque()])
def test_without_transitions_there_are_no_advantages_and_no_samples(empty):
    assert len(get_gae(empty, torch.zeros(1), 0.9, 0.95)) == 0
    for done in (False, True):
        assert len(get_gae_with_default_last_value(empty, done, 0.9, 0.95)) == 0
    assert len(get_train_sample(list(empty), 2)) == 0


@pytest.mark.parametrize("unroll_len", [0, -1])
def test_a_piece_has_one_step_at_least(unroll_len):
    with pytest.raises(ValueError, match=f"unroll_len = {unroll_len} is not allowed; it must be 1 or more"):
        get_train_sample([{"obs": 1}], unroll_len)
