"""R2D2: what it learns from sequences, which sequences it makes, how it acts with memory."""

import copy
from collections import namedtuple

import numpy as np
import pytest
import torch

from ding.model import DRQN
from ding.policy import R2D2Policy
from ding.rl_utils import value_inv_transform, value_transform
from ding.utils import set_pkg_seed
from ding.utils.config_helper import ConfigError
from ding.utils.data.samples import Samples, Table
from tests.policy.learning import model_of, parameters_of, set_paths, set_target, target_of

Timestep = namedtuple("Timestep", ("obs", "reward", "done", "info"))
GAMMA = 0.9


def make_config(**settings):
    cfg = R2D2Policy.default_config()
    cfg.model.update(obs_shape=3, action_shape=2, encoder_hidden_size_list=[8, 6])
    cfg.update(discount_factor=GAMMA, nstep=2, burnin_step=2, learn_unroll_len=5)
    cfg.collect.env_num = cfg.eval.env_num = 3
    set_paths(cfg, settings)
    return cfg


def make_policy(*fields, seed=0, cls=R2D2Policy, **settings):
    set_pkg_seed(seed, use_cuda=False)
    return cls(make_config(**settings), enable_field=list(fields) or None)


def make_episode(length, seed=0, *, last=None, as_columns=False):
    """Transitions as a collector hands them over; the last one has the entries `last`."""
    generator = torch.Generator().manual_seed(seed)
    episode = [
        {
            "obs": torch.rand(3, generator=generator),
            "action": torch.tensor([i % 2]),
            "prev_state": {key: torch.rand(1, 1, 6, generator=generator) for key in ("h", "c")},
            "reward": torch.rand(1, generator=generator),
            "done": False,
            "collect_iter": 0,
        }
        for i in range(length)
    ]
    episode[-1].update(last or {})
    return Samples(Table.of(episode)) if as_columns else episode


def make_sequences(policy, number, last=None, length=7, **extra):
    samples = []
    for i in range(number):
        samples += policy._get_train_sample(make_episode(length, i, last=last))
    return [{**sample, **extra} for sample in samples]


# --- learn ---


def q_step_by_step(model, sample, burnin):
    """Q values [L, N] of one sequence, of which the first `burnin` steps get no gradients."""
    state, values = [sample["prev_state"][0]], []
    for step, obs in enumerate(sample["obs"]):
        if step == burnin:
            state = [{key: value.detach() for key, value in state[0].items()}]
        output = model({"obs": obs[None], "prev_state": state}, inference=True)
        values.append(output["logit"][0])
        state = output["next_state"]
    return values


