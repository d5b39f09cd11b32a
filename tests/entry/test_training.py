"""`train`: one call from a policy's name and an env to a trained policy."""

import enum
import os
from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from easydict import EasyDict
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

from ding import train
from ding.config.read import read_config
from ding.entry import Training, evaluate_run, load_policy, serial_pipeline
from ding.entry.run_folder import RunFolder
from ding.entry.training import Draft
from ding.utils.config_helper import ConfigError
from ding.utils.state_folder import plain_tree
from tests.entry.fakes import pair as tiny_pair
from tests.entry.fakes import setting as tiny_setting
from tests.entry.steps import Steps
from tests.programs import ding, run_python


class Corridor(Steps):
    """Walk to the right end; the observation is a dict, and episodes have 4 steps."""

    observation_space = spaces.Dict(place=spaces.Box(0, 9, (2,), np.float32))
    length = 4

    def observe(self):
        return {"place": np.array([self.steps, 1], np.float32)}

    def reward(self, action):
        return float(np.sum(action))


class Branches(Corridor):
    """Two choices a step, each of three."""

    action_space = spaces.MultiDiscrete([3, 3])


QUICK = {"eval_episodes": 1, "batch_size": 8, "n_sample": 8}


def test_a_policy_is_trained_on_an_env_by_their_names():
    training = train(
        "dqn",
        "CartPole-v1",
        env_steps=64,
        seed=3,
        recipe=False,
        learning_rate=0.01,
        gamma=0.9,
        buffer_size=500,
        **QUICK,
    )
    main, create = training.config
    assert training.folder == "dqn_CartPole-v1_seed3" and repr(training) == "Training('dqn_CartPole-v1_seed3')"
    assert main.policy.learn == {"learning_rate": 0.01, "batch_size": 8} and main.policy.discount_factor == 0.9
    assert main.policy.other.replay_buffer.replay_buffer_size == 500 and main.policy.collect.n_sample == 8
    assert main.policy.model == {"obs_shape": 4, "action_shape": 2}
    assert main.env == {
        "env_id": "CartPole-v1", "collector_env_num": 8, "evaluator_env_num": 1, "n_evaluator_episode": 1,
    }  # fmt: skip
    assert create == {"env": {"type": "gymnasium"}, "env_manager": {"type": "base"}, "policy": {"type": "dqn"}}
    assert training.result["env_step"] == 64 and not training.result["stop"]
    assert len(training.evaluate(3).returns) == 3
    again = dict(main, exp_name="again")
    serial_pipeline((again, create), seed=3, max_env_step=64)
    *due, last = [
        {key: line[key] for key in ("train_iter", "returns")} for line in RunFolder(training.folder).evaluations()
    ]
    found = [{key: line[key] for key in ("train_iter", "returns")} for line in RunFolder("again").evaluations()]
    assert found == due and last["train_iter"] == training.result["train_iter"] > due[-1]["train_iter"]


def test_what_is_returned_has_learned_until_the_end(capsys):
    short = train("dqn", "CartPole-v1", env_steps=64, folder="short", recipe=False, **QUICK)
    evaluations = RunFolder("short").evaluations()
    assert [line["train_iter"] for line in evaluations] == [0, short.result["train_iter"]]
    assert short.result["eval_value_raw"] == evaluations[-1]["returns"]
    assert " at iteration " not in capsys.readouterr().err.splitlines()[-1]


def make_corridor(size=0):
    return Corridor()


def test_exp_name_is_the_folder_as_in_configs():
    assert train("dqn", "CartPole-v1", iterations=1, **QUICK, exp_name="mine").folder == "mine"
    assert os.listdir() == ["mine"]


@pytest.mark.parametrize("env", [Corridor, make_corridor], ids=["class", "function"])
def test_an_env_of_ones_own_is_stepped_with_what_predict_returns(env):
    training = train("dqn", env, iterations=1, **QUICK)
    own = Corridor()
    obs, _ = own.reset()
    action = training.predict(obs)
    assert own.action_space.contains(action) and own.step(action)
    batch = training.predict({"place": np.stack([obs["place"]] * 3)})
    assert batch.tolist() == [int(action)] * 3
    assert training.evaluate(2).lengths == [4, 4]
    with load_policy(training.folder) as policy:  # which the folder names
        assert policy.predict(obs) == action
    assert evaluate_run(training.folder, 2).lengths == [4, 4]


class Local:
    class Corridor(Corridor):
        """Has a name of two parts."""


@pytest.mark.parametrize(
    "env",
    [
        partial(make_corridor, size=3), Local.Corridor, "tests.entry.test_training:Corridor",
        (make_corridor, {"size": 3}), (partial(make_corridor), {"size": 3}),
    ],
)  # fmt: skip
def test_whatever_can_be_imported_is_saved_by_its_name(env):
    training = train("dqn", env, iterations=1, **QUICK)
    resumed = read_config(f"{training.folder}/total_config.py")
    assert evaluate_run(training.folder, 1).lengths == [4]
    serial_pipeline(resumed, max_train_iter=2, resume=True)  # the classes of before and the names of now are the same
    assert RunFolder(training.folder).result()["train_iter"] == 2


