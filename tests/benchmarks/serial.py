"""Seconds of a whole `serial_pipeline` call against a bare torch loop that does the same network maths.

3000 double dueling DQN updates of 64 with 4800 env steps in 8 in-process CartPoles, an evaluation at iteration 0 only;
uniform (through the naive buffer) and prioritized (through the advanced one). Torch's optimizer is warmed before both.
`python -m tests.benchmarks.serial`
"""

import sys
import time
from functools import partial

import torch
from easydict import EasyDict
from torch import nn

from ding.entry import serial_pipeline
from tests.benchmarks.harness import Report, medians, run
from tests.benchmarks.learning_tasks import TASKS, changed

UPDATES, UPDATES_PER_COLLECT, BATCH, ENVS = 3000, 5, 64, 8


class Net(nn.Module):
    """The network that the config below describes, written out."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU()
        )
        self.adv = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
        self.val = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.body(x)
        a = self.adv(h)
        return a - a.mean(-1, keepdim=True) + self.val(h)


def bare_loop() -> float:
    """Seconds of the floor: 3000 updates on one fixed batch and 600 forwards of 8 observations."""
    torch.manual_seed(0)
    q, target = Net(), Net()
    target.load_state_dict(q.state_dict())
    optimizer = torch.optim.Adam(q.parameters(), 1e-3)
    obs, next_obs = torch.rand(BATCH, 4), torch.rand(BATCH, 4)
    action, reward, done = torch.randint(0, 2, (BATCH,)), torch.ones(BATCH), torch.zeros(BATCH)
    start = time.perf_counter()
    for _ in range(UPDATES // UPDATES_PER_COLLECT):
        with torch.no_grad():
            q(obs[:ENVS])
        for _ in range(UPDATES_PER_COLLECT):
            with torch.no_grad():
                best = q(next_obs).argmax(-1)
                y = reward + 0.97 * (1 - done) * target(next_obs).gather(1, best[:, None]).squeeze(1)
            loss = ((q(obs).gather(1, action[:, None]).squeeze(1) - y) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return time.perf_counter() - start


def pipeline(priority: bool) -> float:
    """Seconds of the whole `serial_pipeline` call."""
    task = TASKS["dqn"]
    changes = {
        "exp_name": f"bench_{priority}",
        "env.stop_value": 1e9,
        "env.n_evaluator_episode": 5,
        "policy.priority": priority,
        "policy.priority_IS_weight": priority,
        "policy.eval.evaluator.eval_freq": 10**9,
    }
    main_config = EasyDict(changed(task.main_config, changes))
    buffer = {"type": "advanced" if priority else "naive"}
    create_config = EasyDict(changed(task.create_config, {"replay_buffer": buffer}))
    start = time.perf_counter()
    serial_pipeline((main_config, create_config), seed=0, max_train_iter=UPDATES)
    return time.perf_counter() - start


def warm_up() -> None:
    """The first optimizer of a process makes torch load its compiler: neither side should pay for that."""
    weight = nn.Parameter(torch.zeros(1))
    for fused in (False, True):
        optimizer = torch.optim.Adam([weight], fused=fused)
        weight.sum().backward()
        optimizer.step()


def measure(report: Report) -> None:
    warm_up()
    bare_loop()
    ours = {"uniform": partial(pipeline, priority=False), "prioritized": partial(pipeline, priority=True)}
    found = medians({"floor": bare_loop, **ours}, 3)
    what = "serial_pipeline, 3000 DQN updates and 4800 env steps"
    report.line(what, "s", found["uniform"], "bare torch loop", found["floor"], at_most=1.0)
    report.line(f"{what}, prioritized", "s", found["prioritized"], "bare torch loop", found["floor"], at_most=1.1)


if __name__ == "__main__":
    sys.exit(run(measure))
