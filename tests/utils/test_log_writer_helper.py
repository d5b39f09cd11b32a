import concurrent.futures
import itertools
import multiprocessing
import os
import pathlib
import pickle
import struct
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest
import tensorboardX

from ding.utils import log_helper
from ding.utils.log_helper import DistributedWriter

ROOT = pathlib.Path(__file__).resolve().parents[2]


def events(folder):
    """(tag, step, value or kind) of every entry in the event files of `folder`, in order of the file names."""
    from tensorboardX.proto.event_pb2 import Event

    found = []
    for path in sorted(folder.rglob("events.out.tfevents.*")):
        data, position = path.read_bytes(), 0
        while position < len(data):
            (length,) = struct.unpack_from("<Q", data, position)
            event = Event.FromString(data[position + 12 : position + 12 + length])
            position += length + 16
            for value in event.summary.value:
                found.append((value.tag, event.step, value.simple_value))
    return found


def test_nothing_is_opened_or_imported_before_the_first_entry(tmp_path):
    writer = DistributedWriter(str(tmp_path / "tb"))
    writer.flush()
    writer.close()
    assert writer.logdir == str(tmp_path / "tb")
    assert list(tmp_path.iterdir()) == []


def test_entries_are_in_the_event_file_after_close(tmp_path):
    writer = DistributedWriter(str(tmp_path))
    writer.add_scalar("loss", 0.5, 1)
    writer.add_scalar("loss", np.float32(0.25), global_step=2)
    writer.close()
    assert events(tmp_path) == [("loss", 1, 0.5), ("loss", 2, 0.25)]


def test_no_thread_or_process_outlives_close(tmp_path):
    before = threading.enumerate(), multiprocessing.active_children()
    writer = DistributedWriter(str(tmp_path))
    for _ in range(20):
        writer.add_scalar("x", 1.0, 1)
        writer.add_scalars("group", {"a": 1.0}, 1)
        writer.close()
        assert (threading.enumerate(), multiprocessing.active_children()) == before


def test_more_entries_than_fit_into_the_queue_all_arrive_in_order(tmp_path):
    with DistributedWriter(str(tmp_path), max_queue=2) as writer:
        for step in range(50):
            writer.add_scalar("x", step, step)
    assert events(tmp_path) == [("x", step, step) for step in range(50)]


PROGRAM = """
import sys
from ding.utils.log_helper import DistributedWriter

writer = DistributedWriter(sys.argv[1])
writer.add_scalar("x", 1.0, 1)
"""


def test_a_writer_that_nobody_closes_is_closed_when_the_program_ends(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    program = [sys.executable, "-W", "error", "-c", PROGRAM, str(tmp_path)]
    result = subprocess.run(program, check=True, capture_output=True, text=True, env=environment)
    assert (result.stderr, events(tmp_path)) == ("", [("x", 1, 1.0)])


def test_writers_of_several_threads_come_and_go_without_each_other(tmp_path):
    def write(name):
        for step in range(20):
            with DistributedWriter(str(tmp_path / name)) as writer:
                writer.add_scalar("x", 1.0, step)
                writer.add_scalars("group", {"a": 1.0}, step)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(write, "abcdefgh"))
    assert len(events(tmp_path)) == 8 * 20 * 2


FULL_DISK = """
import resource, sys
from ding.utils import log_helper
from ding.utils.log_helper import DistributedWriter

resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))  # as a full disk
log_helper._MAX_WAITING = int(sys.argv[2])
writer = DistributedWriter(sys.argv[1], max_queue=10, flush_secs=0)
writer.add_scalar("before", 1.0, 0)
writer.flush()
for step in range(100):  # more than fit into the queue, and into a pipe
    writer.add_text("full", "x" * 2000, step)
writer.flush()
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
writer.add_scalar("after", 2.0, 0)
for _ in range(2):
    writer.flush()
    writer.close()
"""