class Pace(enum.Enum):
    SLOW, FAST = 1, 2


class Shop(Corridor):
    """A corridor that checks that its arguments come as they were given, in plain dicts."""

    def __init__(self, items=0, moves=None, cost=None, pace=None, scale=None, market=None):
        assert (items, moves, pace, market) == (7, {0: (0, 1), 1: {"get": 2}}, Pace.FAST, "crypto:BTC")
        assert {type(moves), type(moves[1])} == {dict} and scale.dtype == np.float32 and scale.tolist() == [1, 2]
        self.cost = cost

    def reward(self, action):
        return self.cost(1.0)


def tenth(reward):
    return reward / 10


ARGUMENTS = {
    "items": 7, "moves": {0: (0, 1), 1: {"get": 2}}, "cost": tenth, "pace": Pace.FAST,
    "scale": np.array([1, 2], np.float32), "market": "crypto:BTC",
}  # fmt: skip
DOUBLED = ("gymnasium.wrappers:TransformReward", {"func": partial(np.multiply, 2)})


@pytest.mark.parametrize(
    "how", [{}, {"env_manager": "subprocess"}, pytest.param({"parallel": 1}, marks=pytest.mark.slow)]
)
def test_arguments_of_envs_and_wrappers_come_back_whatever_they_are(how):
    training = train("dqn", (Shop, ARGUMENTS), iterations=1, config={"env.wrappers": [DOUBLED]}, **how, **QUICK)
    assert training.evaluate(1).returns == pytest.approx([0.8])
    assert Training.load(training.folder).evaluate(1).returns == pytest.approx([0.8])
    assert evaluate_run(training.folder, 1).returns == pytest.approx([0.8])
    if not how:
        serial_pipeline(read_config(f"{training.folder}/total_config.py"), max_train_iter=2, resume=True)
        assert RunFolder(training.folder).result()["eval_value"] == pytest.approx(0.8)


def test_what_the_folder_could_not_name_is_told_at_the_start(caplog):
    training = train("dqn", lambda: Corridor(), iterations=1, **QUICK)
    assert "the folder of the run cannot name env.env = <function" in caplog.text
    assert training.evaluate(1).lengths == [4]
    with pytest.raises(ConfigError, match=r"env\.env = '<function.*must be a class or function"):
        evaluate_run(training.folder, 1)
    with pytest.raises(ConfigError, match=r"cannot name env\.env\.cost = <function.*workers"):
        train("dqn", (Shop, {**ARGUMENTS, "cost": lambda reward: reward}), iterations=1, parallel=1, **QUICK)


def test_a_run_of_an_env_setting_is_used_with_an_env_that_is_given():
    main, create = tiny_pair()
    del create["env"]
    serial_pipeline((main, create), env_setting=tiny_setting(), max_train_iter=1)
    with pytest.raises(ConfigError, match=r"pass env_setting, or Training\.load\(folder, env="):
        Training.load("exp").evaluate()
    assert Training.load("exp", env=Steps).evaluate(2).lengths == [3, 3]
    assert evaluate_run("exp", 1, env=Steps).returns == [3.0]


SCRIPT = """
import sys
import gymnasium
from beside import Beside
from ding import train

class Own(Beside):
    pass

{guard}
    quick = dict(iterations=1, eval_episodes=1, batch_size=8, n_sample=8)
    training = train("dqn", Own, folder="run", parallel={parallel}, **quick)
    print(training.folder)
"""
BESIDE = """
import gymnasium
import numpy as np

class Beside(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (2,)), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(2, np.float32), 1.0, self.steps == 3, False, {}
"""
GUARD = "if __name__ == '__main__':"


@pytest.mark.parametrize("parallel", [pytest.param(False, marks=pytest.mark.slow), 1])
def test_a_run_of_a_script_is_evaluated_from_another_folder(tmp_path, monkeypatch, parallel):
    (tmp_path / "script.py").write_text(SCRIPT.format(guard=GUARD, parallel=parallel))
    (tmp_path / "beside.py").write_text(BESIDE)
    trained = run_python("script.py")
    assert trained.stdout.split() == ["run"], trained.stderr
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    evaluated = run_python("-m", "ding.entry.cli", "eval", "../run", "-n", "2")
    assert "mean return 3.0" in evaluated.stdout, evaluated.stderr


@pytest.mark.slow
def test_a_script_that_trains_when_it_is_imported_is_told_what_to_do(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT.format(guard="if True:", parallel=False))
    (tmp_path / "beside.py").write_text(BESIDE)
    assert run_python("script.py").stdout.split() == ["run"]
    evaluated = run_python("-m", "ding.entry.cli", "eval", "run")
    assert evaluated.returncode == 1 and "Traceback" not in evaluated.stderr
    assert "put its training under if __name__ == '__main__':" in evaluated.stderr


