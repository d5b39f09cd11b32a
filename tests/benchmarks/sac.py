"""Milliseconds of one SAC update against a bare torch loop that does the same network maths.

Batches of 256 with 17 observations and 6 action dimensions; actor and critics of three layers of 256, learned
temperature. `python -m tests.benchmarks.sac`
"""

import copy
import math
import sys
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ding.policy import SACPolicy
from ding.utils.data.samples import Samples, Table
from tests.benchmarks.harness import Report, medians, milliseconds, run

BATCH, OBS, ACTION, WIDTH = 256, 17, 6, 256


def mlp(inputs: int) -> nn.Sequential:
    layers = [nn.Linear(inputs, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)]
    return nn.Sequential(*layers, nn.ReLU())


class BareLoop:
    """The update written out, with torch's own optimizer and distributions."""

    def __init__(self) -> None:
        self.body, self.mu, self.log_sigma = mlp(OBS), nn.Linear(WIDTH, ACTION), nn.Linear(WIDTH, ACTION)
        self.critics = nn.ModuleList(nn.Sequential(mlp(OBS + ACTION), nn.Linear(WIDTH, 1)) for _ in range(2))
        self.targets = copy.deepcopy(self.critics)
        self.log_alpha = torch.tensor([math.log(0.2)], requires_grad=True)
        actor = [p for part in (self.body, self.mu, self.log_sigma) for p in part.parameters()]
        self.critic_step = torch.optim.Adam(self.critics.parameters(), 3e-4)
        self.actor_step = torch.optim.Adam(actor, 3e-4)
        self.alpha_step = torch.optim.Adam([self.log_alpha], 3e-4)

    def draw(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.body(obs)
        normal = torch.distributions.Normal(self.mu(hidden), self.log_sigma(hidden).clamp(-20, 2).exp())
        u = normal.rsample()
        log_prob = normal.log_prob(u) - 2 * (math.log(2) - u - F.softplus(-2 * u))
        return torch.tanh(u), log_prob.sum(-1)

    def learn(self, obs: Tensor, next_obs: Tensor, action: Tensor, reward: Tensor, done: Tensor) -> list[float]:
        alpha = self.log_alpha.exp().detach()
        with torch.no_grad():
            next_action, next_log_prob = self.draw(next_obs)
            judged = torch.cat([next_obs, next_action], 1)
            next_q = torch.minimum(*(target(judged) for target in self.targets)).squeeze(1)
            y = reward + 0.99 * (1 - done) * (next_q - alpha * next_log_prob)
        judged = torch.cat([obs, action], 1)
        errors = [(critic(judged).squeeze(1) - y) ** 2 for critic in self.critics]
        critic_loss = errors[0].mean() + errors[1].mean()
        self.step(self.critic_step, critic_loss)
        self.critics.requires_grad_(False)
        new_action, log_prob = self.draw(obs)
        judged = torch.cat([obs, new_action], 1)
        q = torch.minimum(*(critic(judged) for critic in self.critics)).squeeze(1)
        actor_loss = (alpha * log_prob - q).mean()
        self.step(self.actor_step, actor_loss)
        self.critics.requires_grad_(True)
        self.step(self.alpha_step, -(self.log_alpha * (log_prob - ACTION).detach()).mean())
        with torch.no_grad():
            for own, online in zip(self.targets.parameters(), self.critics.parameters(), strict=True):
                own.lerp_(online, 0.005)
        return [critic_loss.item(), actor_loss.item(), *((errors[0] + errors[1]) / 2).tolist()]

    @staticmethod
    def step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def make_policy() -> SACPolicy:
    cfg = SACPolicy.default_config()
    cfg.model.update(obs_shape=OBS, action_shape=ACTION)
    for part in ("actor", "critic"):
        cfg.model.update({f"{part}_head_hidden_size": WIDTH, f"{part}_head_layer_num": 2})
    return SACPolicy(cfg, enable_field=["learn"])


def measure(report: Report) -> None:
    torch.manual_seed(0)
    obs, next_obs, action = torch.rand(BATCH, OBS), torch.rand(BATCH, OBS), torch.rand(BATCH, ACTION) * 2 - 1
    reward, done = torch.rand(BATCH), torch.zeros(BATCH)
    rows = zip(obs, next_obs, action, reward.unsqueeze(1), strict=True)
    samples = Samples(
        Table.of([dict(zip(("obs", "next_obs", "action", "reward"), row, strict=True), done=False) for row in rows])
    )
    policy, bare = make_policy(), BareLoop()
    updates = {
        "bare": lambda: bare.learn(obs, next_obs, action, reward, done),
        "ours": lambda: policy.learn_mode.forward(samples),
    }
    found = medians({name: partial(milliseconds, update, 20) for name, update in updates.items()}, 8, warm_ups=1)
    what = f"one SAC update of {BATCH}, three layers of {WIDTH}"
    report.line(what, "ms", found["ours"], "bare torch loop", found["bare"], at_most=0.95)


if __name__ == "__main__":
    sys.exit(run(measure))
