"""Transitions made from whole batches equal those that the policy is asked for one by one, which it is where it may
make others."""

import functools

import numpy as np
import pytest
import torch
from easydict import EasyDict

from ding.policy.dqn import DQNPolicy
from ding.worker.collector.sample_serial_collector import SampleSerialCollector
from tests.fakes import FakeManager, FakeWriter, ScriptedPolicy
from tests.worker.collector.battles import LateManager, PlainPolicy


class ReversedManager(FakeManager):
    """Answers in another order than it was asked."""

    def step(self, actions):
        return dict(reversed(super().step(actions).items()))


class AskedDQN(DQNPolicy):
    def _process_transition(self, obs, policy_output, timestep):
        return super()._process_transition(obs, policy_output, timestep)


def collect(policy, env, counts=(5, 12, 7), **kwargs):
    collector = SampleSerialCollector(SampleSerialCollector.default_config(), env, policy, FakeWriter(), "exp")
    rows = [row for i, n in enumerate(counts) for row in collector.collect(n, train_iter=i, drop_extra=False, **kwargs)]
    return rows, env


def assert_same(ours, theirs):
    assert len(ours) == len(theirs) > 0
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.keys() == other.keys()
        for key, value in mine.items():
            assert type(value) is type(other[key])
            if isinstance(value, torch.Tensor):
                assert value.dtype == other[key].dtype and value.shape == other[key].shape
                assert torch.equal(value, other[key])
            else:
                assert value == other[key]
    # Within a fragment both share; plain ones do so from fragment to fragment too.
    assert all(mine or not other for mine, other in zip(shared(ours), shared(theirs), strict=True))


def shared(rows):
    return [a["next_obs"] is b["obs"] for a, b in zip(rows[:-1], rows[1:], strict=True)]


def mark(env_id, episode, step):
    if (env_id, episode, step) == (2, 1, 2):
        return {"abnormal": True}
    return {"terminated": step == 3, "truncated": np.bool_(step == 5)} if env_id else {}


@pytest.mark.parametrize("manager", [FakeManager, LateManager, ReversedManager])
@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("reuse", [True, False])
def test_plain_and_asked_transitions_are_equal(manager, batched, reuse):
    def run(policy_cls):
        env = manager([3, 5, 4], reuse=reuse, mark=mark)
        return collect(policy_cls(n_sample=12, batched=batched), env, level_seeds=torch.tensor([5.0, 6.0, 7.0]))[0]

    ours = run(PlainPolicy)
    assert_same(ours, run(ScriptedPolicy))
    assert any(shared(ours))


@pytest.mark.guarantees("overrides")
@pytest.mark.parametrize("nstep", [1, 3])
@pytest.mark.parametrize("action_shape", [2, [2, 3]])
def test_a_dqn_that_defines_its_own_transition_collects_the_same(nstep, action_shape):
    def run(policy_cls):
        np.random.seed(0)
        torch.manual_seed(0)
        cfg = policy_cls.default_config()
        cfg.model = EasyDict(obs_shape=3, action_shape=action_shape, encoder_hidden_size_list=[8])
        cfg.nstep, cfg.collect.n_sample = nstep, 12
        policy = policy_cls(cfg, enable_field=["collect"])
        return collect(policy.collect_mode, FakeManager([3, 5, 4], mark=mark), policy_kwargs={"eps": 0.5})[0]

    rows = run(DQNPolicy)
    if action_shape == 2:
        assert_same(rows, run(AskedDQN))
    else:
        for ours, theirs in zip(rows, run(AskedDQN), strict=True):
            assert [head.tolist() for head in ours["action"]] == [head.tolist() for head in theirs["action"]]


# What a user overrides, wraps or patches is called.


def with_mark(process_transition):
    @functools.wraps(process_transition)
    def marked(*args):
        return {**process_transition(*args), "mark": torch.ones(2)}

    return marked


def dqn(policy_cls=DQNPolicy, nstep=1, n_sample=6):
    cfg = policy_cls.default_config()
    cfg.model = EasyDict(obs_shape=3, action_shape=2, encoder_hidden_size_list=[8])
    cfg.nstep, cfg.collect.n_sample = nstep, n_sample
    return policy_cls(cfg, enable_field=["collect"])


class Decorated(DQNPolicy):
    _process_transition = with_mark(DQNPolicy._process_transition)


class Overridden(DQNPolicy):
    def _process_transition(self, obs, policy_output, timestep):
        return {**super()._process_transition(obs, policy_output, timestep), "mark": torch.ones(2)}


def decorated(**kwargs):
    return dqn(Decorated, **kwargs).collect_mode


def overridden(**kwargs):
    return dqn(Overridden, **kwargs).collect_mode


def patched_instance(**kwargs):
    policy = dqn(**kwargs)
    policy._process_transition = with_mark(policy._process_transition)
    return policy.collect_mode


def patched_mode(**kwargs):
    mode = dqn(**kwargs).collect_mode
    return mode._replace(process_transition=with_mark(mode.process_transition))


def partial_mode(**kwargs):
    mode = dqn(**kwargs).collect_mode

    def process_transition(mark, *args):
        return {**mode.process_transition(*args), "mark": mark}

    return mode._replace(process_transition=functools.partial(process_transition, torch.ones(2)))


@pytest.mark.parametrize("make", [decorated, overridden, patched_instance, patched_mode, partial_mode])
@pytest.mark.parametrize("nstep", [1, 2])
def test_a_key_that_a_users_transition_adds_arrives(make, nstep):
    rows, _ = collect(make(nstep=nstep), FakeManager([3, 5, 4], mark=mark), policy_kwargs={"eps": 0.5})
    assert len(rows) >= 24 and all(row["mark"].tolist() == [1, 1] for row in rows)


def test_what_a_policy_changes_in_its_output_is_what_is_done_and_stored():
    class Zero(DQNPolicy):
        def _forward_collect(self, data, eps):
            output = super()._forward_collect(data, eps)
            for out in output.values():
                out["action"] = torch.zeros_like(out["action"])
            return output

    rows, env = collect(dqn(Zero).collect_mode, FakeManager([3, 5, 4]), policy_kwargs={"eps": 1.0})
    assert {row["action"].item() for row in rows} == {0}
    assert {action.item() for one in env.envs for action in one.actions} == {0}


def test_what_a_policy_makes_of_the_observations_it_is_given_is_what_it_acts_on_and_not_stored():
    class Shifted(DQNPolicy):
        def _forward_collect(self, data, eps):
            for env_id in data:
                data[env_id] = data[env_id] + 100
            acted_on.extend(float(obs.min()) for obs in data.values())
            return super()._forward_collect(data, eps)

        def _act_collect(self, obs, env_ids, eps):
            inputs.append(float(obs.min()))
            return super()._act_collect(obs, env_ids, eps)

    acted_on, inputs = [], []
    rows, _ = collect(dqn(Shifted).collect_mode, FakeManager([3, 5, 4]), policy_kwargs={"eps": 1.0})
    assert min(acted_on) >= 100 and min(inputs) >= 100
    assert max(int(row["obs"].max()) for row in rows) < 20
