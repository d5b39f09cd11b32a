"""Parallel trainings from configs to results: in processes of their own, or all in this one."""

import contextlib
import copy
import logging
import multiprocessing
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from functools import partialmethod
from pathlib import Path
from time import monotonic, sleep

import psutil
import pytest
import torch

from ding.config.config import compile_config_parallel
from ding.config.save import save_packed_config
from ding.entry import parallel_pipeline, parallel_run, serial_pipeline
from ding.entry.cli_commands import show_states
from ding.entry.experiment import with_command_mode
from ding.entry.parallel_entry import launch_collector, launch_coordinator, launch_learner
from ding.entry.parallel_run import make_workers, run_parallel
from ding.entry.progress import ProgressLine
from ding.entry.run_folder import append_record
from ding.entry.worker_process import WorkerDied
from ding.utils.config_helper import ConfigError
from ding.utils.registry_factory import TRANSPORT_REGISTRY
from ding.utils.state_folder import StateError, StateFolder
from ding.worker.collector.comm.base_comm_collector import create_comm_collector
from ding.worker.collector.interaction_serial_evaluator import EvalRecord
from ding.worker.coordinator.comm_coordinator import CommCoordinator
from ding.worker.learner.comm.base_comm_learner import create_comm_learner
from ding.worker.transport.transport import TaskFailed, get_transport
from tests.entry.fakes import evaluations, result
from tests.entry.parallel_fakes import FailingDQN, HangingEnv, triple
from tests.interaction.fakes import raw
from tests.leftovers import in_shared_memory
from tests.programs import environment, run_python
from tests.worker.coordinator.test_one_vs_one_training import CREATE as TWO_PLAYERS
from tests.worker.coordinator.test_one_vs_one_training import MAIN as TWO_PLAYERS_MAIN

DEADLINE_S = 120


@pytest.fixture(autouse=True)
def _many_switches_of_threads():
    threads, interval = torch.get_num_threads(), sys.getswitchinterval()
    torch.set_num_threads(1)
    sys.setswitchinterval(1e-4)
    yield
    torch.set_num_threads(threads)
    sys.setswitchinterval(interval)


@pytest.fixture(autouse=True)
def _nothing_is_left():
    before = leftovers()
    yield
    while _IN_BACKGROUND:
        with _IN_BACKGROUND.pop() as run:  # a test that failed has not waited for it
            run.kill()
    assert [left - known for left, known in zip(leftovers(), before, strict=True)] == [set()] * 3


def leftovers():
    threads = {thread for thread in threading.enumerate() if thread.name != "process-starter"}  # it stays, one for all
    return set(multiprocessing.active_children()), threads, in_shared_memory()


