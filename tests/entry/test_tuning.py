"""`tune`: what it tries, what it keeps, and how a study continues."""

import os

import pytest

from ding.config.read import read_config
from ding.entry import serial_pipeline, train, tune
from ding.entry.run_folder import RunFolder
from ding.entry.tuning import read_space, tune_config
from ding.utils.config_helper import ConfigError
from tests.programs import ding, run_python

QUICK = {"iterations": 2, "eval_episodes": 1, "n_sample": 8, "recipe": False}
NEEDS_OPTUNA = "needs the extra tune"


def test_ranges_and_choices_are_read_from_texts():
    texts = ["learning_rate=1e-4:1e-2:log", "policy.nstep=1:3", "batch_size=32,64", "type=exp,linear"]
    assert read_space(texts) == {
        "learning_rate": (1e-4, 1e-2, "log"), "policy.nstep": (1, 3), "batch_size": [32, 64], "type": ["exp", "linear"],
    }  # fmt: skip
    for text in ("learning_rate", "learning_rate=", "a=1:2:3:4"):
        with pytest.raises(ConfigError, match="name=low:high"):
            read_space([text])


def test_on_evaluation_sees_each_evaluation_and_may_end_the_training():
    seen = []

    def stop_at_third(env_steps, mean_return):
        seen.append((env_steps, mean_return))
        return len(seen) == 3

    training = train("dqn", "CartPole-v1", **{**QUICK, "iterations": 90}, eval_freq=3, on_evaluation=stop_at_third)
    records = RunFolder(training.folder).evaluations()
    assert seen == [(record["env_step"], record["returns"][0]) for record in records] and len(seen) == 3
    assert not training.result["stop"]
    with pytest.raises(ConfigError, match="on_evaluation has no effect on parallel training"):
        train("dqn", "CartPole-v1", **QUICK, parallel=True, on_evaluation=stop_at_third)


def test_a_missing_optuna_is_named_with_its_extra(put_module):
    put_module("optuna", None)
    with pytest.raises(ImportError, match=r"needs the package optuna, .* or the extra \[tune\] of ding"):
        tune("dqn", "CartPole-v1", {"nstep": [1]}, **QUICK)


