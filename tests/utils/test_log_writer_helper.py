import gc
import multiprocessing
import pickle
import struct
import sys
import threading

import numpy as np
import pytest
from tensorboardX import SummaryWriter

from ding.utils import log_writer_helper
from ding.utils.log_writer_helper import DistributedWriter


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
    assert writer._summary is None and list(tmp_path.iterdir()) == []


def test_entries_are_in_the_event_file_at_once(tmp_path):
    writer = DistributedWriter(str(tmp_path))
    writer.add_scalar("loss", 0.5, 1)
    writer.add_scalar("loss", np.float32(0.25), global_step=2)
    assert events(tmp_path) == [("loss", 1, 0.5), ("loss", 2, 0.25)]
    writer.close()


def test_the_event_file_is_what_tensorboardx_itself_writes(tmp_path):
    with DistributedWriter(str(tmp_path / "ours")) as ours, SummaryWriter(str(tmp_path / "theirs")) as theirs:
        for writer in (ours, theirs):
            writer.add_scalar("loss", 0.5, 7, walltime=123.0)
    records = []
    for folder in ("ours", "theirs"):
        (path,) = (tmp_path / folder).iterdir()
        data = path.read_bytes()
        # The first record differs in the time of opening.
        (length,) = struct.unpack_from("<Q", data)
        records.append((length, data[length + 16 :]))
    assert records[0] == records[1] and len(records[0][1]) > 16


def test_a_writer_that_nobody_closes_is_closed_when_it_goes(tmp_path, recwarn):
    writer = DistributedWriter(str(tmp_path))
    writer.add_scalar("x", 1.0, 1)
    del writer
    gc.collect()
    assert not recwarn.list and events(tmp_path) == [("x", 1, 1.0)]


def test_remote_folders_are_left_to_tensorboardx(monkeypatch):
    asked = []
    writer = DistributedWriter("s3://bucket/tb")
    monkeypatch.setattr(SummaryWriter, "_get_file_writer", lambda self: asked.append(self.logdir))
    writer.initialize()
    assert asked == ["s3://bucket/tb"]
    writer.close()


def test_other_kinds_of_entries_go_through_as_well(tmp_path):
    with DistributedWriter(logdir=str(tmp_path)) as writer:
        writer.add_histogram("actions", np.arange(10), 3)
        writer.add_text("note", "hello", 4)
        writer.add_scalars("group", {"a": 1.0}, 5)
    assert {(tag, step) for tag, step, _ in events(tmp_path)} >= {("actions", 3), ("note/text_summary", 4)}
    assert [step for tag, step, _ in events(tmp_path) if tag == "group"] == [5]


def test_no_thread_or_process_writes_in_the_background(tmp_path):
    before = threading.enumerate(), multiprocessing.active_children()
    writer = DistributedWriter(str(tmp_path))
    writer.add_scalar("x", 1.0, 1)
    assert (threading.enumerate(), multiprocessing.active_children()) == before
    writer.close()
    assert (threading.enumerate(), multiprocessing.active_children()) == before


def test_flush_and_close_may_be_repeated_and_an_entry_after_close_opens_another_file(tmp_path):
    writer = DistributedWriter(str(tmp_path))
    for step in (1, 2):
        writer.add_scalar("x", 0.0, step)
        for _ in range(2):
            writer.flush()
            writer.close()
    assert len(list(tmp_path.iterdir())) == 2
    assert events(tmp_path) == [("x", 1, 0.0), ("x", 2, 0.0)]


def test_closing_one_writer_leaves_another_of_the_same_folder_open(tmp_path):
    one, two = DistributedWriter(str(tmp_path)), DistributedWriter(str(tmp_path))
    one.add_scalar("one", 0.0, 1)
    two.add_scalar("two", 0.0, 1)
    one.close()
    two.add_scalar("two", 0.0, 2)
    two.close()
    assert sorted(events(tmp_path)) == [("one", 1, 0.0), ("two", 1, 0.0), ("two", 2, 0.0)]


def test_scalars_are_not_kept_in_memory(tmp_path):
    with DistributedWriter(str(tmp_path)) as writer:
        for step in range(10):
            writer.add_scalar("x", 0.0, step)
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


def test_after_a_fork_the_child_opens_its_own_file(tmp_path, monkeypatch):
    writer = DistributedWriter(str(tmp_path))
    writer.add_scalar("x", 0.0, 1)
    parents_file = writer._summary
    pid = log_writer_helper.os.getpid()
    monkeypatch.setattr(log_writer_helper.os, "getpid", lambda: pid + 1)
    writer.flush()
    writer.add_scalar("x", 0.0, 2)
    writer.close()
    parents_file.close()
    assert len(list(tmp_path.iterdir())) == 2 and sorted(events(tmp_path)) == [("x", 1, 0.0), ("x", 2, 0.0)]


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
    log_writer_helper._summary_writer_class.cache_clear()
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ImportError, match="pip install tensorboardX"):
        DistributedWriter(str(tmp_path)).add_scalar("x", 1.0, 1)
