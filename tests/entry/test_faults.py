"""Processes that are killed or stopped, files that are damaged, and messages that are mistreated, in a real training.

Each training runs in this process and in processes of its own; a thread does the damage when the run is far enough.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from itertools import pairwise
from multiprocessing.connection import wait
from pathlib import Path
from time import monotonic

import psutil
import pytest
import torch

from ding.entry import parallel_run
from ding.entry.parallel_run import ParallelOutcome
from ding.entry.worker_process import WorkerDied
from ding.worker.transport.stores import EVALUATED
from tests.entry.faults import DEADLINE_S, NOTICED_S, long_episodes, observing
from tests.entry.parallel_fakes import triple
from tests.worker.coordinator.networks import FAULTS, Books, Network

pytestmark = pytest.mark.slow


@pytest.fixture
def train(monkeypatch):
    with observing(monkeypatch) as train:
        yield lambda damage, configs=None: train(damage, configs, max_seconds=DEADLINE_S)


# Processes.


def test_a_killed_collector_is_noticed_replaced_and_leaves_no_partial_trajectory(train):
    seen = {}

    def damage(run):
        name = run.wait_for_training()
        # Who has evaluated is free now, and both tasks of collecting are there.
        run.wait_for(lambda: run.coordinator.status().evaluations and len(run.collecting()) == 2)
        task = run.collecting()[name]
        before = {*run.collecting().values()}
        killed = monotonic()
        os.kill(run.workers.pids()[name], signal.SIGKILL)
        run.wait_for(lambda: {*run.collecting().values()} - before)
        [heir] = [who for who, its_task in run.collecting().items() if its_task not in before]
        run.wait_for(lambda: run.back[name])
        samples, learnt = len(run.samples), len(run.learnt)
        run.wait_for(lambda: len(run.samples) > samples + 500 and len(run.learnt) > learnt + 50)
        seen.update(name=name, task=task, heir=heir, killed=killed, back=run.back[name][0])
        run.stop()

    # One collector more than there are tasks, which do not end by themselves: it takes over.
    collector = {"collector_num": 3, "flush_interval_s": 0, "update_policy_second": 0}
    endless = long_episodes(policy__collect__collector=collector, env__collector_episode_num=1000)
    run, _ = train(damage, endless)
    name, killed = seen["name"], seen["killed"]
    assert run.gone[name][0] - killed < NOTICED_S and seen["back"] - killed < NOTICED_S
    assert run.coordinator.supervisor.restarts == {name: 1}
    assert seen["heir"] != name and run.senders[seen["task"]] < run.gone[name][0] + NOTICED_S
    assert run.is_whole() and chunks() == []
    # The learner went on all the time, in the same task.
    assert len(run.learner_tasks) == 1
    assert max(later - earlier for (earlier, _), (later, _) in pairwise(run.learnt)) < 5
    steps = [step for _, step in run.learnt]
    assert steps == sorted(set(steps))


@pytest.mark.guarantees("workers")
def test_a_collector_that_is_killed_is_started_again_three_times_and_not_a_fourth_time(train):
    names = []

    def damage(run):
        names.append(run.wait_for_training())
        for time in range(4):
            run.wait_for(lambda time=time: len(run.back[names[0]]) == time)
            os.kill(run.workers.pids()[names[0]], signal.SIGKILL)

    run, error = train(damage)
    assert isinstance(error, WorkerDied) and f"the process of {names[0]} was ended by SIGKILL" in str(error)
    assert run.coordinator.supervisor.restarts == {names[0]: 3}
    assert run.is_whole() and chunks() == []


@pytest.mark.guarantees("workers")
def test_a_killed_learner_goes_on_and_policy_versions_never_go_back(train):
    versions = []

    def damage(run):
        run.wait_for(lambda: len(run.learnt) > 50 and version() > 0)
        os.kill(run.workers.pids()["learner0"], signal.SIGKILL)
        run.wait_for(lambda: run.gone["learner0"])
        versions.append(version())
        while len(versions) < 2 or versions[-1] < versions[0] + 50:
            run.wait_for(lambda: version() != versions[-1])
            versions.append(version())
        run.stop()

    def version():
        files = [path for path in Path("exp/policy").iterdir() if not path.name.startswith(".")]
        [policy] = [path for path in files if path.name != EVALUATED]
        return torch.load(policy, weights_only=True)["iter"]

    run, _ = train(damage)
    assert versions[0] > 0 and versions == sorted(versions)
    first, second = run.learner_tasks
    assert "resume" not in first and second["resume"] is True
    assert {key: first[key] for key in ("task_id", "policy_id", "buffer_id")} == {
        key: second[key] for key in ("task_id", "policy_id", "buffer_id")
    }
    steps = [step for _, step in run.learnt]
    fall = next((later for earlier, later in pairwise(steps) if later <= earlier), None)
    assert fall is None or fall >= versions[0]  # what was trained after the last weights were sent is trained again


def test_a_stopped_collector_is_replaced_and_acts_no_more(train):
    seen = {}

    def damage(run):
        name = run.wait_for_training()
        pid = run.workers.pids()[name]
        stopped = monotonic()
        os.kill(pid, signal.SIGSTOP)
        run.wait_for(lambda: run.back[name])
        seen.update(noticed=run.gone[name][0] - stopped, pid=pid, new=run.workers.pids()[name])
        known = len(run.samples)
        run.wait_for(lambda: len(run.samples) > known + 200)
        run.stop()

    run, _ = train(damage)
    assert seen["noticed"] < NOTICED_S and seen["new"] != seen["pid"]
    assert not os.path.exists(f"/proc/{seen['pid']}")
    assert run.is_whole() and chunks() == []


def test_a_collector_that_is_killed_while_an_env_holds_the_interpreter_is_replaced_and_nothing_is_left(train, tmp_path):
    seen, locked = {}, tmp_path / "locked"

    def damage(run):
        run.wait_for(lambda: locked.exists() and locked.read_text())
        env = int(locked.read_text())
        collector = psutil.Process(env).ppid()
        [name] = [name for name, pid in run.workers.pids().items() if pid == collector]
        seen.update(killed=monotonic(), ends=[os.pidfd_open(env), os.pidfd_open(collector)])
        os.kill(collector, signal.SIGKILL)
        run.wait_for(lambda: run.back[name])
        seen.update(back=run.back[name][0])
        known = len(run.learnt)
        run.wait_for(lambda: len(run.learnt) > known + 20)
        run.stop()

    main, create, system = long_episodes(env__lock_once=str(locked))
    create.env.type, create.env_manager.type = "locking_task", "subprocess"
    train(damage, (main, create, system))
    assert seen["back"] - seen["killed"] < NOTICED_S
    assert all(wait([end], 0) for end in seen["ends"])
    for end in seen["ends"]:
        os.close(end)


# Files.


def chunks():
    """The files with samples that there are."""
    return [path for path in Path("exp/data").iterdir() if not path.name.startswith(".")]


@pytest.mark.guarantees("files")
@pytest.mark.parametrize("how", ["truncated", "corrupt", "missing", "late"])
def test_damaged_data_files_are_skipped_counted_and_reported(how, train):
    kept = []

    def spoil(path):
        if how == "late":
            kept.append((path, path.read_bytes()))
        if how in ("missing", "late"):
            path.unlink()
        else:
            content = path.read_bytes()
            path.write_bytes(content[: len(content) // 2] if how == "truncated" else bytes(len(content)))

    def damage(run):
        run.wait_for(lambda: len(run.learnt) > 20)
        while not run.bad:  # the learner has read some before
            for path in chunks():
                with contextlib.suppress(FileNotFoundError):
                    spoil(path)
            known = len(run.learnt)
            run.wait_for(lambda known=known: run.bad or len(run.learnt) > known)
        for path, content in kept:  # what comes now comes too late
            path.write_bytes(content)
        known = len(run.learnt)
        run.wait_for(lambda: len(run.learnt) > known + 50)
        run.stop()

    configs = triple(env__collector_episode_num=100, policy__other__replay_buffer={"replay_buffer_size": 2000})
    run, outcome = train(damage, configs)
    assert isinstance(outcome, ParallelOutcome)
    assert run.bad[0] >= 1 and run.bad == sorted(run.bad)
    assert any("bad files of samples" in note.text for note in run.coordinator.status().errors)


# Messages.


@pytest.mark.parametrize("has_token", [False, True], ids=["without token", "with token"])
def test_mistreated_messages_change_neither_counts_nor_the_end(has_token, monkeypatch):
    books, network = Books(monkeypatch), Network(300)
    if not has_token:
        monkeypatch.setattr(parallel_run, "draw_run_token", lambda: None)

    def reach_through(cfg):
        for kind in ("learner", "collector"):
            for place in cfg.system.coordinator[kind].values():
                place[2] = network.reach(place[2])

    # The 2,400 samples that are learned from are at least 240 others: collectors end tasks, of 2 episodes, before that.
    buffer = {"replay_buffer_size": 64, "max_use": 10}
    configs = triple(env__collector_episode_num=1, policy__other__replay_buffer=buffer)
    before = set(threading.enumerate())
    with contextlib.closing(network), observing(monkeypatch, reach_through) as train:
        run, outcome = train(lambda run: None, configs, max_train_iter=600, max_seconds=DEADLINE_S)
    assert isinstance(outcome, ParallelOutcome)
    assert outcome.progress.train_iter == 600 and [step for _, step in run.learnt][-1] == 599
    assert len({step for _, step in run.learnt}) == len(run.learnt)
    books.check(outcome.progress.samples)
    assert set(network.faults) == {*FAULTS, "pass"}
    assert set(threading.enumerate()) <= before


# Tasks that make no progress.


@pytest.mark.guarantees("workers")
def test_tasks_that_hang_are_abandoned_their_workers_restarted_and_the_run_goes_on(train):
    def damage(run):
        run.wait_for(lambda: run.coordinator.status().stalled_tasks == 2)
        run.wait_for(lambda: sum(run.coordinator.supervisor.restarts.values()) == 2)
        samples = len(run.samples)
        run.wait_for(lambda: len(run.samples) > samples and len(run.learnt) > 20)
        run.wait_for(lambda: run.coordinator.status().evaluations)
        run.stop()

    configs = triple(env_type="hanging_task", env__hang_times=2, system={"coordinator": {"task_silence_s": 1}})
    run, outcome = train(damage, configs)
    assert isinstance(outcome, ParallelOutcome) and outcome.progress.last_return is not None
    status = run.coordinator.status()
    told = [note.text for note in status.errors if "made no env step for" in note.text]
    assert sum("is lost: collector" in text for text in told) == status.stalled_tasks == 2
    assert sum("was killed: collector" in text for text in told) == 2
    assert sum(run.coordinator.supervisor.restarts.values()) == 2


def test_a_learner_that_hangs_is_restarted_and_goes_on_where_it_was(train):
    def damage(run):
        run.wait_for(lambda: run.coordinator.status().stalled_tasks)
        learnt = len(run.learnt)
        run.wait_for(lambda: len(run.learnt) > learnt + 20)
        run.stop()

    hang = {"policy__fail_in": "learn", "policy__fail_at": 40, "policy__fail_how": "hang", "policy__fail_once": "hangs"}
    configs = triple(env__collector_episode_num=1000, system={"coordinator": {"task_silence_s": 2}}, **hang)
    run, outcome = train(damage, configs)
    assert isinstance(outcome, ParallelOutcome) and os.path.exists("hangs")
    first, second = run.learner_tasks
    assert first["task_id"] == second["task_id"] and second["resume"] is True
    assert run.coordinator.supervisor.restarts == {"learner0": 1}
    [told] = [note.text for note in run.coordinator.status().errors if "is lost" in note.text]
    assert "learner learner0 has made no iteration, though it has data, for" in told


def test_an_evaluation_that_hangs_is_told_and_healed_with_the_defaults_on_a_busy_machine(monkeypatch, caplog):
    def damage(run):
        run.wait_for(lambda: run.coordinator.status().stalled_tasks)
        run.wait_for(lambda: run.coordinator.status().evaluations)
        run.stop()

    collector = {"collector_num": 1, "flush_interval_s": 0, "update_policy_second": 0}  # its first task evaluates
    configs = triple(env_type="hanging_task", env__hang_times=1, policy__collect__collector=collector)
    with contextlib.ExitStack() as stack:
        for _ in range(os.cpu_count()):
            busy = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(busy.kill)
        train = stack.enter_context(observing(monkeypatch))
        run, outcome = train(damage, configs, max_seconds=3 * DEADLINE_S)
    assert isinstance(outcome, ParallelOutcome) and outcome.progress.last_return == 7.5
    [told] = [text for text in caplog.messages if "the evaluation" in text]
    assert told.startswith("exp: the evaluation ") and int(told.split()[-2]) < 20
    [lost] = [text for text in caplog.messages if "is lost" in text]
    assert lost.startswith("exp: collector collector0 is lost: collector collector0 has made no env step for 6")
    assert run.coordinator.supervisor.restarts == {"collector0": 1}
