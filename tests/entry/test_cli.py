"""The command `ding`: what it calls with what, what it refuses, and how it exits."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

import ding
from ding.entry import dist_entry, parallel_entry, parallel_run, serial_entry
from ding.entry.cli import MODES, cli
from ding.entry.cli_commands import registrations
from ding.entry.dist_config import read_dist_config
from ding.utils import registry_factory
from tests.entry.dist_fakes import first_line, free_ports, write_config
from tests.programs import ROOT, environment, printed
from tests.programs import ding as run


@pytest.fixture
def stand_in(monkeypatch):
    """Puts a `Call` in the place of what two names, or a dotted one, mean."""

    def put(*place, answer=None):
        call = Call(answer)
        monkeypatch.setattr(*place, call)
        return call

    return put


class Call:
    """Remembers what it was called with, and where."""

    def __init__(self, answer=None):
        self.answer, self.calls = answer, []

    def __call__(self, *args, **kwargs):
        self.calls.append((os.getcwd(), args, kwargs))
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    @property
    def only(self):
        [(_, args, kwargs)] = self.calls
        return args, kwargs


def refusal(*args):
    """What it says of options that it does not take."""
    return " ".join(run(*args, status=2).split())


# What it tells without doing anything.


def test_the_version_and_the_modes_are_shown():
    for version, shown in (("-v", "-h"), ("--version", "--help")):
        assert run(version).startswith(f"ding-worker, version {ding.__version__}.")
        assert f"[{'|'.join(MODES)}]" in run(shown)


def test_it_answers_without_loading_what_training_needs():
    program = "import sys; from ding.entry.cli import cli; print({'torch', 'numpy'} & {*sys.modules})"
    assert printed("-c", program) == "set()\n"


def test_registries_are_listed_with_files_and_lines():
    lines = run("-q", "comm_learner").splitlines()
    assert lines[0] == "Available comm_learner: 2"
    (entry,) = [line.split() for line in lines if line.startswith("flask_fs")]
    file, _, number = entry[1].partition("#")
    assert file == f"{ROOT}/ding/worker/learner/comm/flask_fs_learner.py"
    line = Path(file).read_text().splitlines()[int(number) - 1]
    assert line == '@COMM_LEARNER_REGISTRY.register("flask_fs")'


def test_listed_are_the_entries_that_there_are_after_importing_all_modules():
    program = """
import importlib, json, pkgutil, ding
from pathlib import Path
from ding.utils import registry_factory

for module in pkgutil.walk_packages(ding.__path__, "ding."):
    source = Path(module.module_finder.find_spec(module.name).origin).read_text()
    if "_REGISTRY.register(" in source and not module.name.startswith("ding.example."):
        importlib.import_module(module.name)
