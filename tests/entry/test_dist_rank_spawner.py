"""The ranks of a learner on one machine: what they are told, and that the end of one is the end of all."""

import multiprocessing
import os
import signal
import sys
from multiprocessing.connection import wait

import pytest

from ding.entry import dist_entry
from ding.entry.dist_entry import spawn_ranks

# Each rank says where it is. Then it ends as `ends` says, once the others have opened the pipe `ready`; or waits.
RANK = """
import os, signal, sys
rank = os.environ["RANK"]
with open(f"rank{rank}", "w") as f:
    places = [os.environ.get(name, "-") for name in ("LOCAL_RANK", "WORLD_SIZE", "SLURM_LOCALID")]
    f.write(" ".join([*places, *sys.argv[1:]]))
ends = {ends!r}
if rank not in ends:
    with open("pid", "w") as f:
        f.write(str(os.getpid()))
    {before}
    if os.path.exists("ready"):
        open("ready", "w").close()
    signal.pause()
if os.path.exists("ready"):
    open("ready").close()
os.kill(os.getpid(), -ends[rank]) if ends[rank] < 0 else sys.exit(ends[rank])
"""


def command(ends, before="pass"):
    with open("rank.py", "w") as f:
        f.write(RANK.replace("{ends!r}", repr(ends)).replace("{before}", before))
    return [sys.executable, "-S", "-E", "rank.py"]


def told(rank):
    with open(f"rank{rank}") as f:
        return f.read().split()


def waiting_rank_is_running():
    with open("pid") as f:
        pid = f.read()
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_learner_of_one_rank_is_the_default():
    spawn_ranks(["-x"], command({"0": 0}))
    assert told(0) == ["0", "1", "-", "-x"]


def test_the_ranks_are_told_where_they_are(monkeypatch):
    for name, value in (("LOCAL_WORLD_SIZE", 2), ("START_RANK", 2), ("WORLD_SIZE", 6), ("SLURM_LOCALID", 9)):
        monkeypatch.setenv(name, str(value))
    spawn_ranks([], command({"2": 0, "3": 0}))
    assert (told(2), told(3)) == (["0", "6", "-"], ["1", "6", "-"])


@pytest.mark.parametrize(("status", "how"), [(3, "exit code 3"), (-signal.SIGKILL, "signal 9")])
def test_a_rank_that_fails_ends_the_others(monkeypatch, status, how):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    os.mkfifo("ready")
    with pytest.raises(RuntimeError, match=f"rank 1 has ended with {how}"):
        spawn_ranks([], command({"1": status}))
    assert not waiting_rank_is_running()


def test_a_rank_that_does_not_end_is_killed(monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setattr(dist_entry, "_END_S", 0.1)
    os.mkfifo("ready")
    with pytest.raises(RuntimeError, match="rank 1"):
        spawn_ranks([], command({"1": 3}, before="signal.signal(signal.SIGTERM, signal.SIG_IGN)"))
    assert not waiting_rank_is_running()


def test_a_signal_ends_the_ranks_too():
    with pytest.raises(SystemExit) as ended:
        spawn_ranks([], command({}, before="os.kill(os.getppid(), signal.SIGTERM)"))
    assert ended.value.code == 130
    assert not waiting_rank_is_running()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel does not tell of the death of a parent")
def test_ranks_end_when_the_process_that_started_them_is_killed():
    os.mkfifo("ready")
    spawner = multiprocessing.get_context("fork").Process(target=spawn_ranks, args=([], command({})))
    spawner.start()
    open("ready").close()
    with open("pid") as f:
        rank = os.pidfd_open(int(f.read()))
    spawner.kill()
    spawner.join()
    assert wait([rank], 30) == [rank]
    os.close(rank)