CONFIG = """
from beside import Beside

class Own(Beside):
    pass

main_config = dict(
    exp_name="run",
    env=dict(env=(Own, {}), collector_env_num=1, evaluator_env_num=1, n_evaluator_episode=1),
    policy=dict(nstep=1, learn=dict(update_per_collect=1, batch_size=8), collect=dict(n_sample=8)),
)
create_config = dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type="dqn"))
"""


@pytest.mark.slow
def test_the_command_finds_modules_beside_the_config_and_those_of_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "own.py").write_text(CONFIG)
    (tmp_path / "configs" / "beside.py").write_text(BESIDE)
    trained = run_python("-m", "ding.entry.cli", "train", "configs/own.py", "--train-iter", "1")
    assert "Over: mean return 3.0" in trained.stderr
    evaluated = run_python("-m", "ding.entry.cli", "eval", "run")
    assert "mean return 3.0" in evaluated.stdout, evaluated.stderr
    monkeypatch.chdir(tmp_path / "configs")
    named = ("train", "dqn", "beside:Beside", "--train-iter", "1", "--set", "batch_size=8", "--exp-name", "named")
    trained = run_python("-m", "ding.entry.cli", *named)
    assert "Over: mean return 3.0" in trained.stderr


def test_the_training_of_any_folder_is_loaded(tmp_path):
    trained = train("sac", "Pendulum-v1", iterations=1, eval_episodes=1, batch_size=8, random_collect_size=16, seed=5)
    training = Training.load(tmp_path / trained.folder)
    obs = np.array([1, 0, 0.5], np.float32)
    assert training.predict(obs).tolist() == trained.predict(obs).tolist()
    assert training.result == trained.result
    assert training.evaluate(1).returns == trained.evaluate(1).returns  # also with its seed
    with pytest.raises(FileNotFoundError, match="does not exist"):
        Training.load(tmp_path / "nothing")


def test_real_valued_actions_are_those_of_the_env_itself():
    training = train("sac", "Pendulum-v1", iterations=1, eval_episodes=1, batch_size=8, random_collect_size=16)
    main, _ = training.config
    assert main.env.act_scale and main.env.collector_env_num == 1 and main.policy.model.obs_shape == 3
    obs = np.array([1, 0, 0.5])  # float64, as many envs show
    with load_policy(training.folder) as policy:
        assert training.predict(obs) == pytest.approx(2 * policy.predict(obs.astype(np.float32)), abs=1e-6)


class Levels(Corridor):
    """Takes integers."""

    action_space = spaces.Box(0, 9, (2,), np.int32)


def test_branches_choose_among_values_of_real_valued_actions():
    training = train("bdq", "Pendulum-v1", env_steps=64, action_bins_per_branch=5, seed=1, **QUICK)
    main, create = training.config
    assert main.env.act_bins == 5 and "act_scale" not in main.env
    assert main.policy.model == {"action_bins_per_branch": 5, "obs_shape": 3, "num_branches": 1}
    obs = np.array([1, 0, 0.5], np.float32)
    with load_policy(training.folder) as policy:
        assert training.predict(obs).tolist() == [policy.predict(obs).item() - 2.0]  # of -2, -1, 0, 1, 2
    main, _ = train("bdq", "Pendulum-v1", iterations=1, **QUICK).config
    assert main.env.act_bins == main.policy.model.action_bins_per_branch == 11
    main, _ = train("dqn", "Pendulum-v1", iterations=1, act_bins=4, **QUICK).config
    assert main.policy.model.action_shape == [4]


@pytest.mark.parametrize(("env", "expected"), [(Branches, (2, 3)), ("CartPole-v1", (1, 2))])
def test_branches_are_those_of_the_env(env, expected):
    training = train("bdq", env, iterations=2, **QUICK)
    model = training.config[0].policy.model
    assert (model.num_branches, model.action_bins_per_branch) == expected
    own = env() if isinstance(env, type) else gymnasium.make(env)
    obs, _ = own.reset(seed=0)
    assert own.action_space.contains(training.predict(obs))


def test_a_policy_that_needs_a_schedule_of_epsilon_has_that_of_dqn():
    main, _ = train("discrete_sac", "CartPole-v1", iterations=1, recipe=False, random_collect_size=8, **QUICK).config
    assert main.policy.other.eps == {"type": "exp", "start": 0.95, "end": 0.1, "decay": 10000}
    main, _ = train("dqn", "CartPole-v1", iterations=1, recipe=False, **QUICK).config
    assert "other" not in main.policy


def test_recurrent_policies_remember_until_reset():
    training = train("r2d2", "CartPole-v1", iterations=1, eval_episodes=1, burnin_step=1, unroll_len=4, batch_size=2)
    obs = np.full((2, 4), 0.3, np.float32)
    assert training.predict(obs).shape == (2,)
    model = training._trained._actor._policy.get_attribute("eval_model")
    assert all(state is not None for state in model._state.values())
    training.reset()
    assert all(state is None for state in model._state.values())


