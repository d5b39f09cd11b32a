"""Samples of many trajectory fragments made together are, bit by bit, those made of each fragment alone."""

import numpy as np
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
from tests.rl_utils.fragments import (
    ACTIONS,
    FLAGS,
    OBSERVATIONS,
    REWARDS,
    assert_same,
    assert_same_item,
    make_fragments,
    parts_of,
)

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
