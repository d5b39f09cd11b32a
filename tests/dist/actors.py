"""What the ranks of the tests do; each function is run by all ranks of a group, see `tests.ranks`."""

import collections
import contextlib
import hashlib
import os
import pathlib
import select
import signal
import threading
import time

import numpy as np
import tabulate  # noqa: F401 these two are imported once, for all ranks
import tensorboardX  # noqa: F401
import torch
import torch.distributed as dist

from ding.entry.serial_entry import run_serial, run_serial_onpolicy
from ding.policy.dqn import DQNPolicy
from ding.utils import pytorch_ddp_dist_helper as ddp
from ding.utils.child_helper import descriptor_of
from ding.utils.pytorch_ddp_dist_helper import DDPContext
from ding.worker.collector.sample_serial_collector import SampleSerialCollector
from ding.worker.learner.base_learner import BaseLearner
from ding.worker.replay_buffer.advanced_buffer import AdvancedReplayBuffer
from tests.entry.fakes import TinyEnv, pair, setting
from tests.policy.learning import model_of
from tests.policy.on_policy_samples import make_fragments
from tests.policy.on_policy_samples import make_policy as make_on_policy
from tests.policy.samples import make_batch, make_config

torch.optim.SGD([torch.zeros(1)])  # with the first optimizer, torch imports the rest of itself


def every_operation():
    """One of each collective operation."""
    out = {}
    with DDPContext("gloo"):
        rank = ddp.get_rank()
        out["place"] = [rank, ddp.get_world_size()]
        x = torch.tensor([1.0, 3.0]) * (rank + 1)
        ddp.allreduce(x)
        out["allreduce"] = x.tolist()
        x = torch.arange(6.0).reshape(2, 3).T * (rank + 1)
        assert ddp.allreduce_data(x, "sum") is x
        out["transposed"] = x.tolist()
        out["sum"] = [ddp.allreduce_data(rank + 1, "sum"), ddp.allreduce_data(np.float32(rank + 0.5), "sum")]
        out["avg"] = [ddp.allreduce_data(rank + 1, "avg"), ddp.allreduce_data(torch.tensor(rank + 1.0), "avg").item()]
        out["types"] = [type(ddp.allreduce_data(1, "sum")).__name__, type(ddp.allreduce_data(1, "avg")).__name__]
        reduced = ddp.reduce_data(rank + 1, 0)
        x = torch.tensor([2.0 * (rank + 1)])
        ddp.reduce_data(x, dst=0)
        out["reduce"] = [reduced, x.item()] if rank == 0 else None
        x = torch.tensor([float(rank)])
        ddp.broadcast(x, 1)
        out["broadcast"] = x.item()
        objects = [{"a": rank}, rank]
        ddp.broadcast_object_list(objects, src=0)
        out["objects"] = objects
        grad, indicator = torch.tensor([4.0 * rank]), torch.tensor([float(rank)])
        ddp.allreduce_with_indicator(grad, indicator)
        out["indicator"] = [grad.item(), indicator.item()]
        grad, indicator = torch.tensor([0.0]), torch.tensor([0.0])
        ddp.allreduce_with_indicator(grad, indicator)
        out["no_gradient"] = grad.item()
        x = torch.tensor([2.0 * rank])
        ddp.allreduce_async("x", x)
        ddp.synchronize()
        out["async"] = x.item()
        out["all"] = [ddp.on_all_ranks(True), ddp.on_all_ranks(rank == 0)]
        cfg = {
            "policy": {
                "batch_size": 5,
                "n_sample": 7,
                "learn": {"batch_size": 4},
                "collect": {"n_sample": 3, "n_episode": None},
            }
        }
        out["config"] = ddp.to_ddp_config(cfg)
        assert out["config"] is cfg
    out["after"] = ddp.get_world_size()
    return out


