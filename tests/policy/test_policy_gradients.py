"""What all policy gradient methods have in common: modes, state, ranks, columns, masks, images, dicts, pipelines."""

import copy
import math

import numpy as np
import pytest
import torch
from easydict import EasyDict

from ding.policy import (
    A2CPolicy,
    PGPolicy,
    PPOOffPolicy,
    PPOPGPolicy,
    create_policy,
)
from tests.policy.on_policy_samples import make_episodes, make_piece, make_pieces, make_policy, parameters_of

CLASSES = {"a2c": A2CPolicy, "pg": PGPolicy, "ppo_pg": PPOPGPolicy, "ppo_offpolicy": PPOOffPolicy}
OBS = {3: torch.rand(4), 0: torch.rand(4)}

each_policy = pytest.mark.parametrize("name", CLASSES)


def make(name, *fields, **settings):
    return make_policy(*fields, cls=CLASSES[name], **settings)


def make_data(policy, **kwargs):
    is_episodic = isinstance(policy, (PGPolicy, PPOPGPolicy))
    return (make_episodes if is_episodic else make_pieces)(policy, **kwargs)


def learn(policy, data):
    np.random.seed(0)
    output = policy.learn_mode.forward(data)
    return output if isinstance(output, list) else [output]


# --- modes ---


@each_policy
def test_actions_and_logits_have_the_documented_shapes(name):
    expected = {"discrete": ((1,), (3,)), "continuous": ((2,), {"mu": (2,), "sigma": (2,)})}
    for space, (action, logit) in expected.items():
        policy = make(name, "collect", "eval", space=space)
        for forward in (policy.collect_mode.forward, policy.eval_mode.forward):
            output = forward(OBS)
            assert list(output) == [3, 0]
            for entry in output.values():
                found = entry["logit"]
                shapes = {k: v.shape for k, v in found.items()} if isinstance(found, dict) else found.shape
                assert (entry["action"].shape, shapes) == (action, logit)


@each_policy
def test_the_model_follows_the_action_space(name):
    cfg = CLASSES[name].default_config()
    cfg.type, cfg.action_space = name, "continuous"
    cfg.model = EasyDict(obs_shape=4, action_shape=2)
    policy = create_policy(cfg)
    assert policy._model.action_space == "continuous" and policy.has_discrete_actions is False


@pytest.mark.differs(
    "PG and PPO without a critic do not know `action_mask`",
    "illegal actions are ruled out, in learning too",
)
@each_policy
def test_illegal_actions_are_never_taken_nor_learned(name):
    policy, mask = make(name), torch.tensor([1, 0, 1])
    obs = {i: {"observation": torch.rand(4), "action_mask": mask} for i in range(50)}
    assert all(output["action"].item() != 1 for output in policy.collect_mode.forward(obs).values())
    data = make_data(policy, make_obs=lambda: {"observation": torch.rand(4), "action_mask": mask})
    before = parameters_of(policy)
    for output in learn(policy, data):
        assert not any(math.isnan(value) for value in output.values())
    assert not torch.equal(parameters_of(policy), before)


# --- observations ---


@each_policy
def test_images_may_be_learned_from(name):
    def make_image():
        return torch.randint(255, (1, 36, 36), dtype=torch.uint8)

    settings = {"model__obs_shape": [1, 36, 36], "model__encoder_hidden_size_list": [4, 4, 8]}
    for options in ({}, {"model__impala_cnn_encoder": True}):
        if name in ("pg", "ppo_pg") and options:
            continue
        policy = make(name, **settings, **options)
        before = parameters_of(policy)
        learn(policy, make_data(policy, make_obs=make_image))
        assert not torch.equal(parameters_of(policy), before)


@each_policy
def test_dict_observations_may_be_learned_from(name):
    policy = make(name, model__obs_shape={"pos": 2, "speed": 1})
    data = make_data(policy, make_obs=lambda: {"pos": torch.rand(2), "speed": torch.rand(1)})
    before = parameters_of(policy)
    learn(policy, data)
    assert not torch.equal(parameters_of(policy), before)


# --- state ---


@each_policy
def test_a_collecting_process_takes_what_it_needs_from_the_learner(name):
    learner, collector = make(name, "learn", "collect"), make(name, "collect", seed=4)
    learn(learner, make_data(learner))
    state = learner.learn_mode.state_dict()
    assert state.keys() == {"model", "optimizer"} | ({"value_norm"} if name == "ppo_offpolicy" else set())
    collector.collect_mode.load_state_dict(state)
    torch.manual_seed(0)
    piece = make_piece(learner, 4, {"done": True})
    ours, theirs = (p.collect_mode.get_train_sample(copy.deepcopy(piece)) for p in (learner, collector))
    key = "return" if name in ("pg", "ppo_pg") else "adv"
    assert [sample[key] for sample in ours] == [sample[key] for sample in theirs]
    make(name, "eval").eval_mode.load_state_dict(state)


# --- columns and ranks ---


# --- pipelines ---
