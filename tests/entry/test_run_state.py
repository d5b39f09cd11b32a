"""The states of serial runs: when they are saved, what of, and what a run that goes on does about its folder."""

from __future__ import annotations

import json
import logging
import os
import signal
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from easydict import EasyDict

from ding.entry import serial_pipeline_sqil
from ding.entry.cli_commands import show_states
from ding.entry.serial_entry import run_serial
from ding.policy.command_mode_policy_instance import DQNCommandModePolicy
from ding.utils.config_helper import ConfigError
from ding.utils.registry_factory import POLICY_REGISTRY, SERIAL_COLLECTOR_REGISTRY
from ding.utils.state_folder import StateError, StateFolder
from ding.worker.collector.sample_serial_collector import SampleSerialCollector
from ding.worker.learner.learner_hook import LearnerHook, hook_mapping
from tests.entry.fakes import TinyEnv, pair, setting
from tests.entry.killed_runs import metrics, play
from tests.entry.test_application_entry import always
from tests.programs import ding


def configs(run_state: Any = None, **changes: Any) -> Any:
    main, create = pair(**changes)
    if run_state is not None:
        main.run_state = run_state
    return main, create


def run(resume: bool = False, iterations: int = 12, collector: Any = None, **kwargs: Any) -> Any:
    pair_ = configs(**kwargs)
    return run_serial(pair_, env_setting=setting(collector), max_train_iter=iterations, resume=resume)


def told() -> list[tuple[str, int]]:
    return [(saved.about["reason"], saved.about["train_iter"]) for saved in StateFolder("exp/run_state").states()]


@SERIAL_COLLECTOR_REGISTRY.register("counting_sample")
class CountingCollector(SampleSerialCollector):
    """Has attributes of its own: one that it names, and one in a state_dict of its own."""

    _saved = ("_calls",)
    made: ClassVar[list[CountingCollector]] = []

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._calls = self.samples = 0
        self.made.append(self)

    def collect(self, *args: Any, **kwargs: Any) -> Any:
        data = super().collect(*args, **kwargs)
        self._calls, self.samples = self._calls + 1, self.samples + len(data)
        return data

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "samples": self.samples}

    def load_state_dict(self, state_dict: Any) -> list[str]:
        self.samples = state_dict["samples"]
        return super().load_state_dict(state_dict)


def test_a_collector_of_ones_own_goes_on_with_its_attributes(caplog: pytest.LogCaptureFixture) -> None:
    kind = {"n_sample": 8, "collector": {"type": "counting_sample"}}
    run(collect=kind)
    run(collect=kind, iterations=6)
    run(resume=True, collect=kind)
    undisturbed, _, resumed = CountingCollector.made
    assert (resumed._calls, resumed.samples) == (undisturbed._calls, undisturbed.samples) == (4, 32)
    assert "does not resume exactly" not in caplog.text


# when


@pytest.mark.guarantees("resume")
def test_a_run_saves_a_state_at_its_end_and_every_so_many_iterations() -> None:
    run(run_state={"every_iter": 5, "keep": 9})
    assert told() == [("interval", 6), ("end", 12)]


def test_states_come_by_the_clock_too() -> None:
    run(run_state={"every_s": 1e-9, "keep": 9})
    assert [reason for reason, _ in told()] == ["interval"] * 4 + ["end"]


def test_a_run_without_states_has_none() -> None:
    run(run_state=False)
    assert not os.path.exists("exp/run_state")


def test_a_wrong_section_is_refused() -> None:
    for section in ({"every_iter": -1}, {"keep": 0}, 3):
        with pytest.raises(ConfigError, match="is not allowed"):
            run(run_state=section)


@pytest.mark.guarantees("signals")
@pytest.mark.differs(
    "interrupts a run inside a round on a signal, and leaves its handlers installed",
    "finishes the round, saves, and exits with status 130; a second signal interrupts it at once",
)
def test_a_signal_takes_effect_after_the_round_and_saves_a_state() -> None:
    sent: list[TinyEnv] = []

    def on_step(env: TinyEnv) -> None:
        if env.life == 9 and not sent:
            sent.append(env)
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(SystemExit) as e:
        run(collector={"on_step": on_step}, iterations=99)
    assert e.value.code == 130
    assert told() == [("SIGTERM", 6)]  # the round in which it came has come to its end
    assert "ckpt_interrupt.pth.tar" in os.listdir("exp/ckpt")


@pytest.mark.guarantees("signals")
def test_a_second_signal_leaves_at_once() -> None:
    def on_step(env: TinyEnv) -> None:
        if env.life >= 9:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(SystemExit):
        run(collector={"on_step": on_step}, iterations=99)
    assert told() == [] and max(env.life for env in TinyEnv.made) == 10