@pytest.mark.differs(
    "fails in R2D2 with `burnin_step=0`, `nstep=1` or `ignore_done`, or with another batch size than the config's",
    "works with all of them",
)
@pytest.mark.parametrize("rescale", [True, False])
@pytest.mark.parametrize(("nstep", "burnin"), [(1, 0), (1, 2), (3, 0), (2, 2)])
def test_a_learning_step_is_recurrent_double_dqn_within_the_sequence(nstep, burnin, rescale):
    policy = make_policy("learn", nstep=nstep, burnin_step=burnin, learn__value_rescale=rescale)
    model, target = copy.deepcopy(model_of(policy)), target_of(policy)
    with torch.no_grad():
        for parameter in target.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    set_target(policy, target)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0001)
    samples = make_sequences(policy, 3, length=burnin + 5)
    weights = [0.5, 1.0, 0.25]
    h, inverse = (value_transform, value_inv_transform) if rescale else (lambda x: x, lambda x: x)
    loss, priorities, taken, targets, means = 0.0, [], [], [], []
    for sample, weight in zip(samples, weights, strict=True):
        q = q_step_by_step(model, sample, burnin)
        with torch.no_grad():
            target_q = q_step_by_step(target, sample, burnin)
        errors = []
        for t in range(burnin, len(q) - nstep):
            best = q[t + nstep].argmax()
            value = inverse(target_q[t + nstep][best])
            rewards = sample["reward"][t].tolist()
            y = h(torch.tensor(sum(GAMMA**i * r for i, r in enumerate(rewards)) + GAMMA**nstep * value.item()))
            errors.append((q[t][sample["action"][t].item()] - y) ** 2)
        loss = loss + weight * sum(errors)
        values = [error.item() for error in errors]
        priorities.append(0.9 * max(values) + 0.1 * sum(values) / len(values))
        taken.append(q[burnin][sample["action"][burnin].item()].item())
        targets.append(target_q[burnin + nstep][q[burnin + nstep].argmax()].item())
        means.append(q[burnin].mean().item())
    loss = loss / (3 * len(errors))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    output = policy.learn_mode.forward(
        [{**sample, "IS": weight} for sample, weight in zip(samples, weights, strict=True)]
    )
    monitored = ["cur_lr", "total_loss", "q_s_taken-a_t0", "target_q_s_max-a_t0", "q_s_a-mean_t0"]
    assert output.keys() == {"priority", *monitored}
    assert policy.learn_mode.monitor_vars() == monitored
    assert output["total_loss"] == pytest.approx(loss.item(), rel=1e-4)
    assert output["priority"] == pytest.approx(priorities, rel=1e-4)
    assert output["cur_lr"] == 0.0001
    assert output["q_s_taken-a_t0"] == pytest.approx(np.mean(taken), rel=1e-4)
    assert output["target_q_s_max-a_t0"] == pytest.approx(np.mean(targets), rel=1e-4)
    assert output["q_s_a-mean_t0"] == pytest.approx(np.mean(means), rel=1e-4)
    expected = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert torch.allclose(parameters_of(policy), expected, atol=1e-6)


@pytest.mark.differs(
    "ignores `learn.target_update_freq` of R2D2",
    "copies the target network every so many iterations, if it is set",
)
def test_the_target_network_follows_and_is_copied_where_a_frequency_is_set():
    policy = make_policy("learn", learn__target_update_theta=0.25, learn__learning_rate=0.1, priority_IS_weight=False)
    before = list(target_of(policy).parameters())
    policy.learn_mode.forward(make_sequences(policy, 2))
    online = list(model_of(policy).parameters())
    for own, old, new in zip(target_of(policy).parameters(), before, online, strict=True):
        assert torch.allclose(own, 0.75 * old + 0.25 * new, atol=1e-6)

    policy = make_policy("learn", learn__target_update_freq=2, learn__learning_rate=0.1, priority_IS_weight=False)
    data = make_sequences(policy, 2)
    for is_copied in (False, True):
        policy.learn_mode.forward(data)
        pairs = zip(target_of(policy).parameters(), model_of(policy).parameters(), strict=True)
        assert all(torch.equal(*pair) for pair in pairs) is is_copied


def losses_of(policy, samples):
    output = policy.learn_mode.forward(samples)
    return output["total_loss"], output["priority"]


@pytest.mark.differs(
    "learns in R2D2 that null steps, which fill up a short episode, are worth 0",
    "masks them out of the loss",
)
def test_what_null_steps_hold_is_not_learnt():
    policy = make_policy("learn", priority_IS_weight=False)
    data = make_sequences(policy, 2, {"done": True}, length=5)
    assert data[0]["null"] == [False] * 5 + [True] * 2
    changed = copy.deepcopy(data)
    for sample in changed:
        for key in ("obs", "reward", "action"):
            sample[key][5:] = [torch.ones_like(value) for value in sample[key][5:]]
    expected = losses_of(copy.deepcopy(policy), data)
    assert losses_of(policy, changed) == expected


