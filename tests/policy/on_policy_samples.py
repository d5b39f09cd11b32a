"""Configs, trajectories and models for the tests of on-policy policies."""

import math
from collections import namedtuple

import torch
from easydict import EasyDict
from torch import nn
from torch.distributions import Categorical, Independent, Normal

from ding.policy.actor_critic import ActorCriticPolicy
from ding.policy.ppo import PPOPolicy
from ding.utils import set_pkg_seed
from tests.policy.learning import set_paths

Timestep = namedtuple("Timestep", "obs reward done info")
ACTION_SHAPES = {
    "discrete": 3,
    "continuous": 2,
    "hybrid": EasyDict(action_type_shape=3, action_args_shape=2),
    "multi-discrete": [2, 3],
}


def make_config(space="discrete", cls=PPOPolicy, **settings):
    """The defaults of `cls` for 4 observations, with a small net; `learn__batch_size=8` sets `cfg.learn.batch_size`."""
    cfg = cls.default_config()
    cfg.action_space = space.removeprefix("multi-")
    cfg.model = EasyDict(obs_shape=4, action_shape=ACTION_SHAPES[space], encoder_hidden_size_list=[8])
    if issubclass(cls, ActorCriticPolicy):
        cfg.model.update(actor_head_hidden_size=8, critic_head_hidden_size=8)
    if "epoch_per_collect" in cfg.learn:
        cfg.learn.epoch_per_collect = 2
    cfg.learn.batch_size = 8
    set_paths(cfg, settings)
    return cfg


def make_policy(*fields, space="discrete", seed=0, model=None, cls=PPOPolicy, **settings):
    set_pkg_seed(seed, use_cuda=False)
    return cls(make_config(space, cls, **settings), model=model, enable_field=list(fields) or None)


def make_obs():
    return torch.rand(4)


def make_fragment(policy, length, end=None, make_obs=make_obs):
    """Transitions of one trajectory; `end` flags the last one: {'done': ..., 'terminated': ...}."""
    obs, fragment = make_obs(), []
    for _ in range(length):
        output = policy.collect_mode.forward({0: obs})[0]
        next_obs = make_obs()
        step = Timestep(next_obs, torch.rand(1), False, {})
        fragment.append(policy.collect_mode.process_transition(obs, output, step))
        obs = next_obs
    fragment[-1].update(end or {})
    return fragment


TERMINATED = {"done": True, "terminated": True, "truncated": False}
TRUNCATED = {"done": True, "terminated": False, "truncated": True}


def make_fragments(policy, make_obs=make_obs):
    """Train samples of three fragments: a terminated, a truncated, and one that goes on."""
    flags = {"terminated": False, "truncated": False}
    samples = []
    for length, end in ((7, TERMINATED), (6, TRUNCATED), (8, flags)):
        fragment = make_fragment(policy, length, make_obs=make_obs)
        fragment = [{**flags, **transition} for transition in fragment]
        fragment[-1].update(end)
        samples += policy.collect_mode.get_train_sample(fragment)
    return samples


def make_episodes(policy, make_obs=make_obs):
    """Train samples of three whole episodes, one of which a time limit has cut off."""
    samples = []
    for length, end in ((7, TERMINATED), (6, TRUNCATED), (8, {"done": True})):
        samples += policy.collect_mode.get_train_sample(make_fragment(policy, length, end, make_obs))
    return samples


def distributions(logit, space):
    """The independent parts of the action's distribution, for a batch of one."""
    if space == "hybrid":
        gaussian = Independent(Normal(logit["action_args"]["mu"], logit["action_args"]["sigma"]), 1)
        return [Categorical(logits=logit["action_type"]), gaussian]
    if space == "continuous":
        return [Independent(Normal(logit["mu"], logit["sigma"]), 1)]
    logits = logit if isinstance(logit, (list, tuple)) else [logit]
    return [Categorical(logits=part) for part in logits]


def judge(logit, action, space):
    """[(log-probability, entropy)] of the parts with a loss of their own."""
    parts = [action["action_type"], action["action_args"]] if space == "hybrid" else action
    parts = list(parts) if isinstance(parts, (list, tuple)) else [parts]
    terms = []
    for dist, part in zip(distributions(logit, space), parts, strict=True):
        part = part if isinstance(dist, Categorical) else part[None]
        terms.append((dist.log_prob(part)[0], dist.entropy()[0]))
    if space == "multi-discrete":
        return [(sum(t[0] for t in terms), sum(t[1] for t in terms))]
    return terms


def batched(logit):
    if isinstance(logit, dict):
        return {key: batched(value) for key, value in logit.items()}
    return [batched(value) for value in logit] if isinstance(logit, tuple) else logit[None]


def scale_of(mode):
    """The running deviation of the returns, from the state of a mode."""
    return math.sqrt(mode.state_dict()["value_norm"]["var"].item() + 1e-8)


class AgentModel(nn.Module):
    """Logits [B, A, 3] and values [B, A] of A = 2 agents."""

    def __init__(self):
        super().__init__()
        self.logit, self.value = nn.Linear(4, 6), nn.Linear(4, 2)

    def forward(self, x, mode):
        logit, value = self.logit(x).view(-1, 2, 3), self.value(x)
        return {key: item for key, item in (("logit", logit), ("value", value)) if mode in MODES_OF[key]}


MODES_OF = {
    "logit": ("compute_actor", "compute_actor_critic"),
    "value": ("compute_critic", "compute_actor_critic"),
}