@pytest.mark.parametrize(("policy", "envs", "n_sample"), [("a2c", 8, 64), ("ppo", 8, 1024), ("dqn", 8, None)])
def test_by_default_there_are_so_many_envs_and_steps_between_updates(policy, envs, n_sample):
    training = train(policy, "CartPole-v1", iterations=1, eval_episodes=7, recipe=False, exp_name="run")
    main, _ = training.config
    assert (main.env.collector_env_num, main.env.evaluator_env_num) == (envs, 5)
    assert main.policy.collect.get("n_sample") == n_sample


def test_steps_between_updates_are_those_of_each_env_on_policy():
    training = train("ppo", "CartPole-v1", iterations=1, num_envs=2, n_steps=16, n_epochs=2, eval_episodes=1)
    main, _ = training.config
    assert main.policy.collect.n_sample == 32 and main.policy.learn.epoch_per_collect == 2
    assert main.policy.action_space == "discrete" and main.policy.collect.collector.fixed_rollout
    assert training.result["env_step"] == 32
    with pytest.raises(ConfigError, match="nothing reads a setting 'max_use'"):
        Draft(*training.config).change_by_name({"max_use": 2})
    pair = train("dqn", "CartPole-v1", iterations=1, n_steps=3, max_use=2, **QUICK).config
    assert pair[0].policy.nstep == 3 and pair[0].policy.other.replay_buffer.max_use == 2


class Unbounded(Corridor):
    observation_space = spaces.Box(0, 9, (2,), np.float32)
    action_space = spaces.Box(-1, np.inf, (2,), np.float32)

    def observe(self):
        return super().observe()["place"]

    def step(self, action):
        return super().step(np.maximum(action, -1))  # it takes others, too


@pytest.mark.parametrize(("policy", "is_warned_of"), [("sac", True), ("td3", True), ("ppo", False)])
def test_actions_without_bounds_that_stay_within_one_are_warned_of(policy, is_warned_of, monkeypatch):
    warned = []
    monkeypatch.setattr("ding.entry.training.one_time_warning", warned.append)
    more = {} if policy == "ppo" else {"random_collect_size": 8, "batch_size": 4}
    train(policy, Unbounded, iterations=1, eval_episodes=1, exp_name="run", **more)
    assert [f"is not bounded, so {policy} acts within [-1, 1]" in text for text in warned] == [True] * is_warned_of


@pytest.mark.parametrize("policy", ["pg", "ppo_pg"])
def test_policies_that_learn_from_episodes_are_given_episodes(policy):
    training = train(policy, "Pendulum-v1", iterations=1, num_envs=2, eval_episodes=1)
    main, create = training.config
    assert create.collector == {"type": "episode", "get_train_sample": True} and main.policy.collect == {"n_episode": 2}


def test_many_envs_are_stepped_in_their_vectorised_form():
    how = {"iterations": 1, "num_envs": 16, "n_steps": 4, "eval_episodes": 1}
    assert train("ppo", "CartPole-v1", **how).config[1].env_manager.type == "vector_env"
    assert train("ppo", "CartPole-v1", **how, env_manager="base").config[1].env_manager.type == "base"


def test_envs_that_only_their_manager_makes_are_trained_on():
    pytest.importorskip("envpool")
    few = {"num_envs": 2, "n_steps": 4, "batch_size": 8, "n_epochs": 1, "eval_episodes": 1}
    images = {"env.manager.kwargs": {"img_height": 42, "img_width": 42, "max_episode_steps": 12}}
    training = train("ppo", "Breakout-v5", iterations=1, env_manager="env_pool", config=images, **few)
    assert training.config[0].policy.model == {"obs_shape": [4, 42, 42], "action_shape": 4, "scale_ob": 255.0}
    obs = np.zeros((3, 4, 42, 42), np.uint8)
    assert np.shape(training.predict(obs[0])) == () and training.predict(obs).shape == (3,)
    assert training.evaluate(2).lengths == [12, 12]


def test_specs_of_gymnasium_are_made_anew():
    spec = gymnasium.spec("CartPole-v1")
    assert train("dqn", spec, iterations=1, **QUICK).config[0].env.env_id == "CartPole-v1"
    env = gymnasium.make("Pendulum-v1", g=5.0, max_episode_steps=7)
    section = train("td3", env, iterations=1, eval_episodes=1, batch_size=4, random_collect_size=8).config[0].env
    assert (section.env_id, section.kwargs, section.max_episode_steps) == ("Pendulum-v1", {"g": 5.0}, 7)
    wrapped = TimeLimit(gymnasium.make("CartPole-v1"), 5)
    assert max(train("dqn", wrapped, iterations=1, **QUICK).evaluate(3).lengths) == 5


def test_a_training_is_continued():
    first = train("dqn", "CartPole-v1", iterations=3, folder="run", **QUICK)
    second = train("dqn", "CartPole-v1", iterations=6, folder="run", resume=True, **QUICK)
    assert (first.folder, second.folder, second.result["train_iter"]) == ("run", "run", 6)
    assert train("dqn", "CartPole-v1", iterations=3, folder="run", **QUICK).folder != "run"


