"""CQL for discrete actions: what it learns, and how it is trained."""

import copy

import pytest
import torch
from easydict import EasyDict

from ding.entry import collect_demo_data, serial_pipeline_offline
from ding.policy import DiscreteCQLCommandModePolicy, DiscreteCQLPolicy, QRDQNPolicy
from ding.utils.data.samples import Samples, Table
from tests.policy.continuous_samples import assert_states_equal
from tests.policy.samples import make_batch
from tests.policy.test_bc import Balance


def make_policy(*fields, cls=DiscreteCQLPolicy, **settings):
    cfg = cls.default_config()
    cfg.model.update(obs_shape=4, action_shape=2, encoder_hidden_size_list=[8], num_quantiles=4)
    for path, value in settings.items():
        section, _, key = path.rpartition("__")
        (cfg[section] if section else cfg)[key] = value
    torch.manual_seed(0)
    return cls(cfg, enable_field=list(fields) or None)


@pytest.mark.differs("importance weights do not count in the conservative term of discrete CQL", "they do")
@pytest.mark.parametrize("weight", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("prioritized", [False, True])
def test_the_gap_to_other_actions_is_added_to_the_loss_of_qrdqn(weight, prioritized):
    settings = {"priority": prioritized, "priority_IS_weight": prioritized}
    policy = make_policy("learn", learn__min_q_weight=weight, **settings)
    plain, data = make_policy("learn", cls=QRDQNPolicy, **settings), make_batch(8)
    obs, action = torch.stack([row["obs"] for row in data]), torch.cat([row["action"] for row in data])
    q = policy._model(obs)["logit"]
    gaps = torch.log(q.exp().sum(-1)) - q[torch.arange(8), action]
    gap = gaps.mean().item() * (0.5 if prioritized else 1.0)  # all importance weights are 0.5
    output, expected = policy.learn_mode.forward(data), plain.learn_mode.forward(data)
    assert output["total_loss"] == pytest.approx(expected["total_loss"] + weight * gap, rel=1e-4)
    assert output["priority"] == expected["priority"]
    assert (output["q_value"], output["q_target"]) == (expected["q_value"], expected["target_q_value"])


def test_output_and_monitored_variables_are_the_documented_ones():
    policy = make_policy("learn")
    output = policy.learn_mode.forward(make_batch(4))
    assert set(output) == {"cur_lr", "total_loss", "priority", "q_target", "q_value"}
    assert policy.learn_mode.monitor_vars() == ["cur_lr", "total_loss", "q_target", "q_value"]


def test_training_raises_the_demonstrated_action():
    policy, data = make_policy("learn", learn__learning_rate=0.01), make_batch(8, action=torch.tensor([1]))
    for _ in range(50):
        policy.learn_mode.forward(data)
    q = policy._model(torch.stack([row["obs"] for row in data]))["logit"]
    assert (q[:, 1] > q[:, 0] + 0.5).all()


def test_columns_are_learned_from_like_dicts_and_a_state_goes_on_to_the_bit():
    data = make_batch(8)
    first, second = make_policy("learn"), make_policy("learn")
    assert first.learn_mode.forward(data) == second.learn_mode.forward(Samples(Table.of(data)))
    third = make_policy("learn")
    third.learn_mode.load_state_dict(copy.deepcopy(first.learn_mode.state_dict()))
    assert first.learn_mode.forward(data) == third.learn_mode.forward(data)
    assert_states_equal(first.learn_mode.state_dict(), third.learn_mode.state_dict())


def test_the_example_config_runs_on_demonstrations_of_qrdqn(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    env = {
        "env_id": "CartPole-v1",
        "collector_env_num": 8,
        "evaluator_env_num": 5,
        "n_evaluator_episode": 5,
        "stop_value": 195,
    }
    model = {"obs_shape": 4, "action_shape": 2, "encoder_hidden_size_list": [128, 128, 64], "num_quantiles": 64}
    expert = EasyDict(
        exp_name="cartpole_generation",
        env=env,
        policy={
            "cuda": False,
            "priority": True,
            "discount_factor": 0.97,
            "nstep": 3,
            "model": model,
            "collect": {"data_type": "npz", "save_path": "./cartpole_generation/expert.pkl"},
            "other": {"eps": {"collect": 0.2}},
        },
    )
    create = EasyDict(env={"type": "gymnasium"}, env_manager={"type": "base"}, policy={"type": "qrdqn"})
    collect_demo_data((expert, create), seed=0, collect_count=640, model=Balance())
    main = EasyDict(
        exp_name="cartpole_cql",
        env=env,
        policy={
            "cuda": False,
            "priority": True,
            "discount_factor": 0.97,
            "nstep": 3,
            "model": model,
            "learn": {
                "train_epoch": 1,
                "update_per_collect": 3,
                "batch_size": 64,
                "learning_rate": 0.001,
                "target_update_freq": 100,
                "min_q_weight": 10.0,
            },
            "collect": {
                "n_sample": 80,
                "unroll_len": 1,
                "data_type": "npz",
                "data_path": "./cartpole_generation/expert_demos.npz",
            },
            "eval": {"evaluator": {"eval_freq": 100}},
        },
    )
    create.policy.type = "discrete_cql"
    policy, stop = serial_pipeline_offline((main, create), seed=0)
    assert isinstance(policy, DiscreteCQLCommandModePolicy) and not stop