registries = {name: value for name, value in vars(registry_factory).items() if name.endswith("_REGISTRY")}
print(json.dumps({name: value.query_details() for name, value in registries.items() if value}))
"""
    registered = json.loads(printed("-c", program, DIENGINEREGTRACE="ON"))
    found = registrations(ROOT / "ding", ROOT / "ding" / "example")
    of_command = {name: places for name, places in found.items() if hasattr(registry_factory, name)}
    policies = registered["POLICY_REGISTRY"]
    derived = [name for name, place in policies.items() if place == policies["dqn_command"]]
    policies.update({name: policies[name.removesuffix("_command")] for name in derived})
    assert len(derived) > 20 and registered == json.loads(json.dumps(of_command))
    assert sum(map(len, of_command.values())) > 100


# What it refuses.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-q", "nothing"], "not support registry name nothing; there are: policy, env"),
        ([], f"Please indicate at least one argument: -m with one of {', '.join(MODES)}."),
        (["-m", "gail", "-c", __file__], f"'gail' is not one of {', '.join(map(repr, MODES))}"),
        (["-m", "dist", "-M", "config", "-P", "slurm"], "'slurm' is not one of 'local', 'k8s', 'ray'"),
        (["-m", "serial"], "give a config file with -c for -m serial"),
        (["-m", "serial", "-c", "nowhere.py"], "'nowhere.py' does not exist"),
        (["-m", "dist"], "-m dist needs -M with one of config, coordinator"),
        (["-m", "dist", "-M", "learner", "-s", 0, "-s", 1], "-m dist takes one seed"),
        (["-m", "dist", "--add", "learner", "-ns", "n"], "give --coordinator-name with --add"),
        (["-m", "dist", "--delete", "learner", "-cdn", "c"], "give --namespace with --delete"),
        (["-m", "dist", "--restart", "learner", "-cdn", "c", "-ns", "n"], "give --restart-pod-name with"),
        (["--train-iter", "0"], "Invalid value for '--train-iter': 0"),
        (["--env-step", "inf"], "Invalid value for '--env-step': inf"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    assert message in refusal(*options)


def test_a_role_takes_one_port():
    for module, option in (("learner", "-lp"), ("spawn_learner", "-lp"), ("collector", "-clp")):
        message = refusal("-m", "dist", "-M", module, "-c", write_config(), option, "80,81")
        assert "takes one port here" in message


# Training.


@pytest.mark.parametrize(
    ("mode", "module", "name", "configs"),
    [
        ("serial", serial_entry, "serial_pipeline", 2),
        ("serial_onpolicy", serial_entry, "serial_pipeline_onpolicy", 2),
        ("parallel", parallel_entry, "parallel_pipeline", 3),
    ],
)
def test_a_mode_calls_its_pipeline_with_the_configs_of_the_file(stand_in, mode, module, name, configs):
    pipeline = stand_in(module, name)
    run("-m", mode, "-c", write_config(), "-s", 3, "--train-iter", "2e4", "--env-step", "500", "--exp-name", "mine")
    (given,), options = pipeline.only
    assert len(given) == configs and given[0].exp_name == "mine"
    logs = {"enable_total_log": False, "disable_flask_log": True} if mode == "parallel" else {}
    assert options == {"seed": 3, "max_train_iter": 20000, "max_env_step": 500, **logs}


def test_the_logs_and_the_platform_of_a_parallel_training_may_be_chosen(stand_in):
    pipeline = stand_in(parallel_entry, "parallel_pipeline")
    logs = ("--enable-total-log", "True", "--disable-flask-log", "False")
    run("-m", "parallel", "-c", write_config(), "--platform", "ray", "--address", "auto", *logs)
    options = {"enable_total_log": True, "disable_flask_log": False, "platform": "ray", "address": "auto"}
    assert pipeline.only[1] == {"seed": 0, **options}


@pytest.mark.parametrize(("options", "root"), [([], "config_result"), (["--exp-name", "mine"], "mine")])
def test_several_seeds_train_one_after_the_other_in_folders_of_their_own(stand_in, tmp_path, options, root):
    pipeline = stand_in(serial_entry, "serial_pipeline")
    run("-m", "serial", "-c", write_config(), "-s", 4, "-s", 7, *options)
    assert [(folder, kwargs["seed"]) for folder, _, kwargs in pipeline.calls] == [
        (str(tmp_path / root / "seed4"), 4),
        (str(tmp_path / root / "seed7"), 7),
    ]
    assert [args[0][0].exp_name for _, args, _ in pipeline.calls] == ["exp", "exp"]
    assert os.getcwd() == str(tmp_path)


def test_an_exception_passes_through_with_its_traceback_and_leads_back(stand_in, tmp_path):
    stand_in(serial_entry, "serial_pipeline", answer=ZeroDivisionError("the env has broken"))
    with pytest.raises(ZeroDivisionError):
        run("-m", "serial", "-c", write_config(), "-s", 4, "-s", 7)
    assert os.getcwd() == str(tmp_path)


@pytest.mark.guarantees("signals")
@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), SystemExit(130)])
def test_an_interruption_exits_with_130(stand_in, interruption):
    stand_in(serial_entry, "serial_pipeline", answer=interruption)
    run("-m", "serial", "-c", write_config(), status=130)


def test_a_training_may_be_profiled(stand_in):
    stand_in(serial_entry, "serial_pipeline")
    run("-m", "serial", "-c", write_config(), "--profile", "profile")
    assert sorted(os.listdir("profile")) == [
        f"profile_{os.getpid()}.prof",
        f"profile_{os.getpid()}_cumulative.txt",
        f"profile_{os.getpid()}_tottime.txt",
    ]


# Roles on several machines.


@pytest.mark.differs(
    "fails in the modes parallel, dist, serial_sqil, serial_dqfd and serial_offline of the command `ding`",
    "works in all of them",
)
def test_a_prepared_config_is_told_with_what_to_run_where(tmp_path):
    options = ["-cdh", "10.0.0.1", "-lh", "10.0.0.2", "-clh", "10.0.0.2,10.0.0.3", "-clp", "6000,6001", "-s", 3]
    output = run("-m", "dist", "-M", "config", "-c", write_config(), "--train-iter", 50, *options)
    path = tmp_path / "config.py.pkl"
    assert output.splitlines() == [
        "config.py.pkl is written.",
        f"at 10.0.0.1 (port 22273): ding -m dist -M coordinator -c {path}",
        f"at 10.0.0.2 (port 22271): ding -m dist -M learner --module-name learner0 -c {path}",
        f"at 10.0.0.2 (port 6000): ding -m dist -M collector --module-name collector0 -c {path}",
        f"at 10.0.0.3 (port 6001): ding -m dist -M collector --module-name collector1 -c {path}",
        "Each of them needs the same secret in DING_TOKEN, or in a file that DING_TOKEN_FILE names.",
    ]
    cfg = read_dist_config(str(path))
    assert (cfg.seed, cfg.main.policy.learn.learner.train_iterations) == (3, 50)


def test_the_ranks_of_a_learner_are_told_as_one_command(tmp_path):
    output = run("-m", "dist", "-M", "config", "-c", write_config({"learner_gpu_num": 2}))
    path = tmp_path / "config.py.pkl"
    assert f"at 127.0.0.1 (port 22271, 22272): ding -m dist -M spawn_learner --module-name learner0 -c {path}" in output
    assert f"(port 22274): ding -m dist -M learner_aggregator --module-name learner_aggregator0 -c {path}" in output
    assert "secret" not in output


class Worker:
    """What a launch function returns."""

    name, port = "worker0", 4711

    def __init__(self):
        self.log = []

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.log.append("close")

    def wait(self):
        self.log.append("wait")


@pytest.mark.parametrize(
    ("module", "options", "given"),
    [
        ("learner", ["-lp", 80, "--module-name", "learner1"], ("c", 5, 80, "learner1", True)),
        ("collector", ["-clp", 80, "--disable-flask-log", "False"], ("c", 5, 80, None, False)),
        ("learner_aggregator", ["-agh", "10.0.0.1", "-agp", 80], ("c", 5, "10.0.0.1", 80, None, True)),
    ],
)
def test_a_worker_serves_until_its_coordinator_has_gone(stand_in, module, options, given):
    write_config()
    worker = Worker()
    launch = stand_in(dist_entry, f"dist_launch_{module}", answer=worker)
    output = run("-m", "dist", "-M", module, "-c", "config.py", "-s", 5, *options)
    assert launch.only == (("config.py", *given[1:]), {})
    assert worker.log == ["wait", "close"]
    assert output == "worker0 accepts tasks at port 4711.\nworker0 ends: its coordinator is gone.\n"


def test_an_aggregator_needs_no_config(stand_in):
    launch = stand_in(dist_entry, "dist_launch_learner_aggregator", answer=Worker())
    run("-m", "dist", "-M", "learner_aggregator")
    assert launch.only == ((None, None, None, None, None, True), {})


def test_the_ranks_of_a_learner_are_spawned(stand_in):
    spawn = stand_in(dist_entry, "dist_launch_spawn_learner")
    run("-m", "dist", "-M", "spawn_learner", "-c", write_config(), "-lp", 80)
    assert spawn.only == (("config.py", None, 80, None, True), {})


@pytest.mark.parametrize(
    ("stop", "last_return", "told"), [(True, 201.25, "Solved: mean return 201.2"), (False, None, "Over: mean return -")]
)
def test_the_coordinator_drives_the_run_and_tells_its_outcome(stand_in, tmp_path, stop, last_return, told):
    run("-m", "dist", "-M", "config", "-c", write_config())
    progress = SimpleNamespace(last_return=last_return, env_steps=70, train_iter=5)
    drive = stand_in(parallel_run, "drive", answer=SimpleNamespace(stop=stop, progress=progress, seconds=1.5))
    options = ["-s", 8, "-cdp", 6000, "--enable-total-log", "True"]
    output = run("-m", "dist", "-M", "coordinator", "-c", "config.py.pkl", *options)
    assert output == f"{told} after 70 env steps, 5 iterations and 1.5 s; results are in {tmp_path}/exp.\n"
    (cfg, workers, is_logged), _ = drive.only
    assert (cfg.seed, cfg.system.coordinator.port, is_logged) == (8, 6000, True)
    assert workers is None  # they are started elsewhere


@pytest.mark.parametrize(
    ("options", "name", "given"),
    [
        (
            ["--add", "collector", "-rs", 3, "--cpus", 2, "--memory", "4Gi"],
            "add",
            ("collector", None, 3, "pod", "ns", 2, 0, "4Gi"),
        ),
        (["--delete", "learner"], "delete", ("learner", None, 1, "pod", "ns")),
        (["--restart", "learner", "-rpn", "w"], "restart", ("learner", None, "pod", "ns", "w")),
    ],
)
def test_replicas_are_asked_for(stand_in, options, name, given):
    ask = stand_in(dist_entry, f"dist_{name}_replicas", answer="the operator says yes")
    output = run("-m", "dist", *options, "-cdn", "pod", "-ns", "ns")
    assert ask.only == (given, {}) and output == "the operator says yes\n"


def test_a_signal_ends_a_worker_with_130():
    [port] = free_ports(1)
    run("-m", "dist", "-M", "config", "-c", write_config(), "-lp", port)
    process = subprocess.Popen(
        [sys.executable, "-m", "ding.entry.cli", "-m", "dist", "-M", "learner", "-c", "config.py.pkl"],
        env=environment(PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert first_line(process, 120) == f"learner0 accepts tasks at port {port}.\n"
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=120)[0] == ""
        assert process.returncode == 130
    finally:
        process.kill()
        process.communicate()


def test_the_command_is_installed_under_its_name():
    assert '"ding = ding.entry.cli:cli"' in (ROOT / "setup.py").read_text(encoding="utf-8")
    assert isinstance(cli, click.Command)


# Demonstrations and evaluating.


def test_offline_training_is_limited_by_iterations_only(stand_in):
    pipeline = stand_in("ding.entry.serial_entry_offline.serial_pipeline_offline")
    config = write_config()
    run("-m", "serial_offline", "-c", config, "-s", 3, "--train-iter", "2e3", "--exp-name", "mine")
    ((main, _),), kwargs = pipeline.only
    assert main.exp_name == "mine" and kwargs == {"seed": 3, "max_train_iter": 2000}


@pytest.mark.parametrize("mode", ["sqil", "dqfd"])
def test_the_config_of_an_expert_is_given_or_asked_for(mode, stand_in):
    pipeline = stand_in(f"ding.entry.serial_entry_dqfd.serial_pipeline_{mode}")
    config = write_config()
    given = ["-m", f"serial_{mode}", "-c", config, "-s", 1, "-s", 2]
    run(*given, "--expert-config", config)
    asked = run(*given, input=f"{config}\n")
    assert asked.count("Config file of the expert") == 1
    assert len(pipeline.calls) == 4 and [kwargs["seed"] for _, _, kwargs in pipeline.calls] == [1, 2, 1, 2]
    assert all(kwargs["expert_cfg"] == args[0] for _, args, kwargs in pipeline.calls)


def test_a_policy_is_evaluated_with_each_seed(stand_in):
    evaluate = stand_in("ding.entry.application_entry.eval", answer=12.34)
    config = write_config()
    output = run("-m", "eval", "-c", config, "-s", 3, "-s", 4, "--load-path", config, "--replay-path", "videos")
    assert output.splitlines() == ["seed 3: mean return 12.3", "seed 4: mean return 12.3"]
    assert [args[1] for _, args, _ in evaluate.calls] == [3, 4]
    assert all(kwargs == {"load_path": config, "replay_path": "videos"} for _, _, kwargs in evaluate.calls)


HOLD = "from ding.utils.state_folder import hold_run; held = hold_run('exp'); print('held', flush=True); input()"


@pytest.mark.parametrize("mode", ["parallel", "serial"])
def test_a_folder_in_which_another_process_trains_is_refused_in_one_line(mode):
    config = write_config()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", HOLD], env=environment(), **pipes) as other:
        assert other.stdout.readline() == "held\n"
        [line] = run("-m", mode, "-c", config, "--resume", status=1).splitlines()
        other.communicate("\n")
    assert line.startswith("Error: another process uses exp") and line.endswith("or choose another exp_name")