def test_values_by_their_whole_key():
    config = {"policy.eval.evaluator.eval_freq": 7, "policy": {"learn": {"learning_rate": 0.5}, "other.eps.decay": 9}}
    policy = train("dqn", "CartPole-v1", iterations=1, config=config, **QUICK).config[0].policy
    assert (policy.eval.evaluator.eval_freq, policy.learn.learning_rate, policy.other.eps.decay) == (7, 0.5, 9)
    assert policy.learn.batch_size == QUICK["batch_size"]
    with pytest.raises(ConfigError, match=r"policy\.nstep\.x = 1 is not allowed: policy\.nstep is 3, not a section"):
        train("dqn", "CartPole-v1", iterations=1, config={"policy.nstep": 3, "policy.nstep.x": 1})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learning_rte": 1}, "did you mean 'learning_rate'"),
        ({"polyak": 0.9}, "policy.learn.target_theta"),
        ({"train_freq": 4}, "policy.collect.n_sample"),
        ({"value_coef": 0.5}, "nothing reads a setting 'value_coef'"),
        ({"config": {5: 3}}, r"config = \{5: 3\}"),
        ({"eps": 0.1}, "policy.other.eps = 0.1"),
        ({"norm_obs": True}, "norm_obs = True"),
    ],
)
def test_settings_that_are_unknown_or_no_values_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        train("dqn", "CartPole-v1", env_steps=8, **settings)


@pytest.mark.parametrize(
    ("policy", "settings", "learn"),
    [
        ("dqn", {"max_grad_norm": 10}, {"grad_clip_value": 10, "grad_clip_type": "clip_norm"}),
        ("impala", {"max_grad_norm": 10}, {"clip_value": 10, "grad_clip_type": "clip_norm"}),
        (
            "dqn",
            {"grad_clip_type": "clip_value", "grad_clip_value": 1},
            {"grad_clip_value": 1, "grad_clip_type": "clip_value"},
        ),
        ("ppo", {"max_grad_norm": 10}, {"grad_clip_value": 10}),
        ("a2c", {"max_grad_norm": 10}, {"grad_norm": 10}),
    ],
)
def test_a_threshold_of_gradients_clips_them(policy, settings, learn):
    for given in (settings, dict(reversed(settings.items()))):
        main = EasyDict(env={"env_id": "CartPole-v1"}, policy={})
        create = EasyDict(env={"type": "gymnasium"}, env_manager={"type": "base"}, policy={"type": policy})
        Draft(main, create).change_by_name(given)
        assert main.policy == {"learn": learn}


def test_rates_of_all_networks_are_set_by_one_name():
    pair = train("sac", "Pendulum-v1", iterations=1, eval_episodes=1, batch_size=4, random_collect_size=8).config
    Draft(*pair).change_by_name({"lr": 0.1})
    assert (pair[0].policy.learn.learning_rate_policy, pair[0].policy.learn.learning_rate_q) == (0.1, 0.1)
    Draft(*pair).change_by_name({"q_lr": 0.2})
    assert (pair[0].policy.learn.learning_rate_policy, pair[0].policy.learn.learning_rate_q) == (0.1, 0.2)
    Draft(*pair).change_by_name({"policy.learn.learning_rate_q": 0.3})
    assert (pair[0].policy.learn.learning_rate_policy, pair[0].policy.learn.learning_rate_q) == (0.1, 0.3)


@pytest.mark.parametrize(
    ("policy", "name", "path"),
    [
        ("sac", "alpha", "policy.learn.alpha"), ("rainbow", "alpha", "policy.other.replay_buffer.alpha"),
        ("dqn", "max_episode_steps", "env.max_episode_steps"), ("pg", "n_episode", "policy.collect.n_episode"),
    ],
)  # fmt: skip
def test_a_name_means_what_the_policy_or_the_env_reads_rather_than_a_buffer_or_an_evaluator(policy, name, path):
    main = EasyDict(env={"env_id": "Pendulum-v1" if policy == "sac" else "CartPole-v1"}, policy={})
    create = EasyDict(env={"type": "gymnasium"}, env_manager={"type": "base"}, policy={"type": policy})
    before = plain_tree(main)
    Draft(main, create).change_by_name({name: 5})
    assert {key: value for key, value in plain_tree(main).items() if key not in before} == {path: 5}


def test_what_cannot_be_trained_is_refused():
    with pytest.raises(TypeError, match="cannot be made again for each of the envs"):
        train("dqn", Corridor(), iterations=1)
    with pytest.raises(KeyError, match="policy: unknown type 'dqnn'"):
        train("dqnn", "CartPole-v1", iterations=1)
    for policy, env, word in (
        ("cql", "Pendulum-v1", "data set"),
        ("bc", "CartPole-v1", "expert"),
        ("ppg_offpolicy", "CartPole-v1", "buffers"),
        ("td3", "CartPole-v1", "real-valued"),
        ("sac", "CartPole-v1", "real-valued"),
        ("sac", Levels, "real-valued"),
    ):
        with pytest.raises(ConfigError, match=word):
            train(policy, env, iterations=1)


