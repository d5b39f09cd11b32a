"""Processes that are killed or stopped, and files that are damaged, in the middle of a parallel training.

Each training runs in this process and in processes of its own; a thread does the damage when the run is far enough.
"""

import contextlib
import os
import signal
import threading
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from time import monotonic

import pytest
import torch

import ding.entry.parallel_run as parallel_run
from ding.worker.transport.chunk import decode_chunk
from ding.worker.transport.stores import FolderSampleStore
from tests.entry.parallel_fakes import triple

pytestmark = pytest.mark.slow

DEADLINE_S = 120
NOTICED_S = 20


class Observed(parallel_run.ParallelRun):
    """A run that keeps what passes through its coordinator, and lets a thread of the test do damage meanwhile.

    Attributes:
        samples: the transitions in the buffer, by chunk and index; each as often as it came.
        gone, back: when workers were given up, and were connected again.
        learnt: when the learner told of an iteration, and of which.
    """

    damage = None

    def __init__(self, cfg, start):
        super().__init__(cfg, start)
        self.samples, self.chunks, self.gone, self.back = Counter(), {}, defaultdict(list), defaultdict(list)
        self.learnt, self.learner_tasks, self.bad, self.errors = [], [], [], []
        self._store = FolderSampleStore(cfg.system.coordinator.path_data)
        for name in ("send_data", "gone", "back", "info"):
            getattr(self, f"_observe_{name}")(self.coordinator)

    def _observe_send_data(self, coordinator):
        original = coordinator.deal_with_collector_send_data

        def send_data(task_id, buffer_id, data_id, data):
            for row in data:
                self.samples[row["data_id"], row["data_index"]] += 1
                if row["data_id"] not in self.chunks:
                    try:
                        self.chunks[row["data_id"]] = decode_chunk(self._store.read(row["data_id"]))
                    except Exception as e:
                        self.chunks[row["data_id"]] = e
            original(task_id, buffer_id, data_id, data)

        coordinator.deal_with_collector_send_data = send_data

    def _observe_gone(self, coordinator):
        original = coordinator._is_brought_back

        def is_brought_back(kind, name, error):
            self.gone[name].append(monotonic())
            return original(kind, name, error)

        coordinator._is_brought_back = is_brought_back

    def _observe_back(self, coordinator):
        original = coordinator.deal_with_worker_back

        def back(kind, name, host, port):
            original(kind, name, host, port)
            self.back[name].append(monotonic())

        coordinator.deal_with_worker_back = back

    def _observe_info(self, coordinator):
        original, begin = coordinator.deal_with_learner_send_info, coordinator.begin_task

        def send_info(task_id, buffer_id, info):
            self.learnt.append((monotonic(), info["learner_step"]))
            if info.get("bad_files"):
                self.bad.append(info["bad_files"])
            original(task_id, buffer_id, info)

        def begin_task(kind, task):
            if kind == "learner":
                self.learner_tasks.append(dict(task))
            return begin(kind, task)

        coordinator.deal_with_learner_send_info, coordinator.begin_task = send_info, begin_task

    def train(self, deadline):
        def work():
            try:
                type(self).damage(self)
            except BaseException as e:
                self.errors.append(e)
                self.coordinator.deal_with_error(RuntimeError(f"the test has failed: {e!r}"))

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            super().train(deadline)
        finally:
            thread.join(DEADLINE_S)

    def wait_for(self, is_there):
        """Look until something is there, or the run is over."""
        deadline = monotonic() + DEADLINE_S
        while not is_there():
            if self.coordinator.wait(0.02) or monotonic() > deadline:
                raise RuntimeError(f"it is not there in time: {self.coordinator.status()}")

    def transitions(self):
        """What each chunk in the buffer holds, as (env, episode, step) of obs and next_obs."""
        for (chunk, index), times in self.samples.items():
            assert times == 1, "a sample came twice"
            sample = self.chunks[chunk][index]
            yield tuple(sample["obs"].tolist()), tuple(sample["next_obs"].tolist())


