"""What a run says when the control service of Ray ends."""

import contextlib
import logging
import socket
import threading

import pytest

from ding.worker.transport.ray import cluster
from ding.worker.transport.ray.cluster import HeadWatch

PATIENCE_S = 30


class Told(logging.Handler):
    """Waits for messages of the package."""

    def __init__(self):
        super().__init__()
        self._texts, self._changed = [], threading.Condition()

    def emit(self, record):
        with self._changed:
            self._texts.append(record.getMessage())
            self._changed.notify_all()

    def wait_for(self, *texts):
        with self._changed:
            is_told = self._changed.wait_for(lambda: len(self._texts) >= len(texts), PATIENCE_S)
            assert is_told and all(text in told for text, told in zip(texts, self._texts, strict=True)), self._texts


@pytest.fixture
def told():
    handler = Told()
    logging.getLogger("ding").addHandler(handler)
    yield handler
    logging.getLogger("ding").removeHandler(handler)


@pytest.fixture
def watch(monkeypatch):
    monkeypatch.setattr(cluster, "_RETRY_S", 0.01)
    before = set(threading.enumerate())
    with contextlib.ExitStack() as stack:

        def watch(server):
            made = HeadWatch(f"127.0.0.1:{server.getsockname()[1]}")
            stack.callback(made.close)
            return made

        yield watch
    assert set(threading.enumerate()) <= before


def test_the_end_of_the_service_is_told_once_and_its_return_too(watch, told):
    with socket.create_server(("127.0.0.1", 0)) as server:
        watch(server)
        server.accept()[0].close()  # as one that is not used for long
        connection, _ = server.accept()
        connection.send(b"settings")
        port = server.getsockname()[1]
    connection.close()
    told.wait_for(f"(GCS) of Ray at 127.0.0.1:{port} has ended")
    with socket.create_server(("127.0.0.1", port)) as server:
        server.accept()[0].close()
        told.wait_for("has ended", "answers again")