@pytest.mark.parametrize(("words", "parallel"), [(["--parallel", "2"], 2), (["--mode", "parallel"], True), ([], False)])
def test_the_command_trains_with_as_many_collectors_as_are_asked_for(monkeypatch, words, parallel):
    given = {}
    monkeypatch.setattr("ding.entry.training.train", lambda **arguments: given.update(arguments))
    ding("train", "dqn", "CartPole-v1", "--env-steps", "16", *words)
    assert given["parallel"] == parallel and type(given["parallel"]) is type(parallel)


def test_the_command_trains_several_seeds():
    words = ["dqn", "CartPole-v1", "--env-steps", "16", "-s", "0", "-s", "1", "--set", "batch_size=8"]
    ding("train", *words, "--set", "env.n_evaluator_episode=1", "--num-envs", "2")
    ding("train", *words, "--set", "env.n_evaluator_episode=1", "--set", "exp_name=7")
    assert sorted(os.listdir()) == ["7_seed0", "7_seed1", "dqn_CartPole-v1_seed0", "dqn_CartPole-v1_seed1"]
    for seed in (0, 1):
        compiled = RunFolder(f"dqn_CartPole-v1_seed{seed}").compiled
        assert (compiled.seed, compiled.policy.learn.batch_size, compiled.env.collector_env_num) == (seed, 8, 2)
        assert compiled.env.n_evaluator_episode == 1


@pytest.mark.parametrize(
    ("words", "keys"),
    [(["--normalize"], ["norm_obs", "norm_reward"]), (["--normalize=obs"], ["norm_obs"]), ([], [])],
)
def test_the_command_normalizes(words, keys):
    words = ["dqn", "CartPole-v1", "--train-iter", "1", "--set", "batch_size=8", "--exp-name", "run", *words]
    ding("train", *words, "--set", "env.n_evaluator_episode=1")
    assert sorted(key for key in RunFolder("run").compiled.env if key.startswith("norm_")) == keys


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["ppo"], 2, "there is no config file 'ppo'; to train a policy, name its env, too"),
        (["ppo", "CartPole-v1"], 1, "nothing ends the training"),
        (["ppo", "CartPole-v1", "--env-steps", "9", "--mode", "serial"], 1, "leave it out"),
        (["ppo", "--num-envs", "2"], 2, "--num-envs needs POLICY ENV"),
    ],
)
def test_the_command_refuses_in_one_line(words, status, message):
    assert message in ding("train", *words, status=status)


def test_plots_and_videos_lie_in_the_folder():
    pytest.importorskip("matplotlib")
    training = train("dqn", "CartPole-v1", iterations=1, **QUICK)
    assert training.plot() == "dqn_CartPole-v1_seed0/curve.png"
    pytest.importorskip("moviepy")
    pytest.importorskip("pygame")
    assert training.record() == ["dqn_CartPole-v1_seed0/video.mp4"]


@pytest.mark.slow
@pytest.mark.parametrize("parallel", [True, 2])
def test_a_training_in_parallel(parallel):
    training = train("dqn", "CartPole-v1", env_steps=2000, parallel=parallel, **QUICK)
    assert isinstance(training, Training) and training.result["env_step"] >= 2000
    assert training.predict(np.zeros(4, np.float32)) in (0, 1)
    folder = RunFolder(training.folder)
    last = folder.evaluations()[-1]
    assert last["train_iter"] == training.result["train_iter"] > 0
    assert (
        training.result["eval_value_raw"] == last["returns"] == training.evaluate(checkpoint=last["train_iter"]).returns
    )


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({}, 4000), ({"eval_freq": 10, "n_sample": 7, "update_per_collect": 4}, 18), ({"recipe": False}, None)],
)
def test_a_training_in_parallel_evaluates_as_often_as_a_serial_one(settings, expected, monkeypatch):
    given = {}

    def run_parallel(configs, **how):
        given.update(configs[0].policy.other.commander)
        raise InterruptedError

    monkeypatch.setattr("ding.entry.parallel_run.run_parallel", run_parallel)
    with pytest.raises(InterruptedError):
        train("dqn", "CartPole-v1", env_steps=2000, parallel=2, **settings)
    assert given == {"collector_task_space": 2} | ({"eval_interval_env_step": expected} if expected else {})


class Choices(Corridor):
    """Has two observations and two choices at a time."""

    observation_space = spaces.Dict(place=spaces.Box(0, 9, (2,), np.float32), last=spaces.Box(0, 255, (3,), np.uint8))
    action_space = spaces.MultiDiscrete([3, 2])

    def observe(self):
        return {**super().observe(), "last": np.arange(3, dtype=np.uint8)}


class Late(Corridor):
    """Counts its actions from 5."""

    action_space = spaces.Discrete(2, start=5)