def test_a_state_that_cannot_be_written_does_not_end_the_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(StateFolder, "write", lambda *args: (_ for _ in ()).throw(OSError(28, "No space left")))
    done = run(run_state={"every_iter": 5})
    assert done.learner.train_iter == 12
    assert caplog.text.count("exp: the state of the run is not saved: [Errno 28] No space left") == 2


# going on


def test_a_run_that_has_ended_ends_again_at_once_and_goes_on_with_a_larger_budget() -> None:
    first = run()
    before = Path("exp/eval.jsonl").read_text()
    again = run(resume=True)
    assert again.learner.train_iter == 12 and again.envstep == first.envstep > 0
    assert Path("exp/eval.jsonl").read_text() == before and again.eval_info is not None
    further = run(resume=True, iterations=21)
    assert further.learner.train_iter == 21 and os.listdir() == ["exp"]
    lines = [json.loads(line)["train_iter"] for line in Path("exp/eval.jsonl").read_text().splitlines()]
    assert lines == [0, 6, 12, 18]


def test_a_run_that_has_reached_its_stop_value_goes_on_with_a_higher_one_only() -> None:
    solved = run(env={"stop_value": -1}, iterations=99)
    assert solved.stop and solved.learner.train_iter == 6
    assert run(resume=True, env={"stop_value": -1}, iterations=99).learner.train_iter == 6
    assert run(resume=True, env={"stop_value": 99}).learner.train_iter == 12


def test_the_key_resume_training_goes_on_too() -> None:
    run()
    assert run(learn={"resume_training": True, "update_per_collect": 3, "batch_size": 4}).learner.train_iter == 12
    assert os.listdir() == ["exp"]


@pytest.mark.differs(
    "starts at iteration 0 and writes over the old files if `resume_training` finds no checkpoint",
    "resumes from the newest state, or moves the old files away",
)
def test_without_a_state_a_run_begins_anew_and_sets_aside_what_was_there(caplog: pytest.LogCaptureFixture) -> None:
    run(run_state=False)
    with caplog.at_level(logging.WARNING, "ding"):
        run(resume=True, iterations=3)
    (aside,) = set(os.listdir()) - {"exp"}
    assert f"renamed to {aside}" in caplog.text
    assert len(Path("exp/eval.jsonl").read_text().splitlines()) == 1
    assert len(Path(aside, "eval.jsonl").read_text().splitlines()) == 2


def test_a_folder_in_which_another_process_runs_is_refused(tmp_path: Path) -> None:
    status: list[int] = []

    def on_step(env: TinyEnv) -> None:
        if not status:  # the run has saved nothing so far
            status.append(play(resume_in_vain, tmp_path))

    def resume_in_vain(_: bool) -> None:
        with pytest.raises(StateError, match="another process uses exp"):
            run(resume=True)

    run(collector={"on_step": on_step})
    assert status == [0] and {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"exp"}
    assert play(lambda _: run(resume=True), tmp_path) == 0  # nobody runs there now


def test_several_ranks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ding.entry.run_state.get_world_size", lambda: 2)
    with pytest.raises(ConfigError, match="several ranks"):
        run(resume=True)
    assert os.listdir() == []


def test_a_state_of_another_config_is_refused_with_the_keys_that_differ() -> None:
    run()
    before = Path("exp/total_config.py").read_text()
    with pytest.raises(ConfigError, match="n_sample: 8 then, 4 now; policy.learn.batch_size: 4 then, 8 now"):
        run(resume=True, learn={"update_per_collect": 3, "batch_size": 8}, collect={"n_sample": 4})
    with pytest.raises(ConfigError, match="seed: 0 then, 1 now"):
        run_serial(configs(), seed=1, env_setting=setting(), resume=True)
    assert Path("exp/total_config.py").read_text() == before and os.listdir() == ["exp"]


def test_a_state_that_lacks_a_part_of_this_pipeline_is_refused() -> None:
    pair = configs()
    run_serial(pair, env_setting=setting(), max_train_iter=6)
    with pytest.raises(StateError, match="lacks expert, .*expert_env; call the pipeline"):
        serial_pipeline_sqil(pair, pair, 0, setting(), None, always(1), max_train_iter=12, resume=True)


@pytest.mark.guarantees("resume")
def test_a_part_without_a_state_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    class Commander:
        policy = None

        def __init__(self, *args: Any) -> None:
            pass

        def step(self) -> dict[str, float]:
            return {"eps": 0.1}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ding.entry.experiment.BaseSerialCommander", Commander)
        run()
    rows, notes = show_states("exp")
    assert rows[-1][-1] == "no" and "Not exact: commander: Commander has no state_dict" in notes


