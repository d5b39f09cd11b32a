"""The comm learner for runs on Ray, and the process group of its ranks."""

from __future__ import annotations

import io
import os
import socket
import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import psutil
import torch
import torch.distributed as dist

from ding.interaction.exception import TaskFail, failure_of
from ding.utils.file_helper import load_file
from ding.utils.pytorch_ddp_dist_helper import (
    comm_device,
    copy_from_rank,
    has_group,
)
from ding.utils.registry_factory import COMM_LEARNER_REGISTRY
from ding.worker.learner.base_learner import BaseLearner
from ding.worker.learner.comm.comm_learner import CommLearner
from ding.worker.learner.comm.learner_group import GroupTask, LearnerHandle
from ding.worker.learner.comm.resume import load_first_checkpoint
from ding.worker.transport.transport import (
    Connector,
    Serve,
    Task,
    TaskFailed,
    TaskName,
    WorkerClient,
    connect,
    result_of,
)

# Key of a task with the address, as host and port, of the store at which the ranks meet.
_MEETING = "meeting"


@COMM_LEARNER_REGISTRY.register("ray")
class RayLearner(CommLearner):
    """A learner worker in an actor of Ray, see `WorkerActor`.

    Each rank of a learner runs in its own actor. The coordinator sends tasks to rank 0, which forwards them to the
    other ranks. All ranks begin, train and end together, each on its part of every batch, whose size is that of a rank
    times the number of ranks. Only rank 0 reports infos, with the priorities of all ranks; an error or the loss of any
    rank counts for the whole learner.

    Args:
        cfg: `path_data` and `path_policy`; with `multi_gpu` also `gpu_num`, the number of ranks, `rank`, and for rank 0
            `peers`, the (name, life) of the actors of the other ranks; `host`, the address of this machine for them.
            See also `CommLearner`.
    """

    transport = "ray"
    _store: Any = None
    _connector: Connector | None = None
    _peers: Sequence[LearnerHandle] = ()
    _led: GroupTask | None = None  # the task of all ranks, on rank 0

    def _place(self) -> tuple[int, int]:
        return int(self._cfg.get("rank", 0)), int(self._cfg.gpu_num)

    def _join_group(self, task_info: Mapping[str, Any]) -> RankGroup | None:
        if self._world_size == 1:
            return None
        host, port = task_info[_MEETING]
        timeout_s = self._cfg.rank_timeout_s
        store = self._store if self._rank == 0 else find_store(host, port, timeout_s)
        return RankGroup(store, self._rank, self._world_size, self._cfg.host, timeout_s)

    def serve(self, task: dict[str, Any]) -> Any:
        """Run a task of the coordinator; rank 0 runs it on all ranks, which are restarted together if one is lost.

        Raises:
            TaskFail: a rank has failed, or is lost; the result has its traceback.
        """
        name = task.get("name")
        if name == TaskName.LEARNER_START and self._rank == 0 and self._world_size > 1:
            self._connect_peers()
            self._store = open_store(self._cfg.host, self._world_size, self._cfg.rank_timeout_s)
            info = {**task["task_info"], _MEETING: [self._cfg.host, self._store.port]}
            handles = [LearnerHandle("rank 0", _OwnRank("rank 0", super().serve)), *self._peers]
            self._led = GroupTask(handles, {**task, "task_info": info}, self._cfg.rank_timeout_s)
            return {"message": "learner task has started"}
        led = self._led
        if led is not None and name == TaskName.LEARNER_GET_DATA:
            return led.demand(task)
        if led is not None and name == TaskName.LEARNER_LEARN:
            return led.learn(task)
        if led is not None and name == TaskName.LEARNER_CLOSE:
            self._led = None
            return led.close()
        return super().serve(task)

    def _connect_peers(self) -> None:
        if self._peers:
            return
        import ray

        from ding.worker.transport.ray.ray_transport import actor_name

        self._connector = self._transport.connector({"run_token": self._cfg.get("run_token")})
        self._connector.start()
        handles: list[LearnerHandle] = []
        limit_s = self._cfg.rank_timeout_s
        try:
            for name, life in self._cfg.peers:
                place = ray.get(ray.get_actor(actor_name(name, life)).place.remote(), timeout=limit_s)
                client, _ = connect(self._connector, name, place["host"], place["port"], limit_s)
                handles.append(LearnerHandle(name, client))
        except BaseException:
            self._peers = handles
            self._disconnect_peers()
            raise
        self._peers = handles

    def deal_with_lost_coordinator(self) -> None:
        self._disconnect_peers()
        super().deal_with_lost_coordinator()

    def _disconnect_peers(self) -> None:
        """Disconnect from the other ranks, which end their task."""
        peers, self._peers, self._led = self._peers, (), None
        for handle in peers:
            handle.close()
        if self._connector is not None:
            self._connector.close()

    def close(self) -> None:
        """Close this rank, see `CommLearner.close`; the caller must close the other ranks at the same time."""
        try:
            super().close()
        finally:
            self._disconnect_peers()
            self._store = None


