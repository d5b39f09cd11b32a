"""The commands `ding train`, `eval`, `record`, `plot`, `list`, `show` and `check-env`, and what they are made of."""

import copy
import json
import os
import shutil

import gymnasium
import numpy as np
import pytest
import torch

from ding import train
from ding.config import read_config
from ding.entry import evaluate_run, load_policy, serial_pipeline
from ding.entry.checks import cuda_of
from ding.entry.curves import bootstrap_interval, interquartile_mean, read_curves
from ding.entry.describe import origins
from ding.entry.run_folder import RunFolder
from ding.entry.serial_entry import pipeline_of
from ding.entry.training import Training
from ding.example import cartpole_dqn
from ding.utils.config_helper import ConfigError
from tests.entry.steps import Steps
from tests.programs import ding

CONFIG = cartpole_dqn.__file__


@pytest.fixture(scope="module")
def exp(tmp_path_factory):
    """The folder of a training of 100 iterations, and what it returned."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        main = copy.deepcopy(cartpole_dqn.main_config)
        main.exp_name = "run"
        serial_pipeline((main, cartpole_dqn.create_config), seed=3, max_train_iter=100)
    return folder / "run"


def write_run(path, returns, seed=0, **settings):
    """A folder as a training with these evaluations leaves it."""
    path.mkdir(parents=True)
    cfg = {"policy": {"learn": settings}, "seed": seed, "exp_name": str(path)}
    (path / "total_config.py").write_text(f"exp_config = {cfg!r}\n")
    lines = [json.dumps({"train_iter": 10 * i, "env_step": 100 * i, "returns": r}) for i, r in enumerate(returns)]
    (path / "eval.jsonl").write_text("".join(f"{line}\n" for line in lines))


# Training.


def test_a_run_is_resumed_by_its_folder_up_to_its_own_limits(tmp_path):
    keys = ["batch_size=8", "n_sample=8", "lr_scheduler=linear", "run_state.every_iter=4", "run_state.keep=9"]
    settings = [f"--set={key}" for key in keys]
    ding(
        *["train", "dqn", "CartPole-v1", "--env-steps", "64", "--exp-name", "run", "--recipe", "none", "--seed", "3"],
        *settings,
    )
    whole = {path: (tmp_path / "run" / path).read_bytes() for path in ("eval.jsonl", "ckpt/ckpt_best.pth.tar")}
    states = sorted((tmp_path / "run" / "run_state").glob("state_*"))
    assert len(states) > 3
    for state in states[2:]:
        state.unlink()
    result = RunFolder("run").result()
    shutil.move("run", "moved")
    os.remove("moved/result.json")
    ding("train", "--resume", "moved")
    assert {**RunFolder("moved").result(), "finish_time": 0} == {**result, "finish_time": 0}
    evaluations = [
        [json.loads(line) for line in text.splitlines()]
        for text in (whole["eval.jsonl"], (tmp_path / "moved/eval.jsonl").read_bytes())
    ]
    for records in evaluations:
        for record in records:
            del record["seconds"]
    assert evaluations[0] == evaluations[1]
    ding("train", "--resume", "moved", "--env-steps", 96)
    assert RunFolder("moved").result()["env_step"] == 96


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["run"], "--resume run"),
        (["--resume", "run", "--set", "gamma=0.9"], "--set"),
        (["--resume", "run"], "total_config.py"),
        (["--resume", "missing"], "run 'missing'"),
    ],
)
def test_what_a_folder_cannot_be_resumed_with_is_said(arguments, word):
    os.mkdir("run")
    assert word in ding("train", *arguments, status=1 if word == "total_config.py" else 2)


@pytest.mark.parametrize(
    ("device", "word"), [("gpu", "cuda:1"), ("cuda", "no GPU"), ("cuda:1", "no GPU"), ("cuda:x", "cuda:1")]
)
def test_a_device_that_is_not_there_is_named(device, word, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert word in ding("train", "dqn", "CartPole-v1", "--env-steps", 8, "--device", device, status=1)
    with pytest.raises(ConfigError, match=word):
        train("dqn", "CartPole-v1", env_steps=8, device=device)


def test_a_device_is_written_to_the_config(monkeypatch):
    assert [cuda_of(device) for device in ("cpu", torch.device("cpu"))] == [False, False]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [cuda_of(device) for device in ("auto", "cuda", "cuda:1", torch.device("cuda:0"))] == [
        True,
        True,
        "cuda:1",
        "cuda:0",
    ]
    with pytest.raises(ConfigError, match="cuda:2"):
        cuda_of("cuda:2")


def test_a_training_is_loaded_on_another_device(exp):
    main, _ = Training.load(exp, device="auto").config
    assert main.policy.cuda is torch.cuda.is_available()
    with load_policy(exp, device="cpu") as policy:
        assert policy.cfg.policy.cuda is False


def test_train_uses_the_pipeline_that_the_config_needs_with_the_given_values(monkeypatch):
    calls = []
    monkeypatch.setattr(
        "ding.entry.serial_pipeline", lambda *args, **kwargs: calls.append((args, kwargs)), raising=False
    )
    setting = "policy.learn.batch_size=32"
    ding("train", CONFIG, "--seed", 4, "--set", setting, "--set", "exp_name=mine", "--train-iter", 7)
    [(((main, create),), kwargs)] = calls
    assert (main.policy.learn.batch_size, main.exp_name, create.policy.type) == (32, "mine", "dqn")
    assert kwargs == {"seed": 4, "max_train_iter": 7, "resume": False, "strict_config": True}


@pytest.mark.parametrize(
    ("example", "pipeline"),
    [
        ("cartpole_dqn", "serial"),
        ("cartpole_ppo", "serial_onpolicy"),
        ("cartpole_dqn_parallel", "parallel"),
        ("pendulum_cql", "serial_offline"),
    ],
)
def test_the_pipeline_follows_from_the_config(example, pipeline):
    path = CONFIG.replace("cartpole_dqn", example)
    assert pipeline_of(path) == pipeline


@pytest.mark.parametrize("setting", ["policy", "policy..x=1", "exp_name.x=1", "__class__.x=1"])
def test_a_setting_that_is_none_is_refused(setting):
    assert f"--set {setting!r} is not allowed" in ding("train", CONFIG, "--set", setting, status=1)


def test_training_in_an_unknown_env_ends_with_one_line():
    assert "NoSuchEnv" in one_line("train", CONFIG, "--set", "env.env_id=NoSuchEnv-v1")
    assert os.listdir() == []


def test_a_misspelt_key_is_one_line_and_with_traceback_an_exception():
    wrong = "policy.learn.batch_sise=3"
    output = ding("train", CONFIG, "--set", wrong, status=1)
    assert output.startswith("Error: ") and "batch_size" in output and len(output.splitlines()) == 1
    with pytest.raises(ConfigError):
        ding("--traceback", "train", CONFIG, "--set", wrong)


def test_an_error_in_a_program_keeps_its_traceback(monkeypatch):
    def fail(*args, **kwargs):
        raise ValueError("the env is broken")

    monkeypatch.setattr("ding.entry.serial_entry.serial_pipeline", fail)
    with pytest.raises(ValueError, match="broken"):
        ding("train", CONFIG)


def one_line(*args):
    (line,) = ding(*args, status=1).splitlines()
    return line


class Stranger:
    def __reduce__(self):
        return os.system, ("touch was_run",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (torch.zeros(3), "not the dict of a checkpoint"),
        ({"encoder.weight": torch.zeros(2)}, "lacks model"),
        ({"model": {}}, "do not fit the network"),
        ({"model": {}, "more": Stranger()}, "holds more than"),
    ],
)
def test_a_file_that_is_no_checkpoint_of_the_policy_is_one_line(exp, content, message):
    torch.save(content, "file.pt")
    assert message in one_line("eval", exp, "--checkpoint", "file.pt")
    assert message in one_line("-m", "eval", "-c", CONFIG, "--load-path", "file.pt")
    assert not os.path.exists("was_run")


# A folder of a training.


def test_a_total_config_trains_again(exp):
    main, create = read_config(str(exp / "total_config.py"))
    main.exp_name = "again"
    serial_pipeline((main, create), seed=3, max_train_iter=100)
    first, again = (RunFolder(path).evaluations() for path in (exp, "again"))
    assert [(r["train_iter"], r["env_step"], r["returns"]) for r in again] == [
        (r["train_iter"], r["env_step"], r["returns"]) for r in first
    ]


def test_an_evaluation_plays_the_episodes_that_the_training_played(exp):
    last = RunFolder(exp).evaluations()[-1]
    assert evaluate_run(exp, checkpoint=last["train_iter"] and str(last["train_iter"])).returns == last["returns"]


def test_eval_prints_a_table_of_the_episodes(exp):
    lines = ding("eval", exp, "-n", 3).splitlines()
    returns = evaluate_run(exp, n_episode=3).returns
    assert [line.split() for line in lines[2:5]] == [[str(i), f"{r:.1f}", f"{r:.0f}"] for i, r in enumerate(returns)]
    assert lines[5].startswith(f"mean return {np.mean(returns):.1f}, ") and lines[5].endswith("over 3 episodes")


def test_a_loaded_policy_acts_as_in_the_evaluations(exp):
    record = evaluate_run(exp, n_episode=1)
    with load_policy(exp) as policy:
        env = policy.make_env(seed=3)
        env.reset()  # as the evaluator does
        total, obs = 0.0, env.ready_obs[0]
        while True:
            timestep = env.step({0: policy.predict(obs)})[0]
            total += float(timestep.reward[0])
            obs = timestep.obs
            if timestep.done:
                break
    assert [total] == record.returns


def test_checkpoints_are_found_by_name_iteration_and_path(exp):
    folder = RunFolder(exp)
    best = str(exp / "ckpt" / "ckpt_best.pth.tar")
    assert folder.checkpoint() == folder.checkpoint("best") == folder.checkpoint(best) == best
    assert folder.checkpoint("0") == folder.checkpoint("iteration_0") == str(exp / "ckpt" / "iteration_0.pth.tar")
    with pytest.raises(FileNotFoundError, match="no checkpoint 'iteration_7'.*ckpt_best"):
        folder.checkpoint("iteration_7")


def test_a_folder_without_a_training_is_named(tmp_path):
    assert ding("eval", tmp_path, status=1).startswith(f"Error: the folder {str(tmp_path)!r} contains no training")


def test_a_last_line_that_was_cut_off_is_left_out_and_a_damaged_one_named(tmp_path):
    write_run(tmp_path / "run", [[1.0], [2.0]])
    file = tmp_path / "run" / "eval.jsonl"
    file.write_text(file.read_text() + '{"train_iter": 2')
    assert [record["returns"] for record in RunFolder(tmp_path / "run").evaluations()] == [[1.0], [2.0]]
    file.write_text("broken\n" + file.read_text())
    with pytest.raises(ConfigError, match="line 1, is damaged"):
        RunFolder(tmp_path / "run").evaluations()


# Curves.


def test_interquartile_means_leave_out_a_quarter_at_each_end():
    values = np.array([[9.0, 1.0], [0.0, 2.0], [1.0, 3.0], [2.0, 4.0], [-90.0, 5.0]])
    assert interquartile_mean(values).tolist() == [1.0, 3.0]
    assert interquartile_mean(values[:3]).tolist() == pytest.approx([10 / 3, 2.0])


def test_the_interval_holds_the_mean_and_is_a_point_for_one_run():
    values = np.random.default_rng(0).normal(10.0, 2.0, (5, 3))
    low, high = bootstrap_interval(values)
    assert (low < interquartile_mean(values)).all() and (interquartile_mean(values) < high).all()
    assert (low >= values.min(0)).all() and (high <= values.max(0)).all()
    one = bootstrap_interval(values[:1])
    assert np.array_equal(one, [values[0], values[0]])


def test_runs_that_differ_in_seeds_only_are_one_curve_and_keep_their_last_return(tmp_path):
    write_run(tmp_path / "a_seed0", [[0.0], [10.0, 20.0]], seed=0)
    write_run(tmp_path / "a_seed1", [[2.0], [5.0], [25.0]], seed=1)
    write_run(tmp_path / "b", [[1.0]], lr=0.1)
    first, second = read_curves([tmp_path])
    assert [(c.label.rpartition("/")[2], len(c.runs)) for c in (first, second)] == [("a", 2), ("b", 1)]
    assert (first.x.tolist(), first.iqm.tolist()) == ([0.0, 100.0, 200.0], [1.0, 10.0, 20.0])
    assert read_curves([tmp_path / "b"], "train_iter")[0].x.tolist() == [0.0]


def write_metrics(path, *losses):
    write_run(path, [[1.0]], seed=int(path.name[-1]))
    records = [{"worker": "learner", "train_iter": i, "env_step": 10 * i, "loss": x} for i, x in enumerate(losses)]
    records.insert(1, {"worker": "collector", "train_iter": 0, "env_step": 0, "loss": 99.0})
    (path / "metrics.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))


def test_a_metric_is_read_from_the_records_of_its_worker_without_nulls(tmp_path):
    write_metrics(tmp_path / "a_seed0", 1.0, None, 3.0)
    write_metrics(tmp_path / "a_seed1", 3.0, 4.0, 5.0)
    (curve,) = read_curves([tmp_path], metric="learner/loss")
    assert (curve.x.tolist(), curve.iqm.tolist()) == ([0.0, 10.0, 20.0], [2.0, 3.0, 4.0])
    assert read_curves([tmp_path], "train_iter", "learner/loss")[0].x.tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("metric", ["learner/los", "learner/train_iter"])
def test_a_metric_that_no_run_has_is_refused_with_those_that_there_are(tmp_path, metric):
    write_metrics(tmp_path / "seed0", 1.0)
    message = f"no run has the metric '{metric}'; recorded are collector/loss, learner/loss"
    assert message in ding("plot", tmp_path, "--metric", metric, status=1)


def test_plot_draws_a_metric(tmp_path):
    pytest.importorskip("matplotlib")
    write_metrics(tmp_path / "seed0", 0.5, 0.00123456)
    output = ding("plot", tmp_path, "--metric", "learner/loss", "-o", "out.svg")
    assert "0.001235" in output and "highest" in output and "return" not in output


@pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_plot_writes_the_kind_of_file_that_is_asked_for(tmp_path, suffix, start):
    pytest.importorskip("matplotlib")
    write_run(tmp_path / "run", [[1.0], [2.0]])
    output = ding("plot", tmp_path / "run", "-o", f"out.{suffix}")
    assert (tmp_path / f"out.{suffix}").read_bytes().startswith(start)
    assert "2.0" in output and f"out.{suffix} is written." in output


# Configs.


def test_each_value_of_a_config_says_where_it_comes_from():
    found = origins(CONFIG)
    assert found["policy.learn.batch_size"] == (64, "main_config")
    assert found["env.manager.type"] == ("base", "create_config")
    assert found["policy.priority"] == (False, "DQNPolicy")
    assert found["env.manager.max_retry"] == (1, "BaseEnvManager")
    assert found["policy.learn.learner.hook.log_show_after_iter"] == (100, "BaseLearner")
    assert found["policy.other.replay_buffer.alpha"] == (0.6, "AdvancedReplayBuffer")
    assert found["policy.eval.evaluator.stop_value"] == (195, "compile_config")


def test_show_prints_a_part_or_what_was_changed():
    assert "policy.learn.batch_size" in ding("show", CONFIG, "policy.learn")
    assert "env.stop_value" not in ding("show", CONFIG, "policy.learn")
    changed = ding("show", CONFIG, "--changed")
    assert "policy.learn.batch_size" in changed and "policy.priority" not in changed
    assert "nothing under 'polisy'" in ding("show", CONFIG, "polisy", status=2)


# Envs.


class Unseeded(Steps):
    """Its observations follow from no seed."""

    _numbers = np.random.default_rng(0)

    def observe(self):
        return self._numbers.random(3, np.float32)


class Outside(Steps):
    """Its observations lie outside of their space."""

    def observe(self):
        return np.full(3, 2.0 * (self.steps > 0), np.float32)


GOOD = gymnasium.make("CartPole-v1", disable_env_checker=True)


class Doors(Steps):
    """One of four doors is locked, which the mask says."""

    observation_space = gymnasium.spaces.Dict(
        observation=gymnasium.spaces.Box(0, 1, (1,), np.float32), action_mask=gymnasium.spaces.MultiBinary(4)
    )
    action_space = gymnasium.spaces.Discrete(4)
    length = 30

    def reward(self, action):
        assert action != self._locked
        return 1.0

    def observe(self):
        self._locked = self.np_random.integers(4)
        return {"observation": np.zeros(1, np.float32), "action_mask": (np.arange(4) != self._locked).astype(np.int8)}


class Linear(torch.nn.Linear):
    """A network of one's own, whose name no config has."""

    def forward(self, obs):
        return {"logit": super().forward(obs)}


