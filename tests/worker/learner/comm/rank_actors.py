"""What the ranks of one learner task do in the tests; see `tests.ranks`."""

import hashlib
import os
import threading
from time import monotonic

import torch
from easydict import EasyDict

from ding.utils.pytorch_ddp_dist_helper import BrokenCollective, has_group, smallest_over_ranks
from ding.worker.learner.comm.comm_learner import CommLearner
from ding.worker.learner.comm.ray_learner import RankGroup, find_store, open_store
from ding.worker.transport.chunk import encode_chunk
from ding.worker.transport.stores import FolderPolicyStore, FolderSampleStore
from tests.worker.learner.comm.test_dqn_learner import policy_cfg, transitions
from tests.worker.learner.comm.workers import task_info

HOST, DEADLINE_S = "127.0.0.1", 30.0


def place():
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def meet(name="meeting", timeout_s=DEADLINE_S):
    """The group of all ranks, which find each other by a file in the folder they share."""
    rank, world_size = place()
    if rank == 0:
        store = open_store(HOST, world_size, timeout_s)
        with open(f".{name}", "w") as file:
            file.write(str(store.port))
        os.replace(f".{name}", name)
    else:
        deadline = monotonic() + DEADLINE_S
        while not os.path.exists(name):
            assert monotonic() < deadline
            threading.Event().wait(0.01)
        with open(name) as file:
            store = find_store(HOST, int(file.read()), timeout_s)
    return RankGroup(store, rank, world_size, HOST, timeout_s)


def fail_in_one(how):
    """What the others get when rank 1 fails between two batches."""
    rank, _ = place()
    group, begin = meet(), monotonic()
    assert smallest_over_ranks(rank) == 0
    if rank == 1:
        if how == "leaves":
            group.leave()
            threading.Event().wait(3)
        os._exit(0)
    try:
        smallest_over_ranks(rank)
    except BrokenCollective as e:
        group.leave()
        return [str(e), monotonic() - begin]


def meet_again():
    """Two groups, one after the other."""
    seen = []
    for name in ("first", "second"):
        group = meet(name)
        seen.append(smallest_over_ranks(5 + group.rank))
        group.leave()
        group.leave()
    return seen


class RankedLearner(CommLearner):
    """One of several ranks, each with samples in its own process."""

    def _place(self):
        return place()

    def _join_group(self, task_info):
        return meet()


def samples(begin, end):
    return transitions(16)[begin:end]


def train_a_dqn(iterations, ranks, resume=False):
    """Each rank trains on all that it has, over and over; returns its weights and a hash of its whole state.

    The samples are dealt out to the ranks, so together these always train on all of them.
    """
    rank, world_size = place()
    size = 16 // world_size
    FolderSampleStore("data").write(f"chunk{rank}", encode_chunk(samples(rank * size, (rank + 1) * size)))
    batch = [{"data_id": f"chunk{rank}", "data_index": index, "compressor": "lz4"} for index in range(size)]
    policy = policy_cfg()
    policy.learn.batch_size, policy.priority, policy.priority_IS_weight = size, False, False
    policy.multi_gpu = world_size > 1
    cfg = {
        "type": "local",
        "path_data": "data",
        "path_policy": "policy",
        "multi_gpu": world_size > 1,
        "gpu_num": world_size,
    }
    learner = (RankedLearner if ranks > 1 else CommLearner)(EasyDict(cfg))
    learner.start()
    torch.manual_seed(7 + rank)  # the models begin as copies of rank 0's
    learner.deal_with_learner_start(task_info(policy=policy, learner={"train_iterations": iterations}, resume=resume))
    task = learner._slot.require()
    task.queue.put([batch] * iterations)
    task.thread.join(DEADLINE_S)
    assert not task.thread.is_alive()
    infos, _ = task.queue.take()
    learner.deal_with_learner_close()
    state = task.learner.policy.state_dict()
    learner.close()
    return {
        "steps": [info["learner_step"] for info in infos],
        "weights": {name: value.tolist() for name, value in state["model"].items()},
        "hash": hashlib.sha256(repr(sorted_state(state)).encode()).hexdigest(),
        "written": FolderPolicyStore("policy").read("policy_task") is not None if rank == 0 else None,
        "files": sorted(os.listdir("exp/ckpt")) if os.path.exists("exp/ckpt") else [],
        "group": has_group(),
    }


def sorted_state(state):
    if isinstance(state, torch.Tensor):
        return state.tolist()
    if isinstance(state, dict):
        return [(str(key), sorted_state(state[key])) for key in sorted(state, key=str)]
    return [sorted_state(item) for item in state] if isinstance(state, (list, tuple)) else state