class _OwnRank(WorkerClient):
    """The client of rank 0 in its own process; `serve` runs a task."""

    def __init__(self, name: str, serve: Serve) -> None:
        super().__init__(name, set())
        self._serve = serve

    def run(self, task: Task, timeout_s: float) -> dict[str, Any]:
        try:
            return result_of(self._serve(dict(task)))
        except TaskFail as e:
            raise TaskFailed(self.name, task["name"], e.result) from e
        except Exception as e:
            raise TaskFailed(self.name, task["name"], failure_of(e)) from e

    def drop(self, reason: str) -> None:
        """Do nothing: rank 0 ends with this process."""


_INTERFACE_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


def open_store(host: str, world_size: int, timeout_s: float) -> Any:
    """Open, on rank 0, the store at which the ranks of a task meet, and return it. Its port is any free one of `host`.

    The port is closed when the store is garbage collected.
    """
    listener = socket.create_server((host, 0))
    port = int(listener.getsockname()[1])
    return dist.TCPStore(  # type: ignore[attr-defined,unused-ignore]
        host,
        port,
        world_size,
        is_master=True,
        timeout=timedelta(seconds=timeout_s),
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )


def find_store(host: str, port: int, timeout_s: float) -> Any:
    """Return, on another rank, a client of the store that rank 0 has opened."""
    return dist.TCPStore(host, port, is_master=False, timeout=timedelta(seconds=timeout_s))  # type: ignore[attr-defined,unused-ignore]


class RankGroup:
    """The process group of a task; the constructor joins it, and waits for the other ranks.

    Tensors on a GPU use NCCL if each rank has its own GPU; all others use gloo. `leave` is thread-safe.

    Args:
        store: see `open_store` and `find_store`.
        host: the address of this machine for the other ranks.
        timeout_s: limit for joining, and for each operation.

    Raises:
        RuntimeError: this process is in a group already, or not all ranks have joined in time.
    """

    def __init__(self, store: Any, rank: int, world_size: int, host: str, timeout_s: float) -> None:
        self.rank, self.world_size = rank, world_size
        self._lock = threading.Lock()
        if has_group():
            raise RuntimeError("this process is in a process group already: its last task has not ended")
        _use_interface_of(host)
        if torch.cuda.is_available():
            torch.cuda.set_device(rank % torch.cuda.device_count())
        self._store = store
        dist.init_process_group(
            self._backend(), store=store, rank=rank, world_size=world_size, timeout=timedelta(seconds=timeout_s)
        )

    def _backend(self) -> str:
        own = f"{socket.gethostname()} {_gpu()}" if torch.cuda.is_available() else ""
        self._store.set(f"device/{self.rank}", own)
        devices = [self._store.get(f"device/{rank}") for rank in range(self.world_size)]
        return "cpu:gloo,cuda:nccl" if all(devices) and len(set(devices)) == len(devices) else "gloo"

    def share(self, learner: BaseLearner, trust_pickle: bool = False) -> None:
        """Copy the state of the policy and the counters of rank 0 to the learners of the other ranks.

        Rank 0 also loads the checkpoint that the hooks of the learner would load before the run.

        Args:
            trust_pickle: whether a state may hold objects other than numbers, strings, containers, arrays and tensors.
        """
        load_first_checkpoint(learner, is_loading=self.rank == 0)
        if self.rank == 0:
            file = io.BytesIO()
            torch.save({"policy": learner.policy.state_dict(), **_counters(learner)}, file)
            _send_bytes(file.getvalue())
            return
        state = load_file(io.BytesIO(_receive_bytes()), "the state of rank 0", trust_pickle)
        learner.policy.load_state_dict(state["policy"])
        learner.last_iter.update(state["last_iter"])
        learner.collector_envstep, learner.trained_before = state["envstep"], state["trained_before"]
        learner.ckpt_extra = state["ckpt_extra"]

    def leave(self) -> None:
        """Leave the group; operations of ranks that are still in it raise `BrokenCollective`.

        Further calls do nothing.
        """
        with self._lock:
            store, self._store = self._store, None
            if store is not None and has_group():
                dist.destroy_process_group()


def _counters(learner: BaseLearner) -> dict[str, Any]:
    return {
        "last_iter": learner.train_iter,
        "envstep": learner.collector_envstep,
        "trained_before": learner.trained_before,
        "ckpt_extra": learner.ckpt_extra,
    }


def _gpu() -> str:
    return str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)


def _send_bytes(data: bytes) -> None:
    device = comm_device()
    copy_from_rank(torch.tensor([len(data)], dtype=torch.int64, device=device), 0)
    copy_from_rank(torch.frombuffer(bytearray(data), dtype=torch.uint8).to(device), 0)


def _receive_bytes() -> bytes:
    device = comm_device()
    size = torch.zeros(1, dtype=torch.int64, device=device)
    copy_from_rank(size, 0)
    data = torch.empty(int(size), dtype=torch.uint8, device=device)
    copy_from_rank(data, 0)
    return data.cpu().numpy().tobytes()


def _use_interface_of(host: str) -> None:
    """Make gloo and NCCL use the network interface with this address, unless the environment names one.

    By default gloo uses the address that the host name resolves to, which other machines may not reach.
    """
    for name, addresses in psutil.net_if_addrs().items():
        if any(address.address == host for address in addresses):
            for variable in _INTERFACE_VARIABLES:
                os.environ.setdefault(variable, name)
            return
