"""Runs that are watched while something is done to them: to their processes, their files, their network."""

import contextlib
import threading
from collections import Counter, defaultdict
from time import monotonic

import torch

import ding.entry.parallel_run as parallel_run
from ding.utils.state_folder import StateError, StateFolder
from ding.worker.transport.chunk import decode_chunk
from ding.worker.transport.stores import FolderSampleStore
from tests.entry.parallel_fakes import triple

DEADLINE_S = 120
NOTICED_S = 20


def newest_state():
    """The newest state of the run in `exp`; None if there is none, or if the run has just replaced those that were."""
    try:
        found = StateFolder("exp/run_state").read()
    except StateError:
        return None
    return None if found is None else found[0]


class Observed(parallel_run.ParallelRun):
    """A run that keeps what passes through its coordinator, and lets a thread of the test do damage meanwhile.

    Attributes:
        samples: the transitions in the buffer, by chunk and index; each as often as it came.
        senders: by the id of a task, when its last samples came.
        gone, back: when workers were given up, and were connected again.
        learnt: when the learner told of an iteration, and of which.
    """

    damage = None

    def __init__(self, cfg, *args):
        super().__init__(cfg, *args)
        self.samples, self.chunks, self.gone, self.back = Counter(), {}, defaultdict(list), defaultdict(list)
        self.learnt, self.learner_tasks, self.bad, self.errors, self.senders = [], [], [], [], {}
        self._store = FolderSampleStore(cfg.system.coordinator.path_data)
        for name in ("send_data", "gone", "back", "info"):
            getattr(self, f"_observe_{name}")(self.coordinator)

    def _observe_send_data(self, coordinator):
        original = coordinator.deal_with_collector_send_data

        def send_data(task_id, buffer_id, data_id, data):
            self.senders[task_id] = monotonic()
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
        original = coordinator.deal_with_worker_lost

        def lost(kind, name, task, error):
            self.gone[name].append(monotonic())
            original(kind, name, task, error)

        coordinator.deal_with_worker_lost = lost

    def _observe_back(self, coordinator):
        original = coordinator.deal_with_worker_back

        def back(kind, name, host, port):
            original(kind, name, host, port)
            self.back[name].append(monotonic())

        coordinator.deal_with_worker_back = back

    def _observe_info(self, coordinator):
        original, begin = coordinator.deal_with_learner_send_info, coordinator._scheduler.begin_task

        def send_info(task_id, buffer_id, info):
            self.learnt.append((monotonic(), info["learner_step"]))
            if info.get("bad_files"):
                self.bad.append(info["bad_files"])
            original(task_id, buffer_id, info)

        def begin_task(kind, task):
            if kind == "learner":
                self.learner_tasks.append(dict(task))
            return begin(kind, task)

        coordinator.deal_with_learner_send_info, coordinator._scheduler.begin_task = send_info, begin_task

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

    def collecting(self):
        """The tasks of the collectors that collect, by the names of these; those that evaluate are left out."""
        return {
            task.worker: task.task_id
            for task in self.coordinator.status().tasks
            if task.kind == "collector" and not task.is_eval
        }

    def wait_for_learning(self, count):
        """Look until the learner has told of so many iterations."""
        self.wait_for(lambda: len(self.learnt) > count)

    def wait_for_training(self):
        """Look until it trains on samples that have just come; returns the name of a collector that collects."""
        self.wait_for(lambda: len(self.samples) > 500 and len(self.learnt) > 20 and self.collecting())
        return next(iter(self.collecting()))

    def is_whole(self):
        """Whether no fragment is cut off or doubled: each transition leads to the next step of its own episode."""
        return all(before[:2] == after[:2] and after[2] == before[2] + 1 for before, after in self.transitions())

    def stop(self):
        """End the run, as its commander would."""
        self.coordinator._monitor.end()

    def transitions(self):
        """What each chunk in the buffer holds, as (env, episode, step) of obs and next_obs."""
        for (chunk, index), times in self.samples.items():
            assert times == 1, "a sample came twice"
            sample = self.chunks[chunk][index]
            yield tuple(sample["obs"].tolist()), tuple(sample["next_obs"].tolist())


@contextlib.contextmanager
def one_thread():
    """Compute with one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@contextlib.contextmanager
def observing(monkeypatch, before=lambda cfg: None):
    """Train in workers of processes of their own, and do damage meanwhile.

    Yields `train(damage, configs=None, **limits)`, which returns the run, and its outcome or what it has raised.
    `before` is given the compiled config when the workers have started.
    """
    made, pools, make_workers = [], [], parallel_run.make_workers

    def train(damage, configs=None, **limits):
        class Run(Observed):
            def __init__(self, cfg, *args):
                # Without a state to go on from, chunks go when a run fails: what is left of them is left by mistake.
                cfg.system.coordinator.state_interval_s = 0
                before(cfg)
                super().__init__(cfg, *args)
                self.workers = pools[-1]
                made.append(self)

        Run.damage = damage
        monkeypatch.setattr(parallel_run, "ParallelRun", Run)
        monkeypatch.setattr(parallel_run, "make_workers", lambda *args: pools.append(make_workers(*args)) or pools[-1])
        try:
            outcome = parallel_run.run_parallel(configs or long_episodes(), seed=0, **limits)
        except Exception as e:
            outcome = e
        assert made[-1].errors == [], repr(made[-1].errors)
        return made[-1], outcome

    with one_thread():
        yield train


def long_episodes(**changes):
    """Episodes take so long that a process is killed in the middle of one."""
    defaults = {
        "env__lengths": [3000, 5000],
        "env__collector_episode_num": 1,
        "env__stop_value": 10**9,
        "policy__other__commander__eval_interval": 10**6,
    }
    return triple(**{**defaults, **changes})
