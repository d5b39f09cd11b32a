"""Networks of a user's own, in `train` and in configs: what they are told, what they return, and how they are saved."""

import os
import sys
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from ding.entry import evaluate_run, train
from ding.entry.cli import cli
from ding.entry.run_folder import RunFolder
from ding.entry.training import Training
from ding.utils import MODEL_REGISTRY
from ding.utils.config_helper import ConfigError

TOLD = []
FEW = {"iterations": 1, "eval_episodes": 1, "batch_size": 8, "num_envs": 1, "recipe": False}


@pytest.fixture(autouse=True)
def nothing_told():
    TOLD.clear()


class Values(nn.Module):
    """Returns `logit` and, by policy, more."""

    def __init__(self, obs_shape, action_shape, width=8, more=None):
        super().__init__()
        TOLD.append((obs_shape, action_shape))
        self.actions, self.more = action_shape, more
        self.layers = nn.Sequential(nn.Linear(obs_shape, width), nn.ReLU(), nn.Linear(width, action_shape))

    def forward(self, obs):
        logit = self.layers(obs)
        size, quantiles = len(logit), logit.unsqueeze(-1).repeat(1, 1, 3)  # [B, N, 3]
        match self.more:
            case "atoms":
                return {"logit": logit, "distribution": logit.unsqueeze(-1).repeat(1, 1, 51).softmax(-1)}
            case "fixed quantiles":
                return {"logit": logit, "q": quantiles, "tau": torch.full((size, 3, 1), 0.5)}
            case "random quantiles":
                return {"logit": logit, "q": quantiles.permute(2, 0, 1), "quantiles": torch.rand(3 * size, 1)}
            case "two":
                return {"logit": logit, "q_value": (logit, logit + 1)}
        return {"logit": logit}


class ActorCritic(nn.Module):
    """Acts in both kinds of spaces."""

    def __init__(self, obs_shape, action_shape, action_space="discrete", critic_outputs=1, critic_name="value"):
        super().__init__()
        TOLD.append((obs_shape, action_shape, action_space))
        self.action_space, self.critic_name = action_space, critic_name
        self.actor, self.critic = nn.Linear(obs_shape, action_shape), nn.Linear(obs_shape, critic_outputs)

    def forward(self, obs, mode):
        return getattr(self, mode)(obs)

    def compute_actor(self, obs):
        logit = self.actor(obs)
        if self.action_space == "continuous":
            logit = {"mu": logit, "sigma": torch.ones_like(logit)}
        return {"logit": logit}

    def compute_critic(self, obs):
        return {self.critic_name: self.critic(obs).squeeze(-1)}

    def compute_actor_critic(self, obs):
        return {**self.compute_actor(obs), **self.compute_critic(obs)}


class QActorCritic(nn.Module):
    """An actor with real-valued actions, and Q(s, a)."""

    def __init__(self, obs_shape, action_shape, is_gaussian=True, twin=True, atoms=False):
        super().__init__()
        self.is_gaussian, self.twin, self.atoms = is_gaussian, twin, atoms
        self.actor = nn.Linear(obs_shape, action_shape)
        self.critic = nn.ModuleList(nn.Linear(obs_shape + action_shape, 1) for _ in range(2))

    def forward(self, inputs, mode):
        return getattr(self, mode)(inputs)

    def compute_actor(self, obs):
        mu = self.actor(obs)
        return {"logit": [mu, torch.ones_like(mu)]} if self.is_gaussian else {"action": mu.tanh()}

    def compute_critic(self, inputs):
        q = [critic(torch.cat([inputs["obs"], inputs["action"]], -1)) for critic in self.critic]
        if self.atoms:
            return {"q_value": q[0], "distribution": q[0].unsqueeze(-1).repeat(1, 1, 51).softmax(-1)}
        q = [value.squeeze(-1) for value in q]
        return {"q_value": q if self.twin else q[0]}


DISCRETE_Q = {"critic_outputs": 2, "critic_name": "q_value"}


