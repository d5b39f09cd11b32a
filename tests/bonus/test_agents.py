"""Agents train, continue, evaluate, record videos and collect data, over the pipelines."""

import copy
import os
from dataclasses import asdict, fields

import gymnasium
import numpy as np
import pytest
import torch
from easydict import EasyDict

import ding.config
from ding.bonus import PPOF, DQNAgent, TD3Agent, TrainingReturn
from ding.bonus.agent import EvalReturn
from ding.config import compile_config
from ding.entry import evaluate_run
from ding.entry.run_folder import RunFolder
from ding.envs import DingEnvWrapper
from ding.utils.config_helper import ConfigError
from ding.utils.data.dataset import NaiveRLDataset
from ding.utils.file_helper import read_file

EXAMPLES = {DQNAgent: ding.config.DQN, PPOF: ding.config.PPOF, TD3Agent: ding.config.TD3}
TASKS = [(DQNAgent, "CartPole-v1"), (PPOF, "CartPole-v1"), (PPOF, "Pendulum-v1"), (TD3Agent, "Pendulum-v1")]


def small(kind, env_id):
    """The agent's own config with few envs and small amounts."""
    cfg = copy.deepcopy(EXAMPLES[kind].supported_env_cfg[env_id])
    cfg.env.update(collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2)
    cfg.policy.learn.batch_size = 16
    cfg.policy.collect.n_sample = 32
    cfg.policy.random_collect_size = 0
    return cfg


def agent_of(kind=DQNAgent, env_id="CartPole-v1", **kwargs):
    return kind(env_id, **{"cfg": small(kind, env_id), "exp_name": "run", **kwargs})


def weights(path):
    return read_file(path)["model"]


@pytest.mark.parametrize(("kind", "env_id"), TASKS)
def test_an_agent_trains_and_evaluates_what_it_has_trained(kind, env_id):
    agent = agent_of(kind, env_id, seed=3)
    assert agent.train(step=100) == TrainingReturn(wandb_url="")
    newest = list(RunFolder("run").checkpoints().values())[-1]
    for episodes in (2, 3):
        result = agent.batch_evaluate(env_num=2, n_evaluator_episode=episodes)
        expected = evaluate_run("run", n_episode=episodes, checkpoint=newest).returns
        assert (result.eval_value, result.eval_value_std) == (
            np.float32(np.mean(expected)),
            np.float32(np.std(expected)),
        )
    assert os.listdir() == ["run"]


def test_a_further_training_begins_with_the_weights_in_a_folder_of_its_own():
    agent = agent_of()
    agent.train(step=100)
    path = list(RunFolder("run").checkpoints().values())[-1]
    agent.train(step=50, collector_env_num=4)
    assert agent.exp_name.startswith("run_")
    compiled = RunFolder(agent.exp_name).compiled
    assert compiled.policy.learn.learner.hook.load_ckpt_before_run == path
    assert compiled.env.collector_env_num == 4
    end = read_file(list(RunFolder(agent.exp_name).checkpoints().values())[-1])
    assert end["last_iter"] > read_file(path)["last_iter"]


def test_best_has_the_weights_of_the_best_evaluation_also_of_an_earlier_process():
    trained = agent_of(TD3Agent, "Pendulum-v1")
    trained.train(step=200)
    agent = agent_of(TD3Agent, "Pendulum-v1")
    assert agent.best is agent
    result = agent.batch_evaluate(env_num=2)
    assert result.eval_value == np.float32(np.mean(evaluate_run("run", checkpoint="best", n_episode=4).returns))
    assert result != trained.batch_evaluate(env_num=2)
    agent.train(step=1)
    best = RunFolder("run").checkpoints()["ckpt_best.pth.tar"]
    assert RunFolder(agent.exp_name).compiled.policy.learn.learner.hook.load_ckpt_before_run == best


