"""IQN: quantile regression at random fractions, rows of each env when acting."""

import torch

from tests.generators import reseed
from tests.policy.learning import model_of
from tests.policy.value_policies import make_policy


def test_each_env_gets_its_own_values_at_its_own_fractions():
    policy = make_policy("iqn", "collect", "eval", model__num_quantiles=5)
    observations = {env_id: torch.rand(4) for env_id in (4, 1, 2)}
    for forward in (policy.eval_mode.forward, lambda data: policy.collect_mode.forward(data, eps=0.0)):
        reseed(policy, 0)
        with torch.no_grad():
            output = model_of(policy)(torch.stack(list(observations.values())))
        reseed(policy, 0)
        acted = forward(observations)
        for row, env_id in enumerate(observations):
            assert torch.equal(acted[env_id]["q"], output["q"][:, row])
            assert torch.equal(acted[env_id]["quantiles"], output["quantiles"].view(5, 3)[:, row])
            assert torch.equal(acted[env_id]["logit"], output["logit"][row])
            assert acted[env_id]["q"].mean(0).argmax().item() == acted[env_id]["action"].item()
