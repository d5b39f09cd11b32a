"""A worker with an env, started by a process with a token in its environment: which processes show it?"""

import json
import os
import sys
from pathlib import Path

import psutil
from easydict import EasyDict

from ding.entry.worker_process import WorkerPlan, WorkerProcess
from ding.envs.env_manager.subprocess_env_manager import SyncSubprocessEnvManager
from tests.entry.test_worker_process import wait_until_up
from tests.envs.env_manager.scripted_env import Make


def play(config, seed, start_event, close_event, report):
    """Be a worker whose env is a process of the same start method."""
    with SyncSubprocessEnvManager([Make(0)], {"context": config.method}) as manager:
        manager.launch()
        report(7236)
        start_event.set()
        close_event.wait()


def pids():
    """This process and all that it has started."""
    return [os.getpid(), *(process.pid for process in psutil.Process().children(recursive=True))]


def main(method):
    """Print for this process and each that it has started whether its environment shows the token."""
    worker = WorkerProcess(WorkerPlan("collector0", play, EasyDict(method=method), 0), method)
    worker.start()
    try:
        wait_until_up([worker], 60)
        own, *others = [Path(f"/proc/{pid}/environ").read_bytes() for pid in pids()]
        seen = {"own": b"a-secret" in own, "shown": [b"a-secret" in environ for environ in others]}
        seen["paths"] = [b"PATH=" in environ for environ in others]
        sys.stdout.write(json.dumps(seen))
    finally:
        worker.close()


if __name__ == "__main__":
    main(sys.argv[1])
