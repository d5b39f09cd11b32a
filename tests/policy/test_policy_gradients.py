"""What all policy gradient methods have in common: modes, state, ranks, columns, masks, images, dicts, pipelines."""

import copy
import math

import numpy as np
import pytest
import torch
from easydict import EasyDict

from ding.entry import serial_pipeline, serial_pipeline_onpolicy
from ding.policy import (
    A2CPolicy,
    DummyCommandModePolicy,
    PGPolicy,
    PPOOffPolicy,
    PPOPGPolicy,
    create_policy,
    get_policy_cls,
)
from ding.utils.data.samples import Samples, Table
from tests.policy.on_policy_samples import make_episodes, make_piece, make_pieces, make_policy, parameters_of

CLASSES = {"a2c": A2CPolicy, "pg": PGPolicy, "ppo_pg": PPOPGPolicy, "ppo_offpolicy": PPOOffPolicy}
SPACES = ["discrete", "continuous", "multi-discrete"]
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


@pytest.mark.differs("A2C and off-policy PPO fail in a process that only learns", "each mode works alone")
@each_policy
@pytest.mark.parametrize("field", ["learn", "collect", "eval"])
@pytest.mark.parametrize("space", SPACES)
def test_each_mode_works_alone(name, field, space):
    data = make_data(make(name, space=space))
    policy = make(name, field, space=space)
    if field == "learn":
        for output in learn(policy, data):
            assert output.keys() <= set(policy.learn_mode.monitor_vars())
            assert not any(math.isnan(value) for value in output.values())
    elif field == "collect":
        make_data(policy)
    else:
        assert list(policy.eval_mode.forward(OBS)) == [3, 0]


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
def test_a_command_mode_has_nothing_to_set(name):
    cls = get_policy_cls(EasyDict(type=f"{name}_command"))
    assert cls.__bases__ == (CLASSES[name], DummyCommandModePolicy)
    policy = cls(cls.default_config(), enable_field=["command"])
    assert policy.command_mode.get_setting_collect({"envstep": 1}) == {}


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


@pytest.mark.differs("a checkpoint of off-policy PPO loses the value scale", "it has `value_norm`")
@each_policy
@pytest.mark.parametrize("space", ["discrete", "continuous"])
def test_a_resumed_policy_goes_on_bit_for_bit(name, space, tmp_path):
    policy = make(name, space=space)
    learn(policy, make_data(policy))
    torch.save(policy.learn_mode.state_dict(), tmp_path / "state.pth")
    other = make(name, space=space, seed=5)
    other.learn_mode.load_state_dict(torch.load(tmp_path / "state.pth", weights_only=True))
    data = make_data(policy)
    assert learn(policy, data) == learn(other, data)
    assert torch.equal(parameters_of(policy), parameters_of(other))


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


@each_policy
@pytest.mark.parametrize("space", SPACES)
def test_columns_make_the_samples_and_teach_what_dicts_do(name, space):
    policy = make(name, "collect", space=space)
    piece = make_piece(policy, 9, {"done": True})
    dicts = policy.collect_mode.get_train_sample(copy.deepcopy(piece))
    samples = policy.collect_mode.get_train_sample(Samples(Table.of(piece)))
    assert samples.table is not None
    results = [learn(make(name, "learn", space=space), data) for data in (dicts, samples)]
    assert results[0] == results[1]


@pytest.mark.differs(
    "A2C, PG and both further kinds of PPO train replicas that drift apart",
    "each step averages the gradients",
)
@each_policy
def test_every_step_averages_the_gradients_of_all_ranks(name, monkeypatch):
    monkeypatch.setattr("ding.policy.steps.GradientSynchronizer", lambda model, sync: None)
    monkeypatch.setattr("ding.policy.actor_critic.allreduce_data", lambda data, op: data)
    policy, synchronised = make(name, multi_gpu=True), []

    def sync(model):
        synchronised.append(model)
        for parameter in policy._model.parameters():
            parameter.grad.zero_()

    monkeypatch.setattr(policy, "sync_gradients", sync)
    before = parameters_of(policy)
    learn(policy, make_data(policy))
    steps = {"a2c": 3, "pg": 3, "ppo_pg": 6, "ppo_offpolicy": 1}[name]
    assert synchronised == [policy._model] * steps
    assert torch.equal(parameters_of(policy), before)  # what the ranks have averaged is what counts


# --- pipelines ---

ENV_MODULE = """
import gymnasium
from ding.envs.env.gymnasium_env import GymnasiumEnv
from ding.utils import ENV_REGISTRY

@ENV_REGISTRY.register("{name}")
class OutsideEnv(GymnasiumEnv):
    def __init__(self, cfg):
        super().__init__({{**cfg, "env_id": "{env_id}"}})
"""


@each_policy
@pytest.mark.parametrize("space", ["discrete", "continuous"])
def test_the_config_of_an_outside_program_runs(name, space, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    env_id, obs_shape, action_shape = ("CartPole-v1", 4, 2) if space == "discrete" else ("Pendulum-v1", 3, 1)
    module = f"outside_{name}_{space}"
    (tmp_path / f"{module}.py").write_text(ENV_MODULE.format(name=module, env_id=env_id))
    is_episodic = name in ("pg", "ppo_pg")
    amount = dict(n_episode=2, collector=dict(get_train_sample=True)) if is_episodic else dict(n_sample=64)
    main_config = EasyDict(
        dict(
            exp_name=f"{module}_seed0",
            env=dict(
                collector_env_num=2, evaluator_env_num=1, n_evaluator_episode=1, stop_value=1e6, act_scale=True,
                max_episode_steps=20,
            ),
            policy=dict(
                cuda=False,
                action_space=space,
                model=dict(
                    obs_shape=obs_shape, action_shape=action_shape, action_space=space,
                    encoder_hidden_size_list=[8, 8],
                ),
                learn=dict(batch_size=32, learning_rate=0.001, entropy_weight=0.01),
                collect=dict(unroll_len=1, discount_factor=0.9, **amount),
                eval=dict(evaluator=dict(eval_freq=50)),
            ),
        )
    )  # fmt: skip
    create_config = EasyDict(
        dict(
            env=dict(type=module, import_names=[module]),
            env_manager=dict(type="base"),
            policy=dict(type=name),
            collector=dict(type="episode" if is_episodic else "sample"),
        )
    )
    pipeline = serial_pipeline if name == "ppo_offpolicy" else serial_pipeline_onpolicy
    policy = pipeline((main_config, create_config), seed=0, max_train_iter=1)
    assert type(policy).__bases__[0] is CLASSES[name]
    assert not any(torch.isnan(p).any() for p in policy._model.parameters())