class Gallery(Corridor):
    """Shows an image with its channels last beside numbers far from 0."""

    observation_space = spaces.Dict(
        image=spaces.Box(0, 255, (12, 10, 3), np.uint8), place=spaces.Box(-1e4, 1e4, (2,), np.float64)
    )

    def observe(self):
        image = self.np_random.integers(0, 256, (12, 10, 3), np.uint8)
        return {"image": image, "place": np.array([self.steps * 1e3, -5.0])}


class Photos(Corridor):
    """Shows images with their channels last."""

    observation_space = Gallery.observation_space["image"]

    def observe(self):
        return self.np_random.integers(0, 256, (12, 10, 3), np.uint8)


@pytest.mark.parametrize(
    ("env", "manager", "shape"),
    [
        (Photos, "base", [3, 12, 10]),
        (Photos, "vector_env", [3, 12, 10]),
        (Gallery, "base", {"image": [3, 12, 10], "place": 2}),
    ],
)
def test_images_with_their_channels_last_are_turned_and_predict_takes_them_as_they_are(env, manager, shape):
    training = train("dqn", env, iterations=2, env_manager=manager, **QUICK)
    assert training.config[0].policy.model.obs_shape == shape and training.config[0].policy.model.scale_ob == 255
    obs, _ = env().reset(seed=1)
    with load_policy(training.folder) as policy:
        turned = np.moveaxis(obs["image"] if isinstance(obs, dict) else obs, -1, 0)
        expected = policy.predict({**obs, "image": turned} if isinstance(obs, dict) else turned)
    assert Training.load(training.folder).predict(obs) == expected


class Valve(Branches):
    """Takes numbers in bounds that rounding leaves; the right ones are beyond them."""

    action_space = spaces.Box(-0.2, 0.1, (2,), np.float32)


class Doubles(Corridor):
    """Shows float64 numbers, as MuJoCo does."""

    observation_space = spaces.Box(-9, 9, (2,), np.float64)

    def observe(self):
        return np.array([self.steps, 0.1])


SMALL = {"iterations": 1, "eval_episodes": 1, "recipe": False}


def observations(space, size):
    if isinstance(space, spaces.Dict):
        return {key: observations(member, size) for key, member in space.items()}
    return np.stack([space.sample() for _ in range(size)])


def as_tensors(obs):
    return {key: torch.tensor(part) for key, part in obs.items()} if isinstance(obs, dict) else torch.tensor(obs)


EXPORTED = [
    *(("dqn", "CartPole-v1", {}), ("rainbow", "CartPole-v1", {}), ("pg", "CartPole-v1", {})),
    *(("ppo", "Pendulum-v1", {}), ("td3", "Pendulum-v1", {"batch_size": 8, "random_collect_size": 16})),
    *(("dqn", Choices, QUICK), ("dqn", Doubles, QUICK), ("bdq", "Pendulum-v1", QUICK), ("bdq", Branches, QUICK)),
    ("dqn", Late, QUICK), ("ppo", Valve, {}), ("dqn", "Pendulum-v1", {**QUICK, "act_bins": 5}),
    ("ppo", "Pendulum-v1", {"normalize": True}), ("dqn", Gallery, {**QUICK, "normalize": True}),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:.torch.jit.load. is deprecated")
@pytest.mark.parametrize(("policy", "env", "settings"), EXPORTED)
def test_an_exported_policy_acts_equally(policy, env, settings):
    training = train(policy, env, **{**SMALL, **settings})
    own = gymnasium.make(env) if isinstance(env, str) else env()
    obs = observations(own.observation_space, 9)
    expected = training.predict(obs)
    path = training.export()
    assert path == f"{training.folder}/policy.pt"
    actions = torch.jit.load(path)(as_tensors(obs)).numpy()
    assert actions.dtype == expected.dtype and actions.shape == expected.shape
    np.testing.assert_allclose(actions, expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "env", "settings"), EXPORTED)
def test_an_onnx_file_acts_equally(policy, env, settings, tmp_path):
    onnx = pytest.importorskip("onnxruntime", reason="needs the extra export")
    training = train(policy, env, **{**SMALL, **settings})
    own = gymnasium.make(env) if isinstance(env, str) else env()
    obs = observations(own.observation_space, 9)
    assert "policy.onnx is written." in ding("export", training.folder, "-o", tmp_path / "deep" / "policy.onnx")
    session = onnx.InferenceSession(tmp_path / "deep" / "policy.onnx")
    (actions,) = session.run(None, obs if isinstance(obs, dict) else {"obs": obs})
    np.testing.assert_allclose(actions, training.predict(obs), atol=1e-5)


@pytest.mark.parametrize(
    ("policy", "settings", "message"),
    [
        ("r2d2", {"burnin_step": 1, "unroll_len": 4, "batch_size": 2}, "hidden state"),
        ("iqn", {}, "random numbers"),
    ],
)
def test_policies_that_are_no_function_of_the_observation_are_not_exported(policy, settings, message):
    training = train(policy, "CartPole-v1", **SMALL, **settings)
    assert message in ding("export", training.folder, status=1)
    assert not os.path.exists(f"{training.folder}/policy.pt")
    assert "its suffix must be .pt or .onnx" in ding("export", training.folder, "-o", "policy.h5", status=1)