def fail(how, where, victim):
    """The `victim` ends in the way `how`, at a point that `where` names; all others train on for ever."""
    with DDPContext("gloo"):
        pid = [os.getpid()]
        ddp.broadcast_object_list(pid, src=victim)
        if ddp.get_rank() == victim:
            _end(how, where)
        else:
            end = descriptor_of(pid[0]) if where == "pending" else None
            if end is not None:  # stay away until the victim has ended
                select.select([end], [], [])
            while True:
                _sum_up()


def _sum_up():
    return ddp.allreduce_data(1, "sum")


def _end(how, where):
    if where == "after":
        _sum_up()
    if where == "pending":
        ddp.allreduce_async("x", torch.ones(1))
        ddp.allreduce_async("y", torch.ones(1))
    if how == "raise":
        raise ValueError("the env has broken")
    os.kill(os.getpid(), signal.SIGKILL)


def hang(folder):
    """Rank 1 does not come to the operation in which rank 0 waits before rank 0 has given up."""
    news = pathlib.Path(folder, "given up")
    with DDPContext("gloo", timeout=2):
        while ddp.get_rank() == 1 and not news.exists():
            time.sleep(0.01)
        try:
            _sum_up()
        finally:
            news.touch()


def join_twice():
    """A group can be joined again after an orderly end and after a failure on all ranks."""
    before = threading.active_count()
    totals = []
    for _ in range(2):
        with DDPContext("gloo"):
            totals.append(_sum_up())
    return totals, threading.active_count() - before, "MASTER_PORT" in os.environ


def meet_nobody():
    """Rank 1 never joins."""
    if os.environ["RANK"] == "0":
        with DDPContext("gloo", timeout=1):
            pass


def train(run_kwargs, policy=None, env=None, alone=False):
    """A small run of the serial pipeline (`alone`: without any group); what it came to."""
    operations = _count_operations()
    per_collect, collect = [], SampleSerialCollector.collect

    def counted(self, *args, **kwargs):
        before = operations.copy()
        samples = collect(self, *args, **kwargs)
        per_collect.append(dict(operations - before))
        return samples

    SampleSerialCollector.collect = counted
    with contextlib.nullcontext() if alone else DDPContext("gloo"):
        main, create = pair(env=env, multi_gpu=not alone, **(policy or {}))
        run = run_serial((ddp.to_ddp_config(main), create), seed=3, env_setting=setting(), **run_kwargs)
    collectors = [env for env in TinyEnv.made if env.role == "collector" and env.life]
    return {
        "checksum": checksum(model_of(run.policy)),
        "exp_name": run.cfg.exp_name,
        "train_iter": run.learner.train_iter,
        "envstep": run.collector.envstep,
        "own_steps": sum(env.life for env in collectors),
        "samples": run.collector._total_train_sample_count,
        "episodes": run.collector._total_episode_count,
        "seeds": [env.seeds[0][0] for env in collectors],
        "evaluator_envs": sum(env.life > 0 for env in TinyEnv.made if env.role == "evaluator"),
        "eval_info": run.eval_info,
        "stop": run.stop,
        "amounts": [run.cfg.policy.learn.batch_size, run.cfg.policy.collect.n_sample, len(collectors)],
        "per_collect": per_collect,
        "threads": threading.active_count(),
        "seen": [float(item["obs"][0]) for item in run.buffer._data if item is not None],
    }


def train_with_env_processes(kill_at):
    """A run whose envs are processes; rank 1 is killed at the iteration `kill_at`."""
    train, manager = BaseLearner.train, {"type": "subprocess", "context": "fork"}

    def train_or_die(self, *args, **kwargs):
        if self.rank == 1 and self.train_iter == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return train(self, *args, **kwargs)

    BaseLearner.train = train_or_die
    with DDPContext("gloo"):
        main, create = pair(multi_gpu=True)
        main.env.manager, create.env_manager.type = manager, "subprocess"
        run = run_serial((main, create), env_setting=setting(), max_train_iter=12)
    return checksum(model_of(run.policy))


