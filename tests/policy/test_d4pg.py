"""D4PG: importance weights; its updates are in the recorded steps of `tests/compat`."""

import numpy as np
import pytest
import torch

from ding.policy.d4pg import D4PGPolicy
from tests.policy.continuous_samples import make_batch, make_config


def test_importance_weights_of_each_sample_scale_the_loss_of_the_critic_and_not_the_priority():
    torch.manual_seed(0)
    policy = D4PGPolicy(make_config(D4PGPolicy, None, model__n_atom=5, model__v_min=-2, model__v_max=2))
    data = policy.collect_mode.get_train_sample(make_batch(6, done=False))
    output = policy.learn_mode.forward(data)
    weighted = [sample["IS"] * error for sample, error in zip(data, output["priority"], strict=True)]
    assert output["critic_loss"] == pytest.approx(np.mean(weighted), rel=1e-4)
    assert output["total_loss"] == pytest.approx(output["critic_loss"] + output["actor_loss"], rel=1e-4)
