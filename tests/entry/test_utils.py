from types import SimpleNamespace

import pytest
import torch
from easydict import EasyDict
from gymnasium import spaces

from ding.entry.utils import AccMetric, mark_not_expert, mark_warm_up, random_collect

COLLECT_MODE = SimpleNamespace(
    forward=None, process_transition=None, get_train_sample=None, reset=None, get_attribute=lambda name: name
)
POLICY = SimpleNamespace(collect_mode=COLLECT_MODE)
ENV = SimpleNamespace(action_space=spaces.Discrete(3))
COMMANDER = SimpleNamespace(step=lambda: {"eps": 0.5})


class Collector:
    def __init__(self):
        self.policies, self.calls = [], []

    def reset_policy(self, policy):
        self.policies.append(policy)

    def collect(self, **kwargs):
        self.calls.append(kwargs)
        return [{"obs": i} for i in range(2)]


class Buffer:
    def push(self, data, cur_collector_envstep):
        self.pushed = (data, cur_collector_envstep)


def policy_cfg(type_="sample", size=8, **kwargs):
    return EasyDict(random_collect_size=size, collect={"collector": {"type": type_}}, **kwargs)


def run(cfg, **kwargs):
    collector, buffer = Collector(), Buffer()
    random_collect(cfg, POLICY, collector, ENV, COMMANDER, buffer, **kwargs)
    return collector, buffer


def test_samples_of_a_random_policy_are_pushed_and_the_policy_is_put_back():
    collector, buffer = run(policy_cfg())
    assert collector.calls == [
        {"n_sample": 8, "random_collect": True, "record_random_collect": False, "policy_kwargs": {"eps": 0.5}}
    ]
    assert buffer.pushed == ([{"obs": 0}, {"obs": 1}], 0)
    random_policy, last = collector.policies
    assert last is COLLECT_MODE
    actions = {int(random_policy.forward({5: None})[5]["action"]) for _ in range(100)}
    assert actions == {0, 1, 2}
    assert random_policy.get_attribute("cfg") == "cfg"


def test_an_episode_collector_is_asked_for_episodes():
    collector, _ = run(policy_cfg("episode"))
    assert collector.calls == [{"n_episode": 8, "policy_kwargs": {"eps": 0.5}}]


def test_the_policy_itself_acts_when_transitions_need_its_outputs():
    collector, _ = run(policy_cfg(transition_with_policy_data=True))
    assert collector.policies == [COLLECT_MODE, COLLECT_MODE]


def test_what_is_pushed_is_the_postprocessed_data():
    _, buffer = run(policy_cfg(), postprocess_data_fn=lambda data: mark_warm_up(mark_not_expert(data)))
    assert buffer.pushed[0] == [{"obs": i, "is_expert": 0, "warm_up": True} for i in range(2)]


@pytest.mark.parametrize("cfg", [policy_cfg(size=0), policy_cfg(size=-1), EasyDict()])
def test_a_size_that_is_not_positive_is_refused(cfg):
    with pytest.raises(AssertionError, match="policy.random_collect_size = .* is not allowed"):
        run(cfg)


def test_the_accuracy_is_the_share_of_labels_that_the_summed_logit_names():
    metric = AccMetric()
    logit = torch.tensor([[1, 1], [2, 3], [0, 4]])
    assert metric.eval({"logit": logit}, torch.tensor([2, 5, 9])) == {"Acc": pytest.approx(2 / 3)}
    maps = {"logit": logit[:, :, None].expand(3, 2, 2)}
    assert metric.eval(maps, torch.tensor([[2, 2], [5, 0], [0, 0]])) == {"Acc": 0.5}
    assert metric.reduce_mean([{"Acc": 0.5}, {"Acc": 1.0}]) == {"Acc": 0.75}


@pytest.mark.parametrize(
    ("other", "expected"), [(None, True), ({"Acc": 0.4}, True), ({"Acc": 0.5}, False), (0.4, True), (0.5, False)]
)
def test_an_accuracy_is_better_than_nothing_and_than_a_smaller_one(other, expected):
    assert AccMetric().gt({"Acc": 0.5}, other) is expected