class Starts(Corridor):
    """The return tells the episode by its start."""

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed)
        self.start = float(self.np_random.random())
        return obs, info

    def reward(self, action):
        return self.start


def test_each_evaluation_plays_episodes_of_its_own_which_are_those_of_runs_with_equal_seeds():
    often = {"config": {"policy.eval.evaluator.eval_freq": 3}, "batch_size": 8, "n_sample": 8, "eval_episodes": 3}
    runs = [train("dqn", Starts, iterations=9, folder=name, **often) for name in ("first", "second")]
    first, second = ([line["returns"] for line in RunFolder(run.folder).evaluations()] for run in runs)
    assert first == second and len({start for returns in first for start in returns}) == 12
    assert runs[0].evaluate(3).returns == first[0]


def halved(progress_remaining):
    return progress_remaining / 2


def rates(folder):
    """The average learning rates of the learner's log, by iteration."""
    return [value for _, value in RunFolder(folder).metric("learner/cur_lr_avg")]


LOGGED = {"policy.learn.learner.hook.log_show_after_iter": 1}


def test_a_linear_schedule_ends_with_the_run_and_is_logged():
    how = {"recipe": False, "update_per_collect": 1, "learning_rate": 0.1, "config": LOGGED, **QUICK}
    by_steps = train("dqn", "CartPole-v1", env_steps=32, lr_scheduler="linear", folder="steps", **how)
    by_iterations = train("dqn", "CartPole-v1", iterations=4, lr_scheduler=halved, folder="iterations", **how)
    assert rates(by_steps.folder) == pytest.approx(np.cumsum([0.075, 0.05, 0.025, 0.0]) / [1, 2, 3, 4])
    assert rates(by_iterations.folder) == pytest.approx(np.cumsum([0.05, 0.0375, 0.025, 0.0125]) / [1, 2, 3, 4])
    saved = Training.load("iterations").config[0].policy.learn.lr_scheduler
    assert saved == {"__reference__": f"{__name__}:halved"}


def test_a_linear_schedule_needs_the_length_of_the_run():
    with pytest.raises(ConfigError, match="env_steps"):
        train("dqn", "CartPole-v1", stop_value=20, lr_scheduler="linear", recipe=False)
    with pytest.raises(ConfigError, match="iterations"):
        train("dqn", "CartPole-v1", env_steps=20, lr_scheduler="linear", recipe=False, parallel=True)
    assert os.listdir() == []


def test_predict_samples_as_in_collecting_if_asked():
    settings = {"recipe": False, "env_steps": 64, **QUICK}
    training = train("ppo", "CartPole-v1", seed=1, **settings)
    obs = np.full(4, 0.01, np.float32)
    batch = np.stack([obs] * 400)
    greedy, sampled = training.predict(batch), training.predict(batch, deterministic=False)
    with load_policy(training.folder) as policy:
        logit = policy.policy._model(torch.from_numpy(obs)[None], mode="compute_actor")["logit"][0]
        assert {policy.predict(obs, deterministic=False).item() for _ in range(40)} == {0, 1}
    assert set(greedy.ravel().tolist()) == {int(logit.argmax())}
    assert sampled.mean() == pytest.approx(logit.softmax(-1)[1].item(), abs=0.08)


def test_predict_explores_with_the_epsilon_of_the_end_of_the_training():
    eps = {"type": "linear", "start": 1.0, "end": 0.5, "decay": 64}
    training = train("dqn", "CartPole-v1", env_steps=64, recipe=False, config={"policy.other.eps": eps}, **QUICK)
    with load_policy(training.folder, str(training.result["train_iter"])) as policy:
        best = policy.predict(np.zeros(4, np.float32))
        drawn = policy.predict_batch(np.zeros((2000, 4), np.float32), deterministic=False)
    assert np.mean(drawn == best) == pytest.approx(0.75, abs=0.04)


def test_a_training_has_its_policy_and_its_learning_curve():
    how = {"config": {"policy.eval.evaluator.eval_freq": 4}, "update_per_collect": 2, "recipe": False, **QUICK}
    training = train("dqn", "CartPole-v1", iterations=8, **how)
    obs = torch.zeros(4)
    action = training.policy.eval_mode.forward({0: obs})[0]["action"]
    assert action.item() == training.predict(obs.numpy())
    saved = torch.load(RunFolder(training.folder).checkpoint(), weights_only=True)["model"]
    weights = training.policy.eval_mode.state_dict()["model"]
    assert weights.keys() == saved.keys() and all(torch.equal(weights[key], saved[key]) for key in saved)
    curve, lines = training.curve, RunFolder(training.folder).evaluations()
    assert curve["train_iter"].tolist() == [0, 4, 8] and curve["env_step"].tolist() == [0, 16, 32]
    assert curve["mean_return"].tolist() == [float(np.mean(line["returns"])) for line in lines]
