"""Trainings whose workers are actors of Ray: on a Ray of their own, on one that runs, and when they die."""

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
from pathlib import Path
from time import monotonic

import psutil
import pytest
import ray

from ding.entry import parallel_pipeline
from ding.entry.parallel_run import run_parallel
from ding.utils.config_helper import ConfigError
from ding.worker.transport.ray.cluster import RayCluster
from ding.worker.transport.ray.ray_settings import ray_section
from ding.worker.transport.ray.stores import StoreActor, sample_server_name
from tests.entry.faults import DEADLINE_S, long_episodes, newest_state, observing
from tests.entry.parallel_fakes import triple
from tests.programs import ROOT, environment


def settings():
    """What the environment tells Ray."""
    return {name: value for name, value in os.environ.items() if name.startswith("RAY")}


def test_an_address_without_ray_is_refused():
    with pytest.raises(ConfigError, match="address = 'auto' has no effect on the platform 'local'"):
        parallel_pipeline(triple(), seed=0, address="auto")
    with pytest.raises(ConfigError, match="platform = 'k8s' is not allowed here"):
        parallel_pipeline(triple(), seed=0, platform="k8s")


@pytest.mark.differs(
    "passes samples of many machines through a shared folder and one coordinator",
    "can use Ray instead: workers are actors, and other actors keep samples and weights (`transport = 'ray'`)",
)
@pytest.mark.slow
def test_a_ray_that_the_run_has_started_ends_with_it_and_leaves_nothing(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)  # its workers import `tests`
    before, children = settings(), set(psutil.Process().children(recursive=True))
    handler = signal.getsignal(signal.SIGTERM)
    folders = set(Path("/tmp").glob(f"ding_ray_{os.getpid()}_*"))
    outcome = run_parallel(triple(), seed=0, max_train_iter=30, max_seconds=DEADLINE_S, platform="ray")
    assert outcome.progress.train_iter == 30 and outcome.cfg.system.coordinator.transport == "ray"
    assert not ray.is_initialized()
    psutil.wait_procs(set(psutil.Process().children(recursive=True)) - children, timeout=10)
    assert set(psutil.Process().children(recursive=True)) <= children
    assert set(Path("/tmp").glob(f"ding_ray_{os.getpid()}_*")) <= folders
    assert settings() == before and signal.getsignal(signal.SIGTERM) is handler


@pytest.mark.slow
def test_ray_asks_for_a_token_that_is_drawn_for_the_run(monkeypatch):
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    cluster = RayCluster(ray_section({}), num_cpus=1)
    cluster.start()
    try:
        path = Path(os.environ["RAY_AUTH_TOKEN_PATH"])
        assert os.environ["RAY_AUTH_MODE"] == "token" and path.stat().st_mode & 0o777 == 0o600
        assert len(path.read_text()) == 64 and not any(path.read_text() in value for value in os.environ.values())
    finally:
        cluster.close()
    assert not path.exists() and "RAY_AUTH_MODE" not in os.environ


@pytest.fixture
def start():
    """Starts processes that train, see `ray_runs`; what is left of them at the end is killed."""
    started = []

    def start(what):
        started.append(start_process(what))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            workers = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            process.communicate()
            for worker in psutil.wait_procs(workers, timeout=30)[1]:
                worker.kill()


def start_process(what):
    command = [sys.executable, "-m", "tests.entry.ray_runs", what]
    return subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def seen(process):
    """What it has seen."""
    output, _ = process.communicate(timeout=2 * DEADLINE_S)
    found = [line for line in output.splitlines() if line.startswith("SEEN ")]
    assert found, output[-5000:]
    return json.loads(found[0].removeprefix("SEEN "))


@pytest.mark.slow
def test_the_run_goes_on_without_a_node(start, tmp_path, set_env):
    token = tmp_path / "token"
    token.write_text(secrets.token_hex(32))
    set_env(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=token)
    found = seen(start("lose_a_node"))
    assert found["gone"].startswith("collector") and found["learner_tasks"] == 1
    assert not found["back"]  # there is no room
    assert found["failure"] == "None" and found["outcome"] == "ParallelOutcome"


@pytest.mark.slow
def test_another_driver_goes_on_where_one_was_killed(start, tmp_path):
    first = start("drive")
    deadline = monotonic() + DEADLINE_S
    while not (tmp_path / "known").exists():
        assert first.poll() is None, first.communicate()[0][-5000:]
        assert monotonic() < deadline
        threading.Event().wait(0.05)
    known = json.loads((tmp_path / "known").read_text())
    workers = psutil.Process(first.pid).children(recursive=True)
    first.kill()
    first.communicate()
    actors = [process for process in workers if "WorkerActor" in " ".join(cmdline(process))]
    assert not psutil.wait_procs(actors, timeout=30)[1]
    found = seen(start("resume"))
    assert found["env_steps"] >= known["env_steps"] and found["resumes"][0] is True
    assert found["first"] > known["iteration"] / 2


CONFIG = """
from easydict import EasyDict
from tests.entry.parallel_fakes import triple
main_config, create_config, system_config = triple("ray", system={"coordinator": {"state_interval_s": 1}})
main_config.policy.other.replay_buffer.replay_buffer_size = 5000
system_config.ray = {"object_store_memory": 100 * 2**20}
"""


