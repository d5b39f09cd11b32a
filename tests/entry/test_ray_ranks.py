"""Trainings on Ray whose learner has several ranks, each in an actor of its own."""

import copy
import os
import signal
from pathlib import Path

import psutil
import pytest

import ding.example.cartpole_dqn_parallel as cartpole
from ding.entry.parallel_run import run_parallel
from ding.utils.config_helper import ConfigError
from ding.worker.transport.ray.cluster import RayCluster
from ding.worker.transport.ray.ray_settings import ray_section
from tests.entry.faults import DEADLINE_S, long_episodes, observing
from tests.entry.parallel_fakes import triple
from tests.programs import run_python

RANKS = {"learner_gpu_num": 2}


@pytest.fixture(scope="module")
def cluster():
    before = set(psutil.Process().children(recursive=True))
    cluster = RayCluster(ray_section({"object_store_memory": 150 * 2**20}), num_cpus=8)
    cluster.start()
    yield cluster
    cluster.close()
    psutil.wait_procs(set(psutil.Process().children(recursive=True)) - before, timeout=10)
    assert set(psutil.Process().children(recursive=True)) <= before


def actors():
    """The processes of actors that run."""
    return [process for process in psutil.Process().children(recursive=True) if is_actor(process)]


def is_actor(process):
    try:
        return "WorkerActor" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False


def records():
    """What the ranks have recorded: `{update: [checksum of each rank]}`."""
    found = {}
    for path in sorted(Path("record").glob("[0-9]_*")):
        found.setdefault(int(path.name.partition("_")[2]), []).append(path.read_text())
    return found


def test_ranks_need_models_that_are_kept_equal():
    with pytest.raises(ConfigError, match="policy.multi_gpu = False is not allowed with system_config.learner_gpu_num"):
        run_parallel(triple("ray", system=RANKS), seed=0)


@pytest.mark.slow
def test_the_weights_of_all_ranks_are_equal_bit_by_bit(cluster):
    configs = triple("ray", system=RANKS, policy__multi_gpu=True, policy__record_every=10)
    outcome = run_parallel(configs, seed=0, max_train_iter=60, max_seconds=DEADLINE_S)
    assert outcome.progress.train_iter == 60
    found = records()
    assert sorted(found) == [10, 20, 30, 40, 50, 60]
    assert all(len(sums) == 2 and len(set(sums)) == 1 for sums in found.values())
    assert len({sums[0] for sums in found.values()}) == 6
    assert len(list(Path("exp/log/learner").glob("*.txt"))) == 1 and Path("exp/ckpt/iteration_60.pth.tar").exists()
    assert not psutil.wait_procs(actors(), timeout=10)[1]


# In a process of its own: a Ray that other tests have started would be used.
IN_A_RAY_OF_ITS_OWN = """
from tests.entry.test_ray_ranks import DEADLINE_S, RANKS, run_parallel, triple

configs = triple("ray", system=RANKS, policy__multi_gpu=True)
outcome = run_parallel(configs, seed=0, max_train_iter=20, max_seconds=DEADLINE_S, platform="ray")
print("reached", outcome.progress.train_iter, outcome.cfg.system.learner0.host)
"""


@pytest.mark.slow
def test_on_a_ray_of_the_run_ranks_meet_at_the_loopback_address():
    done = run_python("-c", IN_A_RAY_OF_ITS_OWN, timeout=2 * DEADLINE_S)
    assert done.stdout.splitlines()[-1:] == ["reached 20 127.0.0.1"], done.stderr


@pytest.mark.slow
def test_what_fails_on_one_rank_is_told_with_its_traceback(cluster):
    failing = {"policy__fail_in": "learn", "policy__fail_at": 20, "policy__fail_once": "failed"}
    with pytest.raises(Exception, match="the policy was told to fail in learn"):
        run_parallel(triple("ray", system=RANKS, policy__multi_gpu=True, **failing), seed=0, max_seconds=DEADLINE_S)
    assert not psutil.wait_procs(actors(), timeout=10)[1]


@pytest.fixture
def train(cluster, monkeypatch):
    with observing(monkeypatch) as train:
        yield lambda damage, configs: train(damage, configs, max_seconds=DEADLINE_S)


@pytest.mark.slow
@pytest.mark.parametrize("rank", ["learner0", "learner0.rank1"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_all_ranks_start_again_from_the_checkpoint_when_one_is_lost(train, rank, number):
    seen = {}

    def damage(run):
        run.wait_for_learning(100)
        seen["step"], seen["before"] = run.learnt[-1][1], run.workers.pids()
        os.kill(seen["before"][rank], number)
        run.wait_for(lambda: run.back["learner0"])
        run.wait_for(lambda: run.learnt[-1][1] > seen["step"] + 50)
        seen["after"] = run.workers.pids()
        run.stop()

    learner = {"send_policy_freq": 1, "hook": {"save_ckpt_after_iter": 20}}
    changes = {"policy__multi_gpu": True, "policy__record_every": 10, "policy__learn__learner": learner}
    run, outcome = train(damage, long_episodes(comm="ray", system=RANKS, **changes))
    assert not isinstance(outcome, Exception)
    assert run.coordinator.supervisor.restarts == {"learner0": 1}
    assert [task.get("resume") for task in run.learner_tasks] == [None, True]
    steps = [step for time, step in run.learnt if time > run.back["learner0"][0]]
    assert 20 <= steps[0] <= seen["step"] + 50 and steps == sorted(set(steps))
    changed = {name for name in seen["before"] if seen["before"][name] != seen["after"][name]}
    assert changed == {"learner0", "learner0.rank1"}
    last = max(records())
    assert all(len(set(sums)) == 1 for update, sums in records().items() if update < last and len(sums) == 2)
    assert not psutil.wait_procs(actors(), timeout=10)[1]


@pytest.mark.slow
def test_cartpole_is_solved_by_two_ranks(cluster):
    triple = cartpole.main_config, cartpole.create_config, cartpole.system_config
    main, create, system = copy.deepcopy(triple)
    system.transport, system.learner_gpu_num, main.policy.multi_gpu = "ray", 2, True
    main.policy.learn.batch_size //= 2
    outcome = run_parallel((main, create, system), seed=0, max_seconds=300)
    assert outcome.stop
