"""Roles that are started one by one: here all in one process, each as if it were alone in its own."""

import json
import logging
import multiprocessing
import os
import pickle
import signal
import stat
import sys
import threading
from multiprocessing.connection import wait

import pytest
import torch

from ding.entry import dist_entry
from ding.entry.dist_config import check_shared_folders, port_from, read_dist_config, section_of
from ding.entry.dist_entry import (
    dist_add_replicas,
    dist_delete_replicas,
    dist_launch_collector,
    dist_launch_coordinator,
    dist_launch_learner,
    dist_launch_learner_aggregator,
    dist_launch_spawn_learner,
    dist_prepare_config,
    dist_restart_replicas,
    spawn_ranks,
)
from ding.entry.worker_process import THREADS, be_worker
from ding.utils.config_helper import ConfigError
from ding.worker.adapter.learner_aggregator import LearnerAggregator
from ding.worker.transport.http_transport import HttpConnector
from ding.worker.transport.transport import TaskFailed
from tests.entry.dist_fakes import free_ports, prepare, write_config

DEADLINE_S = 60


@pytest.fixture(autouse=True)
def _alone():
    """In a folder of its own, with what a role sets for its process put back."""
    threads, interval = torch.get_num_threads(), sys.getswitchinterval()
    before = set(threading.enumerate())
    levels = {name: logging.getLogger(name).level for name in ("werkzeug",)}
    sys.setswitchinterval(1e-4)
    yield
    torch.set_num_threads(threads)
    sys.setswitchinterval(interval)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    logging.getLogger("coordinator_logger").disabled = False
    assert set(threading.enumerate()) <= before


def prepare_free(system=None, **kwargs):
    """A config whose roles listen at ports that are free."""
    ports = free_ports(4)
    places = {"coordinator_port": ports[0], "learner_port": ports[1], "collector_port": ports[2:]}
    return prepare(
        {"dist": {"coordinator_lost_s": 0}, **(system or {})}, places={**places, **kwargs.pop("places", {})}, **kwargs
    )


def connect(worker):
    """A connector, and a client to the worker whose coordinator it is."""
    connector = HttpConnector("127.0.0.1", 0)
    connector.start()
    client = connector.client(worker.name, "127.0.0.1", worker.port)
    client.connect(timeout_s=10)
    assert "gpu" in client.run({"name": "resource"}, timeout_s=10)
    return connector


def workers_of(path):
    return (
        dist_launch_learner(path),
        dist_launch_collector(path, name="collector0"),
        dist_launch_collector(path, name="collector1"),
    )


# A run.


def test_roles_that_are_started_one_by_one_train_and_end():
    path = prepare_free(places={"max_train_iter": 5})
    learner, *collectors = workers_of(path)
    coordinator = dist_launch_coordinator(path, enable_total_log=True)
    assert coordinator.wait(DEADLINE_S)
    assert coordinator.coordinator.progress().train_iter == 5
    for worker in (learner, *collectors):
        worker.wait()
        worker.close()
    assert os.listdir("exp/ckpt")
    with open("exp/log/coordinator_logger.txt") as f:
        assert "coordinator is started" in f.read()


def test_what_fails_in_a_worker_is_raised_where_the_coordinator_is_waited_for():
    path = prepare_free(policy__fail_in="learn", policy__fail_at=1)
    workers = workers_of(path)
    with pytest.raises(TaskFailed, match="ZeroDivisionError: the policy was told to fail in learn"):
        dist_launch_coordinator(path).wait(DEADLINE_S)
    for worker in workers:
        worker.close()


# The end of a worker.


@pytest.mark.differs("never ends a worker that was started by hand", "ends it when its coordinator stays away")
def test_a_worker_ends_when_its_coordinator_has_gone():
    with dist_launch_learner(prepare_free()) as learner:
        connect(learner).close()
        learner.wait()


def test_a_worker_to_which_no_coordinator_comes_says_so_in_the_end():
    path = prepare_free({"dist": {"coordinator_wait_s": 0}})
    with (
        dist_launch_learner(path) as learner,
        pytest.raises(TimeoutError, match="no coordinator has connected to learner0"),
    ):
        learner.wait()


# Where roles listen.


