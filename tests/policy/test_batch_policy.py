"""Policies that act on stacked observations: what is called when their forward is overridden, wrapped or patched."""

import numpy as np
import pytest
import torch

from ding.policy import BatchPolicy
from ding.policy.dqn import DQNPolicy
from ding.utils import set_pkg_seed
from ding.utils.batch_methods import batch_method
from ding.utils.data.collate_fn import default_collate, default_decollate
from tests.fakes import FakeManager, Timestep
from tests.own_folder import own_folder as own_folder
from tests.policy.samples import make_config
from tests.worker.collector.test_plain_transitions import collect


def make(cls=DQNPolicy):
    set_pkg_seed(0, use_cuda=False)
    return cls(make_config(model__obs_shape=3, collect__n_sample=6), enable_field=["collect", "eval"])


def collected(policy_or_mode):
    mode = getattr(policy_or_mode, "collect_mode", policy_or_mode)
    rows, _ = collect(mode, FakeManager([3, 5, 4]), counts=(6, 6), policy_kwargs={"eps": 0.5})
    return [(row["obs"].tolist(), row["action"].tolist()) for row in rows]


@pytest.mark.guarantees("overrides")
@pytest.mark.parametrize(
    "call", [lambda forward, data: forward(data, 0.5), lambda forward, data: forward(data, eps=0.5)]
)
def test_a_subclass_that_overrides_the_forward_is_called_with_dicts(call):
    class Overriding(DQNPolicy):
        def _forward_collect(self, data, eps):
            seen.append(data)
            return call(super()._forward_collect, data)

    seen = []
    assert batch_method(make(Overriding).collect_mode.forward) is None
    assert collected(make(Overriding)) == collected(make())
    assert all(type(data) is dict and type(obs) is np.ndarray for data in seen for obs in data.values())


def test_a_policy_of_another_library_acts_with_the_documented_helpers():
    class Outside(DQNPolicy):
        def _forward_collect(self, data, eps=0.0):
            self._collect_model.eval()
            with torch.no_grad():
                output = self._collect_model.forward(default_collate(list(data.values())), eps=eps)
            return dict(zip(data, default_decollate(output), strict=True))

    assert collected(make(Outside)) == collected(make())


def test_a_policy_on_batches_acts_with_its_models_and_makes_plain_transitions_by_default():
    class Bare(BatchPolicy):
        config = {"type": "bare", "learn": {}, "collect": {}, "eval": {}}
        _eval_kwargs = {"sign": -1}

        def _init_learn(self):
            raise AssertionError

        def _init_collect(self):
            self._collect_model = self._model

        def _init_eval(self):
            self._eval_model = self._model

        def _forward_learn(self, data):
            raise AssertionError

    class Net(torch.nn.Module):
        def forward(self, x, sign=1):
            return {"action": sign * x.sum(-1)}

    policy = Bare(Bare.default_config(), model=Net(), enable_field=["collect", "eval"])
    obs = {4: np.ones(3, np.float64), 2: np.zeros(3, np.float64)}
    assert policy.collect_mode.forward(obs) == {4: {"action": torch.tensor([3.0])}, 2: {"action": torch.tensor([0.0])}}
    output = policy.eval_mode.forward(obs)[4]
    assert output == {"action": torch.tensor([-3.0])}
    step = Timestep(np.zeros(3), 1.0, False, {})
    transition = policy.collect_mode.process_transition(obs[4], output, step)
    assert list(transition) == ["obs", "next_obs", "action", "reward", "done"]
    assert transition["obs"] is obs[4] and transition["next_obs"] is step.obs
    assert policy.collect_mode.get_train_sample([transition]) == [transition]