@pytest.mark.differs(
    "a full disk ends the thread that writes TensorBoard's entries, and the process that logs after that waits forever",
    "it is logged once and ends nothing; the entries are written when there is room again",
)
@pytest.mark.parametrize(("max_waiting", "kept"), [(10**7, 100), (50_000, 0)])
def test_entries_that_cannot_be_written_hold_up_nothing_and_are_written_later(max_waiting, kept, tmp_path):
    program = [sys.executable, "-c", FULL_DISK, str(tmp_path), str(max_waiting)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(program, check=True, capture_output=True, text=True, env=environment, timeout=60)
    assert result.stderr.count("entries for TensorBoard are not written") == 1
    assert "File too large" in result.stderr and str(tmp_path) in result.stderr and "free some space" in result.stderr
    tags = [tag for tag, _, _ in events(tmp_path)]
    assert (tags[0], tags[-1]) == ("before", "after")
    assert len(tags) == 102 if kept else 2 <= len(tags) < 102


def test_files_of_one_second_are_read_in_the_order_in_which_they_were_opened(tmp_path, monkeypatch):
    monkeypatch.setattr(log_helper, "_file_numbers", itertools.count(9))
    for step in range(3):  # 10 stands before 9 in the order of the alphabet
        with DistributedWriter(str(tmp_path)) as writer:
            writer.add_scalar("x", 1.0, step)
    assert [step for _, step, _ in events(tmp_path)] == [0, 1, 2]


def test_a_folder_that_cannot_be_written_to_ends_nothing(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    with DistributedWriter(str(tmp_path / "file" / "tb")) as writer:
        for step in range(3):
            writer.add_scalar("x", 1.0, step)
            writer.flush()
    assert caplog.text.count("entries for TensorBoard are not written") == 1


def test_further_files_of_an_embedding_lie_in_the_folder(tmp_path):
    with DistributedWriter(str(tmp_path)) as writer:
        writer.add_embedding(np.zeros((2, 3)), global_step=1)
        writer.add_scalars("group", {"a": 1.0}, 5)
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"00001", "group"}
    assert len(list(tmp_path.rglob("00001/**/tensors.tsv"))) == 1


@pytest.mark.parametrize("given", [("tb", "", None, 5, 7, "_mine"), {"logdir": "tb", "filename_suffix": "_mine"}])
def test_arguments_of_the_caller_win_and_each_file_has_a_name_of_its_own(monkeypatch, given):
    made = []

    class Recorder:
        def __init__(
            self, logdir=None, comment="", purge_step=None, max_queue=10, flush_secs=120, filename_suffix="", **further
        ):
            made.append((logdir, max_queue, flush_secs, filename_suffix, further))

        def close(self):
            return

    monkeypatch.setattr("tensorboardX.SummaryWriter", Recorder)
    for _ in range(2):
        args, kwargs = (given, {}) if isinstance(given, tuple) else ((), given)
        with DistributedWriter(*args, **kwargs, verify=True) as writer:
            writer.initialize()
    queue, seconds = (5, 7) if isinstance(given, tuple) else (1000, 10)
    suffixes = [entry[3] for entry in made]
    assert made == [("ding-event-file:tb", queue, seconds, suffix, {"verify": True}) for suffix in suffixes]
    assert len(set(suffixes)) == 2 and all(suffix.endswith("_mine") for suffix in suffixes)


def test_other_kinds_of_entries_go_through_as_well(tmp_path):
    with DistributedWriter(logdir=str(tmp_path)) as writer:
        writer.add_histogram("actions", np.arange(10), 3)
        writer.add_text("note", "hello", 4)
        writer.add_scalars("group", {"a": 1.0}, 5)
    assert {(tag, step) for tag, step, _ in events(tmp_path)} >= {("actions", 3), ("note/text_summary", 4)}
    assert [step for tag, step, _ in events(tmp_path) if tag == "group"] == [5]


def test_flush_and_close_may_be_repeated_and_an_entry_after_close_opens_another_file(tmp_path):
    writer = DistributedWriter(str(tmp_path))
    for step in (1, 2):
        writer.add_scalar("x", 0.0, step)
        for _ in range(2):
            writer.flush()
            writer.close()
    assert len(list(tmp_path.iterdir())) == 2
    assert events(tmp_path) == [("x", 1, 0.0), ("x", 2, 0.0)]


@pytest.mark.differs("writers are cached by folder, so one owner closes another's", "each owner has its own writer")
def test_closing_one_writer_leaves_another_of_the_same_folder_open(tmp_path):
    one, two = DistributedWriter(str(tmp_path)), DistributedWriter(str(tmp_path))
    one.add_scalar("one", 0.0, 1)
    two.add_scalar("two", 0.0, 1)
    one.close()
    two.add_scalar("two", 0.0, 2)
    two.close()
    assert sorted(events(tmp_path)) == [("one", 1, 0.0), ("two", 1, 0.0), ("two", 2, 0.0)]


@pytest.mark.differs("every logged scalar stays in memory", "only in the event file")
def test_scalars_are_not_kept_in_memory(tmp_path):
    with DistributedWriter(str(tmp_path)) as writer:
        for step in range(10):
            writer.add_scalar("x", 0.0, step)
            writer.add_scalars("group", {"a": 0.0, "b": 1.0}, step)
        assert writer.scalar_dict == {}
        with pytest.raises(NotImplementedError, match="event file"):
            writer.export_scalars_to_json("x.json")


def test_initialize_opens_the_file_and_unknown_names_are_attribute_errors(tmp_path):
    with DistributedWriter(str(tmp_path)) as writer:
        writer.initialize()
        assert len(list(tmp_path.iterdir())) == 1
        for name in ("no_such_method", "_private"):
            with pytest.raises(AttributeError):
                getattr(writer, name)


def test_writing_to_disk_can_be_switched_off(tmp_path):
    with DistributedWriter(str(tmp_path), write_to_disk=False) as writer:
        writer.add_scalar("x", 0.0, 1)
    assert list(tmp_path.iterdir()) == []


def test_an_unpickled_writer_opens_its_own_file(tmp_path):
    writer = DistributedWriter(str(tmp_path))
    writer.add_scalar("x", 0.0, 1)
    with pickle.loads(pickle.dumps(writer)) as copy:
        copy.add_scalar("x", 0.0, 2)
    writer.close()
    assert len(list(tmp_path.iterdir())) == 2 and len(events(tmp_path)) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_writes_to_a_file_of_its_own(tmp_path):
    writer = DistributedWriter(str(tmp_path))
    writer.add_scalar("x", 0.0, 1)
    child = multiprocessing.get_context("fork").Process(target=write_and_close, args=(writer,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork while there are threads, since Python 3.12
        child.start()
    child.join(30)
    writer.add_scalar("x", 0.0, 3)
    writer.close()
    assert child.exitcode == 0 and len(list(tmp_path.iterdir())) == 2
    assert sorted(events(tmp_path)) == [("x", 1, 0.0), ("x", 2, 0.0), ("x", 3, 0.0)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("is_same", [True, False])
def test_a_process_forked_while_a_thread_opens_a_writer_can_write(tmp_path, monkeypatch, is_same):
    is_opening, may_open = threading.Event(), threading.Event()

    class Slow(tensorboardX.SummaryWriter):
        def __init__(self, *args, **kwargs):
            is_opening.set()
            assert may_open.wait(60)
            super().__init__(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(tensorboardX, "SummaryWriter", Slow)
        writer = DistributedWriter(str(tmp_path))
        opening = threading.Thread(target=writer.initialize)
        opening.start()
        assert is_opening.wait(60)
    of_child = writer if is_same else DistributedWriter(str(tmp_path))
    child = multiprocessing.get_context("fork").Process(target=write_and_close, args=(of_child,), daemon=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork while there are threads, since Python 3.12
        child.start()
    child.join(30)
    is_stuck = child.is_alive()
    child.kill()
    child.join()
    may_open.set()
    opening.join()
    writer.close()
    assert not is_stuck and events(tmp_path) == [("x", 2, 0.0)]


def write_and_close(writer):
    writer.flush()
    writer.add_scalar("x", 0.0, 2)
    writer.close()


def test_get_instance_without_arguments_is_the_root(tmp_path, monkeypatch):
    monkeypatch.setattr(DistributedWriter, "root", None)
    first = DistributedWriter.get_instance(str(tmp_path))
    second = DistributedWriter.get_instance(str(tmp_path))
    assert DistributedWriter.get_instance() is first and second is not first


class FakeRouter:
    def __init__(self, is_active=True):
        self.is_active, self.callbacks, self.peers = is_active, {}, []

    def on(self, event, fn):
        self.callbacks[event] = fn

    def emit(self, event, *args, **kwargs):
        for peer in self.peers:
            peer.callbacks[event](*args, **kwargs)


def test_writers_of_an_active_router_send_their_entries_to_the_one_that_writes(tmp_path):
    here, there = FakeRouter(), FakeRouter()
    here.peers = [there]
    remote = DistributedWriter(str(tmp_path / "remote")).plugin(there, is_writer=True)
    local = DistributedWriter(str(tmp_path / "local")).plugin(here)
    local.add_scalar("x", 1.0, global_step=1)
    local.add_text("note", "hello", 2)
    remote.add_scalar("x", 2.0, 3)
    remote.close()
    assert not (tmp_path / "local").exists()
    assert [(tag, step) for tag, step, _ in events(tmp_path)] == [("x", 1), ("note/text_summary", 2), ("x", 3)]


def test_only_entries_are_accepted_from_a_router(tmp_path):
    router = FakeRouter()
    writer = DistributedWriter(str(tmp_path)).plugin(router, is_writer=True)
    with pytest.raises(ValueError, match="'close' is not a method that adds"):
        router.callbacks["distributed_writer"]("close")
    writer.close()


def test_an_inactive_router_changes_nothing(tmp_path):
    with DistributedWriter(str(tmp_path)).plugin(FakeRouter(is_active=False)) as writer:
        writer.add_scalar("x", 1.0, 1)
    assert events(tmp_path) == [("x", 1, 1.0)]


def test_a_missing_tensorboardx_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ImportError, match="pip install tensorboardX"):
        DistributedWriter(str(tmp_path)).add_scalar("x", 1.0, 1)