@pytest.mark.parametrize(
    ("argument", "variable", "expected"),
    [(1, "2", 1), (None, "2", 2), (None, None, 3), (None, "", 3), (None, "tcp://10.0.0.1:80", 3), (None, "²", 3)],
)
def test_the_argument_wins_over_the_environment_and_that_over_the_config(set_env, argument, variable, expected):
    if variable is not None:
        set_env(LEARNER_PORT=variable)
    assert port_from(argument, "LEARNER_PORT", 3) == expected


def test_each_role_reads_its_own_variable(set_env):
    path = prepare_free()
    first, second, third = free_ports(3)
    set_env(LEARNER_PORT=first, COLLECTOR_PORT=second, COORDINATOR_PORT=third)
    with dist_launch_learner(path) as learner, dist_launch_collector(path, name="collector0") as collector:
        assert (learner.port, collector.port) == (first, second)
    assert dist_entry.read_coordinator_config(path).system.coordinator.port == third


def test_a_port_that_is_taken_is_an_error():
    path = prepare_free()
    with dist_launch_learner(path), pytest.raises(OSError, match="cannot listen at"):
        dist_launch_learner(path)


def test_off_loopback_a_token_is_needed():
    path = prepare_free(places={"learner_host": "0.0.0.0"})
    with pytest.raises(PermissionError, match="which needs a token"):
        dist_launch_learner(path)


def test_workers_of_the_type_local_are_refused():
    path = prepare_free(comm="local")
    with pytest.raises(ConfigError, match="set comm_collector to 'flask_fs'"):
        dist_launch_collector(path, name="collector0")


def test_a_shared_folder_that_is_not_there_is_told_of_before_anything_starts():
    path = prepare_free()
    for name in os.listdir("exp/data"):
        os.remove(os.path.join("exp/data", name))
    for launch in (dist_launch_learner, dist_launch_coordinator):
        with pytest.raises(ConfigError, match="path_data = .*Mount the shared folder at the same path"):
            launch(path)


# What a worker's process is like.


def test_a_collector_computes_with_one_thread_and_a_learner_with_those_there_are(monkeypatch):
    set_to = []
    monkeypatch.setattr(torch, "set_num_threads", set_to.append)
    be_worker({}, None, THREADS["learner"])
    assert set_to == []
    be_worker({}, None, THREADS["collector"])
    be_worker({"torch_threads": 4}, None, THREADS["learner"])
    assert set_to == [1, 4]


def test_a_worker_takes_the_seed_of_its_section_unless_another_is_given():
    def draw(seed):
        be_worker({"seed": 5}, seed)
        return torch.rand(1).item()

    assert draw(None) == draw(5) != draw(6)


def test_collectors_that_are_given_the_same_seed_make_seeds_of_their_own_of_it():
    def seeds(path, seed):
        names = ("collector0", "collector1")
        workers = [dist_launch_collector(path, seed, name=name) for name in names]
        drawn = [(dist_launch_collector(path, seed, 0, name).close(), torch.rand(1).item())[1] for name in names]
        for worker in workers:
            worker.close()
        return [worker.worker._cfg.seed for worker in workers], drawn

    path = prepare_free()
    assert seeds(path, None)[0] == [0, 1]
    own, drawn = seeds(path, 7)
    assert len({*own, 7}) == 3 and len(set(drawn)) == 2
    assert seeds(path, 7) == (own, drawn) and seeds(path, 8)[0] != own


@pytest.mark.parametrize("is_quiet", [True, False])
def test_servers_log_errors_only_where_that_is_asked_for(is_quiet):
    logging.getLogger("werkzeug").setLevel(logging.INFO)
    with dist_launch_learner(prepare_free(), disable_flask_log=is_quiet):
        assert logging.getLogger("werkzeug").level == (logging.ERROR if is_quiet else logging.INFO)


# Several ranks.


def test_an_aggregator_without_a_config_waits_for_learners_at_the_next_port(set_env):
    first, second, _, _ = free_ports(4)
    set_env(AGGREGATOR_PORT=first)
    with dist_launch_learner_aggregator(aggregator_host="127.0.0.1") as aggregator:
        assert (aggregator.name, aggregator.port) == ("learner_aggregator", first)
        assert aggregator.worker._cfg.master == {"host": "127.0.0.1", "port": second}
        connect(aggregator).close()


def test_an_aggregator_without_a_config_listens_everywhere_which_needs_a_token():
    with pytest.raises(PermissionError, match="which needs a token"):
        dist_launch_learner_aggregator()


