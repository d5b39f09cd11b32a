import importlib
import json
import os
import pickle

import pytest
import torch
from easydict import EasyDict
from torch import nn
from torch.utils.data import DataLoader

from ding.config.config import compile_config
from ding.config.read import read_config
from ding.entry.serial_entry import run_serial_onpolicy
from ding.example import cartpole_dqn_parallel, pendulum_cql, runner
from ding.example.spirals_classifier import AccuracyMetric, ClassifierPolicy, build_policy, main, spirals
from ding.torch_utils.thread_count import threads
from ding.utils.data.dataset import NpzDataset
from ding.utils.file_helper import read_file
from ding.worker.collector.metric_serial_evaluator import MetricSerialEvaluator
from tests.programs import printed

CARTPOLE = ["dqn", "dqn_per", "rainbow", "r2d2", "impala", "a2c", "ppo"]
STOP_VALUES = {f"cartpole_{name}": 195 for name in CARTPOLE} | {
    f"pendulum_{name}": -250 for name in ("sac", "td3", "ppo")
}
PRIORITIZED = {"cartpole_dqn_per", "cartpole_rainbow", "cartpole_r2d2"}


ON_POLICY = ["cartpole_a2c", "cartpole_ppo", "pendulum_ppo"]


@pytest.fixture(autouse=True)
def on_one_thread():
    with threads(1):
        yield


def module(name):
    return importlib.import_module(f"ding.example.{name}")


@pytest.mark.parametrize("name", STOP_VALUES)
def test_the_file_of_an_example_is_a_config_file(name):
    example = module(name)
    main, create = read_config(example.__file__)
    assert main == example.main_config == getattr(example, f"{name}_config")
    assert create == example.create_config == getattr(example, f"{name}_create_config")
    cfg = compile_config(main, auto=True, create_cfg=create)
    assert cfg.policy.eval.evaluator.stop_value == STOP_VALUES[name] and cfg.policy.eval.evaluator.n_episode == 10
    assert cfg.policy.priority is cfg.policy.priority_IS_weight is (name in PRIORITIZED)


@pytest.mark.parametrize("name", ["pendulum_sac", "pendulum_td3", *ON_POLICY])
def test_an_example_runs_and_says_how_it_ended(name, capsys):
    example = module(name)
    main, options = EasyDict(example.main_config), {"max_env_step": 1000}
    changes = {"random_collect_size": 200, "eval": {"evaluator": {"eval_freq": 2}}}
    if name in ON_POLICY:
        changes = {"collect": {**main.policy.collect, "n_sample": 64}, "eval": {"evaluator": {"eval_freq": 5}}}
        options["train"] = run_serial_onpolicy
    main.policy = EasyDict({**main.policy, **changes})
    main.env = EasyDict({**main.env, "stop_value": -3000, "n_evaluator_episode": 5})
    assert runner.run(main, example.create_config, [], **options) == 0
    assert capsys.readouterr().out.startswith("solved: mean return ")