def train_on_policy(max_train_iter):
    """A small run of the on-policy pipeline with PPO."""
    with DDPContext("gloo"):
        main, create = pair(multi_gpu=True)
        create.policy.type = "ppo"
        main.policy.learn = {"epoch_per_collect": 2, "batch_size": 4}
        run = run_serial_onpolicy((main, create), env_setting=setting(), max_train_iter=max_train_iter)
    return checksum(model_of(run.policy)), run.learner.train_iter, run.collector.envstep, run.eval_info


def learn_unequal_collections(bp_update_sync):
    """An update of PPO from 21 samples on rank 0 and 7 on rank 1, whose episodes were shorter."""
    with DDPContext("gloo"):
        how = {"multi_gpu": True, "bp_update_sync": bp_update_sync, "learn__batch_size": 4}
        policy = make_on_policy("learn", "collect", learn__epoch_per_collect=2, **how)
        data = make_fragments(policy)
        steps = policy.learn_mode.forward(data if ddp.get_rank() == 0 else data[:7])
    return checksum(model_of(policy)), len(steps)


def checksum(module):
    digest = hashlib.sha256()
    for name, value in sorted(module.state_dict().items()):
        digest.update(name.encode() + value.numpy().tobytes())
    return digest.hexdigest()


def _count_operations():
    """Counts the operations of torch from now on."""
    counts = collections.Counter()

    def count(name):
        operation = getattr(dist, name)

        def counted(*args, **kwargs):
            counts[name] += 1
            return operation(*args, **kwargs)

        setattr(dist, name, counted)

    for name in ("all_reduce", "broadcast", "reduce", "barrier", "all_gather", "broadcast_object_list"):
        count(name)
    return counts


def train_until(where):
    """A run that breaks on rank 1: in its env, its policy or its learner."""
    with DDPContext("gloo"):
        main, create = pair(multi_gpu=True)
        env = {}
        if ddp.get_rank() == 1:
            if where == "env":
                env = {"on_step": _break_at_step_20}
            if where == "policy":
                DQNPolicy._forward_collect = _break
            if where == "learner":
                main.policy.learn.learning_rate = 1e38
        run_serial((main, create), env_setting=setting(collector=env))


def _break_at_step_20(env):
    if env.life == 20:
        _break()


def _break(*args, **kwargs):
    raise ValueError("something has broken")


def train_starved():
    """The buffer of rank 1 cannot give the second batch of each update."""
    sample, calls = AdvancedReplayBuffer.sample, []

    def sometimes(self, *args, **kwargs):
        calls.append(1)
        return None if len(calls) % 2 == 0 else sample(self, *args, **kwargs)

    with DDPContext("gloo"):
        if ddp.get_rank() == 1:
            AdvancedReplayBuffer.sample = sometimes
        run = run_serial(pair(multi_gpu=True), env_setting=setting(), max_train_iter=5)
    return run.learner.train_iter, run.collector.envstep, run.is_starved


def train_apart():
    """Several ranks whose policies do not know of each other."""
    with DDPContext("gloo"):
        run_serial(pair(), env_setting=setting(), max_train_iter=1)


def learn(steps, bp_update_sync, path):
    """Some steps of plain gradient descent, each on a share of a batch; saves the weights before and after them."""
    with DDPContext("gloo"):
        rank, size = ddp.get_rank(), ddp.get_world_size()
        torch.manual_seed(rank)
        policy = DQNPolicy(make_config(multi_gpu=True, bp_update_sync=bp_update_sync), enable_field=["learn"])
        policy.learn_mode.set_attribute("optimizer", torch.optim.SGD(model_of(policy).parameters(), lr=0.1))
        state = [copy_of(policy)]
        torch.manual_seed(100)
        for _ in range(steps):
            batch = make_batch(8)
            share = len(batch) // size
            policy.learn_mode.forward(batch[rank * share : (rank + 1) * share])
        state.append(copy_of(policy))
    torch.save(state, f"{path}/{rank}.pt")
    return checksum(model_of(policy))


def copy_of(policy):
    return {name: value.clone() for name, value in model_of(policy).state_dict().items()}
