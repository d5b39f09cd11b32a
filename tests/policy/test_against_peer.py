"""A thousand updates by the recipes of DQN, SAC and TD3 give the weights that Stable-Baselines3 gives.

Both begin with equal weights, and learn from equal batches in the order of a run: the env steps of a collection, at
which the peer's DQN moves its target network, then the updates.
"""

from functools import partial
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch
from easydict import EasyDict

from ding.config.config import resolve_class
from ding.entry.recipes import find_recipe
from ding.policy import sac
from ding.utils.default_helper import deep_merge_dicts
from tests.benchmarks import learning_peer
from tests.policy.learning import model_of

BATCH, UPDATES = 16, 1000
OBS = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = {"dqn": gymnasium.spaces.Discrete(4), "sac": gymnasium.spaces.Box(-1, 1, (2,), np.float32)}
ACTIONS["td3"] = ACTIONS["sac"]
PARTS = {"dqn": {"": "q_net"}, "sac": {"actor.": "actor", "critic.": "critic"}}
PARTS["td3"] = PARTS["sac"]


class NoEnv(gymnasium.Env):
    """The spaces of a task."""

    observation_space = OBS

    def __init__(self, action_space):
        self.action_space = action_space


def recipe_of(name, env_id):
    """Return the policy's config by its recipe, with small networks and batches."""
    main, create = find_recipe(name, env_id).configs
    cfg = deep_merge_dicts(resolve_class("policy", create.policy).default_config(), main.policy)
    cfg.learn.batch_size = BATCH
    cfg.model.update(obs_shape=3, action_shape=4 if name == "dqn" else 2)
    if name == "dqn":  # the peer has no dueling networks, and what n-step returns are is no matter of an update
        cfg.model.update(encoder_hidden_size_list=[8], dueling=False)
        cfg.update(nstep=1)
        cfg.learn.lr_scheduler = None
    else:
        cfg.model.update(actor_head_hidden_size=8, critic_head_hidden_size=8)
    return cfg


def hyper_parameters_of_dqn(cfg):
    """Return the hyper-parameters of the peer's DQN that count in an update."""
    learn = cfg.learn
    assert learn.criterion == "huber" and learn.grad_clip_type == "clip_norm"
    interval = learn.target_update_freq * cfg.collect.n_sample / learn.update_per_collect
    return {
        "learning_rate": learn.learning_rate, "gamma": cfg.discount_factor, "max_grad_norm": learn.grad_clip_value,
        "target_update_interval": round(interval), "policy_kwargs": {"net_arch": [8, 8]},
    }  # fmt: skip


def our_policy(name, cfg):
    torch.manual_seed(0)
    return resolve_class("policy", {"type": name})(cfg, enable_field=["learn"])


def peer_model(name, cfg):
    """Return the peer's model with the hyper-parameters of the recipe."""
    import stable_baselines3
    from stable_baselines3.common.logger import Logger

    env = EasyDict(collector_env_num=1)
    kwargs = hyper_parameters_of_dqn(cfg) if name == "dqn" else learning_peer.hyper_parameters(name, cfg, env)
    kwargs.update(buffer_size=1, device="cpu")
    model = getattr(stable_baselines3, name.upper())("MlpPolicy", NoEnv(ACTIONS[name]), **kwargs)
    model.set_logger(Logger(None, []))
    return model


def networks(name, policy, model):
    """Return pairs of our networks and the peer's."""
    for ours, theirs in PARTS[name].items():
        for network, suffix in ((model_of(policy), ""), (policy.learn_mode.get_attribute("target_net"), "_target")):
            peer = getattr(model.policy, theirs + suffix, None)  # the peer's SAC has no target of the actor
            if peer is not None:
                yield network.get_submodule(ours.rstrip(".")), peer


def copy_weights(name, policy, model):
    for ours, theirs in networks(name, policy, model):
        own, other = list(ours.parameters()), list(theirs.parameters())
        assert [p.shape for p in own] == [p.shape for p in other]
        for one, goal in zip(own, other, strict=True):
            goal.data.copy_(one.data)