@pytest.mark.differs(
    "never learns in R2D2 from the last `nstep` steps of an episode that fills its sequence, so that it misses a "
    "terminal reward",
    "learns from them",
)
def test_the_last_steps_of_an_episode_learn_their_terminal_reward():
    policy = make_policy("learn", "collect", priority_IS_weight=False, burnin_step=0, learn_unroll_len=7)
    data = make_sequences(policy, 1, {"done": True, "reward": torch.tensor([100.0])})
    assert len(data) == 2  # the episode as long as a sequence, and its end with the null steps after it
    assert data[1]["null"] == [False] * 5 + [True] * 2
    assert data[1]["reward"][3].tolist()[1] == data[1]["reward"][4].tolist()[0] == 100
    _, (without_end, with_end) = losses_of(policy, data)
    assert with_end > 50 > without_end


@pytest.mark.parametrize("flags", [{"truncated": True}, {"terminated": False, "truncated": True}])
def test_steps_that_a_time_limit_leaves_without_a_target_are_not_learnt(flags):
    policy = make_policy("learn", "collect", priority_IS_weight=False, burnin_step=0, learn_unroll_len=7)
    (sample,) = make_sequences(policy, 1, {"done": True, **flags}, length=5)
    assert sample["null"] == [False] * 5 + [True] * 2
    changed = copy.deepcopy(sample)
    for step in (3, 4):  # their values would be those of null steps
        changed["reward"][step] += 100
        changed["action"][step] = 1 - changed["action"][step]
    assert losses_of(copy.deepcopy(policy), [changed]) == losses_of(policy, [sample])
    changed["reward"][2] += 100
    assert losses_of(policy, [changed])[1][0] > 50


def test_ignoring_done_learns_only_from_steps_with_a_value_to_bootstrap_from():
    policy = make_policy("learn", "collect", priority_IS_weight=False, burnin_step=0, learn__ignore_done=True)
    (sample,) = make_sequences(policy, 1, {"done": True}, length=3)
    changed = copy.deepcopy(sample)
    changed["reward"][1] += 100
    assert losses_of(copy.deepcopy(policy), [changed]) == losses_of(policy, [sample])
    changed["reward"][0] += 100
    assert losses_of(policy, [changed])[1][0] > 50


def test_sequences_start_in_their_stored_state_or_in_zeros():
    data = make_sequences(make_policy("learn"), 2, IS=1.0)
    zeros = copy.deepcopy(data)
    for sample in zeros:
        sample["prev_state"][0] = {key: torch.zeros(1, 1, 6) for key in ("h", "c")}
    none = [{**sample, "prev_state": [None, *sample["prev_state"][1:]]} for sample in data]
    stored, of_zeros, of_none = (losses_of(make_policy("learn"), d) for d in (data, zeros, none))
    assert abs(stored[0] - of_zeros[0]) > 1e-4 and of_zeros == of_none
    assert losses_of(make_policy("learn", learn__zero_start_state=True), data) == of_zeros


@pytest.mark.parametrize("as_columns", [False, True])
def test_observations_of_one_entry_are_no_numbers(as_columns):
    policy = make_policy("learn", model__obs_shape=1, priority_IS_weight=False)
    episode = [{**step, "obs": step["obs"][:1]} for step in make_episode(7)]
    samples = policy._get_train_sample(Samples(Table.of(episode)) if as_columns else episode)
    shapes = set()
    model_of(policy).register_forward_pre_hook(lambda model, args: shapes.add(args[0]["obs"].shape))
    assert len(policy.learn_mode.forward(samples)["priority"]) == 1
    assert shapes == {(2, 1, 1), (5, 1, 1)}  # the burn-in and what is learned


def test_illegal_actions_are_not_bootstrapped_from():
    torch.manual_seed(0)
    model = DRQN(3, 2, encoder_hidden_size_list=[8, 6])
    with torch.no_grad():
        model.head.A[1][0].bias.copy_(torch.tensor([10.0, -10.0]))

    def target(mask):
        policy = R2D2Policy(make_config(priority_IS_weight=False), model=copy.deepcopy(model), enable_field=["learn"])
        (sample,) = make_sequences(policy, 1)
        sample["obs"] = {"observation": sample["obs"], "action_mask": [torch.tensor(mask)] * 7}
        return policy.learn_mode.forward([sample])["target_q_s_max-a_t0"]

    assert target([1, 1]) == target([1, 0]) > 5 > -5 > target([0, 1])


