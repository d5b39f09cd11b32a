"""CQL for discrete actions: what it learns, and how it is trained."""

import pytest
import torch

from ding.policy import DiscreteCQLPolicy, QRDQNPolicy
from tests.policy.learning import model_of, set_paths
from tests.policy.samples import make_batch


def make_policy(*fields, cls=DiscreteCQLPolicy, **settings):
    cfg = cls.default_config()
    cfg.model.update(obs_shape=4, action_shape=2, encoder_hidden_size_list=[8], num_quantiles=4)
    set_paths(cfg, settings)
    torch.manual_seed(0)
    return cls(cfg, enable_field=list(fields) or None)


@pytest.mark.parametrize("weight", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("prioritized", [False, True])
def test_the_gap_to_other_actions_is_added_to_the_loss_of_qrdqn(weight, prioritized):
    settings = {"priority": prioritized, "priority_IS_weight": prioritized}
    policy = make_policy("learn", learn__min_q_weight=weight, **settings)
    plain, data = make_policy("learn", cls=QRDQNPolicy, **settings), make_batch(8)
    obs, action = torch.stack([row["obs"] for row in data]), torch.cat([row["action"] for row in data])
    q = model_of(policy)(obs)["logit"]
    gaps = torch.log(q.exp().sum(-1)) - q[torch.arange(8), action]
    gap = gaps.mean().item() * (0.5 if prioritized else 1.0)  # all importance weights are 0.5
    output, expected = policy.learn_mode.forward(data), plain.learn_mode.forward(data)
    assert output["total_loss"] == pytest.approx(expected["total_loss"] + weight * gap, rel=1e-4)
    assert output["priority"] == expected["priority"]
    assert (output["q_value"], output["q_target"]) == (expected["q_value"], expected["target_q_value"])