def test_an_agent_begins_with_a_checkpoint():
    agent_of().train(step=100)
    path = list(RunFolder("run").checkpoints().values())[-1]
    agent = agent_of(exp_name="other", policy_state_dict=path)
    assert agent.deploy(seed=5).eval_value == evaluate_run("run", n_episode=1, checkpoint=path, seed=5).returns[0]
    agent.train(step=1)
    assert RunFolder("other").compiled.policy.learn.learner.hook.load_ckpt_before_run == path


def test_deploying_plays_an_episode_for_each_seed():
    agent = agent_of()
    agent.train(step=100)
    newest = list(RunFolder("run").checkpoints().values())[-1]
    expected = [evaluate_run("run", n_episode=1, checkpoint=newest, seed=seed).returns[0] for seed in (1, 2, 7)]
    result = agent.deploy(seed=[1, 2, 7])
    assert (result.eval_value, result.eval_value_std) == (np.float32(np.mean(expected)), np.float32(np.std(expected)))
    assert not os.path.exists(os.path.join("run", "videos"))


def test_deploying_records_one_video_for_each_seed(set_env):
    pytest.importorskip("moviepy")
    pytest.importorskip("pygame")
    set_env(SDL_VIDEODRIVER="dummy")
    agent = agent_of()
    agent.train(step=50)
    agent.deploy(enable_save_replay=True, seed=[1, 2])
    assert sorted(os.listdir("run/videos")) == ["episode_1.mp4", "episode_2.mp4"]
    agent.deploy(enable_save_replay=True, replay_save_path="elsewhere")
    assert os.listdir("elsewhere") == ["episode_0.mp4"]


@pytest.mark.parametrize(("kind", "env_id"), TASKS)
def test_an_agent_collects_samples_and_episodes(kind, env_id):
    agent = agent_of(kind, env_id)
    agent.train(step=50)
    agent.collect_data(env_num=2, n_sample=8)
    agent.collect_data(n_episode=1, save_data_path="data/episodes")
    samples, episodes = NaiveRLDataset("run/demo_data"), NaiveRLDataset("data/episodes")
    assert (len(samples), len(episodes)) == (8, 1)
    assert bool(episodes[0][-1]["done"])
    assert sorted(os.listdir()) == ["data", "run"]


def test_a_context_steps_the_envs_in_processes_unless_debugging():
    agent = agent_of()
    agent.train(step=40, context="fork")
    manager = RunFolder("run").compiled.env.manager
    assert (manager.type, manager.context) == ("subprocess", "fork")
    other = agent_of(exp_name="debugged")
    other.train(step=40, context="fork", debug=True)
    assert RunFolder("debugged").compiled.env.manager.type == "base"


def test_an_env_of_the_user_is_cloned():
    env = DingEnvWrapper(gymnasium.make("CartPole-v1", max_episode_steps=5))
    agent = agent_of(env=env)
    agent.train(step=50)
    assert agent.batch_evaluate(n_evaluator_episode=2).eval_value == 5
    assert env.reset().shape == (4,)
    env.close()


def test_rewards_are_clipped_as_the_config_says():
    class Falls(gymnasium.Wrapper):
        def step(self, action):
            return self.env.step(action)[0], -100.0, True, False, {}

    cfg = small(TD3Agent, "Pendulum-v1")
    cfg.env.update(rew_clip=True, env_wrapper=[Falls])
    agent = TD3Agent("Pendulum-v1", cfg=cfg, exp_name="run")
    agent.train(step=40)
    agent.collect_data(env_num=2, n_sample=4)
    assert [float(sample["reward"]) for sample in list(NaiveRLDataset("run/demo_data"))] == [-10.0] * 4