@pytest.fixture
def train(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    made, crews, make_crew = [], [], parallel_run.make_crew

    def train(damage, configs=None, **limits):
        class Run(Observed):
            def __init__(self, cfg, start):
                super().__init__(cfg, start)
                self.crew = crews[-1]
                made.append(self)

        Run.damage = damage
        monkeypatch.setattr(parallel_run, "ParallelRun", Run)
        monkeypatch.setattr(parallel_run, "make_crew", lambda *args: crews.append(make_crew(*args)) or crews[-1])
        outcome = parallel_run.run_parallel(configs or long_episodes(), seed=0, max_seconds=DEADLINE_S, **limits)
        assert made[-1].errors == []
        return made[-1], outcome

    yield train
    torch.set_num_threads(torch_threads)


def long_episodes(**changes):
    """Episodes take so long that a process is killed in the middle of one."""
    return triple(
        env__lengths=[3000, 5000],
        env__collector_episode_num=1,
        env__stop_value=10**9,
        policy__other__commander__eval_interval=10**6,
        **changes,
    )


def collecting(run):
    """A collector that collects, and does not evaluate: the other plays the first evaluation for long."""
    run.wait_for(lambda: len(run.samples) > 500 and len(run.learnt) > 20)
    return next(
        task.worker.worker_id
        for task in list(run.coordinator._comm_coordinator._running.values())
        if task.worker.kind == "collector" and not task.task["collector_cfg"]["eval_flag"]
    )


def test_a_killed_collector_is_noticed_replaced_and_leaves_no_partial_trajectory(train):
    seen = {}

    def damage(run):
        name = collecting(run)
        killed = monotonic()
        os.kill(run.crew.pids()[name], signal.SIGKILL)
        run.wait_for(lambda: run.back[name])
        samples, learnt = len(run.samples), len(run.learnt)
        run.wait_for(lambda: len(run.samples) > samples + 500 and len(run.learnt) > learnt + 50)
        seen.update(name=name, killed=killed, back=run.back[name][0])
        run.coordinator._state.end()

    run, _ = train(damage)
    name = seen["name"]
    assert run.gone[name][0] - seen["killed"] < NOTICED_S and seen["back"] - seen["killed"] < NOTICED_S
    assert run.coordinator.worker_keeper.restarts == {name: 1}
    # No piece is cut off or doubled: each transition leads to the next step of its own episode.
    assert all(before[:2] == after[:2] and after[2] == before[2] + 1 for before, after in run.transitions())
    # The learner went on all the time, in the same task.
    assert len(run.learner_tasks) == 1
    assert max(later - earlier for (earlier, _), (later, _) in pairwise(run.learnt)) < 5
    steps = [step for _, step in run.learnt]
    assert steps == sorted(set(steps))


def test_a_killed_learner_goes_on_and_policy_versions_never_go_back(train):
    versions = []

    def damage(run):
        run.wait_for(lambda: len(run.learnt) > 50 and version() > 0)
        os.kill(run.crew.pids()["learner0"], signal.SIGKILL)
        run.wait_for(lambda: run.gone["learner0"])
        versions.append(version())
        while len(versions) < 2 or versions[-1] < versions[0] + 50:
            run.wait_for(lambda: version() != versions[-1])
            versions.append(version())
        run.coordinator._state.end()

    def version():
        [policy] = [path for path in Path("exp/policy").iterdir() if not path.name.startswith(".")]
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
        name = collecting(run)
        pid = run.crew.pids()[name]
        stopped = monotonic()
        os.kill(pid, signal.SIGSTOP)
        run.wait_for(lambda: run.back[name])
        seen.update(noticed=run.gone[name][0] - stopped, pid=pid, new=run.crew.pids()[name])
        known = len(run.samples)
        run.wait_for(lambda: len(run.samples) > known + 200)
        run.coordinator._state.end()

    run, _ = train(damage)
    assert seen["noticed"] < NOTICED_S and seen["new"] != seen["pid"]
    assert not os.path.exists(f"/proc/{seen['pid']}")
    assert set(run.samples.values()) == {1}


@pytest.mark.parametrize("how", ["truncated", "corrupt", "missing"])
def test_damaged_data_files_are_skipped_counted_and_reported(how, train):
    def spoil(path):
        content = path.read_bytes()
        if how == "missing":
            path.unlink()
        else:
            path.write_bytes(content[: len(content) // 2] if how == "truncated" else bytes(len(content)))

    def damage(run):
        run.wait_for(lambda: len(run.learnt) > 20)
        seen = set()
        while not run.bad:  # the learner may have read a file before
            for path in Path("exp/data").iterdir():
                if path.name not in seen and not path.name.startswith("."):
                    seen.add(path.name)
                    with contextlib.suppress(FileNotFoundError):
                        spoil(path)
                    break
            run.wait_for(lambda: True)
        known = len(run.learnt)
        run.wait_for(lambda: len(run.learnt) > known + 50)
        run.coordinator._state.end()

    configs = triple(env__collector_episode_num=100, policy__other__replay_buffer={"replay_buffer_size": 2000})
    run, _ = train(damage, configs)
    assert run.bad[0] >= 1 and run.bad == sorted(run.bad)
