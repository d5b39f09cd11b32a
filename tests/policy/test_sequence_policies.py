"""What IMPALA and ACER do alike with sequences: their ends, the steps after them, their weights."""

import copy

import pytest

from tests.policy import test_acer, test_impala
from tests.policy.test_impala import make_sequences

MAKE = {"impala": test_impala.make_policy, "acer": test_acer.make_policy}
# How long a sequence is, and the losses of its values and of the policy.
LENGTH = {"impala": "unroll_len", "acer": "collect__unroll_len"}
LOSSES = {"impala": ("value_loss",), "acer": ("critic_loss", "actor_loss", "entropy_loss")}

each_policy = pytest.mark.parametrize("name", MAKE)


@each_policy
@pytest.mark.parametrize("end", [{"done": True}, {"done": True, "terminated": False, "truncated": True}, {}])
def test_steps_after_the_end_are_not_learnt(name, end):
    policy = MAKE[name]("learn")
    short, long = make_sequences(policy, 1, length=2, last=end), make_sequences(policy, 1, last=end)
    assert short[0]["done"] == [False, "done" in end, True, True] and short[0]["null"] == [False, False, True, True]
    changed = copy.deepcopy(short + long)
    for key in ("obs", "next_obs", "action", "logit", "reward"):
        changed[0][key][2:] = [value * 0 + 1 for value in changed[0][key][2:]]
    expected = copy.deepcopy(policy).learn_mode.forward(short + long)
    assert policy.learn_mode.forward(changed) == expected
    alone = MAKE[name]("learn", **{LENGTH[name]: 2})
    of_two_steps = alone.learn_mode.forward(make_sequences(alone, 1, length=2, last=end))
    of_four_steps = MAKE[name]("learn").learn_mode.forward(short)
    assert of_four_steps == pytest.approx(of_two_steps, rel=1e-4, abs=1e-6)


@each_policy
def test_how_an_episode_ended_decides_about_the_value_after_it(name):
    def loss(end):
        policy = MAKE[name]("learn")
        return policy.learn_mode.forward(make_sequences(policy, 1, last=end))[LOSSES[name][0]]

    assert loss({"done": True, "terminated": True, "truncated": False}) == loss({"done": True})
    assert loss({"done": True, "truncated": True}) == loss({}) != loss({"done": True})


@pytest.mark.differs(
    "returns no priorities from IMPALA, ACER and SQN",
    "returns them; importance weights scale the losses of IMPALA and ACER",
)
@each_policy
def test_importance_weights_scale_the_losses_of_their_sequence(name):
    data = make_sequences(MAKE[name]("learn"), 2)

    def learn(samples, **settings):
        return MAKE[name]("learn", priority=True, **settings).learn_mode.forward(samples)

    data = [{**sample, "IS": weight} for sample, weight in zip(data, (0.5, 0.0), strict=True)]
    plain, weighted, alone = learn(data), learn(data, priority_IS_weight=True), learn(data[:1])
    for key in LOSSES[name]:
        assert weighted[key] == pytest.approx(alone[key] * 0.5 / 2, rel=1e-4)
    assert weighted["priority"] == plain["priority"] and len(plain["priority"]) == 2
    assert plain["priority"][0] == pytest.approx(alone["priority"][0])
    assert all(type(priority) is float and priority > 0 for priority in plain["priority"])