def test_an_aggregator_of_the_config_connects_its_learners(monkeypatch):
    ports = free_ports(8)
    places = {"coordinator_port": ports[0], "learner_port": ports[1], "collector_port": ports[3:5]}
    path = prepare({"learner_gpu_num": 2}, places=places)
    made = []
    monkeypatch.setattr(LearnerAggregator, "start", lambda self: made.append(self))
    with dist_launch_learner_aggregator(path, aggregator_host="127.0.0.3", aggregator_port=ports[5]):
        [aggregator] = made
        assert aggregator._cfg.slave == {"host": "127.0.0.3", "port": ports[5]}
        assert list(aggregator._cfg.learner.values()) == [[str(r), "127.0.0.1", ports[1 + r]] for r in range(2)]


def test_the_ranks_of_a_learner_are_started_by_the_command_line(monkeypatch):
    asked = []
    monkeypatch.setattr(dist_entry, "spawn_ranks", asked.append)
    dist_launch_spawn_learner("a.pkl")
    dist_launch_spawn_learner("a.pkl", 3, 6000, "learner1", disable_flask_log=False)
    base = ["-m", "dist", "-M", "learner", "-c", "a.pkl", "--disable-flask-log"]
    assert asked == [[*base, "True"], [*base, "False", "-s", "3", "-lp", "6000", "--module-name", "learner1"]]


# The ranks of a learner on one machine: what they are told, and that the end of one is the end of all.


# Each rank says where it is. Then it ends as `ends` says, once the others have opened the pipe `ready`; or waits.
RANK = """
import os, signal, sys
rank = os.environ["RANK"]
with open(f"rank{rank}", "w") as f:
    places = [os.environ.get(name, "-") for name in ("LOCAL_RANK", "WORLD_SIZE", "SLURM_LOCALID")]
    f.write(" ".join([*places, *sys.argv[1:]]))
ends = {ends!r}
if rank not in ends:
    with open("pid", "w") as f:
        f.write(str(os.getpid()))
    {before}
    if os.path.exists("ready"):
        open("ready", "w").close()
    signal.pause()
if os.path.exists("ready"):
    open("ready").close()
os.kill(os.getpid(), -ends[rank]) if ends[rank] < 0 else sys.exit(ends[rank])
"""


def command(ends, before="pass"):
    with open("rank.py", "w") as f:
        f.write(RANK.replace("{ends!r}", repr(ends)).replace("{before}", before))
    return [sys.executable, "-S", "-E", "rank.py"]


def told(rank):
    with open(f"rank{rank}") as f:
        return f.read().split()


def waiting_rank_is_running():
    with open("pid") as f:
        pid = f.read()
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_learner_of_one_rank_is_the_default():
    spawn_ranks(["-x"], command({"0": 0}))
    assert told(0) == ["0", "1", "-", "-x"]


def test_the_ranks_are_told_where_they_are(set_env):
    for name, value in (("LOCAL_WORLD_SIZE", 2), ("START_RANK", 2), ("WORLD_SIZE", 6), ("SLURM_LOCALID", 9)):
        set_env(**{name: value})
    spawn_ranks([], command({"2": 0, "3": 0}))
    assert (told(2), told(3)) == (["0", "6", "-"], ["1", "6", "-"])


@pytest.mark.parametrize(("status", "how"), [(3, "exit code 3"), (-signal.SIGKILL, "signal 9")])
def test_a_rank_that_fails_ends_the_others(set_env, status, how):
    set_env(LOCAL_WORLD_SIZE="2")
    os.mkfifo("ready")
    with pytest.raises(RuntimeError, match=f"rank 1 has ended with {how}"):
        spawn_ranks([], command({"1": status}))
    assert not waiting_rank_is_running()


def test_a_rank_that_does_not_end_is_killed(monkeypatch, set_env):
    set_env(LOCAL_WORLD_SIZE="2")
    monkeypatch.setattr(dist_entry, "_END_S", 0.1)
    os.mkfifo("ready")
    with pytest.raises(RuntimeError, match="rank 1"):
        spawn_ranks([], command({"1": 3}, before="signal.signal(signal.SIGTERM, signal.SIG_IGN)"))
    assert not waiting_rank_is_running()


