"""`train`: one call from a policy's name and an env to a trained policy."""

import gymnasium
import numpy as np
import pytest
from click.testing import CliRunner
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

from ding import train
from ding.entry import Training, load_policy, serial_pipeline
from ding.entry.cli import cli
from ding.entry.run_folder import RunFolder
from ding.entry.training import change_by_name
from ding.utils.config_helper import ConfigError


@pytest.fixture(autouse=True)
def in_new_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


class Corridor(gymnasium.Env):
    """Walk to the right end; the observation is a dict, and episodes have 4 steps."""

    observation_space = spaces.Dict(place=spaces.Box(0, 9, (2,), np.float32))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.shown(), {}

    def shown(self):
        return {"place": np.array([self.steps, 1], np.float32)}

    def step(self, action):
        assert self.action_space.contains(action)
        self.steps += 1
        return self.shown(), float(action), self.steps == 4, False, {}


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
    assert RunFolder("again").evaluations()[-1]["returns"] == RunFolder(training.folder).evaluations()[-1]["returns"]


@pytest.mark.parametrize("env", [Corridor, lambda: Corridor()], ids=["class", "function"])
def test_an_env_of_ones_own_is_stepped_with_what_predict_returns(env):
    training = train("dqn", env, iterations=1, **QUICK)
    own = Corridor()
    obs, _ = own.reset()
    action = training.predict(obs)
    assert own.action_space.contains(action) and own.step(action)
    batch = training.predict({"place": np.stack([obs["place"]] * 3)})
    assert batch.tolist() == [int(action)] * 3
    assert training.evaluate(2).lengths == [4, 4]


def test_real_valued_actions_are_those_of_the_env_itself():
    training = train("sac", "Pendulum-v1", iterations=1, eval_episodes=1, batch_size=8, random_collect_size=16)
    main, _ = training.config
    assert main.env.act_scale and main.env.collector_env_num == 1 and main.policy.model.obs_shape == 3
    obs = np.array([1, 0, 0.5])  # float64, as many envs show
    with load_policy(training.folder) as policy:
        assert training.predict(obs) == pytest.approx(2 * policy.predict(obs.astype(np.float32)), abs=1e-6)


def test_recurrent_policies_remember_until_reset():
    training = train("r2d2", "CartPole-v1", iterations=1, eval_episodes=1, burnin_step=1, unroll_len=4, batch_size=2)
    obs = np.full((2, 4), 0.3, np.float32)
    assert training.predict(obs).shape == (2,)
    model = training._trained.policy._actor._policy.get_attribute("eval_model")
    assert all(state is not None for state in model._state.values())
    training.reset()
    assert all(state is None for state in model._state.values())


def test_steps_between_updates_are_those_of_each_env_on_policy():
    training = train("ppo", "CartPole-v1", iterations=1, num_envs=2, n_steps=16, n_epochs=2, eval_episodes=1)
    main, _ = training.config
    assert main.policy.collect.n_sample == 32 and main.policy.learn.epoch_per_collect == 2
    assert main.policy.action_space == "discrete" and main.policy.collect.collector.fixed_rollout
    assert training.result["env_step"] == 32
    pair = train("dqn", "CartPole-v1", iterations=1, n_steps=3, **QUICK).config
    assert pair[0].policy.nstep == 3


def test_policies_that_learn_from_episodes_are_given_episodes():
    training = train("pg", "CartPole-v1", iterations=1, num_envs=2, eval_episodes=1)
    main, create = training.config
    assert create.collector == {"type": "episode", "get_train_sample": True} and main.policy.collect == {"n_episode": 2}


def test_many_envs_are_stepped_in_their_vectorised_form():
    created = train("ppo", "CartPole-v1", iterations=1, num_envs=16, n_steps=4, eval_episodes=1).config[1]
    assert created.env_manager.type == "vector_env"
    created = train(
        "ppo", "CartPole-v1", iterations=1, num_envs=16, n_steps=4, eval_episodes=1, env_manager="base"
    ).config[1]
    assert created.env_manager.type == "base"


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
    training = train("dqn", "CartPole-v1", iterations=1, config={"policy.eval.evaluator.eval_freq": 7}, **QUICK)
    assert training.config[0].policy.eval.evaluator.eval_freq == 7
    with pytest.raises(ConfigError, match=r"policy\.nstep\.x = 1 is not allowed: policy\.nstep is 3, not a section"):
        train("dqn", "CartPole-v1", iterations=1, config={"policy.nstep": 3, "policy.nstep.x": 1})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learning_rte": 1}, r"nothing reads a setting 'learning_rte'; did you mean 'learning_rate'\?"),
        ({"polyak": 0.9}, "polyak is not taken over: set policy.learn.target_theta, which is 1 - polyak"),
        ({"exploration_fraction": 0.5}, "set policy.other.eps.decay, which counts env steps"),
    ],
)
def test_unknown_settings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        train("dqn", "CartPole-v1", env_steps=8, **settings)


def test_rates_of_all_networks_are_set_by_one_name():
    pair = train("sac", "Pendulum-v1", iterations=1, eval_episodes=1, batch_size=4, random_collect_size=8).config
    change_by_name(pair, {"lr": 0.1})
    assert (pair[0].policy.learn.learning_rate_policy, pair[0].policy.learn.learning_rate_q) == (0.1, 0.1)
    change_by_name(pair, {"q_lr": 0.2})
    assert (pair[0].policy.learn.learning_rate_policy, pair[0].policy.learn.learning_rate_q) == (0.1, 0.2)


def test_what_cannot_be_trained_is_refused():
    with pytest.raises(ConfigError, match="nothing ends the training: give env_steps, iterations or stop_value"):
        train("dqn", "CartPole-v1")
    with pytest.raises(TypeError, match="cannot be made again for each of the envs"):
        train("dqn", Corridor(), iterations=1)
    with pytest.raises(KeyError, match="policy: unknown type 'dqnn'"):
        train("dqnn", "CartPole-v1", iterations=1)
    with pytest.raises(ConfigError, match="policy = 'cql' learns from a data set"):
        train("cql", "Pendulum-v1", iterations=1)
    with pytest.raises(ConfigError, match="policy = 'bc' learns from demonstrations of an expert: use serial_pipel"):
        train("bc", "CartPole-v1", iterations=1)


def test_the_command_trains_several_seeds():
    words = ["dqn", "CartPole-v1", "--env-steps", "16", "-s", "0", "-s", "1", "--set", "batch_size=8"]
    result = CliRunner().invoke(cli, ["train", *words, "--set", "env.n_evaluator_episode=1", "--num-envs", "2"])
    assert result.exit_code == 0, result.output
    for seed in (0, 1):
        compiled = RunFolder(f"dqn_CartPole-v1_seed{seed}").compiled
        assert (compiled.seed, compiled.policy.learn.batch_size, compiled.env.collector_env_num) == (seed, 8, 2)
        assert compiled.env.n_evaluator_episode == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ppo"], "there is no config file 'ppo'; to train a policy, name its env, too"),
        (["ppo", "CartPole-v1"], "nothing ends the training"),
        (["ppo", "CartPole-v1", "--env-steps", "9", "--mode", "serial"], "leave it out"),
        (["ppo", "--num-envs", "2"], "--num-envs needs POLICY ENV"),
    ],
)
def test_the_command_refuses_in_one_line(words, message):
    result = CliRunner().invoke(cli, ["train", *words])
    assert result.exit_code != 0 and message in result.output and "Traceback" not in result.output


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