def test_an_example_that_ends_unsolved_says_so_and_returns_1(capsys):
    example = module("cartpole_dqn")
    assert runner.run(example.main_config, example.create_config, ["--seed", "7", "--max-env-step", "200"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("NOT solved: mean return ") and out.endswith("results are in ./cartpole_dqn_seed7/\n")
    assert example.main_config.exp_name == "cartpole_dqn"
    with open("cartpole_dqn_seed7/result.pkl", "rb") as f:
        assert pickle.load(f)["env_step"] >= 200
    assert "eval.jsonl" in os.listdir("cartpole_dqn_seed7")


def test_an_example_that_reaches_its_stop_value_returns_0(capsys):
    example = module("cartpole_dqn_per")
    main = example.main_config.__class__(example.main_config)
    main.env = {**main.env, "stop_value": 1}
    assert runner.run(main, example.create_config, []) == 0
    assert capsys.readouterr().out.startswith("solved: mean return ")


# The parallel examples, run as users run them.


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cartpole_dqn_parallel", "goofspiel_parallel"])
def test_an_example_reaches_its_stop_value_and_says_where_its_files_are(name, tmp_path):
    output = printed("-m", f"ding.example.{name}", "--seed", "0")
    assert output.startswith("solved: mean return") and f"results are in ./{name}_seed0/" in output
    assert {"ckpt", "eval.jsonl", "result.pkl", "total_config.py"} < set(os.listdir(tmp_path / f"{name}_seed0"))


def test_a_run_that_is_not_solved_in_time_has_another_status(capsys):
    assert cartpole_dqn_parallel.main(["--max-seconds", "0.001"]) == 1
    assert capsys.readouterr().out.startswith("NOT solved: mean return - (stop value 195); results are in .")


# The example that collects demonstrations and trains on them.


def test_an_expert_is_trained_its_steps_are_saved_and_trained_on(monkeypatch, capsys):
    monkeypatch.setattr(pendulum_cql, "COUNT", 300)
    main = pendulum_cql.main_config.__class__(pendulum_cql.main_config)
    main.policy.learn.train_epoch = 1
    main.env.stop_value = 0
    options = {"train": pendulum_cql.collect_and_train, "max_env_step": 1000}
    assert runner.run(main, pendulum_cql.create_config, ["--seed", "3"], **options) == 1
    told = capsys.readouterr()
    assert told.out.startswith("NOT solved: mean return ") and "after 0 env steps, 3 iterations" in told.err
    assert sorted(os.listdir(".")) == ["pendulum_cql_demos.npz", "pendulum_cql_seed3", "pendulum_cql_seed3_expert"]
    assert len(NpzDataset("pendulum_cql_demos.npz")) == 300


def new_policy(**kwargs):
    cfg = EasyDict(policy=ClassifierPolicy.default_config())
    return build_policy(cfg) if not kwargs else ClassifierPolicy(cfg.policy, **kwargs)


def test_it_learns_until_the_stop_value_and_keeps_its_best_checkpoint(capsys):
    assert main(["--seed", "2"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("solved: accuracy ") and out.endswith("results are in ./spirals_classifier_seed2/\n")
    told = float(out.split("accuracy ")[1].split(" %")[0])
    assert told >= 98

    policy = new_policy()
    policy.learn_mode.load_state_dict(read_file("spirals_classifier_seed2/ckpt/ckpt_best.pth.tar"))
    cfg = MetricSerialEvaluator.default_config()
    cfg.stop_value = None
    evaluator = MetricSerialEvaluator(cfg, (DataLoader(spirals(512, seed=5), 64), AccuracyMetric()), policy.eval_mode)
    assert evaluator.eval()[1]["acc"] == pytest.approx(told, abs=0.05)
    evaluator.close()


def test_one_that_is_not_trained_says_so_and_returns_1(capsys):
    assert main(["--epochs", "0"]) == 1
    assert capsys.readouterr().out.startswith("NOT solved: accuracy ")


def test_the_points_lie_on_two_spirals_and_depend_on_the_seed_alone():
    points, label = spirals(100, seed=1, noise=0.0).tensors
    assert label.bincount().tolist() == [50, 50]
    radius = points.norm(dim=1)
    share = (radius - 1) / 3
    assert share.min() >= 0 and share.max() <= 1
    angle = 2 * torch.pi * 1.5 * share + torch.pi * label
    assert torch.allclose(points, radius[:, None] * torch.stack([angle.cos(), angle.sin()], 1), atol=1e-4)
    assert torch.equal(spirals(100, seed=1).tensors[0], spirals(100, seed=1).tensors[0])
    assert not torch.equal(spirals(100, seed=1).tensors[0], spirals(100, seed=2).tensors[0])


# The on-policy examples, and configs as users of DI-engine have them.


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
