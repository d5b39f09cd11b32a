"""The on-policy examples, and configs as users of DI-engine have them."""

import importlib
import json

import pytest
import torch
from easydict import EasyDict
from torch import nn

from ding.entry.serial_entry import run_serial_onpolicy
from ding.example import runner

NAMES = ["cartpole_a2c", "cartpole_ppo", "pendulum_ppo"]


@pytest.fixture(autouse=True)
def in_tmp_on_one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def module(name):
    return importlib.import_module(f"ding.example.{name}")


@pytest.mark.parametrize("name", NAMES)
def test_an_example_runs_and_says_how_it_ended(name, capsys):
    example = module(name)
    main = EasyDict(example.main_config)
    main.policy = EasyDict({**main.policy, "collect": {**main.policy.collect, "n_sample": 64}})
    main.policy.eval = {"evaluator": {"eval_freq": 5}}
    main.env = EasyDict({**main.env, "stop_value": -3000, "n_evaluator_episode": 5})
    options = {"train": run_serial_onpolicy, "max_env_step": 1000}
    assert runner.run(main, example.create_config, [], **options) == 0
    assert capsys.readouterr().out.startswith("solved: mean return ")


def documented_cartpole():
    """The layout of CartPole's PPO config in DI-engine's documents, for an env type of this package."""
    main = EasyDict(
        exp_name="cartpole_ppo_seed0",
        env=dict(env_id="CartPole-v1", collector_env_num=8, evaluator_env_num=5, n_evaluator_episode=5, stop_value=195),
        policy=dict(
            cuda=False,
            action_space="discrete",
            model=dict(
                obs_shape=4,
                action_shape=2,
                action_space="discrete",
                encoder_hidden_size_list=[64, 64, 128],
                critic_head_hidden_size=128,
                actor_head_hidden_size=128,
            ),
            learn=dict(
                epoch_per_collect=2,
                batch_size=64,
                learning_rate=0.001,
                value_weight=0.5,
                entropy_weight=0.01,
                clip_ratio=0.2,
                learner=dict(hook=dict(save_ckpt_after_iter=100)),
            ),
            collect=dict(n_sample=256, unroll_len=1, discount_factor=0.9, gae_lambda=0.95),
            eval=dict(evaluator=dict(eval_freq=100)),
        ),
    )
    return main, EasyDict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type="ppo"))


def documented_pendulum():
    """As above, with continuous actions."""
    main, create = documented_cartpole()
    main.env.update(env_id="Pendulum-v1", act_scale=True, collector_env_num=10, stop_value=-250)
    main.policy.action_space = "continuous"
    main.policy.model = EasyDict(
        obs_shape=3,
        action_shape=1,
        encoder_hidden_size_list=[64, 64],
        action_space="continuous",
        actor_head_layer_num=0,
        critic_head_layer_num=0,
        sigma_type="conditioned",
        activation=nn.Tanh(),
        bound_type="tanh",
    )
    main.policy.learn = EasyDict(
        epoch_per_collect=10, batch_size=32, learning_rate=3e-5, adv_norm=False, value_norm=True, ignore_done=True
    )
    main.policy.collect = EasyDict(n_sample=200, unroll_len=1, discount_factor=0.9, gae_lambda=1.0)
    return main, create


@pytest.mark.parametrize("pair", [documented_cartpole, documented_pendulum])
def test_a_documented_config_runs(pair):
    run = run_serial_onpolicy(pair(), max_train_iter=1)
    assert run.learner.train_iter == (2 * 4 if pair is documented_cartpole else 10 * 7)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "seed", "steps", "least"),
    [
        *((name, seed, 100_000, 195) for name in ("cartpole_a2c", "cartpole_ppo") for seed in range(5)),
        *(("pendulum_ppo", seed, 500_000, -300) for seed in range(3)),
    ],
)
def test_an_example_is_solved(name, seed, steps, least):
    example = module(name)
    argv = ["--seed", str(seed), "--max-env-step", str(steps)]
    assert runner.run(example.main_config, example.create_config, argv, train=run_serial_onpolicy) == 0
    assert best_return(f"{name}_seed{seed}") >= least


@pytest.mark.slow
def test_the_documented_cartpole_config_is_solved():
    assert run_serial_onpolicy(documented_cartpole(), max_env_step=100_000).stop


def best_return(folder):
    with open(f"{folder}/eval.jsonl") as f:
        returns = [json.loads(line)["returns"] for line in f]
    assert all(len(episodes) == 10 for episodes in returns)
    return max(sum(episodes) / 10 for episodes in returns)