def test_shapes_and_kinds_of_actions_are_those_of_the_env():
    def model_of(kind, env_id):
        return kind(env_id, cfg={}).cfg.policy.model

    assert model_of(DQNAgent, "Acrobot-v1") == {"obs_shape": 6, "action_shape": 3}
    assert model_of(TD3Agent, "MountainCarContinuous-v0") == {"obs_shape": 2, "action_shape": 1}
    assert PPOF("Acrobot-v1", cfg={}).cfg.policy.action_space == "discrete"
    assert PPOF("Pendulum-v1", cfg={}).cfg.policy.action_space == "continuous"


def test_a_flat_config_of_ppof_is_sorted_into_sections():
    cfg = EasyDict(
        env_id="Pendulum-v1", n_sample=64, value_norm="popart", act_scale=True, grad_norm=0.3, exp_name="flat"
    )
    agent = PPOF(cfg=cfg)
    agent.cfg.env.update(collector_env_num=2, evaluator_env_num=1, n_evaluator_episode=1)
    agent.train(step=64)
    compiled = RunFolder("flat").compiled
    learn = compiled.policy.learn
    assert (compiled.env.act_scale, compiled.policy.action_space, compiled.policy.collect.n_sample) == (
        True,
        "continuous",
        64,
    )
    assert (learn.value_norm, learn.grad_clip_value) == (True, 0.3)


@pytest.mark.parametrize("kind", [DQNAgent, PPOF, TD3Agent])
def test_every_example_config_compiles(kind):
    kinds = {DQNAgent: "dqn", PPOF: "ppo", TD3Agent: "td3"}
    assert kind.supported_env_list == list(EXAMPLES[kind].supported_env_cfg)
    for env_id in kind.supported_env_list:
        cfg = kind(env_id).cfg
        create = EasyDict(env={"type": "gymnasium"}, env_manager={"type": "base"}, policy={"type": kinds[kind]})
        compiled = compile_config(cfg, auto=True, create_cfg=create, save_cfg=False)
        assert compiled.env.env_id in gymnasium.registry
        assert compiled.env.n_evaluator_episode >= compiled.env.evaluator_env_num
        assert compiled.policy.model.obs_shape == cfg.policy.model.obs_shape


def test_the_config_of_lunar_lander_is_found_by_its_earlier_id():
    from ding.config.example.DQN.gym_lunarlander_v2 import cfg

    agent = DQNAgent("LunarLander-v2", exp_name="lander")
    assert agent.cfg == {**cfg, "exp_name": "lander"}
    assert (agent.cfg.env.env_id, cfg.exp_name) == ("LunarLander-v3", "LunarLander-v3-DQN")
    published = EasyDict({**cfg, "env": {**cfg.env, "env_id": "LunarLander-v2"}, "seed": 1})
    assert DQNAgent(cfg=published).cfg == cfg


def test_an_env_without_a_config_is_an_error_that_lists_those_with_one():
    with pytest.raises(ConfigError, match="Acrobot-v1.*CartPole-v1"):
        DQNAgent("Acrobot-v1")


@pytest.mark.parametrize("act", [DQNAgent.deploy, DQNAgent.batch_evaluate, DQNAgent.collect_data])
def test_acting_without_weights_is_an_error(act):
    with pytest.raises(RuntimeError, match="no weights"):
        act(agent_of())
    assert os.listdir() == []


def test_a_model_of_the_user_acts_untrained():
    model = torch.nn.Module()
    model.forward = lambda obs: {"logit": torch.tensor([[1.0, 0.0]]).repeat(len(obs), 1)}
    agent = agent_of(model=model)
    assert agent.deploy(seed=0).eval_value == 10


def test_results_have_the_documented_fields():
    assert asdict(TrainingReturn(wandb_url="https://wandb.ai/a/b")) == {"wandb_url": "https://wandb.ai/a/b"}
    assert [field.name for field in fields(EvalReturn)] == ["eval_value", "eval_value_std"]
    result = EvalReturn(eval_value=np.float32(1.5), eval_value_std=np.float32(0.5))
    assert (result.eval_value, result.eval_value_std) == (1.5, 0.5)
