"""BDQ: one target for all branches."""

import pytest
import torch

from tests.policy.learning import model_of, target_of
from tests.policy.samples import make_batch
from tests.policy.value_policies import OBS, make_policy


def test_all_branches_learn_the_mean_of_the_next_values():
    policy = make_policy("bdq", "learn", model__num_branches=3, model__action_bins_per_branch=4)
    data = [{**sample, "action": torch.tensor([i % 4, (i + 1) % 4, 2])} for i, sample in enumerate(make_batch(6))]
    for _ in range(3):
        policy.learn_mode.forward(data)  # now the target network differs
    expected, q_value = [], torch.zeros(3)
    for sample in data:
        with torch.no_grad():
            q, best = (model_of(policy)(sample[key][None])["logit"][0] for key in ("obs", "next_obs"))
            following = target_of(policy)(sample["next_obs"][None])["logit"][0]
        next_value = sum(following[d, best[d].argmax()].item() for d in range(3)) / 3
        target = sample["reward"].item() + 0.97 * (not sample["done"]) * next_value
        expected.append(sum((q[d, sample["action"][d]].item() - target) ** 2 for d in range(3)) / 3)
        q_value += q.mean(-1) / 6
    output = policy.learn_mode.forward(data)
    assert output["priority"] == pytest.approx(expected, rel=1e-3, abs=1e-6)
    assert output["total_loss"] == pytest.approx(sum(expected) / 6, rel=1e-3)
    assert [output[f"q_value_b_{i}"] for i in range(3)] == pytest.approx(q_value.tolist(), rel=1e-3, abs=1e-6)
    assert output["q_value"] == pytest.approx(q_value.mean().item(), rel=1e-3, abs=1e-6)
    names = ["q_value_b_0", "q_value_b_1", "q_value_b_2"]
    assert policy.learn_mode.monitor_vars() == ["cur_lr", "total_loss", "q_value", *names]


def test_an_action_has_an_entry_for_each_branch():
    policy = make_policy("bdq", "collect", "eval", model__num_branches=3, model__action_bins_per_branch=4)
    for output in (policy.collect_mode.forward(OBS, eps=0.0), policy.eval_mode.forward(OBS)):
        for out in output.values():
            assert out["logit"].shape == (3, 4) and out["action"].dtype is torch.int64
            assert torch.equal(out["action"], out["logit"].argmax(-1))
    explored = policy.collect_mode.forward({env_id: torch.zeros(4) for env_id in range(400)}, eps=1.0)
    counts = torch.stack([out["action"] for out in explored.values()])
    assert all(60 < (counts[:, branch] == bin_).sum() < 140 for branch in range(3) for bin_ in range(4))