def exists(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# What a run leaves.


@pytest.mark.parametrize("comm", ["flask_fs", "local"])
def test_a_run_ends_when_an_evaluation_reaches_the_stop_value(comm):
    outcome = run_parallel(triple(comm, env__stop_value=1), seed=0, max_seconds=DEADLINE_S)
    assert outcome.stop is True
    assert len(outcome.returns) == 2 and outcome.progress.last_return == pytest.approx(sum(outcome.returns) / 2)
    found = result()
    assert (found["stop"], found["eval_value_raw"]) == (True, outcome.returns)
    [line] = evaluations()
    assert (line["returns"], line["seed"], line["train_iter"], line["lengths"]) == (outcome.returns, 0, 0, None)
    assert line["seconds"] > 0


@pytest.mark.parametrize("comm", ["flask_fs", "local"])
def test_a_run_ends_when_its_patience_is_exhausted(comm, caplog):
    changes = {"policy__eval__evaluator__patience": 2, "policy__other__commander__eval_interval": 0.01}
    with caplog.at_level("INFO", "ding.progress"):
        outcome = run_parallel(triple(comm, **changes), seed=0, max_seconds=DEADLINE_S)
    assert (outcome.stop, outcome.reason) == (False, "no better mean return in 2 evaluations")
    assert [sum(line["returns"]) for line in evaluations()] == [15.0] * 3  # whatever a policy does
    assert "The training ends: no better mean return in 2 evaluations." in caplog.text
    assert StateFolder("exp/run_state").read() is None  # as after a run that is solved


@pytest.fixture(scope="module", params=["flask_fs", "local"])
def of_thirty(request, tmp_path_factory):
    """The outcome of a run of 30 iterations, and its folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("thirty"))
        return run_parallel(triple(request.param), seed=0, max_train_iter=30, max_seconds=DEADLINE_S), Path(
            "exp"
        ).absolute()


@pytest.mark.differs(
    "ends a parallel run at the stop value only",
    "ends it also at `max_train_iter`, `max_env_step` and `max_seconds`",
)
def test_the_learner_ends_at_max_train_iter_and_its_last_weights_are_evaluated(of_thirty):
    outcome, exp = of_thirty
    assert (outcome.stop, outcome.progress.train_iter, result(exp)["train_iter"]) == (False, 30, 30)
    assert evaluations(exp)[-1]["train_iter"] == 30
    checkpoint = torch.load(exp / "ckpt/iteration_30.pth.tar", weights_only=True)
    assert checkpoint["last_iter"] == 30


@pytest.mark.differs(
    "keeps no best checkpoint of a parallel run",
    "keeps the weights of the best evaluation in `ckpt_best.pth.tar`",
)
def test_the_weights_of_the_best_evaluation_are_kept(of_thirty):
    _, exp = of_thirty
    means = [(sum(line["returns"]) / len(line["returns"]), -line["train_iter"]) for line in evaluations(exp)]
    best = torch.load(exp / "ckpt/ckpt_best.pth.tar", weights_only=True)
    assert best["last_iter"] == -max(means)[1]
    newest = torch.load(exp / "ckpt/iteration_30.pth.tar", weights_only=True)
    assert best["model"].keys() == newest["model"].keys()


def test_a_run_leaves_config_logs_checkpoints_and_results(of_thirty):
    _, exp = of_thirty
    files = {"ckpt", "eval.jsonl", "log", "metrics", "metrics.jsonl", "result.json", "result.pkl"}
    assert set(os.listdir(exp)) - {"data", "policy"} == files | {"run_state", "total_config.json", "total_config.py"}
    assert sorted(os.listdir(exp / "metrics")) == ["evaluator.csv", "learner.csv"]
    assert not (exp / "data").exists() or os.listdir(exp / "data") == []


def test_two_players_train_with_workers_of_the_type_local():
    create = {**TWO_PLAYERS, "comm_learner": {"type": "local"}, "comm_collector": {"type": "local"}}
    outcome = run_parallel((TWO_PLAYERS_MAIN, create, {}), seed=0, max_seconds=DEADLINE_S)
    assert outcome.progress.train_iter == 30 and outcome.cfg.system.coordinator.transport == "local"
    assert evaluations(outcome.cfg.main.exp_name)[-1]["train_iter"] == 30


def test_a_run_uses_a_transport_of_ones_own_whose_module_each_role_imports(import_folder):
    (import_folder / "herons.py").write_text(
        textwrap.dedent("""
            from ding.utils.registry_factory import TRANSPORT_REGISTRY
            from ding.worker.transport.local_transport import LocalTransport

            opened = []

            @TRANSPORT_REGISTRY.register("herons")
            class Herons(LocalTransport):
                def sample_store(self, *args, **kwargs):
                    opened.append(args)
                    return super().sample_store(*args, **kwargs)
        """)
    )
    own = {"transport": "herons", "comm_learner": {"import_names": ["herons"]}}
    try:
        outcome = run_parallel(triple(system=own), seed=0, max_train_iter=20, max_seconds=DEADLINE_S)
        assert len(sys.modules["herons"].opened) >= 3
    finally:
        TRANSPORT_REGISTRY.pop("herons", None)
    assert outcome.progress.train_iter == 20
    sections = [outcome.cfg.system[name] for name in ("coordinator", "learner0", "collector0")]
    assert [section.import_names for section in sections] == [["herons"]] * 3


def test_a_run_ends_at_max_env_step():
    outcome = run_parallel(triple("local"), seed=0, max_env_step=50, max_seconds=DEADLINE_S)
    assert outcome.stop is False and 50 <= outcome.progress.env_steps < 250


def test_a_run_ends_when_its_time_is_up():
    outcome = run_parallel(triple("local"), seed=0, max_seconds=1e-3)
    assert outcome.stop is False


def test_limits_of_the_config_count_too():
    configs = triple("local", policy__learn__learner={"train_iterations": 7})
    outcome = run_parallel(configs, seed=0, max_train_iter=50, max_seconds=DEADLINE_S)
    assert outcome.progress.train_iter == 7
    system = {"coordinator": {"max_env_step": 20}}
    outcome = run_parallel(triple("local", system=system), seed=0, max_env_step=10**6, max_seconds=DEADLINE_S)
    assert 20 <= outcome.progress.env_steps < 250


def test_configs_may_come_from_a_file_and_stay_as_they_are():
    configs = triple("local", env__stop_value=1)
    before = copy.deepcopy(configs)
    run_parallel(configs, seed=0, max_seconds=DEADLINE_S)
    assert configs == before
    Path("config.py").write_text(
        "from tests.entry.parallel_fakes import triple\n"
        "main_config, create_config, system_config = triple('local', env__stop_value=1, exp_name='from_file')\n"
    )
    assert run_parallel("config.py", seed=0, max_seconds=DEADLINE_S).stop is True
    assert result("from_file")["stop"] is True


@pytest.mark.slow
def test_two_runs_at_once_do_not_clash():
    code = """
        from ding.entry.parallel_run import ParallelRun, run_parallel
        from tests.entry.parallel_fakes import triple
        print(run_parallel(triple(), seed=0, max_train_iter=20, max_seconds=60).cfg.main.exp_name)
    """
    runs = [in_background(code) for _ in range(2)]
    names = [run.communicate(timeout=DEADLINE_S)[0].split()[-1] for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert len(set(names)) == 2 and [result(name)["train_iter"] for name in names] == [20, 20]


def test_the_log_of_the_coordinator_is_written_if_it_is_wanted():
    run_parallel(triple("local", env__stop_value=1), seed=0, max_seconds=DEADLINE_S)
    assert Path("exp/log/coordinator_logger.txt").read_text() == ""
    assert not logging.getLogger("coordinator_logger").disabled
    configs = triple("local", env__stop_value=1, exp_name="told")
    run_parallel(configs, seed=0, enable_total_log=True, max_seconds=DEADLINE_S)
    assert "coordinator is started" in Path("told/log/coordinator_logger.txt").read_text()


# What ends a run too early.


@pytest.mark.differs(
    "waits forever after an exception in an env, a policy, the learner or the coordinator's threads",
    "raises it in `parallel_pipeline` with the worker's traceback",
)
@pytest.mark.parametrize("comm", ["flask_fs", "local"])
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"env__raise_at": [1, 0, 3]}, "env 1 was told to fail"),
        ({"policy__fail_in": "collect"}, "the policy was told to fail in collect"),
        ({"policy__fail_in": "learn"}, "the policy was told to fail in learn"),
    ],
    ids=["env", "collect", "learn"],
)
def test_an_exception_in_a_worker_ends_the_run_with_its_traceback(comm, changes, text):
    with pytest.raises(TaskFailed, match=f"(?s)Traceback.*ZeroDivisionError: {text}"):
        parallel_pipeline(triple(comm, **changes), seed=0, max_seconds=DEADLINE_S)


@pytest.mark.differs("hangs if a worker dies or cannot be reached", "starts it again, three times at most")
@pytest.mark.parametrize("mode", ["collect", "learn"])
def test_a_worker_that_is_killed_is_started_again_and_the_run_goes_on(mode):
    configs = triple(policy__fail_in=mode, policy__fail_how="kill", policy__fail_once=os.path.abspath("failed"))
    outcome = run_parallel(configs, seed=0, max_train_iter=30, max_seconds=DEADLINE_S)
    assert Path("failed").exists()
    assert (outcome.progress.train_iter, evaluations()[-1]["train_iter"]) == (30, 30)


@pytest.mark.differs(
    "waits without a limit for workers at the end of a run",
    "kills one that hangs, a collector after 8 s and a learner after 60 s, and names it",
)
@pytest.mark.parametrize("comm", ["flask_fs", "local"])
def test_a_learner_that_hangs_does_not_hold_up_the_end_and_is_named(comm, monkeypatch, caplog):
    monkeypatch.setitem(parallel_run.END_S, "learner", 1.0)
    monkeypatch.setattr(CommCoordinator, "close", partialmethod(CommCoordinator.close, 1.0))

    def wait(run, deadline):
        while not Path("hangs").exists():
            assert not run.coordinator.wait(0.01), run.coordinator.failure
        begin.append(monotonic())
        return False

    begin, hang = [], {"policy__fail_in": "learn", "policy__fail_how": "hang", "policy__fail_once": "hangs"}
    monkeypatch.setattr(parallel_run.ParallelRun, "wait", wait)
    monkeypatch.setattr("tests.entry.parallel_fakes.FailingDQN.go_on", threading.Event())
    outcome = run_parallel(triple(comm, **hang), seed=0)
    assert monotonic() - begin[0] < 10 and outcome.reason == ""
    assert [text for text in caplog.messages if text.startswith("learner0 has not closed in time")]
    FailingDQN.go_on.set()
    for thread in threading.enumerate():
        if thread.name in ("learner_start", "close_learner0"):
            thread.join(DEADLINE_S)


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("queue_size", 0, "collector.*exit code 1.*Traceback.*queue_size = 0"),
        ("host", "0.0.0.0", "DING_TOKEN"),  # a server for other machines
    ],
)
def test_a_worker_that_cannot_start_says_why(key, value, text):
    main, create, system = triple()
    create.comm_collector[key] = value
    with pytest.raises(WorkerDied, match=f"(?s){text}"):
        parallel_pipeline((main, create, system), seed=0, max_seconds=DEADLINE_S)


@pytest.mark.differs(
    "starts the training again in each spawned worker if the main module has no guard",
    "refuses, and says what to do",
)
@pytest.mark.slow
def test_a_main_module_that_trains_whenever_it_is_imported_does_not_train_again_in_each_worker():
    Path("main.py").write_text(
        "from ding.entry import parallel_pipeline\n"
        "from tests.entry.parallel_fakes import triple\n"
        "parallel_pipeline(triple(system={'start_method': 'spawn'}), seed=0)\n"
    )
    done = run_python("main.py", timeout=DEADLINE_S)
    assert "__main__" in done.stderr
    assert "WorkerDied" in done.stderr and sorted(os.listdir()) == ["exp", "main.py"]


def test_a_run_draws_a_token_that_others_of_this_machine_do_not_find():
    main, create, system = triple()
    ports = {"coordinator_port": 0, "learner_port": 0, "collector_port": 0}
    cfg = compile_config_parallel(main, with_command_mode(create), system, **ports)
    workers = make_workers(cfg.system)
    with contextlib.ExitStack() as stack:
        stack.callback(workers.end)
        workers.start()
        connector = get_transport(cfg.system.coordinator.transport).connector(cfg.system.coordinator)
        stack.callback(connector.close)
        connector.start()
        token = cfg.system.coordinator.run_token.secret
        assert len(token) == 64
        for name in ("learner0", "collector0"):
            worker = cfg.system[name]
            stranger = {"Channel": "0", "Token": "T", "Authorization": "Bearer guess"}
            assert raw(worker.port, "POST", "/connect", headers=stranger)[0] == 401
            client = connector.client(name, "127.0.0.1", worker.port)
            client.connect(DEADLINE_S)
            assert "gpu" in client.run({"name": "resource"}, DEADLINE_S)
            client.close()
        children = psutil.Process().children(recursive=True)
        assert len(children) >= 3
        for child in children:
            assert not any(token in text for text in [*child.cmdline(), *child.environ().values()])
        assert not [path for path in Path().rglob("*") if path.is_file() and token.encode() in path.read_bytes()]
    other = make_workers(cfg.system)
    assert cfg.system.coordinator.run_token.secret != token
    other.end()


class Trap:
    """Unpickling one of these leaves a file."""

    def __reduce__(self):
        return open, ("executed", "w")


@pytest.mark.parametrize("folder", ["data", "policy"])
def test_pickles_in_the_shared_folders_are_not_executed(folder):
    spoil = {"env__spoil": f"exp/{folder}", "env__spoil_with": pickle.dumps(Trap()).hex()}
    configs = triple(env_type="spoiling_task", **spoil)
    with contextlib.suppress(TaskFailed):  # without data, or weights, there is nothing to go on with
        parallel_pipeline(configs, seed=0, max_env_step=100, max_seconds=DEADLINE_S)
    assert Path("spoiled").exists() and not Path("executed").exists()


# Configs that are refused at once.


@pytest.mark.parametrize("configs", [3, "pair", (1, 2)])
def test_anything_but_a_path_or_a_triple_is_refused(configs):
    configs = triple()[:2] if configs == "pair" else configs
    with pytest.raises(TypeError, match="file path"):
        parallel_pipeline(configs, seed=0)


@pytest.mark.parametrize("limit", ["max_train_iter", "max_env_step", "max_seconds"])
@pytest.mark.parametrize("value", [0, None])
def test_limits_are_positive_numbers(limit, value):
    with pytest.raises(ValueError, match=f"{limit} = {value} is not allowed"):
        parallel_pipeline(triple(), seed=0, **{limit: value})


def test_a_learner_of_several_ranks_is_refused():
    with pytest.raises(ConfigError, match="learner_gpu_num = 2 is not allowed here"):
        parallel_pipeline(triple(system={"learner_gpu_num": 2}), seed=0)


def test_workers_in_this_process_and_in_others_do_not_mix():
    main, create, system = triple("local")
    create.comm_learner.type = "flask_fs"
    with pytest.raises(ConfigError, match="comm_collector.type"):
        parallel_pipeline((main, create, system), seed=0)


@pytest.mark.differs(
    "makes the folders of samples and weights one level deep and ignores errors, so that a run may wait forever",
    "makes them with parents before anything starts",
)
def test_a_folder_that_cannot_be_made_is_refused_before_anything_starts(monkeypatch):
    Path("file").write_text("")
    monkeypatch.setattr(parallel_run, "make_workers", None)  # would fail otherwise
    with pytest.raises(OSError, match=r"file/exp"):
        parallel_pipeline(triple(exp_name="file/exp"), seed=0)
    with pytest.raises(OSError, match="file"):
        parallel_pipeline(triple(system={"path_data": "file/data"}), seed=0)


# Signals, and the death of the process that has called.


def in_background(code):
    command = [sys.executable, "-c", textwrap.dedent(code)]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    _IN_BACKGROUND.append(run)
    return run


_IN_BACKGROUND = []


ENDLESS = """
    import ding.entry.parallel_run as parallel_run
    from tests.entry.parallel_fakes import triple

    class Run(parallel_run.ParallelRun):
        def _record(self, finished_task):
            is_best = super()._record(finished_task)
            print("evaluated", *pools[0].pids().values(), flush=True)
            return is_best

    pools, make_workers = [], parallel_run.make_workers
    parallel_run.ParallelRun = Run
    parallel_run.make_workers = lambda *args: pools.append(make_workers(*args)) or pools[0]
    parallel_run.run_parallel(triple(), seed=0)
"""


def endless_run():
    """A run that goes on for ever, and the processes of its workers."""
    run = in_background(ENDLESS)
    words = run.stdout.readline().split()
    assert words[0] == "evaluated", run.communicate(timeout=DEADLINE_S)
    return run, [int(pid) for pid in words[1:]]


@pytest.mark.guarantees("signals")
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_everything_with_status_130(signum):
    run, pids = endless_run()
    assert len(pids) == 3 and all(map(exists, pids))
    run.send_signal(signum)
    run.communicate(timeout=DEADLINE_S)
    assert run.returncode == 130
    assert not any(map(exists, pids))


@pytest.mark.guarantees("signals")
@pytest.mark.parametrize("comm", ["flask_fs", "local"])
def test_a_second_signal_waits_for_no_worker(comm):
    run = in_background(f"""
        from ding.entry.parallel_run import run_parallel
        from tests.entry.parallel_fakes import triple
        hang = dict(policy__fail_in="learn", policy__fail_how="hang", policy__fail_once="hangs")
        run_parallel(triple({comm!r}, **hang), seed=0)
    """)
    while not Path("hangs").exists():
        assert run.poll() is None, run.communicate()
        sleep(0.01)
    children = [child.pid for child in psutil.Process(run.pid).children()]
    run.send_signal(signal.SIGINT)
    sleep(0.5)
    assert run.poll() is None
    run.send_signal(signal.SIGTERM)
    begin = monotonic()
    run.communicate(timeout=DEADLINE_S)
    assert run.returncode == 130 and monotonic() - begin < 10  # a learner has 60 s to end otherwise
    assert not any(map(exists, children))


@pytest.mark.differs(
    "starts an interrupted parallel run from scratch",
    "resumes with its counters, buffers and newest weights, though not bit for bit (`--resume`)",
)
@pytest.mark.slow
def test_a_run_that_was_interrupted_goes_on_in_its_folder_with_its_counters(caplog, monkeypatch):
    run, _ = endless_run()
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=DEADLINE_S)
    saved, shown = [*StateFolder("exp/run_state").states()][-1].about, []
    monkeypatch.setattr(ProgressLine, "finish", lambda self, *args, **kwargs: shown.append(self.env_steps_before))
    assert saved["reason"] == "end"
    before, limits = evaluations(), {"max_seconds": DEADLINE_S, "max_env_step": 3000}
    outcome = run_parallel(triple(), seed=0, resume=True, **limits)
    assert os.listdir() == ["exp"] and [line["train_iter"] for line in evaluations()].count(0) == 1
    assert evaluations()[: len(before)] == before and outcome.progress.best_return == 7.5
    assert outcome.progress.env_steps >= 3000
    assert shown == [saved["env_step"]]  # which took none of this run's time
    assert "this is not exact" in caplog.text


def test_a_run_without_a_state_begins_anew_and_sets_aside_what_was_there(caplog):
    parallel_pipeline(triple("local"), seed=0, max_train_iter=5, max_seconds=DEADLINE_S)
    assert StateFolder("exp/run_state").read() is None  # that run has come to its end
    parallel_pipeline(triple("local"), seed=0, max_train_iter=5, max_seconds=DEADLINE_S, resume=True)
    (aside,) = set(os.listdir()) - {"exp"}
    assert f"renamed to {aside}" in caplog.text
    assert result()["train_iter"] == 5


def wait_for_iterations(run, deadline):
    end = monotonic() + DEADLINE_S
    while run.coordinator.progress().train_iter < 5 or run.coordinator.progress().last_return is None:
        assert not run.coordinator.wait(0.01), run.coordinator.failure
        assert monotonic() < end, "it does not train"
    return False


@pytest.fixture
def interrupted(monkeypatch):
    """Begins a run in this process, and ends it after a few iterations as a signal does."""
    with monkeypatch.context() as patch:
        patch.setattr(parallel_run.ParallelRun, "wait", wait_for_iterations)
        outcome = run_parallel(triple("local"), seed=0)
    return outcome.progress


def test_the_last_iteration_is_evaluated_where_no_collector_has(monkeypatch):
    asked = []

    def evaluate(main, create, seed, checkpoint):
        asked.append(checkpoint)
        return EvalRecord(0, 0, [2000.0, 1000.0], [3, 5], 0.5)

    monkeypatch.setattr(parallel_run, "_evaluate", evaluate)
    with monkeypatch.context() as patch:
        patch.setattr(parallel_run.ParallelRun, "wait", wait_for_iterations)
        outcome = run_parallel(triple("local"), seed=0, evaluates_end=True)
    number = int(re.fullmatch(r"exp/ckpt/iteration_(\d+).pth.tar", asked[0])[1])
    expected = {"train_iter": number, "seed": 0, "returns": [2000.0, 1000.0], "lengths": None, "seconds": 0.5}
    last = evaluations()[-1]
    assert last.pop("env_step") == outcome.progress.env_steps and last == expected
    assert outcome.stop and outcome.returns == [2000.0, 1000.0]  # stop_value is 1000
    assert (result()["train_iter"], result()["eval_value"]) == (number, 1500.0)
    assert Path("exp/ckpt/ckpt_best.pth.tar").read_bytes() == Path(asked[0]).read_bytes()
    shutil.rmtree("exp")
    run_parallel(triple("local"), seed=0, max_train_iter=5, max_seconds=DEADLINE_S, evaluates_end=True)
    assert len(asked) == 1 and evaluations()[-1]["train_iter"] == 5


def test_evaluations_after_the_state_that_a_run_resumes_from_are_cut_off(interrupted):
    before = evaluations()
    append_record("exp", {"train_iter": 10**6, "env_step": 10**6, "returns": [99999.0]})
    outcome = run_parallel(triple("local"), seed=0, max_env_step=1, max_seconds=DEADLINE_S, resume=True)
    assert evaluations()[: len(before)] == before and outcome.progress.best_return < 99999
    assert all(line["train_iter"] < 10**6 for line in evaluations())


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"policy__learn__learning_rate": 0.5}, "policy.learn.learning_rate: 0.001 then, 0.5 now"),
        ({"env__lengths": [5, 5]}, r"env.lengths: \[6, 9\] then, \[5, 5\] now"),
    ],
    ids=lambda value: next(iter(value)).rpartition("__")[2] if isinstance(value, dict) else "",
)
def test_a_run_resumes_with_its_own_config_only(changes, told, interrupted, monkeypatch):
    before = Path("exp/total_config.json").read_text()
    monkeypatch.setattr(parallel_run, "make_workers", lambda *args: pytest.fail("workers are made"))
    with pytest.raises(ConfigError, match=told):
        run_parallel(triple("local", **changes), seed=0, resume=True)
    assert Path("exp/total_config.json").read_text() == before and os.listdir() == ["exp"]


def test_a_run_resumes_with_other_budgets_and_more_collectors(interrupted):
    changes = {"policy__collect__collector__collector_num": 1, "policy__other__commander__collector_task_space": 1}
    limits = {"max_train_iter": interrupted.train_iter + 20, "max_seconds": DEADLINE_S}
    outcome = run_parallel(triple("local", env__stop_value=999, **changes), seed=0, resume=True, **limits)
    assert outcome.progress.train_iter >= limits["max_train_iter"] and os.listdir() == ["exp"]


def test_the_states_of_a_run_are_shown(interrupted):
    rows, notes = show_states("exp")
    [(_, _, why, train_iter, env_steps, _, _, exact)] = rows
    assert (why, exact) == ("end", "no") and int(train_iter) >= 5 and int(env_steps) >= interrupted.env_steps > 0
    assert "Not exact: episodes begin anew, and samples and iterations after the state are lost" in notes


def test_a_serial_run_does_not_resume_a_parallel_one(interrupted):
    with pytest.raises(StateError, match="of a parallel run"):
        serial_pipeline(serial_pair(), seed=0, resume=True)


def serial_pair():
    main, create, _ = triple()
    del main.policy.collect["collector"], main.policy.other["commander"]
    return main, {key: value for key, value in create.items() if key in ("env", "env_manager", "policy")}


@pytest.mark.differs("mixes two runs in one folder", "refuses the second")
def test_a_folder_in_which_another_run_trains_is_refused():
    first, _ = endless_run()
    main, create, _ = triple()
    config = os.stat("exp/total_config.json").st_mtime_ns
    again = [
        lambda: run_parallel(triple(), seed=0, resume=True),
        lambda: run_parallel(triple(policy__learn__resume_training=True), seed=0),
        lambda: serial_pipeline(serial_pair(), seed=0, resume=True),
        lambda: launch_coordinator(
            0, config=compile_config_parallel(main, with_command_mode(create), {}, save_cfg=False)
        ),
    ]
    for begin in again:
        with pytest.raises(StateError, match="another process uses exp"):
            begin()
    assert first.poll() is None and os.listdir() == ["exp"]
    assert os.stat("exp/total_config.json").st_mtime_ns == config


@pytest.mark.differs("leaves workers running when their parent is killed", "ends them with it")
def test_workers_die_with_the_process_that_started_them():
    run, pids = endless_run()
    watched = [os.pidfd_open(pid) for pid in pids]
    run.kill()
    run.communicate(timeout=DEADLINE_S)
    ended = multiprocessing.connection.wait(watched, DEADLINE_S)
    while len(ended) < len(watched):
        assert ended, "a worker has outlived the process that started it"
        rest = [descriptor for descriptor in watched if descriptor not in ended]
        ended += multiprocessing.connection.wait(rest, DEADLINE_S)
    for descriptor in watched:
        os.close(descriptor)


# The roles one by one.


def compiled(**changes):
    main, create, system = triple(**changes)
    return compile_config_parallel(main, with_command_mode(create), system, seed=3)


@pytest.mark.parametrize("source", ["config", "file"])
def test_the_roles_can_be_launched_one_by_one(source):
    cfg = compiled(env__stop_value=1)
    save_packed_config(cfg, "exp.pkl")

    def how(name):
        return {"config": cfg.system[name]} if source == "config" else {"filename": "exp.pkl"}

    learner = launch_learner(0, name="learner0", **how("learner0"))
    collectors = [launch_collector(i, name=f"collector{i}", **how(f"collector{i}")) for i in range(2)]
    handles = {"learner_handle": [learner], "collector_handle": collectors}
    launch_coordinator(3, **({"config": cfg} if source == "config" else {"filename": "exp.pkl"}), **handles)
    process, start_event, close_event = learner
    assert (start_event, close_event) == (process.start_event, process.close_event)
    assert result()["stop"] is True


def test_a_role_needs_a_config():
    for launch in (launch_learner, launch_collector):
        with pytest.raises(ValueError, match="filename and name"):
            launch(0, filename="exp.pkl")
    with pytest.raises(ValueError, match="filename"):
        launch_coordinator(0)


@pytest.mark.slow
def test_workers_can_be_spawned():
    outcome = run_parallel(triple(system={"start_method": "spawn"}), seed=0, max_train_iter=20, max_seconds=120)
    assert outcome.progress.train_iter == 20


@pytest.mark.differs(
    "fails in `launch_coordinator` without handles",
    "connects to the workers at the addresses in the config",
)
def test_a_coordinator_finds_workers_that_were_started_at_the_addresses_of_the_config():
    cfg = compiled(env__stop_value=1)
    with contextlib.ExitStack() as stack:
        for kind, create in (("learner", create_comm_learner), ("collector", create_comm_collector)):
            for name in cfg.system.coordinator[kind]:
                worker = create(cfg.system[name])
                stack.callback(worker.close)
                worker.start()
        launch_coordinator(3, config=cfg)
    assert result()["stop"] is True


@pytest.fixture
def hanging():
    """Configs of a run in threads, whose first evaluation hangs until the test is over."""
    collector = {"collector_num": 1, "flush_interval_s": 0, "update_policy_second": 0}
    configs = {"env_type": "hanging_task", "env__stop_value": 1, "policy__collect__collector": collector}
    yield lambda times, **own: triple(
        "local", **configs, env__hang_times=times, system={"coordinator": {"task_silence_s": 0.3, **own}}
    )
    HangingEnv.go_on.set()
    for thread in threading.enumerate():
        if thread.name in ("collector_start", "close_collector0"):
            thread.join(DEADLINE_S)
    HangingEnv.go_on.clear()


def test_a_worker_in_a_thread_that_hangs_is_left_to_itself_and_another_takes_its_place(hanging, caplog):
    outcome = run_parallel(hanging(2), seed=0, enable_total_log=True, max_seconds=DEADLINE_S)
    assert outcome.stop and outcome.progress.best_return == 7.5
    log = Path("exp/log/coordinator_logger.txt").read_text()
    assert log.count("collector0 has made no env step for") == 2
    assert "collector0 is lost" in caplog.text