def batches(name, number):
    """Yield batches of transitions, columns of float32 arrays."""
    rng = np.random.default_rng(0)
    for _ in range(number):
        obs, next_obs = rng.uniform(-1, 1, (2, BATCH, 3)).astype(np.float32)
        action = rng.integers(4, size=BATCH) if name == "dqn" else rng.uniform(-1, 1, (BATCH, 2)).astype(np.float32)
        done = rng.random(BATCH) < 0.2
        yield {
            "obs": obs, "next_obs": next_obs, "action": action, "done": done,
            "reward": (5 * rng.standard_normal(BATCH)).astype(np.float32),
        }  # fmt: skip


def samples_of(columns):
    rows = [{key: torch.as_tensor(column[i]) for key, column in columns.items()} for i in range(BATCH)]
    for row in rows:
        row.update(reward=row["reward"].reshape(1), done=bool(row["done"]))
    return rows


def peer_batch(columns, batch_size, env=None):
    column = {key: torch.as_tensor(value, dtype=torch.float32) for key, value in columns.items()}
    names = {"observations": "obs", "next_observations": "next_obs", "actions": "action", "rewards": "reward",
             "dones": "done"}  # fmt: skip
    read = {name: column[key].reshape(BATCH, -1) for name, key in names.items()}
    return SimpleNamespace(**read, discounts=None)


def learn_both(name, cfg, policy, model):
    """Take the updates of a run on both sides, and the env steps after the last ones."""
    per_collect = cfg.learn.update_per_collect
    model._n_calls = -cfg.collect.n_sample  # the peer counts env steps, ours updates: begin with the first update
    feed = list(batches(name, UPDATES // per_collect * per_collect))
    for start in range(0, len(feed), per_collect):
        for _ in range(cfg.collect.n_sample):
            model._on_step()
        for columns in feed[start : start + per_collect]:
            model.replay_buffer.sample = partial(peer_batch, columns)
            model.train(gradient_steps=1, batch_size=BATCH)
            policy.learn_mode.forward(samples_of(columns))
    for _ in range(cfg.collect.n_sample):
        model._on_step()


def differences(name, policy, model):
    for ours, theirs in networks(name, policy, model):
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            yield (one - other).abs().max().item()


def choose_by_the_online_network(model):
    """Make the peer's DQN a double DQN, which ours is."""
    target, forward = model.policy.q_net_target, model.policy.q_net_target.forward
    target.forward = lambda obs: forward(obs).gather(1, model.policy.q_net(obs).argmax(1, keepdim=True))


def share_noise(monkeypatch, model):
    """Let both draw the same actions of SAC: ours those of the next observations first, the peer those last."""
    generator, ours, theirs = torch.Generator().manual_seed(1), [], []
    sample = sac.squashed_gaussian_sample

    def next_of(queue):
        if not queue:
            noise = torch.randn((2, BATCH, 2), generator=generator)
            ours.extend(noise.flip(0))
            theirs.extend(noise)
        return queue.pop(0)

    def sample_of_peer(obs):
        mean, log_std, _ = model.actor.get_action_dist_params(obs)
        return sample((mean, log_std.exp()), noise=next_of(theirs))  # the peer adds 1e-6 within a logarithm

    monkeypatch.setattr(sac, "squashed_gaussian_sample", lambda logit, *_, **__: sample(logit, noise=next_of(ours)))
    model.actor.action_log_prob = sample_of_peer


@pytest.mark.slow
@pytest.mark.parametrize(("name", "env_id"), [
    ("dqn", "CartPole-v1"), ("dqn", "Acrobot-v1"), ("dqn", "LunarLander-v3"), ("sac", "Hopper-v5"),
    ("td3", "Hopper-v5"),
])  # fmt: skip
def test_updates_by_a_recipe_give_the_weights_of_the_peer(name, env_id, monkeypatch):
    pytest.importorskip("stable_baselines3")
    cfg = recipe_of(name, env_id)
    if name == "td3":
        cfg.learn.noise_sigma = 0.0
    policy, model = our_policy(name, cfg), peer_model(name, cfg)
    copy_weights(name, policy, model)
    if name == "dqn":
        choose_by_the_online_network(model)
    if name == "sac":
        share_noise(monkeypatch, model)
        model.critic.optimizer.param_groups[0]["eps"] /= 2  # the peer's loss of the critics is half of ours
    learn_both(name, cfg, policy, model)
    assert max(differences(name, policy, model)) < 2e-5
