"""Trainings in envs that say which actions are legal."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from ding import train
from ding.utils.config_helper import ConfigError
from tests.entry.steps import Steps


class Panel(Steps):
    """Refuses illegal actions; each choice has one legal action, another one after each step."""

    length = 6

    def __init__(self, form="rows", counts=(3, 3)):
        total, square = sum(counts), (len(counts), counts[0])
        mask = {
            "row": Box(0, 1, (total,), np.int8),
            "rows": MultiBinary(square),
            "tuple": Tuple([MultiBinary(count) for count in counts]),
        }[form]
        self.form, self.counts = form, counts
        self.observation_space = Dict(board=Box(0, 1, (2,)), hand=Box(0, 1, (1,)), action_mask=mask)
        self.action_space = MultiDiscrete(counts) if len(counts) > 1 else Discrete(counts[0])

    def observe(self):
        self.legal = [self.np_random.integers(count) for count in self.counts]
        masks = [np.eye(count, dtype=np.int8)[legal] for count, legal in zip(self.counts, self.legal, strict=True)]
        join = {"row": np.concatenate, "rows": np.stack, "tuple": tuple}[self.form]
        return {"board": np.zeros(2, np.float32), "hand": np.zeros(1, np.float32), "action_mask": join(masks)}

    def reward(self, action):
        assert np.ravel(action).tolist() == self.legal
        return 1.0


def trained(policy, form, counts=(3, 3), **settings):
    few = {"env_steps": 30, "num_envs": 2, "eval_episodes": 2, "batch_size": 8}
    return train(policy, (Panel, {"form": form, "counts": counts}), recipe=False, folder="panel", **few, **settings)


@pytest.mark.filterwarnings("ignore:.torch.jit.load. is deprecated")
@pytest.mark.parametrize(
    ("policy", "form", "settings"),
    [
        ("dqn", "row", {"learning_starts": 12}),
        ("dqn", "rows", {"learning_starts": 12, "env_manager": "subprocess"}),
        ("dqn", "tuple", {"learning_starts": 12, "env_manager": "vector_env"}),
        ("bdq", "rows", {"learning_starts": 12}),
        ("bdq", "row", {"learning_starts": 12, "counts": (4,)}),
        ("ppo", "row", {"n_steps": 8, "epoch_per_collect": 1}),
        ("ppo", "rows", {"n_steps": 8, "epoch_per_collect": 1, "counts": (3,)}),
        ("discrete_sac", "row", {"random_collect_size": 12, "counts": (4,)}),
    ],
)
def test_no_illegal_action_is_taken_at_random_by_the_policy_or_by_an_export(policy, form, settings):
    training = trained(policy, form, **settings)
    assert training.config[0].policy.model.obs_shape == {"board": 2, "hand": 1}
    assert training.evaluate(1).returns == [6.0]
    env = Panel(form, settings.get("counts", (3, 3)))
    obs, _ = env.reset(seed=3)
    for _ in range(5):
        obs, *_ = env.step(training.predict(obs))
    if form == "tuple":
        with pytest.raises(ConfigError, match="flatten"):
            training.export()
        return
    network = torch.jit.load(training.export())
    action = network({key: torch.from_numpy(np.stack([value, value])) for key, value in obs.items()})
    assert np.ravel(action[1]).tolist() == env.legal
