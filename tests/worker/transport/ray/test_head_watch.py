"""What a run says when the control service of Ray ends."""

import contextlib
import logging
import os
import socket
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import psutil
import pytest

from ding.worker.transport.ray import cluster
from ding.worker.transport.ray.cluster import HeadWatch

PATIENCE_S = 30
ROOT = Path(__file__).resolve().parents[4]


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


def test_a_watch_of_a_service_that_lives_says_nothing_and_ends(watch, told):
    with socket.create_server(("127.0.0.1", 0)) as server:
        made = watch(server)
        connection, _ = server.accept()
        with connection:
            made.close()
            made.close()
    told.wait_for()


LOSE = """
    import psutil, signal, threading
    from ding.worker.transport.ray.cluster import RayCluster
    from ding.worker.transport.ray.ray_settings import ray_section

    RayCluster(ray_section({}), num_cpus=1).start()
    [head] = [child for child in psutil.Process().children() if child.name() == "gcs_server"]
    head.kill()
    signal.pause()
"""


@pytest.mark.slow
def test_a_process_whose_ray_loses_its_control_service_says_so(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", textwrap.dedent(LOSE)]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, cwd=tmp_path, text=True) as process:
        try:
            lines = iter(process.stderr.readline, "")
            assert any("the control service (GCS) of Ray" in line and "has ended" in line for line in lines)
        finally:
            children = psutil.Process(process.pid).children(recursive=True)
            for each in (process, *children):
                each.kill()
            psutil.wait_procs(children, timeout=PATIENCE_S)