# --- collect and eval ---


def test_each_env_has_a_state_that_a_reset_forgets():
    policy = make_policy("collect", "eval")
    model, obs = model_of(policy), {0: torch.rand(3), 2: torch.rand(3)}
    states = dict.fromkeys(obs)
    for round_ in range(3):
        if round_ == 2:
            policy.collect_mode.reset([2])
            states[2] = None
        output = policy.collect_mode.forward(obs, eps=0.0)
        assert list(output) == [0, 2]
        for env_id, out in output.items():
            with torch.no_grad():
                alone = model({"obs": obs[env_id][None], "prev_state": [states[env_id]]}, inference=True)
            states[env_id] = alone["next_state"][0]
            assert out.keys() == {"logit", "action", "prev_state"}
            assert torch.allclose(out["logit"], alone["logit"][0], atol=1e-6)
            assert out["action"].shape == (1,) and out["action"] == alone["logit"][0].argmax()
            if round_ == 0:
                assert all(torch.equal(out["prev_state"][key], torch.zeros(1, 1, 6)) for key in ("h", "c"))
                before = output[0]["logit"]
    policy.collect_mode.reset()
    assert torch.allclose(policy.collect_mode.forward(obs, eps=0.0)[0]["logit"], before, atol=1e-6)
    evaluated = policy.eval_mode.forward(obs)
    assert evaluated[2].keys() == {"logit", "action"}
    second = policy.eval_mode.forward(obs)
    policy.eval_mode.reset([2])
    third = policy.eval_mode.forward(obs)
    assert torch.allclose(third[2]["logit"], evaluated[2]["logit"], atol=1e-6)
    assert not torch.allclose(second[2]["logit"], evaluated[2]["logit"], atol=1e-6)


def test_a_transition_has_the_state_before_it_and_no_next_observation():
    policy = make_policy("collect")
    (output,) = policy.collect_mode.forward({1: torch.rand(3)}, eps=0.5).values()
    obs, step = torch.rand(3), Timestep(torch.rand(3), torch.ones(1), False, {})
    transition = policy.collect_mode.process_transition(obs, output, step)
    assert list(transition) == ["obs", "action", "prev_state", "reward", "done"]
    assert transition["prev_state"] is output["prev_state"]


def test_a_train_sample_is_a_fragment_of_the_documented_length():
    policy = make_policy("collect", nstep=3)
    assert policy.collect_mode.get_attribute("unroll_len") == 7
    assert policy.collect_mode.get_train_sample([]) == []
    samples = policy.collect_mode.get_train_sample(make_episode(9, as_columns=True))
    assert isinstance(samples, Samples)
    assert [[r.tolist() for r in s["action"]] for s in samples] == [
        [[i % 2] for i in range(7)],
        [[i % 2] for i in range(2, 9)],
    ]
    assert samples[1].keys() == {
        *("obs", "action", "prev_state", "reward", "done"),
        *("collect_iter", "value_gamma", "null"),
    }
    assert [reward.shape for reward in samples[1]["reward"]] == [(3,)] * 7
    assert samples[1]["null"] == [False] * 7 and samples[0]["value_gamma"] == [pytest.approx(GAMMA**3)] * 7


# --- settings ---


@pytest.mark.parametrize(
    ("fields", "settings", "message"),
    [
        (["learn"], {"nstep": 5}, "learn_unroll_len"),
        (["learn"], {"priority": False}, "priority_IS_weight"),
        (["collect"], {"collect__env_num": None}, "collect.env_num"),
        (["eval"], {"eval__env_num": None}, "eval.env_num"),
        (["learn"], {"burnin_step": -1}, "burnin_step"),
    ],
)
def test_settings_that_cannot_work_are_refused(fields, settings, message):
    with pytest.raises(ConfigError, match=message):
        make_policy(*fields, **settings)
