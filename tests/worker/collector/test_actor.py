"""What a policy returned, as actions for envs."""

import numpy as np
import pytest
import torch

from ding.worker.collector.actor import env_actions
from ding.worker.collector.env_round import StackedOutput
from ding.worker.collector.sample_serial_collector import SampleSerialCollector
from tests.fakes import FakeManager, FakeWriter, ScriptedPolicy

NAN, INF = float("nan"), float("inf")


def batched(**stacked):
    return StackedOutput(stacked, [3, 7])


@pytest.mark.guarantees("data")
@pytest.mark.parametrize(
    ("output", "key"),
    [
        (batched(action=torch.tensor([[0.5], [NAN]])), "action"),
        (batched(action=torch.tensor([0, 1]), logit=torch.tensor([[0.0, 1.0], [0.0, NAN]])), "logit"),
        (batched(action=torch.zeros(2), logit={"mu": torch.zeros(2, 1), "sigma": torch.tensor([[1], [NAN]])}), "logit"),
        (batched(action=torch.zeros(2), logit=torch.tensor([0.0, NAN], dtype=torch.bfloat16)), "logit"),
        ({3: {"action": np.zeros(2)}, 7: {"action": np.array([0.0, NAN])}}, "action"),
        ({3: {"action": 1.0}, 7: {"action": NAN}}, "action"),
        ({3: {"action": [1.0, 1.0]}, 7: {"action": 1.0, "logit": [torch.zeros(2), torch.tensor([NAN])]}}, "logit"),
        (batched(action=torch.tensor([[0.5], [INF]])), "inf"),
        (batched(action=torch.tensor([[0.5], [1e39]], dtype=torch.float64)), "inf"),
        (batched(action={"a": torch.tensor([[0.5], [-INF]])}), "inf"),
        ({3: {"action": np.zeros(2)}, 7: {"action": np.array([0.0, INF])}}, "inf"),
    ],
)
def test_a_nan_or_an_infinite_action_of_the_policy_names_the_env_and_the_output(output, key):
    text = "inf .* for env 7: action = " if key == "inf" else f"NaN for env 7: {key} = "
    with pytest.raises(FloatingPointError, match=text):
        env_actions(output, [3, 7])


def test_actions_come_in_the_order_that_is_asked_for_and_none_may_be_missing():
    output = {3: {"action": np.array([1])}, 7: {"action": np.array([0])}}
    assert [int(action[0]) for action in env_actions(output, [7, 3])] == [0, 1]
    assert [int(action[0]) for action in env_actions(batched(action=torch.tensor([5, 6])), [7, 3])] == [6, 5]
    with pytest.raises(KeyError):
        env_actions(output, [3, 5])


@pytest.mark.parametrize(
    ("make", "given"),
    [
        (lambda action: batched(action=torch.from_numpy(action)), [3, 7]),
        (lambda action: batched(action=torch.from_numpy(action)), [7, 3]),
        (lambda action: {env_id: {"action": row} for env_id, row in zip((3, 7), action, strict=True)}, [3, 7]),
        (lambda action: {env_id: {"action": [row]} for env_id, row in zip((3, 7), action, strict=True)}, [3, 7]),
    ],
)
def test_what_an_env_does_to_its_action_changes_nothing_that_the_policy_returned(make, given):
    action = np.ones((2, 3), np.float32)
    for own in env_actions(make(action), given):
        (own[0] if isinstance(own, list) else own)[:] = 9.0
    assert (action == 1).all()


def broken(policy, at):
    """`policy`, whose action is NaN from the forward number `at` on."""
    forward = policy.forward

    def forward_to_nan(obs, **kwargs):
        output = forward(obs, **kwargs)
        return {i: {"action": torch.tensor([NAN])} for i in output} if len(policy.seen) >= at else output

    policy.forward = forward_to_nan
    return policy


@pytest.mark.differs(
    "passes a NaN action of the policy to the env",
    "stops before the env is stepped and names the policy, the env and the entry",
)
def test_a_collector_stops_before_the_env_is_given_a_nan():
    env = FakeManager([5, 5])
    cfg = SampleSerialCollector.default_config()
    collector = SampleSerialCollector(cfg, env, broken(ScriptedPolicy(), 3), FakeWriter(), "exp")
    with pytest.raises(FloatingPointError):
        collector.collect(8)
    assert [len(one.actions) for one in env.envs] == [2, 2]
