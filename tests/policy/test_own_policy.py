"""A policy written from `help(Policy)` alone, with names of its own, trains in the serial pipeline."""

import copy
from unittest.mock import patch

import pytest
import torch
from torch import nn

from ding.entry import serial_pipeline
from ding.model import model_wrap
from ding.policy import DQNPolicy, DummyCommandModePolicy, Policy
from ding.policy.ppo import PPOPolicy
from ding.torch_utils import Adam
from ding.utils.config_helper import ConfigError
from ding.utils.data import default_collate
from ding.utils.registry_factory import MODEL_REGISTRY, POLICY_REGISTRY
from tests.entry.fakes import pair, setting
from tests.own_folder import own_folder as own_folder
from tests.policy.samples import make_batch, make_config


class OwnPolicy(Policy):
    """Soft Q-learning with what a reader of `help(Policy)` knows; its helpers have short names."""

    config = {
        "type": "own_for_test",
        "learn": {"update_per_collect": 1, "batch_size": 4, "learning_rate": 0.01},
        "collect": {"n_sample": 8},
        "other": {"replay_buffer": {"replay_buffer_size": 64}},
    }

    def default_model(self):
        return "dqn", ["ding.model.template.q_learning"]

    def _init_learn(self):
        self._learn_model = model_wrap(self._model, "base")
        self._optimizer = Adam(self._model.parameters(), lr=self._cfg.learn.learning_rate)

    def _init_collect(self):
        self._collect_model = model_wrap(self._model, "multinomial_sample")

    def _init_eval(self):
        self._eval_model = model_wrap(self._model, "argmax_sample")

    def _act(self, obs):
        raise AssertionError("a method of the subclass alone")

    def _forward_learn(self, data):
        batch = default_collate(data)
        value = self._learn_model.forward(batch["obs"])["logit"].logsumexp(-1)
        loss = (value - batch["reward"].flatten()).pow(2).mean()
        self._backward_and_step(loss, self._optimizer)
        return {"cur_lr": 0.01, "total_loss": loss.item()}

    def _forward_collect(self, data):
        return self._forward_envs(self._collect_model, data)

    def _forward_eval(self, data):
        return self._forward_envs(self._eval_model, data)

    def _process_transition(self, obs, policy_output, timestep):
        return {
            "obs": obs,
            "next_obs": timestep.obs,
            "action": policy_output["action"],
            "reward": timestep.reward,
            "done": timestep.done,
        }

    def _get_train_sample(self, transitions):
        return transitions


class OwnCommandModePolicy(OwnPolicy, DummyCommandModePolicy):
    pass


@pytest.fixture
def registered():
    POLICY_REGISTRY.register("own_for_test", OwnPolicy)
    POLICY_REGISTRY.register("own_for_test_command", OwnCommandModePolicy)
    yield
    for name in ("own_for_test", "own_for_test_command"):
        POLICY_REGISTRY.pop(name)


@pytest.mark.guarantees("overrides")
def test_a_policy_of_ones_own_trains(registered):
    main, create = pair()
    create.policy.type = "own_for_test"
    policy = serial_pipeline((main, create), seed=0, env_setting=setting(), max_train_iter=6)
    assert isinstance(policy, OwnCommandModePolicy)
    steps = [int(entry["step"]) for entry in policy.learn_mode.state_dict()["optimizer"]["state"].values()]
    assert steps and set(steps) == {6}


class LinearModel(nn.Module):
    """A model that takes the two shapes alone, as a user would write it first."""

    def __init__(self, obs_shape, action_shape):
        super().__init__()
        self.layer = nn.Linear(obs_shape, action_shape)

    def forward(self, obs):
        return {"logit": self.layer(obs)}


@pytest.mark.differs(
    "passes default arguments of the policy's model to a registered model of your own, which fails if it does not "
    "take them",
    "passes those that it takes, and all that your config has",
)
@patch.dict(MODEL_REGISTRY, {"linear_for_test": LinearModel})
def test_a_model_of_ones_own_need_not_take_the_default_arguments_of_the_policys_model():
    cfg = DQNPolicy.default_config()
    cfg.model.update(type="linear_for_test", obs_shape=4, action_shape=2)
    assert "encoder_hidden_size_list" in cfg.model
    policy = DQNPolicy(cfg, enable_field=["eval"])
    assert policy.eval_mode.forward({0: torch.zeros(4)})[0]["logit"].shape == (2,)
    cfg.model.encoder_hidden_size_list = [3]
    with pytest.raises(ConfigError, match="encoder_hidden_size_list"):
        DQNPolicy(cfg, enable_field=["eval"])


@pytest.mark.parametrize("cls", [OwnPolicy, DQNPolicy, PPOPolicy])
def test_a_policy_without_model_arguments_names_the_first_that_is_missing(cls):
    cfg = cls.default_config()
    cfg.model = None
    with pytest.raises(ConfigError, match="obs_shape"):
        cls(cfg)


@pytest.mark.parametrize("obs", [torch.zeros(2, 4), [torch.zeros(4)], None])
def test_observations_without_their_env_ids_are_refused(obs):
    cfg = DQNPolicy.default_config()
    cfg.model.obs_shape, cfg.model.action_shape = 4, 2
    policy = DQNPolicy(cfg, enable_field=["eval"])
    with pytest.raises(TypeError, match=type(obs).__name__):
        policy.eval_mode.forward(obs)


@pytest.mark.differs(
    "fails for a policy of your own without `_unroll_len` or `_priority`, or without `multi_gpu`, `cuda` or "
    "`on_policy` in its config",
    "has defaults for them",
)
def test_settings_of_the_base_that_are_missing_have_their_defaults():
    cfg = make_config()
    for key in ("on_policy", "cuda", "multi_gpu", "bp_update_sync", "traj_len_inf"):
        del cfg[key]
    policy = DQNPolicy(cfg)
    policy.learn_mode.forward(make_batch(4))
    assert (cfg.on_policy, cfg.cuda, cfg.multi_gpu, cfg.bp_update_sync, cfg.traj_len_inf) == (
        *(False, False, False),
        *(True, False),
    )
    on_policy = PPOPolicy.default_config()
    on_policy.model.update(obs_shape=4, action_shape=2)
    del on_policy["on_policy"]
    assert PPOPolicy(on_policy).collect_mode.get_attribute("on_policy") is True


def test_attributes_that_workers_ask_for_have_defaults():
    cfg = OwnPolicy.default_config()
    cfg.model.update(obs_shape=4, action_shape=2)
    mode = OwnPolicy(copy.deepcopy(cfg)).collect_mode
    assert (mode.get_attribute("unroll_len"), mode.get_attribute("priority")) == (1, False)
    cfg.collect.unroll_len, cfg.priority = 3, True
    mode = OwnPolicy(cfg).collect_mode
    assert (mode.get_attribute("unroll_len"), mode.get_attribute("priority")) == (3, True)


@pytest.mark.differs("runs on the CPU without a warning if `cuda=True` finds no GPU", "warns, and says what to set")
def test_a_gpu_that_is_missing_is_told_of_and_the_policy_runs_on_the_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    warned = []
    monkeypatch.setattr("ding.policy.base_policy.one_time_warning", warned.append)
    for fields in (["learn"], ["collect"], ["eval"]):
        policy = DQNPolicy(make_config(cuda=True), model=nn.Linear(4, 2), enable_field=fields)
        mode = policy.learn_mode
        assert (mode.get_attribute("cuda"), mode.get_attribute("device")) == (False, "cpu")
    assert len(warned) == 3