def test_a_signal_ends_the_ranks_too():
    with pytest.raises(SystemExit) as ended:
        spawn_ranks([], command({}, before="os.kill(os.getppid(), signal.SIGTERM)"))
    assert ended.value.code == 130
    assert not waiting_rank_is_running()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel does not tell of the death of a parent")
def test_ranks_end_when_the_process_that_started_them_is_killed():
    os.mkfifo("ready")
    spawner = multiprocessing.get_context("fork").Process(target=spawn_ranks, args=([], command({})))
    spawner.start()
    open("ready").close()
    with open("pid") as f:
        rank = os.pidfd_open(int(f.read()))
    spawner.kill()
    spawner.join()
    assert wait([rank], 30) == [rank]
    os.close(rank)


# Asking an operator for replicas, through a `kubectl` that notes what it was called with.


KUBECTL = """#!{python} -SE
import json, os, sys
folder = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(folder, "calls"), "a") as f:
    f.write(json.dumps(sys.argv[1:]) + "\\n")
name = "address" if "printenv" in sys.argv else "reply"
with open(os.path.join(folder, name)) as f:
    text = f.read()
if text.startswith("fail"):
    sys.exit(text)
sys.stdout.write(text)
"""
IN_POD = ["exec", "--namespace=default", "pod/job-coordinator", "--"]
JOB = {"coordinator_name": "job-coordinator", "namespace": "default"}


@pytest.fixture
def kubectl(tmp_path, set_env):
    """A folder with the command, and with what it answers."""
    path = tmp_path / "kubectl"
    path.write_text(KUBECTL.format(python=sys.executable))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "address").write_text("operator.di:8080\n")
    (tmp_path / "reply").write_text(json.dumps({"success": True, "code": 0, "message": "done; thanks", "data": None}))
    set_env(PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def calls(folder):
    return [json.loads(line) for line in (folder / "calls").read_text().splitlines()]


def request(folder):
    """Method, URL and body of the request in the pod."""
    *_, call = calls(folder)
    return call[call.index("--request") + 1], call[-1], json.loads(call[call.index("--data-raw") + 1])


def test_replicas_are_added_from_within_the_coordinators_pod(kubectl):
    said = dist_add_replicas("collector", "some/config", 2, **JOB, cpus=4, gpus=0, memory="4Gi")
    assert said == "done; thanks"
    ask_address, ask = calls(kubectl)
    assert ask_address == ["--kubeconfig=some/config", *IN_POD, "printenv", "KUBERNETES_SERVER_URL"]
    assert ask[: len(IN_POD) + 2] == ["--kubeconfig=some/config", *IN_POD, "curl"]
    method, url, body = request(kubectl)
    assert (method, url) == ("POST", "http://operator.di:8080/v1alpha1/replicas")
    wanted = {"replicas": 2, "cpus": 4, "memory": "4Gi"}
    assert body == {"namespace": "default", "coordinator": "job-coordinator", "collectors": wanted}


def test_replicas_are_deleted(kubectl):
    (kubectl / "address").write_text("https://operator.di:8080")
    dist_delete_replicas("learner", None, 1, **JOB)
    assert calls(kubectl)[0] == [*IN_POD, "printenv", "KUBERNETES_SERVER_URL"]
    method, url, body = request(kubectl)
    assert (method, url, body["learners"]) == ("DELETE", "http://operator.di:8080/v1alpha1/replicas", {"replicas": 1})


def test_replicas_are_restarted(kubectl):
    dist_restart_replicas("collector", None, **JOB, restart_pod_name="job-collector-0, job-collector-3")
    method, url, body = request(kubectl)
    assert (method, url) == ("POST", "http://operator.di:8080/v1alpha1/replicas/failed")
    assert body["collectors"] == ["job-collector-0", "job-collector-3"]


@pytest.mark.differs(
    "builds replica commands as text for a shell",
    "starts them without a shell, and raises their errors",
)
def test_no_shell_reads_what_the_user_gives(kubectl):
    hostile = "x; touch hacked #"
    dist_restart_replicas("collector", None, hostile, hostile, hostile)
    assert calls(kubectl)[0][:3] == ["exec", f"--namespace={hostile}", f"pod/{hostile}"]
    assert request(kubectl)[2]["collectors"] == [hostile] and not os.path.exists("hacked")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dist_add_replicas("worker", None, 1, "c", "n"), "'worker' are not allowed"),
        (lambda: dist_add_replicas("collector", None, 1, "", "n"), "--coordinator-name"),
        (lambda: dist_delete_replicas("collector", None, 1, "c", None), "--namespace"),
        (lambda: dist_restart_replicas("collector", None, "c", "n", ""), "--restart-pod-name"),
    ],
)
def test_what_must_be_given_is_asked_for(call, message):
    with pytest.raises(AssertionError, match=message):
        call()


