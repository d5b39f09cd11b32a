"""Train samples out of trajectories, with exact contents."""

import copy

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
from tests.rl_utils.fragments import (
    ACTIONS,
    FLAGS,
    OBSERVATIONS,
    REWARDS,
    assert_same,
    assert_same_item,
    make_fragment,
    make_fragments,
    parts_of,
)


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


@pytest.mark.parametrize("number", [float, np.float64, np.float32, int, np.asarray])
@pytest.mark.parametrize("in_columns", [False, True])
def test_rewards_that_are_numbers_count_as_those_in_tensors(number, in_columns):
    data = [{**step, "reward": number(step["reward"].item())} for step in make_trajectory(4, last_done=True)]
    samples = get_nstep_return_data(Samples(Table(pack(data))) if in_columns else data, 3, gamma=0.5)
    assert [s["reward"].tolist() for s in samples] == [[1, 2, 3], [2, 3, 4], [3, 4, 0], [4, 0, 0]]
    assert {s["reward"].dtype for s in samples} == {torch.float32}


def test_nstep_rows_do_not_change_the_trajectory():
    data = make_trajectory(4)
    before = copy.deepcopy(data)
    samples = get_nstep_return_data(data, 2)
    assert samples is not data
    assert [d.keys() for d in data] == [d.keys() for d in before]
    assert all(torch.equal(d["reward"], b["reward"]) for d, b in zip(data, before, strict=True))


def test_without_next_obs_none_is_made_up():
    data = [{k: v for k, v in t.items() if k != "next_obs"} for t in make_trajectory(3)]
    assert all("next_obs" not in s for s in get_nstep_return_data(data, 2))


def test_agents_keep_their_axis_before_the_steps():
    data = make_trajectory(2)
    for i, transition in enumerate(data):
        transition["reward"] = torch.tensor([[i + 1.0], [10.0 * (i + 1)]])
    assert get_nstep_return_data(data, 2)[0]["reward"].tolist() == [[1.0, 2.0], [10.0, 20.0]]


def naive_nstep(data, nstep, gamma, cum_reward):
    """The samples of a fragment, step by step; only its last transition may be an end."""
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


@pytest.mark.differs(
    "bootstraps the last rows of an unfinished n-step fragment with one power of gamma too few",
    "uses gamma to the number of rewards summed",
)
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
        assert all(torch.equal(sample[key], twin[key]) for key in ("obs", "next_obs", "action"))
        assert {key: sample[key] for key in sample.keys() - {"obs", "next_obs", "action"}} == {
            key: twin[key] for key in twin.keys() - {"obs", "next_obs", "action"}
        }
        assert type(sample["value_gamma"]) is float


@pytest.mark.parametrize("flags", [{"truncated": True}, {"terminated": True}, {"terminated": False, "truncated": True}])
def test_a_flag_that_some_steps_tell_is_told_of_all_nstep_samples(flags):
    data = make_trajectory(4, last_done=True)
    data[-1].update(flags)
    samples = get_nstep_return_data(data, 2)
    none = dict.fromkeys(flags, False)
    assert [{key: s[key] for key in ("terminated", "truncated") if key in s} for s in samples] == [
        none,
        none,
        flags,
        flags,
    ]


def test_a_step_is_an_end_once_all_its_agents_are_done():
    data = make_trajectory(3)
    for transition, done in zip(data, ([True, False], [True, True], [True, True]), strict=True):
        transition["done"] = torch.tensor(done)
    assert [s["next_obs"].item() for s in get_nstep_return_data(data, 3)] == [2, 2, 3]


@pytest.mark.differs("sums n-step returns beyond an episode that ends within a fragment", "ends them with it")
def test_an_nstep_sample_does_not_reach_beyond_an_end_within_the_fragment():
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


def test_residual_steps_are_filled_up_from_the_fragment_before():
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
def test_a_flag_that_some_steps_tell_is_told_of_all_steps_of_a_fragment(first, last, expected):
    data = make_trajectory(4, last_done=True)
    data[0].update(first)
    data[-1].update(last)
    before = copy.deepcopy(data)
    fragments = get_train_sample(data, 2)
    for flag in ("terminated", "truncated"):
        found = [fragment.get(flag) for fragment in fragments]
        assert found == ([[False, False], [False, expected[flag]]] if flag in expected else [None, None])
    assert [fragment["done"] for fragment in fragments] == [[False, False], [False, True]]
    assert [transition.keys() for transition in data] == [transition.keys() for transition in before]


