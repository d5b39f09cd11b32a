"""The policies that learn from sequences: collected by one process, learnt from by another, and on several ranks."""

import copy
import importlib

import pytest
import torch
import torch.distributed as dist
from easydict import EasyDict

from ding.config import compile_config
from ding.envs.env_manager.base_env_manager import BaseEnvManager
from ding.policy import create_policy, steps
from ding.utils.data.plain_columns import from_plain, to_plain
from ding.utils.data.samples import Samples
from ding.worker.collector.sample_serial_collector import SampleSerialCollector
from tests.fakes import FakeWriter
from tests.policy.learning import watch_syncs
from tests.policy.outside_program import OutsideCartPole, pair_of

NAMES = ["r2d2", "impala", "acer", "ppg_offpolicy"]
KWARGS = {"r2d2": {"eps": 0.5}}


@pytest.fixture(autouse=True)
def in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def make_policy(name, *fields, **settings):
    task = importlib.import_module(f"tests.benchmarks.learning_tasks.{name}")
    cfg = compile_config(*pair_of(task, "exp", **settings)[:1], auto=True, create_cfg=pair_of(task, "exp")[1]).policy
    torch.manual_seed(0)
    return create_policy(cfg, enable_field=list(fields))


def collect(name, policy, number=12):
    manager = BaseEnvManager([OutsideCartPole] * 3, EasyDict(BaseEnvManager.default_config()))
    manager.seed(0)
    cfg = SampleSerialCollector.default_config()
    collector = SampleSerialCollector(cfg, manager, policy.collect_mode, FakeWriter(), "exp")
    samples = collector.collect(n_sample=number, policy_kwargs=KWARGS.get(name, {}))
    collector.close()
    return samples


def as_data(name, samples):
    return {"policy": samples, "value": samples} if name == "ppg_offpolicy" else samples


@pytest.mark.differs("R2D2 that only learns lacks the length of its sequences", "each mode works by itself")
@pytest.mark.parametrize("name", NAMES)
def test_what_one_process_collects_another_one_learns(name):
    samples = collect(name, make_policy(name, "collect"))
    assert isinstance(samples, Samples) and samples.table is not None and len(samples) == 12
    message = from_plain(to_plain(samples))
    dicts = copy.deepcopy(list(from_plain(to_plain(samples))))
    learned = [make_policy(name, "learn").learn_mode.forward(as_data(name, data)) for data in (message, dicts)]
    assert learned[0] == learned[1]


def test_the_states_of_a_sequence_are_those_that_its_steps_lead_to():
    policy = make_policy("r2d2", "collect", burnin_step=2, learn_unroll_len=8)
    samples = collect("r2d2", policy)
    is_start = 0
    for sample in samples:
        state = sample["prev_state"][0]
        is_start += not state["h"].any()
        for obs, stored, null in zip(sample["obs"], sample["prev_state"], sample["null"], strict=True):
            if null:
                break
            assert all(torch.allclose(stored[key], state[key], atol=1e-6) for key in ("h", "c"))
            with torch.no_grad():
                output = policy._model({"obs": obs[None], "prev_state": [stored]}, inference=True)
            state = output["next_state"][0]
    assert 0 < is_start < len(samples)  # some sequences begin with their episode, others within


@pytest.fixture
def lone_group(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.differs("gradients of R2D2, IMPALA, ACER and PPG are not averaged over ranks", "they are")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bp_update_sync", [True, False])
def test_the_gradients_of_every_step_are_averaged_over_the_ranks(name, bp_update_sync, lone_group, monkeypatch):
    data = as_data(name, collect(name, make_policy(name, "collect")))
    alone = make_policy(name, "learn")
    policy = make_policy(name, "learn", multi_gpu=True, bp_update_sync=bp_update_sync)
    syncs, sent = watch_syncs(monkeypatch), []
    begin_sum = steps.begin_sum
    monkeypatch.setattr(steps, "begin_sum", lambda what, x: (sent.append(x), begin_sum(what, x))[1])
    for _ in range(2):
        assert policy.learn_mode.forward(data) == alone.learn_mode.forward(data)
    parameters = {id(parameter) for parameter in policy._model.parameters()}
    assert {id(parameter) for given in syncs for parameter in given} == parameters
    assert (len(sent) > 0) is not bp_update_sync