@pytest.mark.parametrize(
    ("policy", "env", "network", "arguments"),
    [
        ("dqn", "CartPole-v1", Values, {}),
        ("mdqn", "CartPole-v1", Values, {}),
        ("sql", "CartPole-v1", Values, {}),
        ("c51", "CartPole-v1", Values, {"more": "atoms"}),
        ("rainbow", "CartPole-v1", Values, {"more": "atoms"}),
        ("qrdqn", "CartPole-v1", Values, {"more": "fixed quantiles"}),
        ("iqn", "CartPole-v1", Values, {"more": "random quantiles"}),
        ("sqn", "CartPole-v1", Values, {"more": "two"}),
        ("pg", "CartPole-v1", Values, {}),
        ("ppo", "CartPole-v1", ActorCritic, {}),
        ("ppo", "Pendulum-v1", ActorCritic, {}),
        ("a2c", "Pendulum-v1", ActorCritic, {}),
        ("impala", "CartPole-v1", ActorCritic, {}),
        ("ppo_offpolicy", "CartPole-v1", ActorCritic, {}),
        ("acer", "CartPole-v1", ActorCritic, DISCRETE_Q),
        ("discrete_sac", "CartPole-v1", ActorCritic, DISCRETE_Q),
        ("sac", "Pendulum-v1", QActorCritic, {}),
        ("ddpg", "Pendulum-v1", QActorCritic, {"is_gaussian": False, "twin": False}),
        ("td3", "Pendulum-v1", QActorCritic, {"is_gaussian": False}),
        ("d4pg", "Pendulum-v1", QActorCritic, {"is_gaussian": False, "atoms": True}),
    ],
)
def test_each_family_of_policies_trains_what_the_guide_asks_of_a_network(policy, env, network, arguments):
    settings = {"learning_starts": 0} if policy in ("sac", "ddpg", "td3", "d4pg", "discrete_sac") else {}
    training = train(policy, env, model=(network, arguments), folder="run", **FEW, **settings)
    assert training.result["train_iter"] >= 1
    assert isinstance(training.policy._model, network)


class ColumnOfValues(ActorCritic):
    """Returns [*B, 1], as the last layer does."""

    def compute_critic(self, obs):
        return {"value": self.critic(obs)}


class ColumnOfQ(QActorCritic):
    def compute_critic(self, inputs):
        return {"q_value": [q.unsqueeze(-1) for q in super().compute_critic(inputs)["q_value"]]}


@pytest.mark.parametrize(
    ("policy", "networks", "settings"),
    [
        ("ppo", (ActorCritic, ColumnOfValues), {"n_steps": 16}),
        ("impala", (ActorCritic, ColumnOfValues), {}),
        ("sac", (QActorCritic, ColumnOfQ), {"learning_starts": 0}),
        (
            "td3",
            (partial(QActorCritic, is_gaussian=False), partial(ColumnOfQ, is_gaussian=False)),
            {"learning_starts": 0},
        ),
    ],
)
def test_values_in_a_column_are_learned_as_values_in_a_row(policy, networks, settings):
    env = "CartPole-v1" if networks[0] is ActorCritic else "Pendulum-v1"
    row, column = (weights_after(policy, env, network, **settings) for network in networks)
    assert all(torch.equal(row[key], column[key]) for key in row)


def weights_after(policy, env, network, **settings):
    training = train(policy, env, model=network, **FEW, **settings)
    return torch.load(list(RunFolder(training.folder).checkpoints().values())[-1], weights_only=True)["model"]


@pytest.mark.parametrize(("env", "told"), [("CartPole-v1", (4, 2, "discrete")), ("Pendulum-v1", (3, 1, "continuous"))])
def test_a_registered_network_is_told_shapes_and_kind_of_actions(env, told):
    MODEL_REGISTRY["test_own_networks"] = ActorCritic
    try:
        train("ppo", env, model="test_own_networks", n_steps=8, **FEW)
    finally:
        del MODEL_REGISTRY["test_own_networks"]
    assert set(TOLD) == {told}


def test_a_network_without_arguments_is_told_nothing_and_the_policy_learns_the_kind_of_actions():
    training = train("ppo", "Pendulum-v1", model=OfPendulum, n_steps=8, **FEW)
    assert training.config[0].policy.action_space == "continuous"
    assert dict(training.config[0].policy.model) == {"type": OfPendulum}


class OfPendulum(ActorCritic):
    def __init__(self):
        super().__init__(3, 1, "continuous")


def make_narrow(obs_shape, action_shape):
    return Values(obs_shape, action_shape, width=3)