@pytest.mark.parametrize(
    "name",
    [
        "CartPole-v1",
        *(f"{__name__}:{name}" for name in ("GOOD", "Doors")),
        "tests.goal_envs:BitFlip",
        "tests.entry.test_action_masks:Panel",
    ],
)
def test_an_env_that_keeps_to_the_contract_passes(name):
    lines = ding("check-env", name).splitlines()
    assert len(lines) == 5 and all(line.startswith("ok ") for line in lines)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (f"{__name__}:Unseeded", "differ at step 0"),
        (f"{__name__}:Outside", "exceeds its space"),
        ("tests.envs.toys:ToyBaseEnv", "lacks 'eval_episode_return'"),
    ],
)
def test_an_env_that_does_not_is_told_what_is_wrong(name, problem):
    output = ding("check-env", name, status=1)
    failed = [line for line in output.splitlines() if line.startswith("FAIL")]
    assert any(problem in line for line in failed)


# Videos and lists.


def played(exp, episodes):
    """The returns of the first episodes in one evaluation env."""
    returns = []
    with load_policy(exp) as policy:
        env = policy.make_env(seed=RunFolder(exp).seed)
        while len(returns) < episodes:
            timestep = env.step({0: policy.predict(env.ready_obs[0])})[0]
            if timestep.done:
                returns.append(float(timestep.info["eval_episode_return"]))
                policy.reset()
    return returns


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["mp4", "gif"])
def test_record_writes_one_video_an_episode(exp, tmp_path, suffix):
    pytest.importorskip("moviepy")
    pytest.importorskip("pygame")
    output = ding("record", exp, "-n", 2, "-o", tmp_path / f"clip.{suffix}")
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"clip_0.{suffix}", f"clip_1.{suffix}"]
    assert all(path.stat().st_size > 1000 for path in tmp_path.iterdir())
    returns = [line.partition(": return ")[2] for line in output.splitlines() if "return" in line]
    assert returns == [f"{value:.1f}" for value in played(exp, 2)]


def test_list_names_all_registries(monkeypatch):
    shown = []
    monkeypatch.setattr("ding.entry.cli_commands.show_registries", shown.append)
    ding("list")
    ding("list", "buffer", "env")
    assert shown == [(), ("buffer",), ("env",)]


@pytest.mark.parametrize("command", ["train", "tune"])
def test_a_seed_that_is_given_twice_is_refused(command):
    assert "--seed 0" in ding(command, "dqn", "CartPole-v1", "--seed", 0, 1, 0, status=2)