def test_unknown_way_to_fill_up_is_refused():
    with pytest.raises(AssertionError):
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


def test_an_unfinished_fragment_gives_up_its_last_transition_for_its_value():
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


def test_the_last_row_of_an_unfinished_fragment_needs_only_a_value():
    data = [{**t, "value": torch.tensor([2.0 * i])} for i, t in enumerate(make_trajectory(3))]
    expected = get_gae(copy.deepcopy(data[:2]), torch.tensor([4.0]), 0.9, 0.8)
    found = get_gae_with_default_last_value([*data[:2], {"value": torch.tensor([4.0])}], False, 0.9, 0.8)
    assert [t["adv"] for t in found] == [t["adv"] for t in expected]


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
def test_a_fragment_that_was_cut_off_bootstraps_as_an_unfinished_one(done, flags, goes_on):
    data = [{**t, "value": torch.tensor([2.0 * i])} for i, t in enumerate(make_trajectory(3, last_done=done))]
    data[-1].update(flags)
    found = get_gae_with_default_last_value(copy.deepcopy(data), done, 0.9, 0.8)
    expected = get_gae(data[:2], torch.tensor([4.0]), 0.9, 0.8) if goes_on else get_gae(data, torch.zeros(1), 0.9, 0.8)
    assert [t["adv"] for t in found] == [t["adv"] for t in expected]


# --- transitions in columns ---


def rows_of_a_fragment(length):
    """Transitions with nested observations and recurrent states."""
    return make_fragment(np.random.default_rng(0), length, obs="dict", flags="all flags", ends=False)


def test_sequences_keep_the_state_of_each_step_whole_and_cut_nested_observations():
    rows = rows_of_a_fragment(4)
    before = copy.deepcopy(rows)
    for data in (rows, Samples(Table.of(rows))):
        first, second = get_train_sample(data, 3)
        assert_same_item(second["prev_state"], [row["prev_state"] for row in rows[1:]])
        assert_same_item(second["obs"]["pos"], [row["obs"]["pos"] for row in rows[1:]])
        assert_same_item(first["action"], [row["action"] for row in rows[:3]])
    assert_same_item(rows, before)


def test_null_steps_can_be_appended_to_a_whole_trajectory():
    rows = rows_of_a_fragment(3)
    data = Samples(Table.of(rows))
    longer = append_null_steps(data, 2)
    assert isinstance(longer, Samples) and "null" not in data.table.columns
    assert [step["null"] for step in longer] == [False] * 3 + [True] * 2
    assert [step["null"] for step in append_null_steps(data, 0)] == [False] * 3
    assert_same_item(list(longer), list(append_null_steps(rows, 2)))
    assert longer[3]["obs"]["pos"].tolist() == [0, 0] and longer[3]["done"] is True and longer[3]["reward"] == 0


@pytest.mark.parametrize("unroll_len", [0, -1])
def test_a_fragment_has_one_step_at_least(unroll_len):
    with pytest.raises(ValueError):
        get_train_sample([{"obs": 1}], unroll_len)


# Samples of many trajectory fragments made together are, bit by bit, those made of each fragment alone.


LENGTHS = st.lists(st.integers(1, 20), min_size=1, max_size=8)
KINDS = {
    "obs": st.sampled_from(list(OBSERVATIONS)),
    "action": st.sampled_from(list(ACTIONS)),
    "reward": st.sampled_from(list(REWARDS)),
    "flags": st.sampled_from(list(FLAGS)),
}
# Values are those of single agents, or of each entry of a vector.
JUDGED = {**KINDS, "reward": st.sampled_from([reward for reward in REWARDS if reward != "agents"])}
many = settings(max_examples=30)


@many
@given(
    seed=st.integers(0, 999),
    lengths=LENGTHS,
    kinds=st.fixed_dictionaries(KINDS),
    nstep=st.integers(1, 25),
    cum_reward=st.booleans(),
    gamma=st.sampled_from([0.0, 0.5, 0.99, 1.0]),
)
def test_nstep_samples(seed, lengths, kinds, nstep, cum_reward, gamma):
    together = make_fragments(seed, lengths, **kinds)
    made = get_nstep_return_data(together, nstep, cum_reward, gamma=gamma)
    assert_same(made, [get_nstep_return_data(part, nstep, cum_reward, gamma=gamma) for part in parts_of(together)])
    of_dicts = [get_nstep_return_data(part.rows(), nstep, cum_reward, gamma=gamma) for part in parts_of(together)]
    assert_same_item(made.rows(), [sample for part in of_dicts for sample in part])


