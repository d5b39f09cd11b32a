"""The process group of the ranks that train one task, and their lockstep."""

from __future__ import annotations

import io
import os
import socket
import threading
from datetime import timedelta
from typing import Any

import psutil
import torch
import torch.distributed as dist

from ding.utils.collectives import comm_device, copy_from_rank, has_group, smallest_over_ranks
from ding.utils.file_helper import file_content
from ding.worker.learner.base_learner import BaseLearner
from ding.worker.learner.comm.exchange import LearnerExchange
from ding.worker.learner.comm.resume import load_first_checkpoint

# How long a rank waits for its own batch before it tells the other ranks that it has none.
_ROUND_S = 1.0
# Limit of the batches agreed on in one operation. More batches mean fewer operations, but ranks stop later.
_MOST_BATCHES = 8
_STOP, _WAIT = -1, 0
_INTERFACE_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


def open_store(host: str, world_size: int, timeout_s: float) -> Any:
    """The store at which the ranks of a task meet. Rank 0 opens it, at any free port of `host`.

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
    """Connect another rank to the store that rank 0 has opened."""
    return dist.TCPStore(host, port, is_master=False, timeout=timedelta(seconds=timeout_s))  # type: ignore[attr-defined,unused-ignore]


class RankGroup:
    """Joins the process group of a task on construction, which waits for the other ranks.

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
        self._agreed = 0  # batches left until the ranks synchronize again
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

    def next_batch(self, exchange: LearnerExchange) -> bool:
        """Wait until every rank has a batch. Returns False on all ranks once the exchange of one of them is stopped.

        Raises:
            BrokenCollective: another rank has failed or ended.
        """
        while self._agreed == 0:
            count = exchange.wait_for_batches(_ROUND_S)
            own = _STOP if count is None else min(count, _MOST_BATCHES)
            self._agreed = smallest_over_ranks(own)
            if self._agreed == _STOP:
                return False
            exchange.wait_for_ranks()
        self._agreed -= 1
        return True

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
        state = file_content(_receive_bytes(), "the state of rank 0", trust_pickle)
        learner.policy.load_state_dict(state["policy"])
        learner.last_iter.update(state["last_iter"])
        learner.collector_envstep, learner.trained_before = state["envstep"], state["trained_before"]
        learner.ckpt_extra = state["ckpt_extra"]

    def leave(self) -> None:
        """Leave the group; operations of ranks that are still in it raise BrokenCollective. Idempotent."""
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
