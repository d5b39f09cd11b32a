"""Config files for roles that are started one by one, and their processes."""

import selectors
import socket
import subprocess
import sys

from ding.entry.dist_entry import dist_prepare_config
from ding.utils.system_helper import find_free_port
from tests.programs import environment

CONFIG = """
from tests.entry.parallel_fakes import triple

main_config, create_config, system_config = triple(system={system!r}, **{changes!r})
"""


def free_ports(count):
    """Ports of this machine that follow each other, and that nobody listens at."""
    while True:
        sockets = [socket.socket() for _ in range(count)]
        try:
            first = find_free_port("127.0.0.1")
            for offset, each in enumerate(sockets):
                each.bind(("127.0.0.1", first + offset))
            return list(range(first, first + count))
        except OSError:
            continue
        finally:
            for each in sockets:
                each.close()


def write_config(system=None, **changes):
    """A config file in the working directory; see `triple`."""
    with open("config.py", "w") as f:
        f.write(CONFIG.format(system=system or {}, changes=changes))
    return "config.py"


def prepare(system=None, seed=0, platform="local", places=None, **changes):
    """The path of a prepared config; `places` are its further arguments."""
    return dist_prepare_config(write_config(system, **changes), seed, platform, **(places or {}))


def first_line(process, timeout_s):
    """The first line that a process prints."""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        assert selector.select(timeout_s), "it says nothing"
    return process.stdout.readline()


class Roles:
    """Processes that the command line starts; whoever makes one closes it."""

    def __init__(self, packed):
        self.packed, self.processes = packed, []
        everything = environment(PYTHONUNBUFFERED="1").items()
        self._env = {key: value for key, value in everything if not key.startswith("DING_")}

    def start(self, role, *options, prefix=(), cwd=None, **env):
        command = [*prefix, sys.executable, "-m", "ding.entry.cli", "-m", "dist", "-M", role, "-c", self.packed]
        process = subprocess.Popen(
            [*command, *map(str, options)],
            cwd=cwd, env={**self._env, **env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.processes.append(process)
        return process

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            process.stdout.close()


def wait_until_serving(processes, timeout_s):
    """Wait until each of these workers takes tasks."""
    for process in processes:
        assert "accepts tasks at port" in first_line(process, timeout_s)
