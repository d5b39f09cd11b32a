"""Envs with several agents, whose observations are dicts, train with one policy for all agents."""

import pytest
import torch
from easydict import EasyDict

from ding.entry import serial_pipeline_onpolicy
from ding.model import MAVAC
from ding.worker import BaseLearner
from tests.compat.team_envs import TeamEnv

AGENTS = 3


def config_pair(policy_type, model, manager="base", **policy):
    main = EasyDict(
        exp_name="team",
        env=dict(
            env_family="lights", n_agent=AGENTS, max_cycles=4, agent_specific_global_state=True,
            collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2, stop_value=100,
        ),
        policy=dict(cuda=False, model=model, **policy),
    )  # fmt: skip
    create = EasyDict(
        env=dict(type="compat_team", import_names=["tests.compat.team_envs"]),
        env_manager=dict(type=manager),
        policy=dict(type=policy_type),
    )
    return main, create


@pytest.fixture
def results(monkeypatch):
    """What the learner of a run in a folder of its own returned."""
    seen, train = [], BaseLearner.train

    def noting(self, *args, **kwargs):
        results = train(self, *args, **kwargs)
        seen.extend(results)
        return results

    monkeypatch.setattr(BaseLearner, "train", noting)
    return seen


@pytest.mark.parametrize("manager", ["base", "subprocess"])
def test_ppo_trains_a_team_with_a_mask_of_legal_actions(manager, results):
    config = config_pair(
        "ppo",
        dict(
            agent_num=AGENTS, agent_obs_shape=2, global_obs_shape=2 * AGENTS + 1, action_shape=2,
            action_space="discrete", actor_head_hidden_size=8, critic_head_hidden_size=8,
        ),
        manager,
        multi_agent=True,
        action_space="discrete",
        learn=dict(epoch_per_collect=1, batch_size=4, value_norm=True, adv_norm=False),
        collect=dict(n_sample=8, unroll_len=1, env_num=2),
    )  # fmt: skip
    policy = serial_pipeline_onpolicy(config, seed=0, max_train_iter=4)
    assert isinstance(policy._model, MAVAC) and len(results) >= 4
    assert all(abs(result["total_loss"]) < 100 for result in results)
    obs = {env_id: TeamEnv(EasyDict(n_agent=AGENTS, max_cycles=4)).reset() for env_id in range(2)}
    output = policy.eval_mode.forward(obs)
    assert all(output[i]["action"].shape == (AGENTS,) for i in obs)
    assert all((output[i]["action"] <= torch.as_tensor(obs[i]["action_mask"][:, 1])).all() for i in obs)
