"""The policies that learn from demonstrations and data sets, in pieces: one process collects, several ranks learn."""

import pytest
import torch
import torch.distributed as dist
from easydict import EasyDict

from ding.envs.env_manager.base_env_manager import BaseEnvManager
from ding.policy import create_policy, get_policy_cls
from ding.utils.data.plain_columns import from_plain, to_plain
from ding.utils.data.samples import Samples, Table
from ding.worker.collector.sample_serial_collector import SampleSerialCollector
from tests.fakes import FakeWriter
from tests.policy.learning import watch_syncs, watched_steps
from tests.policy.outside_envs import OutsideCartPole, OutsidePendulum

DISCRETE = ["bc", "dqfd", "discrete_cql"]
NAMES = [*DISCRETE, "cql", "td3_bc", "iql"]


@pytest.fixture(autouse=True)
def in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def make_policy(name, *fields, **settings):
    torch.manual_seed(0)
    cfg = get_policy_cls(EasyDict(type=name)).default_config()
    cfg.model.update(obs_shape=3, action_shape=2 if name in DISCRETE else 1)
    widths = ["encoder_hidden_size_list"] if name in DISCRETE else ["actor_head_hidden_size", "critic_head_hidden_size"]
    cfg.model.update({width: [8] if name in DISCRETE else 8 for width in widths})
    cfg.update(settings)
    if name == "dqfd":
        cfg.nstep = 2
    return create_policy(cfg, enable_field=list(fields))


def collected(name):
    env_cls = OutsideCartPole if name in DISCRETE else OutsidePendulum
    manager = BaseEnvManager([lambda: env_cls({})] * 3, EasyDict(BaseEnvManager.default_config()))
    manager.seed(0)
    mode = make_policy(name, "collect").collect_mode
    mode.get_attribute("cfg").traj_len_inf = True
    collector = SampleSerialCollector(SampleSerialCollector.default_config(), manager, mode, FakeWriter(), "exp")
    samples = collector.collect(n_sample=12, policy_kwargs={"eps": 0.5} if name in DISCRETE else {})
    collector.close()
    assert isinstance(samples, Samples) and samples.table is not None
    if name != "dqfd":
        return samples
    return Samples(Table.of([{**sample, "IS": 1.0} for sample in samples]))  # the buffer adds the weights


@pytest.mark.parametrize("name", NAMES)
def test_what_one_process_collects_another_one_learns_and_a_third_one_evaluates(name):
    learner = make_policy(name, "learn")
    output = learner.learn_mode.forward(from_plain(to_plain(collected(name))))
    assert name == "bc" or len(output["priority"]) == 12
    evaluated = make_policy(name, "eval")
    evaluated.eval_mode.load_state_dict(learner.learn_mode.state_dict())
    assert evaluated.eval_mode.forward({4: torch.zeros(3)})[4]["action"].shape == (1,)


@pytest.fixture
def lone_group(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("name", NAMES)
def test_the_gradients_of_every_step_are_averaged_over_the_ranks(name, lone_group, monkeypatch):
    data = collected(name)
    policy = make_policy(name, "learn", multi_gpu=True)
    syncs = watch_syncs(monkeypatch)
    with watched_steps() as steps:
        for _ in range(2):
            policy.learn_mode.forward(data)
    synced, stepped = ({id(p) for given in calls for p in given} for calls in (syncs, steps))
    assert stepped <= synced and {id(p) for p in policy._model.parameters()} <= synced