@POLICY_REGISTRY.register("noting_dqn")
@POLICY_REGISTRY.register("noting_dqn_command")
class NotingDQN(DQNCommandModePolicy):
    """Has an attribute of its own, which it does not declare."""

    made: ClassVar[list[Any]] = []

    def _init_learn(self) -> None:
        super()._init_learn()
        self._losses: list[float] = []
        self.made.append(self)

    def _forward_learn(self, data: Any) -> Any:
        output: Any = super()._forward_learn(data)
        self._losses.append(output["total_loss"])
        return output


@POLICY_REGISTRY.register("declaring_dqn")
@POLICY_REGISTRY.register("declaring_dqn_command")
class DeclaringDQN(NotingDQN):
    _saved = ("_losses",)


class NotingHook(LearnerHook):
    made: ClassVar[list[Any]] = []

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.calls = 0
        self.made.append(self)

    def __call__(self, engine: Any) -> None:
        self.calls += 1


class DeclaringHook(NotingHook):
    _saved = ("calls",)


@pytest.mark.parametrize("kind", ["noting", "declaring"])
def test_what_a_users_policy_and_hook_do_not_save_is_told_once_in_a_line_each(
    kind: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", "ding")
    monkeypatch.setitem(hook_mapping, kind, NotingHook if kind == "noting" else DeclaringHook)
    for iterations, resume in ((6, False), (12, True)):
        hook = EasyDict(mine={"name": "mine", "type": kind, "position": "after_iter"})
        main, create = configs({"every_iter": 3}, learn={"learner": {"hook": hook}})
        create.policy.type = f"{kind}_dqn"
        run_serial((main, create), env_setting=setting(), max_train_iter=iterations, resume=resume)
    lines = [record.getMessage() for record in caplog.records if "does not save" in record.getMessage()]
    count = len(NotingDQN.made[-1]._losses), NotingHook.made[-1].calls
    if kind == "declaring":
        assert (lines, count) == ([], (12, 12))
        return
    assert count == (6, 6) and len(lines) == 4  # once when it is saved, and once when the run resumes
    assert "NotingDQN does not save _losses" in lines[0] and "NotingHook does not save calls" in lines[1]


@pytest.mark.parametrize(("manager", "exact"), [("subprocess", "yes"), ("async_subprocess", "no")])
def test_a_run_whose_envs_are_served_in_any_order_is_shown_as_not_exact(manager: str, exact: str) -> None:
    pair_ = configs()
    pair_[1].env_manager.type = manager
    run_serial(pair_, env_setting=setting(), max_train_iter=6)
    rows, notes = show_states("exp")
    assert (rows[-1][-1], len(notes) > 1) == (exact, exact == "no")


def test_the_command_shows_states_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    run(run_state={"every_iter": 5, "keep": 9})
    shown = ding("state", "exp")
    rows = shown.splitlines()
    assert rows[0].split() == ["state", "saved", "why", "iteration", "env", "steps", "return", "size", "exact"]
    assert rows[2].split()[3:5] == ["interval", "6"] and rows[3].split()[3:5] == ["end", "12"]
    assert f"torch {torch.__version__}" in shown
    os.makedirs("empty")
    assert "there is no state in 'empty/run_state'" in ding("state", "empty", status=1)
    calls: list[Any] = []
    monkeypatch.setattr("ding.entry.serial_entry.serial_pipeline", lambda *args, **kwargs: calls.append(kwargs))
    for command in (["-m", "serial", "-c"], ["train"]):
        ding(*command, "exp/formatted_total_config.py", "--resume")
    assert [call["resume"] for call in calls] == [True, True]


# parts


@pytest.mark.guarantees("resume")
def test_a_run_that_goes_on_has_each_row_of_its_metrics_once() -> None:
    log = {"learner": {"hook": {"log_show_after_iter": 3}}}
    run(iterations=6, learn=log)
    run(iterations=12, learn=log, resume=True)
    found = metrics(Path("exp"))
    assert sorted(found) == ["buffer.csv", "evaluator.csv", "learner.csv", "metrics.jsonl"]
    assert [row["train_iter"] for row in found["learner.csv"]] == ["0", "3", "6", "9"]
    assert [row["train_iter"] for row in found["evaluator.csv"]] == ["0", "6"]
    workers = [row["worker"] for row in found["metrics.jsonl"]]
    assert workers.count("learner") == 4 and workers.count("evaluator") == 2


@pytest.mark.parametrize(
    ("iterations", "reasons"), [(10, []), (7, ["max_train_iter ended the run in the middle of a round"])]
)
def test_a_state_says_that_the_rest_of_a_round_is_left_out(iterations: int, reasons: list[str]) -> None:
    done = run(iterations=iterations, learn={"update_per_collect": 5})
    assert done.states.inexact == reasons
    (saved,) = list(StateFolder("exp/run_state").states())[:1]
    assert saved.about["inexact"] == reasons