@pytest.mark.parametrize(
    ("model", "settings", "width"),
    [
        (Values, {}, 8),
        (Values, {"width": 5}, 5),
        ((Values, {"width": 6}), {}, 6),
        (partial(Values, width=7), {}, 7),
        ({"type": Values, "width": 9}, {}, 9),
        (make_narrow, {}, 3),
        (f"{__name__}:make_narrow", {}, 3),
    ],
    ids=["class", "setting", "pair", "partial", "dict", "function", "name"],
)
def test_classes_and_functions_are_saved_by_name_and_found_again(model, settings, width):
    training = train("dqn", "CartPole-v1", model=model, folder="run", **FEW, **settings)
    loaded = Training.load("run")
    kind = loaded.config[0].policy.model.type
    assert isinstance(kind, str) or list(kind) == ["__reference__"]
    assert loaded.policy._model.layers[0].out_features == width
    assert loaded.evaluate(1).returns == training.evaluate(1).returns == evaluate_run("run", 1).returns


def test_a_run_with_an_own_network_resumes():
    train("dqn", "CartPole-v1", model=Values, folder="run", **FEW)
    more = {**FEW, "iterations": 2}
    assert train("dqn", "CartPole-v1", model=Values, folder="run", resume=True, **more).result["train_iter"] == 2


def test_the_command_evaluates_a_network_that_a_script_has_named(tmp_path, monkeypatch):
    (tmp_path / "own_network_file.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self, obs_shape, action_shape, bias=True):\n"
        "        super().__init__()\n"
        "        self.layer = nn.Linear(obs_shape, action_shape, bias)\n"
        "    def forward(self, obs):\n"
        "        return {'logit': self.layer(obs)}\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    words = "train dqn CartPole-v1 --set model=own_network_file:Net --set bias=False --exp-name run --train-iter 1"
    cli.main([*words.split(), "--set", "eval_episodes=1", "--recipe", "none"], standalone_mode=False)
    monkeypatch.setattr(sys, "path", sys.path[1:])
    del sys.modules["own_network_file"]
    os.chdir("/")
    cli.main(["eval", str(tmp_path / "run"), "-n", "1"], standalone_mode=False)
    assert sys.modules["own_network_file"].Net


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_module_is_trained_itself_and_given_again_to_load_it():
    network, before = Values(4, 2), Values(4, 2)
    before.load_state_dict(network.state_dict())
    training = train("dqn", "CartPole-v1", model=network, folder="run", **{**FEW, "iterations": 3})
    trained = [weight.clone() for weight in network.parameters()]
    assert not all(torch.equal(one, other) for one, other in zip(trained, before.parameters(), strict=True))
    returns = training.evaluate(1).returns
    assert all(torch.equal(one, other) for one, other in zip(trained, network.parameters(), strict=True))
    assert Training.load("run", model=Values(4, 2)).evaluate(1).returns == returns
    with pytest.raises(RuntimeError, match=r"pass the `model` .* Training.load\(folder, model=...\)"):
        evaluate_run("run", 1)


class Bare(nn.Module):
    def __init__(self, obs_shape, action_shape):
        super().__init__()
        self.layer = nn.Linear(obs_shape, action_shape)

    def forward(self, obs):
        return self.layer(obs)


@pytest.mark.parametrize(
    ("policy", "env", "model", "settings", "error", "word"),
    [
        ("dqn", "CartPole-v1", 3, {}, TypeError, "nn.Module"),
        ("dqn", "CartPole-v1", Bare, {}, TypeError, "Bare returned Tensor"),
        ("dqn", "CartPole-v1", f"{__name__}:Missing", {}, ConfigError, "Missing"),
        ("dqn", "CartPole-v1", Values(4, 2), {"hidden_sizes": [3]}, ConfigError, "has no effect"),
        ("dqn", "CartPole-v1", Values(4, 2), {"parallel": True}, ConfigError, "other processes"),
        ("ppo", "CartPole-v1", ActorCritic(4, 2, "continuous"), {}, TypeError, "discrete"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_network_that_does_not_fit_is_refused(policy, env, model, settings, error, word):
    with pytest.raises(error, match=word):
        train(policy, env, model=model, **FEW, **settings)


@pytest.mark.slow
def test_workers_of_a_parallel_training_make_a_network_by_its_name():
    training = train("dqn", "CartPole-v1", model=Values, parallel=1, folder="run", eval_episodes=1, iterations=5)
    assert training.result["train_iter"] >= 5 and np.isfinite(Training.load("run").evaluate(1).returns).all()
