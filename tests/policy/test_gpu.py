"""What holds on a GPU: the updates and actions of the CPU, states that go on on either, and runs that others use."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ding import train
from ding.entry import Training
from ding.utils.pytorch_ddp_dist_helper import DDPContext
from tests.benchmarks.learning_tasks import TASKS
from tests.policy.learning import model_of
from tests.policy.test_contract import act, batch, learn, make, observations, rows
from tests.programs import printed
from tests.same_state import through_bytes

pytestmark = pytest.mark.gpu
each_policy = pytest.mark.parametrize("name", TASKS)
# Losses that draw random numbers, which are others on another device.
_DRAWING = ("rainbow", "iqn", "fqf", "td3", "sac", "discrete_sac", "cql", "td3_bc", "sqn")
_RUNS = {
    **dict.fromkeys(("dqn", "rainbow", "ppo", "a2c", "r2d2", "impala"), "CartPole-v1"),
    **dict.fromkeys(("sac", "td3"), "Pendulum-v1"),
}


def pair(name: str) -> tuple[Any, Any]:
    """The same policy on the CPU and on the GPU."""
    cpu, gpu = make(name), make(name, cuda=True, seed=2)
    gpu.load_state_dict(through_bytes(cpu.state_dict()))
    return cpu, gpu


def told(outcome: Any) -> list[dict[str, Any]]:
    """What a learner has told, without times and histograms."""
    return [
        {key: value for key, value in row.items() if not key.endswith("_time") and not key.startswith("[")}
        for row in rows(outcome)
    ]


def assert_close(one: Any, other: Any, tolerance: float) -> None:
    """All numbers are alike; tensors are compared on the CPU."""
    torch.testing.assert_close(to_cpu(one), to_cpu(other), rtol=tolerance, atol=tolerance)


def to_cpu(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.cpu()
    if isinstance(value, dict):
        return {str(key): to_cpu(part) for key, part in value.items() if part is not None}
    if isinstance(value, (list, tuple)):
        return [to_cpu(part) for part in value if part is not None]
    return value


def devices(value: Any) -> set[str]:
    """Where the tensors in a nested value are."""
    if isinstance(value, torch.Tensor):
        return {value.device.type}
    if isinstance(value, dict):
        value = list(value.values())
    return set().union(*map(devices, value)) if isinstance(value, (list, tuple)) else set()


@each_policy
def test_an_update_is_that_of_the_cpu(name: str) -> None:
    cpu, gpu = pair(name)
    assert {parameter.device.type for parameter in model_of(gpu).parameters()} == {"cuda"}
    expected, found = (told(learn(policy, batch(name))) for policy in (cpu, gpu))
    if name in _DRAWING:
        assert [row.keys() for row in found] == [row.keys() for row in expected]
        assert np.isfinite([value for row in found for value in row.values() if isinstance(value, float)]).all()
    else:
        assert_close(found, expected, 1e-3)
        assert_close(model_of(gpu).state_dict(), model_of(cpu).state_dict(), 1e-3)


@each_policy
def test_outputs_are_on_the_cpu_and_those_of_an_evaluation_are_its(name: str) -> None:
    cpu, gpu = pair(name)
    obs = observations(name, 0, 1)
    expected, found = (policy.eval_mode.forward(obs) for policy in (cpu, gpu))
    assert devices(act(gpu, obs)) | devices(found) == {"cpu"}
    if name not in ("fqf", "iqn"):  # which draw quantiles
        assert_close([out["action"] for out in found.values()], [out["action"] for out in expected.values()], 1e-4)


@each_policy
def test_a_state_goes_to_the_cpu_and_back(name: str) -> None:
    cpu, gpu = pair(name)
    for _ in range(2):
        learn(gpu, batch(name))
    torch.save(gpu.learn_mode.state_dict(), "state")
    cpu.learn_mode.load_state_dict(torch.load("state", map_location="cpu", weights_only=True))
    assert_close(cpu.learn_mode.state_dict(), gpu.learn_mode.state_dict(), 0)
    cpu.load_state_dict(through_bytes(gpu.state_dict()))
    learn(cpu, batch(name))
    again = make(name, cuda=True, seed=3)
    again.load_state_dict(through_bytes(cpu.state_dict()))
    for _ in range(6):  # an auxiliary phase of PPG comes every few steps
        learn(again, batch(name))
    torch.save(cpu.learn_mode.state_dict(), "state")
    again.learn_mode.load_state_dict(torch.load("state", weights_only=True))
    assert_close(again.learn_mode.state_dict(), cpu.learn_mode.state_dict(), 0)
    for _ in range(6):
        learn(again, batch(name))
    assert devices(again.learn_mode.state_dict()["model"]) == {"cuda"}


@each_policy
def test_a_collector_on_the_cpu_takes_the_weights_of_a_learner_on_the_gpu(name: str) -> None:
    learner, actor = make(name, "learn", cuda=True), make(name, "collect", "command", seed=2)
    learn(learner, batch(name))
    actor.collect_mode.load_state_dict(through_bytes(learner.learn_mode.state_dict()))
    assert_close(model_of(actor).state_dict(), model_of(learner).state_dict(), 0)
    assert act(actor, observations(name, 0)).keys() == {0}


@pytest.mark.parametrize("name", ["r2d2", "r2d2_memory"])
def test_recurrent_states_go_on(name: str) -> None:
    one, other = make(name, cuda=True), make(name, cuda=True, seed=2)
    obs = observations(name, 0, 1)
    act(one, obs)
    one.eval_mode.forward(obs)
    other.load_state_dict(through_bytes(one.state_dict()))
    assert_close(one.eval_mode.forward(obs), other.eval_mode.forward(obs), 1e-4)
    assert act(other, obs).keys() == {0, 1}


@pytest.mark.parametrize("kind", ["bf16", "fp16"])
@pytest.mark.parametrize("name", ["dqn", "c51", "iqn", "ppo", "sac", "td3", "r2d2", "impala"])
def test_a_policy_learns_in_16_bits(name: str, kind: str) -> None:
    policy = make(name, "learn", cuda=True, learn__autocast=kind)
    before = copy.deepcopy(model_of(policy).state_dict())
    for _ in range(12):  # in fp16, no step is taken until the scale of the loss fits
        found = told(learn(policy, batch(name)))
    assert np.isfinite([value for row in found for value in row.values() if isinstance(value, float)]).all()
    after = model_of(policy).state_dict()
    assert any(not torch.equal(before[key], after[key]) for key in before)
    assert {value.dtype for value in after.values() if value.is_floating_point()} == {torch.float32}


@pytest.mark.filterwarnings("ignore")  # of torch about its own compiler
@pytest.mark.parametrize("name", ["dqn", "r2d2"])
def test_a_compiled_policy_learns(name: str) -> None:
    policy = make(name, cuda=True, learn__compile=True)
    before = copy.deepcopy(model_of(policy).state_dict())
    found = told(learn(policy, batch(name)))
    assert np.isfinite([value for row in found for value in row.values() if isinstance(value, float)]).all()
    assert any(not torch.equal(before[key], value) for key, value in model_of(policy).state_dict().items())
    assert act(policy, observations(name, 0)).keys() == {0}


@each_policy
@pytest.mark.parametrize("bp_update_sync", [True, False])
def test_a_rank_learns_over_nccl(name: str, bp_update_sync: bool) -> None:
    expected = told(learn(make(name, "learn", cuda=True), batch(name)))
    with DDPContext("nccl", rank=0, world_size=1):
        policy = make(name, "learn", cuda=True, multi_gpu=True, bp_update_sync=bp_update_sync)
        found = told(learn(policy, batch(name)))
    assert_close(found, expected, 1e-3)


@pytest.mark.parametrize("name", _RUNS)
def test_a_run_is_continued_and_used_without_a_gpu(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for iterations in (20, 40):
        run = train(name, _RUNS[name], cuda=True, iterations=iterations, folder=folder, eval_episodes=2, resume=True)
    obs = np.random.default_rng(0).standard_normal((5, 4 if _RUNS[name] == "CartPole-v1" else 3)).astype(np.float32)
    np.save("obs.npy", obs)
    script = (
        "import numpy, sys, torch, ding.entry\n"
        "assert not torch.cuda.is_available()\n"
        "run = ding.entry.Training.load(sys.argv[1])\n"
        "numpy.save('actions.npy', run.predict(numpy.load('obs.npy')))\n"
    )
    printed("-c", script, str(folder), CUDA_VISIBLE_DEVICES="")
    np.testing.assert_allclose(np.load("actions.npy"), Training.load(folder).predict(obs), 1e-4, 1e-4)
    assert np.shape(run.predict(obs)) == np.load("actions.npy").shape


def test_envs_in_processes_are_resumed_though_they_are_forked_from_one_that_uses_cuda(tmp_path: Path) -> None:
    how: dict[str, Any] = {"env_manager": "subprocess", "num_envs": 2, "eval_episodes": 2, "folder": tmp_path / "run"}
    for iterations in (20, 40):
        run = train("dqn", "CartPole-v1", cuda=True, iterations=iterations, resume=True, **how)
        assert run.result["train_iter"] == iterations


_ASKS = """
import torch
from ding.entry.worker_process import default_start_method

print(default_start_method(), torch.cuda.is_available(), default_start_method())
"""
_PARALLEL = """
import torch
from ding import train
from tests.own_folder import own_folder as own_folder

has_gpu = torch.cuda.is_available()
if __name__ == "__main__":
    run = train("dqn", "CartPole-v1", cuda=has_gpu, parallel=1, iterations=30, folder="run", eval_episodes=2)
    print(has_gpu, run.result["train_iter"] >= 30)
"""


def test_a_process_that_has_asked_whether_there_is_a_gpu_forks_no_worker() -> None:
    assert printed("-c", _ASKS).split() == ["fork", "True", "spawn"]


@pytest.mark.parametrize("has_asked", [True, False])
def test_the_learner_of_a_parallel_run_uses_the_gpu(tmp_path: Path, has_asked: bool) -> None:
    script = tmp_path / "script.py"
    script.write_text(_PARALLEL if has_asked else _PARALLEL.replace("torch.cuda.is_available()", "True"))
    assert printed(str(script)).splitlines()[-1] == "True True"
