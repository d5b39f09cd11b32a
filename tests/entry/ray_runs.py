"""Trainings on Ray that a test watches from outside: `python -m tests.entry.ray_runs <what>` prints what was seen."""

import glob
import json
import os
import sys
import threading
from operator import gt
from pathlib import Path

import pytest
from ray.cluster_utils import Cluster

from tests.entry.faults import DEADLINE_S, long_episodes, observing

STORE = 100 * 2**20


def lose_a_node():
    """Two nodes with a collector each; the one without the learner goes."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "resources": {"head": 1}, **own()})
    node = cluster.add_node(num_cpus=1, **own())
    seen = {}

    def damage(run):
        run.wait_for_learning(50)
        before = len(run.learnt)
        cluster.remove_node(node)
        run.wait_for(lambda: any(run.gone.values()))
        [seen["gone"]] = [name for name, times in run.gone.items() if times]
        run.wait_for(lambda: len(run.learnt) > before + 100)
        steps = run.coordinator.progress().env_steps
        run.wait_for(lambda: run.coordinator.progress().env_steps > steps + 200)
        seen["back"] = bool(run.back[seen["gone"]])
        run.stop()

    ray = {"address": cluster.address, "learner": {"num_cpus": 0, "resources": {"head": 1}}}
    run, outcome = train(damage, long_episodes(comm="ray", system={"ray": ray}))
    seen.update(failure=repr(run.coordinator.failure), outcome=type(outcome).__name__)
    seen["learner_tasks"] = len(run.learner_tasks)
    cluster.shutdown()
    return seen


def own():
    return {"object_store_memory": STORE, "include_dashboard": False}


def newest(*patterns):
    """When a file of each pattern was last written, in nanoseconds; 0 if there is none."""
    return [max((os.stat(path).st_mtime_ns for path in glob.glob(pattern)), default=0) for pattern in patterns]


def drive(resume):
    """Train until a test kills this process; or go on from there, until a hundred iterations more are trained."""
    seen = {}

    def damage(run):
        if not resume:
            run.wait_for_learning(100)
            run.wait_for(lambda: all(newest("exp/run_state/state_*", "exp/policy/*")))
            known = {"iteration": run.learnt[-1][1], "env_steps": run.coordinator.progress().env_steps}
            before = newest("exp/run_state/state_*", "exp/policy/*")
            # Weights are written every 0.25 s: a fast learner trains 100 iterations before those of iteration 0 change.
            run.wait_for(lambda: all(map(gt, newest("exp/run_state/state_*", "exp/policy/*"), before)))
            Path("known.tmp").write_text(json.dumps(known))
            os.replace("known.tmp", "known")
            threading.Event().wait()
        run.wait_for(lambda: run.learner_tasks)
        seen["env_steps"] = run.coordinator.progress().env_steps
        run.wait_for_learning(100)
        seen.update(first=run.learnt[0][1], resumes=[bool(task.get("resume")) for task in run.learner_tasks])
        run.stop()

    def keep_states(cfg):
        cfg.system.coordinator.state_interval_s = 0.5

    system = {"coordinator": {"resume": resume}, "ray": {"object_store_memory": STORE}}
    configs = long_episodes(comm="ray", system=system, policy__learn__resume_training=resume)
    train(damage, configs, keep_states)
    return seen


def train(damage, configs, before=lambda cfg: None):
    with pytest.MonkeyPatch.context() as monkeypatch, observing(monkeypatch, before) as train:
        return train(damage, configs, max_seconds=DEADLINE_S)


if __name__ == "__main__":
    what = {"lose_a_node": lose_a_node, "drive": lambda: drive(False), "resume": lambda: drive(True)}[sys.argv[1]]
    sys.stdout.write(f"SEEN {json.dumps(what())}\n")
