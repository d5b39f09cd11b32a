"""A training whose roles run on two hosts, started one by one by the command line."""

import contextlib
import os
import pickle
import secrets
import shutil
import socket
import subprocess
import sys
from typing import NamedTuple

import pytest

from tests.entry.dist_fakes import Roles, first_line, free_ports
from tests.programs import printed

DEADLINE_S = 180
PORTS = dict(zip(("coordinator", "learner0", "collector0", "collector1"), free_ports(4), strict=True))
CONFIG = """
import copy
from ding.example import cartpole_dqn_parallel as example

main_config, create_config = copy.deepcopy(example.main_config), example.create_config
main_config.exp_name = "two_hosts"
main_config.env.stop_value = 60
main_config.policy.other.eps.decay = 3000
system_config = dict(dist=dict(coordinator_lost_s=1))
"""


class Host(NamedTuple):
    """Where commands run: behind `prefix`, with `address` as their own."""

    address: str
    prefix: tuple = ()


def ip(*args):
    return subprocess.run(("ip", *args), check=True, capture_output=True, text=True, timeout=20).stdout


@contextlib.contextmanager
def two_namespaces():
    """Two hosts in network namespaces of their own, with a cable between them."""
    if shutil.which("ip") is None:
        pytest.skip("there is no command ip (iproute2)")
    names = [f"ding{os.getpid()}{end}" for end in "ab"]
    addresses = ["10.213.77.1", "10.213.77.2"]
    cables = [f"vd{os.getpid()}{end}" for end in "ab"]
    made = []
    try:
        try:
            for name in names:
                ip("netns", "add", name)
                made.append(name)
            ip("link", "add", cables[0], "type", "veth", "peer", "name", cables[1])
            for name, cable, address in zip(names, cables, addresses, strict=True):
                ip("link", "set", cable, "netns", name)
                ip("-n", name, "address", "add", f"{address}/24", "dev", cable)
                for device in (cable, "lo"):
                    ip("-n", name, "link", "set", device, "up")
        except (subprocess.CalledProcessError, PermissionError) as e:
            pytest.skip(f"network namespaces cannot be made here: {getattr(e, 'stderr', e)}")
        yield [Host(a, ("ip", "netns", "exec", name)) for a, name in zip(addresses, names, strict=True)]
        assert [ip("netns", "pids", name) for name in names] == ["", ""]
    finally:
        for name in made:
            ip("netns", "delete", name)  # and the cable with them
    assert not {*made} & {line.split()[0] for line in ip("netns", "list").splitlines()}


@contextlib.contextmanager
def two_loopback_addresses():
    """One host that goes by two addresses."""
    hosts = [Host("127.0.0.2"), Host("127.0.0.3")]
    for host in hosts:
        with socket.socket() as probe:
            try:
                probe.bind((host.address, 0))
            except OSError as e:
                pytest.skip(f"{host.address} is not an address of this machine: {e}")
    yield hosts
    for host in hosts:
        for port in PORTS.values():
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host.address, port))


SNIFF = """
import socket, sys
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as packets, open(sys.argv[1], "wb") as file:
    print("listening", flush=True)
    while True:
        file.write(packets.recv(1 << 16))
        file.flush()
"""


@contextlib.contextmanager
def captured(host, file):
    """Write to `file` what passes the interfaces of a host of its own, whole packets one after the other."""
    command = [*host.prefix, sys.executable, "-c", SNIFF, str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sniffer:
        try:
            assert sniffer.stdout.readline() == "listening\n"
            yield
        finally:
            sniffer.kill()


class Machines(Roles):
    """Roles on hosts."""

    def __init__(self, packed, folder):
        super().__init__(packed)
        self._folder = folder

    def start_on(self, host, role, *options, token):
        # Each host has a working directory of its own; what they share is named by its path.
        folder = self._folder / f"host_{host.address}"
        folder.mkdir(exist_ok=True)
        env = {} if token is None else {"DING_TOKEN": token}
        return self.start(role, *options, prefix=host.prefix, cwd=folder, **env)

    def run_on(self, *args, **kwargs):
        process = self.start_on(*args, **kwargs)
        output = process.communicate(timeout=DEADLINE_S)[0]
        return process.returncode, output


@pytest.mark.slow
@pytest.mark.parametrize("make_hosts", [two_namespaces, two_loopback_addresses])
def test_cartpole_is_trained_across_two_hosts_with_a_token_and_not_without(tmp_path, make_hosts):
    shared = tmp_path / "shared"
    shared.mkdir()
    config = shared / "config.py"
    config.write_text(CONFIG)
    token = secrets.token_hex(16)
    with contextlib.ExitStack() as stack:
        one, other = stack.enter_context(make_hosts())
        packets = []
        for host in (one, other):
            if host.prefix:
                packets.append(tmp_path / f"{host.address}.packets")
                stack.enter_context(captured(host, packets[-1]))
        machines = stack.enter_context(contextlib.closing(Machines(f"{config}.pkl", tmp_path)))
        places = ["-cdh", one.address, "-lh", other.address, "-clh", f"{one.address},{other.address}"]
        ports = ["-cdp", PORTS["coordinator"], "-lp", PORTS["learner0"]]
        ports += ["-clp", f"{PORTS['collector0']},{PORTS['collector1']}"]
        command = ["-m", "dist", "-M", "config", "-c", config, "--train-iter", 4000, *places, *ports]
        prepared = printed("-m", "ding.entry.cli", *command, cwd=shared)
        place = f"{other.address} (port {PORTS['collector1']})"
        assert f"at {place}: ding -m dist -M collector --module-name collector1" in prepared

        if one.prefix:
            status, output = machines.run_on(one, "collector", "--module-name", "collector0", token=None)
            assert status == 1 and "which needs a token" in output

        workers = {
            "learner0": machines.start_on(other, "learner", token=token),
            "collector0": machines.start_on(one, "collector", "--module-name", "collector0", token=token),
            "collector1": machines.start_on(other, "collector", "--module-name", "collector1", token=token),
        }
        for name, process in workers.items():
            assert first_line(process, DEADLINE_S) == f"{name} accepts tasks at port {PORTS[name]}.\n"

        status, output = machines.run_on(one, "coordinator", token="another")
        reason = "do both have the same token?" if one.prefix else "The token of the run is missing or wrong"
        assert status == 1 and reason in output

        status, output = machines.run_on(one, "coordinator", token=token)
        assert status == 0, output
        for name, process in workers.items():
            output = process.communicate(timeout=DEADLINE_S)[0]
            assert (process.returncode, output) == (0, f"{name} ends: its coordinator is gone.\n")

    with open(tmp_path / f"host_{one.address}" / "two_hosts" / "result.pkl", "rb") as f:
        result = pickle.load(f)
    assert result["stop"] and result["eval_value"] >= 60
    assert any((tmp_path / f"host_{other.address}" / "two_hosts" / "ckpt").iterdir())
    weights = [name for name in os.listdir(shared / "two_hosts" / "policy") if not name.startswith(".")]
    assert sorted(name.split("_")[0] for name in weights) == ["evaluated", "policy"]
    for file in packets:
        sent = file.read_bytes()
        assert len(sent) > 100_000 and b"HTTP/1.1" not in sent and token.encode() not in sent