@pytest.mark.slow
class TestWithOptuna:
    @pytest.fixture(autouse=True)
    def optuna(self):
        return pytest.importorskip("optuna", reason=NEEDS_OPTUNA)

    @pytest.mark.parametrize(
        "search", [{}, {"nstep": []}, {"nstep": (3, 1)}, {"lr": (0.0, 1.0, "log")}, {"nstep": (1, "2")}, {"nstep": 3}]
    )
    def test_a_space_that_is_none_is_refused(self, search):
        with pytest.raises(ConfigError, match="there is nothing to search|is not allowed; it must be a list of"):
            tune("dqn", "CartPole-v1", search, **QUICK)
        assert not os.path.exists("tune_dqn")

    def test_a_study_keeps_the_best_and_continues(self):
        search = {"learning_rate": (1e-4, 1e-2, "log"), "policy.learn.batch_size": [4, 8], "nstep": (1, 3)}
        found = tune("dqn", "CartPole-v1", search, trials=3, seeds=(1, 2), **QUICK)
        runs = {number: [RunFolder(f"tune_dqn/trial_{number:03}/seed{seed}") for seed in (1, 2)] for number in range(3)}
        means = {number: sum(run.result()["eval_value"] for run in both) / 2 for number, both in runs.items()}
        assert found.trials == 3 and found.mean_return == max(means.values())
        best = runs[max(means, key=means.get)][0].compiled
        assert best.policy.learn.learning_rate == found.values["learning_rate"]
        assert best.policy.learn.batch_size == found.values["policy.learn.batch_size"]
        assert best.policy.nstep == found.values["nstep"]
        assert len({run.compiled.policy.learn.learning_rate for both in runs.values() for run in both}) == 3
        main, create = read_config(found.config)
        assert main.exp_name == "tune_dqn_best"
        assert main.policy.learn.learning_rate == found.values["learning_rate"]
        serial_pipeline((main, create), max_train_iter=1)
        more = tune("dqn", "CartPole-v1", search, trials=4, seeds=(1, 2), **QUICK)
        assert more.trials == 4 and more.mean_return >= found.mean_return
        rates = [RunFolder(f"tune_dqn/trial_{n:03}/seed1").compiled.policy.learn.learning_rate for n in range(4)]
        assert len(set(rates)) == 4
        assert tune("dqn", "CartPole-v1", search, trials=4, seeds=(1, 2), **QUICK) == more  # nothing is left to do

    def test_bad_trials_end_early(self, monkeypatch):
        evaluations = []

        def fall(info):
            evaluations.append(info)
            return -float(len(evaluations))

        monkeypatch.setattr("ding.entry.serial_run.mean_return", fall)  # each trial is worse than those before
        tune("dqn", "CartPole-v1", {"nstep": [1, 2]}, trials=7, **{**QUICK, "iterations": 9, "eval_freq": 3})
        counts = [len(RunFolder(f"tune_dqn/trial_{n:03}/seed0").evaluations()) for n in range(7)]
        assert counts[:5] == [counts[0]] * 5 and counts[0] > 2
        assert counts[5:] == [1, 1]

    def test_a_trial_that_diverges_fails_alone(self, monkeypatch):
        rates = []

        def loss(self, batch):
            rates.append(self._cfg.learn.learning_rate)
            if rates[-1] == 1.0:
                raise FloatingPointError("a loss is NaN")
            return {"total_loss": 0.0}

        monkeypatch.setattr("ding.policy.dqn.DQNPolicy._forward_learn", loss)
        found = tune("dqn", "CartPole-v1", {"learning_rate": [1.0, 0.5]}, trials=6, **QUICK)
        assert set(rates) == {1.0, 0.5} and found.values == {"learning_rate": 0.5} and found.trials == 6

    def test_a_choice_that_is_not_allowed_fails_its_trials_alone(self):
        found = tune("dqn", "CartPole-v1", {"target_update_freq": [0, 5]}, trials=6, seeds=(2,), **QUICK)
        assert found.values == {"target_update_freq": 5} and found.trials == 6
        trained = [number for number in range(6) if os.path.isdir(f"tune_dqn/trial_{number:03}/seed2")]
        assert 0 < len(trained) < 6

    def test_if_all_trials_fail_that_is_said(self, monkeypatch):
        monkeypatch.setattr("ding.entry.tuning.RunFolder.result", lambda run: {"eval_value": None})
        with pytest.raises(FloatingPointError, match="none of the 2 trials in tune_dqn has reached a mean return"):
            tune("dqn", "CartPole-v1", {"nstep": [1]}, trials=2, **QUICK)

    def test_an_error_of_a_trial_reaches_the_caller_and_leaves_no_trial_that_runs(self, optuna, monkeypatch):
        def fail(self, batch):
            raise ZeroDivisionError("in the policy")

        monkeypatch.setattr("ding.policy.dqn.DQNPolicy._forward_learn", fail)
        with pytest.raises(ZeroDivisionError, match="in the policy"):
            tune("dqn", "CartPole-v1", {"nstep": [1, 2]}, trials=2, **QUICK)
        journal = optuna.storages.journal.JournalFileBackend("tune_dqn/study.log")
        study = optuna.load_study(study_name="tune", storage=optuna.storages.JournalStorage(journal))
        assert [trial.state.name for trial in study.trials] == ["FAIL"]

    def test_a_config_file_is_tuned_by_its_search_space(self):
        training = train("dqn", "CartPole-v1", **QUICK)
        path = os.path.join(training.folder, "formatted_total_config.py")
        with open(path, "a") as f:
            f.write("search_space = {'policy.learn.batch_size': [4, 8]}\n")
        found = tune_config(path, {"policy.nstep": (1, 2)}, trials=2, folder="study", max_train_iter=1)
        assert set(found.values) == {"policy.learn.batch_size", "policy.nstep"}
        command = ["tune", path, "--trials", "3", "--exp-name", "study", "--train-iter", "1"]
        ding(*command, "--search", "policy.nstep=1:2")
        assert os.path.isdir("study/trial_002/seed0")

    def test_the_command_tunes_a_policy_on_an_env(self):
        command = (
            "tune dqn CartPole-v1 --search nstep=1,2 --search learning_rate=1e-4:1e-2:log --train-iter 1 --trials 2"
        )
        settings = ["--set", "batch_size=8", "--set", "policy.collect.n_sample=8", "--exp-name", "study"]
        done = run_python("-m", "ding.entry.cli", *command.split(), *settings)
        assert "The best of 2 trials: mean return" in done.stderr

    def test_a_mistyped_setting_is_named(self):
        with pytest.raises(ConfigError, match="nothing reads a setting 'learning_rat'"):
            tune("dqn", "CartPole-v1", {"learning_rat": [1.0]}, trials=3, **QUICK)
        assert os.listdir("tune_dqn") == ["study.log"]