@pytest.mark.parametrize(
    ("count", "needs", "name"),
    [(0, {}, "replicas"), (1, {"cpus": -1}, "cpus"), (1, {"gpus": 0.5}, "gpus")],
)
def test_numbers_that_make_no_sense_are_refused(count, needs, name):
    with pytest.raises(ValueError, match=f"{name} = .* is not allowed"):
        dist_add_replicas("collector", None, count, **JOB, **needs)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("address", "fail: no such pod", "no such pod"),
        ("address", "\n", "not an address"),
        ("reply", "<html>", "unknown answer"),
        ("reply", '{"success": false, "message": "too many"}', "refuses: too many"),
    ],
)
def test_what_goes_wrong_on_the_way_is_told(kubectl, file, text, message):
    (kubectl / file).write_text(text)
    with pytest.raises(RuntimeError, match=message):
        dist_delete_replicas("collector", None, 1, **JOB)


def test_a_machine_without_kubectl_says_so(set_env):
    set_env(PATH="")
    with pytest.raises(RuntimeError, match="kubectl.* is not installed"):
        dist_delete_replicas("collector", None, 1, **JOB)


# The config file for roles that are started one by one: who listens where, and how roles find their section.


def system_of(*args, **kwargs):
    return read_dist_config(prepare(*args, **kwargs)).system


def places(system):
    """Who listens where."""
    names = ["coordinator", *(name for name in system if name[-1].isdigit() and "aggregator" not in name)]
    return {name: (system[name].host, system[name].port) for name in names}


def test_the_config_is_written_beside_its_source_and_is_no_pickle():
    path = prepare(seed=3)
    assert path == "config.py.pkl" and os.path.exists(path)
    with open(path, "rb") as f, pytest.raises(pickle.UnpicklingError):
        pickle.load(f)
    cfg = read_dist_config(path)
    assert (cfg.seed, cfg.main.exp_name, cfg.system.collector1.seed) == (3, "exp", 4)
    assert cfg.main.policy.type == "failing_dqn_command"


def test_a_pickle_is_not_read():
    with open("old.pkl", "wb") as f:
        pickle.dump({"main": {}, "system": {}}, f)
    with pytest.raises(ConfigError, match="pickles are not read"):
        read_dist_config("old.pkl")


def test_a_config_with_a_function_is_refused():
    write_config()
    with open("config.py", "a") as f:
        f.write("main_config.policy.reward_shaping = lambda x: x\n")
    with pytest.raises(TypeError, match="function"):
        dist_prepare_config("config.py", 0, "local")
    assert not os.path.exists("config.py.pkl")


def test_without_hosts_and_ports_everybody_is_on_this_machine_at_a_port_of_its_own():
    system = system_of()
    assert places(system) == {
        "coordinator": ("127.0.0.1", 22273),
        "learner0": ("127.0.0.1", 22271),
        "collector0": ("127.0.0.1", 22270),
        "collector1": ("127.0.0.1", 22272),
    }
    assert system.coordinator.learner == {"learner0": ["learner0", "127.0.0.1", 22271]}
    assert system.coordinator.collector.collector1 == ["collector1", "127.0.0.1", 22272]


def test_one_port_counts_up_on_each_host():
    hosts = {"coordinator_host": "10.0.0.1", "learner_host": "10.0.0.2", "collector_host": ["10.0.0.1", "10.0.0.2"]}
    ports = {"coordinator_port": 5000, "learner_port": 5000, "collector_port": 5000}
    assert places(system_of(places={**hosts, **ports})) == {
        "coordinator": ("10.0.0.1", 5000),
        "learner0": ("10.0.0.2", 5000),
        "collector0": ("10.0.0.1", 5001),
        "collector1": ("10.0.0.2", 5001),
    }


def test_listed_ports_are_given_as_they_are():
    system = system_of(places={"learner_port": [6000], "collector_port": [6002, 6001]})
    assert [system[name].port for name in ("learner0", "collector0", "collector1")] == [6000, 6002, 6001]


