"""Config files for roles that are started one by one."""

import selectors
import socket

from ding.entry.dist_entry import dist_prepare_config

CONFIG = """
from tests.entry.parallel_fakes import triple

main_config, create_config, system_config = triple(system={system!r}, **{changes!r})
"""


def free_ports(count):
    """Ports of this machine that follow each other, and that nobody listens at."""
    while True:
        sockets = [socket.socket() for _ in range(count)]
        try:
            sockets[0].bind(("127.0.0.1", 0))
            first = sockets[0].getsockname()[1]
            for offset, other in enumerate(sockets[1:], 1):
                other.bind(("127.0.0.1", first + offset))
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
