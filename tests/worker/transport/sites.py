"""Comm workers at work over any transport of one machine, and a coordinator's side to drive them."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from easydict import EasyDict

from ding.worker.transport.chunk import pick_sample
from ding.worker.transport.http_transport import HttpConnector
from ding.worker.transport.transport import TaskFailed, get_transport

DEADLINE_S = 60  # for what happens at once, on a busy machine too
KINDS = ["local", "flask_fs"]


@contextlib.contextmanager
def messages_to(slave: Any) -> Iterator[Callable[..., Any]]:
    """Sends a task by its name to a slave over HTTP, and returns its result."""
    with slave:
        connector = HttpConnector("127.0.0.1", 0)
        connector.start()
        client = connector.client("naive", "127.0.0.1", slave.port)
        client.connect(DEADLINE_S)
        yield lambda name, **content: client.run({"name": name, **content}, DEADLINE_S)
        connector.close()


class Driver:
    """What a coordinator says over a client. A subclass has `start`, `ask` (for what is new) and `close`."""

    deadline_s: float = DEADLINE_S

    def __init__(self, client: Any) -> None:
        self.client = client

    def run(self, name: str, **content: Any) -> dict[str, Any]:
        reply: dict[str, Any] = self.client.run({"name": name, **content}, self.deadline_s)
        return reply

    def failure(self, act: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The result of a task that fails."""
        with pytest.raises(TaskFailed) as failed:
            act(*args, **kwargs)
        return failed.value.result


class Site:
    """Workers of one kind of transport, and clients to them.

    Attributes:
        create: makes a worker.
        driver: the class of the coordinator's side.
        defaults: entries of the worker's config.
        samples, policies: the stores that the workers use.
    """

    create: Callable[..., Any]
    driver: type[Driver]
    defaults: dict[str, Any] = {}

    def __init__(self, kind: str, folder: Any) -> None:
        data, policy = str(folder / "data"), str(folder / "policy")
        self.kind, transport = kind, get_transport(kind)
        self.launch = transport.launch
        self.samples, self.policies = transport.sample_store(data), transport.policy_store(policy)
        self.connector: Any = transport.connector({"host": "127.0.0.1", "port": 0})
        self.workers: list[Any] = []

    def cfg(self, **changes: Any) -> EasyDict:
        paths = {"path_data": self.samples.root, "path_policy": self.policies.root}
        return EasyDict({"type": self.kind, "host": "127.0.0.1", "port": 0, **paths, **self.defaults, **changes})

    def worker(self, **changes: Any) -> Any:
        """A worker that has started."""
        worker = self.create(self.cfg(**changes))
        worker.start()
        self.workers.append(worker)
        return worker

    def client(self, worker: Any, name: str = "worker0") -> Any:
        client = self.connector.client(name, "127.0.0.1", worker.port)
        client.connect(DEADLINE_S)
        return client

    def pair(self, **changes: Any) -> tuple[Any, Any]:
        """A worker, and a driver of it."""
        worker = self.worker(**changes)
        return worker, self.driver(self.client(worker, f"worker{worker.port}"))

    @classmethod
    @contextlib.contextmanager
    def opened(cls, kind: str, folder: Any) -> Iterator[Any]:
        site = cls(kind, folder)
        site.connector.start()
        yield site
        for part in (*site.workers, site.connector):
            part.close()


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def read_sample(reader, meta):
    """The sample that `meta` names, read by a `ChunkReader`."""
    samples = reader.samples(meta["data_id"], meta.get("compressor", "none"))
    reader.trim()
    return pick_sample(samples, meta)


def assert_same(one: Any, other: Any) -> None:
    """Equal in types, dtypes, values and the order of keys."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
    if isinstance(one, (dict, list)):
        assert len(one) == len(other)
        for key in one if isinstance(one, dict) else range(len(one)):
            assert_same(one[key], other[key])
    elif isinstance(one, (torch.Tensor, np.ndarray, np.generic)):
        assert one.dtype == other.dtype and one.shape == other.shape and (one == other).all()
    else:
        assert one == other