def test_the_arguments_win_over_what_the_config_says_of_the_coordinator():
    own = {"coordinator": {"host": "10.0.0.7", "port": 7000}}
    assert places(system_of(own))["coordinator"] == ("10.0.0.7", 7000)
    given = {"coordinator_host": "10.0.0.8", "coordinator_port": 7001}
    assert places(system_of(own, places=given))["coordinator"] == ("10.0.0.8", 7001)


def test_two_roles_at_one_port_are_refused():
    with pytest.raises(ConfigError, match=r"collector0 and collector1 would both listen at 127.0.0.1:6000"):
        prepare(places={"collector_port": [6000, 6000]})


def test_port_0_is_refused_because_others_must_know_it():
    with pytest.raises(ConfigError, match=r"port 0 of collector1 is not allowed"):
        prepare(places={"collector_port": [6000, 0]})


def test_a_learner_of_several_ranks_has_a_port_for_each_and_an_aggregator_before_them():
    system = system_of({"learner_gpu_num": 2}, places={"learner_host": "10.0.0.2", "learner_port": 6000})
    assert (system.learner0.port, system.learner0.multi_gpu, system.learner0.aggregator) == ([6000, 6001], True, True)
    aggregator = system.learner_aggregator0
    assert aggregator.slave == {"host": "10.0.0.2", "port": 22272}
    assert aggregator.master == {"host": "10.0.0.2", "port": 22273}
    assert aggregator.learner == {"0": ["0", "10.0.0.2", 6000], "1": ["1", "10.0.0.2", 6001]}
    assert system.coordinator.learner == {"learner0": ["learner0", "10.0.0.2", 22272]}


def test_on_kubernetes_workers_are_found_later():
    system = system_of(platform="k8s", places={"learner_port": 6000})
    assert (system.coordinator.host, system.coordinator.port) == ("0.0.0.0", 22273)
    assert (system.learner.port, system.collector.port, system.coordinator.learner) == (6000, 22270, {})
    assert "mark" not in system.dist


def test_budgets_and_name_may_be_given():
    cfg = read_dist_config(prepare(places={"exp_name": "other", "max_train_iter": 50, "max_env_step": 700}))
    assert cfg.main.exp_name == "other" and os.path.basename(os.path.dirname(cfg.system.learner0.path_data)) == "other"
    assert (cfg.main.policy.learn.learner.train_iterations, cfg.system.coordinator.max_env_step) == (50, 700)


def test_budgets_of_the_config_that_are_smaller_stay():
    own = {"coordinator": {"max_env_step": 300}}
    limits = {"max_train_iter": 50, "max_env_step": 700}
    cfg = read_dist_config(prepare(own, places=limits, policy__learn__learner={"train_iterations": 20}))
    assert (cfg.main.policy.learn.learner.train_iterations, cfg.system.coordinator.max_env_step) == (20, 300)


def test_how_long_workers_wait_for_a_coordinator_is_in_the_config():
    assert system_of({"dist": {"coordinator_lost_s": 5}}).dist.coordinator_lost_s == 5
    with pytest.raises(ConfigError, match="must be a number"):
        prepare({"dist": {"coordinator_lost_s": -1}})


def test_a_folder_that_is_not_the_shared_one_is_refused(tmp_path):
    cfg = read_dist_config(prepare())
    check_shared_folders(cfg, cfg.system.learner0)
    other = {**cfg.system.learner0, "path_policy": str(tmp_path)}
    with pytest.raises(ConfigError, match="path_policy = .* is not the folder for which the config was prepared"):
        check_shared_folders(cfg, other)


def test_a_role_is_found_by_its_name_or_by_being_the_only_one():
    cfg = read_dist_config(prepare())
    assert section_of(cfg, "learner", None)[0] == "learner0"
    name, section = section_of(cfg, "collector", "collector1")
    assert (name, section) == ("collector1", cfg.system.collector1)
    with pytest.raises(ConfigError, match="use one of these names: collector0, collector1"):
        section_of(cfg, "collector", None)
    with pytest.raises(ConfigError, match="there is no collector named 'learner0'"):
        section_of(cfg, "collector", "learner0")
    with pytest.raises(ConfigError, match="use one of these names: none"):
        section_of(cfg, "learner_aggregator", None)