WINDOWS = {"unroll_len": st.integers(1, 22), "last_fn_type": st.sampled_from(["drop", "last", "null_padding"])}


@many
@given(
    seed=st.integers(0, 999),
    lengths=LENGTHS,
    obs=st.sampled_from(["vector", "image", "of many shapes"]),
    action=st.sampled_from(["number", "list", "dict"]),
    reward=st.sampled_from(["tensor", "scalar tensor", "agents", "half"]),
    flags=st.sampled_from(["done", "all flags", "truncated"]),
    how=st.fixed_dictionaries(WINDOWS),
    null=st.sampled_from([None, "fitting", "of other kinds"]),
)
def test_unrolled_samples_are_those_of_dicts(seed, lengths, obs, action, reward, flags, how, null):
    kinds = {"obs": obs, "action": action, "reward": reward, "flags": flags}
    together = make_fragments(seed, lengths, **kinds)
    if null == "of other kinds":
        null = {**make_fragments(1, [1], action=action, flags=flags).rows()[0], "note": 7}
    elif null:
        null = make_fragments(1, [1], **kinds).rows()[0]
    made = get_train_sample(together, **how, null_transition=null)
    of_dicts = [get_train_sample(part.rows(), **how, null_transition=null) for part in parts_of(together)]
    assert_same_item(made.rows(), [sample for part in of_dicts for sample in part])


@many
@given(seed=st.integers(0, 999), lengths=LENGTHS, kinds=st.fixed_dictionaries(KINDS), data=st.data())
def test_null_steps(seed, lengths, kinds, data):
    together = make_fragments(seed, lengths, **kinds)
    number = np.array([data.draw(st.integers(0, 3)) for _ in lengths])
    made = append_null_steps(together, number)
    parts = [append_null_steps(part, count) for part, count in zip(parts_of(together), number, strict=True)]
    assert_same_item(made.rows(), [step for part in parts for step in part.rows()])
    assert made.lengths.tolist() == (together.lengths + number).tolist()
    marked = append_null_steps(together, 0)
    assert_same(marked, [append_null_steps(part, 0) for part in parts_of(together)])
    assert marked.columns["obs"] is together.columns["obs"]


@many
@given(
    seed=st.integers(0, 999),
    lengths=LENGTHS,
    kinds=st.fixed_dictionaries(JUDGED),
    factors=st.sampled_from([(0.99, 0.95), (1.0, 1.0), (0.5, 0.0)]),
    is_poisoned=st.booleans(),
)
def test_advantages(seed, lengths, kinds, factors, is_poisoned):
    together = make_fragments(seed, lengths, **kinds)
    last_value = torch.randn(
        len(lengths), *together.columns["value"].data.shape[1:], generator=torch.Generator().manual_seed(seed)
    )
    if is_poisoned:  # a NaN stays within its fragment
        last_value[seed % len(lengths)] = torch.nan
    parts = parts_of(together)
    alone = [get_gae(part, last, *factors) for part, last in zip(parts, last_value, strict=True)]
    assert_same(get_gae(together, last_value, *factors), alone)
    assert "adv" not in together.columns


@many
@given(seed=st.integers(0, 999), lengths=LENGTHS, kinds=st.fixed_dictionaries(JUDGED), data=st.data())
def test_advantages_by_the_value_of_the_last_step(seed, lengths, kinds, data):
    together = make_fragments(seed, lengths, **kinds)
    done = np.array([data.draw(st.booleans()) for _ in lengths])
    parts = parts_of(together)
    alone = [get_gae_with_default_last_value(part, end, 0.99, 0.95) for part, end in zip(parts, done, strict=True)]
    of_dicts = [
        get_gae_with_default_last_value(part.rows(), end, 0.99, 0.95)
        for part, end in zip(parts_of(together), done, strict=True)
    ]
    made = get_gae_with_default_last_value(together, done, 0.99, 0.95)
    assert_same(made, alone)
    assert_same_item(made.rows(), [step for part in of_dicts for step in part])