def train_by_command(*options):
    """`ding -m parallel` on a Ray of its own."""
    command = [sys.executable, "-m", "ding.entry.cli", "-m", "parallel", "-P", "ray", "-c", "config.py", "-s", "0"]
    return subprocess.Popen([*command, *options], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


@pytest.mark.slow
def test_the_command_resumes_a_run_whose_driver_was_killed(tmp_path):
    (tmp_path / "config.py").write_text(CONFIG)
    first = train_by_command()
    deadline = monotonic() + 2 * DEADLINE_S
    while not ((state := newest_state()) and state["run"]["train_iter"] >= 100):
        assert monotonic() < deadline and first.poll() is None, first.communicate()[0].decode()
        threading.Event().wait(0.2)
    first.kill()
    first.communicate()
    kept = newest_state()
    total = kept["run"]["train_iter"] + 3000
    second = train_by_command("--resume", "--train-iter", str(total))
    try:
        output = second.communicate(timeout=2 * DEADLINE_S)[0].decode()
    finally:
        second.kill()
        second.communicate()
    assert second.returncode == 0, output
    log = (tmp_path / "exp" / "log" / "learner" / "learner_logger.txt").read_text()
    [begin] = re.findall(r"the task resumes at iteration (\d+)", log)
    assert 0 < int(begin) < total
    result = json.loads(Path("exp/result.json").read_text())
    assert result["train_iter"] == total and result["env_step"] > kept["run"]["env_steps"]


def cmdline(process):
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


@pytest.fixture(scope="module")
def cluster():
    cluster = RayCluster(ray_section({"object_store_memory": 150 * 2**20}), num_cpus=8)
    cluster.start()
    yield cluster
    cluster.close()


@pytest.mark.slow
def test_a_ray_that_runs_is_used_and_stays(cluster):
    outcome = run_parallel(triple("ray"), seed=0, max_train_iter=30, max_seconds=DEADLINE_S)
    assert outcome.progress.train_iter == 30 and ray.is_initialized()
    with open("exp/metrics.jsonl") as file:
        rows = [json.loads(line) for line in file]
    assert [row["train_iter"] for row in rows if row["worker"] == "learner"] == [0]
    evaluated = [row["train_iter"] for row in rows if row["worker"] == "evaluator"]
    assert evaluated == sorted(evaluated) and evaluated[-1] == 30  # the learner does not wait for the first evaluation
    assert os.path.exists(f"exp/policy/{os.listdir('exp/policy')[0]}")
    with pytest.raises(ConfigError, match="is already connected to the cluster at"):
        run_parallel(triple(exp_name="other"), platform="ray", address="10.0.0.1:6379")


@pytest.mark.slow
def test_workers_that_do_not_fit_into_the_cluster_are_told_of_with_what_there_is(cluster):
    system = {"ray": {"collector": {"resources": {"moon": 1}}, "start_timeout_s": 15}}
    message = r"collector0, collector1 could not be started within 15 s: wanted are .*'moon': 1.*the cluster has .*CPU"
    with pytest.raises(TimeoutError, match=message):
        run_parallel(triple("ray", system=system), seed=0, max_seconds=DEADLINE_S)


@pytest.mark.slow
def test_what_fails_in_a_worker_is_told_with_its_traceback(cluster):
    with pytest.raises(Exception, match="the policy was told to fail in collect"):
        run_parallel(triple("ray", policy__fail_in="collect"), seed=0, max_seconds=DEADLINE_S)


@pytest.fixture
def train(cluster, monkeypatch):
    with observing(monkeypatch) as train:
        yield lambda damage, configs: train(damage, configs, max_seconds=DEADLINE_S)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["collector0", "learner0"])
def test_a_killed_worker_is_replaced_and_the_run_goes_on(train, name):
    seen = {}

    def damage(run):
        run.wait_for(lambda: len(run.learnt) > 50)
        seen["step"] = run.learnt[-1][1]
        os.kill(run.workers.pids()[name], signal.SIGKILL)
        run.wait_for(lambda: run.back[name])
        run.wait_for(lambda: run.learnt[-1][1] > seen["step"] + 20)
        run.stop()

    run, outcome = train(damage, long_episodes(comm="ray", policy__learn__learner={"send_policy_freq": 1}))
    assert not isinstance(outcome, Exception)
    assert run.gone[name] and run.coordinator.supervisor.restarts == {name: 1}
    assert [task.get("resume") for task in run.learner_tasks] == ([None, True] if name == "learner0" else [None])


@pytest.mark.slow
def test_a_run_goes_on_when_the_actor_of_its_samples_is_killed(train):
    def damage(run):
        run.wait_for_learning(50)
        server = StoreActor(sample_server_name(run._store.root))
        before = len(run.samples)
        os.kill(server.ask("__ray_call__", lambda self: os.getpid()), signal.SIGKILL)
        run.wait_for(lambda: len(run.samples) > before + 500)  # the learner caches those that are lost
        learnt = len(run.learnt)
        run.wait_for(lambda: len(run.learnt) > learnt + 200)
        run.stop()

    run, outcome = train(damage, long_episodes(comm="ray"))
    assert not isinstance(outcome, Exception) and not any(run.gone.values())
