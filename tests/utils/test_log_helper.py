"""Text logs and TensorBoard files: their lines and entries, their ends, and disks that are full."""

import contextlib
import logging
import re
import resource
import struct
from typing import Any

import numpy as np
import pytest
import torch
from easydict import EasyDict

from ding.utils.log_helper import DistributedWriter, LoggerFactory, build_logger, only_shows, pretty_print, shown
from tests.programs import run_python


@pytest.fixture(autouse=True)
def parents_as_before():
    yield
    for name in ("learner_logger", "default_logger"):
        parent = logging.getLogger(name)
        parent.disabled = False
        parent.setLevel(logging.NOTSET)


def lines(path):
    return [re.sub(r"^\[[^\]]*\]", "", line) for line in path.read_text().splitlines()]


@pytest.mark.guarantees("interfaces")
def test_the_text_log_is_in_the_documented_file_and_has_the_documented_name(tmp_path):
    logger, tb_logger = build_logger(str(tmp_path / "log" / "learner"), "learner", need_tb=False)
    assert logger.name == "learner_logger" and tb_logger is None
    logger.info("one %d", 1)
    logger.debug("not shown")
    logger.warning("two")
    assert lines(tmp_path / "log" / "learner" / "learner_logger.txt") == ["[INFO] one 1", "[WARNING] two"]


def test_the_default_name_and_leaving_out_the_text_log(tmp_path):
    assert build_logger(str(tmp_path))[0].name == "default_logger"
    logger, tb_logger = build_logger(str(tmp_path), "x", need_text=False)
    assert logger is None and str(tb_logger.logdir).endswith("x_tb_logger")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["default_logger.txt"]


@pytest.mark.differs(
    "writes the lines of two loggers with the same name into the files of both",
    "writes those of each logger into its own file",
)
def test_two_experiments_with_one_instance_name_keep_their_texts_apart(tmp_path):
    first, _ = build_logger(str(tmp_path / "a"), "learner", need_tb=False)
    second, _ = build_logger(str(tmp_path / "b"), "learner", need_tb=False)
    first.info("to a")
    second.info("to b")
    assert lines(tmp_path / "a" / "learner_logger.txt") == ["[INFO] to a"]
    assert lines(tmp_path / "b" / "learner_logger.txt") == ["[INFO] to b"]


def test_a_record_that_cannot_be_written_is_reported_and_does_not_stop_the_program(tmp_path, caplog, monkeypatch):
    logger, _ = build_logger(str(tmp_path), "learner", need_tb=False)
    # pytest's own handler, which would raise, is further up.
    monkeypatch.setattr(logging.getLogger("learner_logger"), "propagate", False)
    for _ in range(2):
        logger.info("%d", "not a number")
    (message,) = caplog.messages
    assert "learner_logger.txt fails with TypeError: %d format" in message


@pytest.mark.guarantees("logs")
def test_a_text_log_that_cannot_be_opened_is_told_once_and_does_not_stop_the_program(tmp_path, caplog):
    (tmp_path / "log").write_text("a file in the place of the folder")
    for _ in range(2):  # as for each task of a worker
        logger, _ = build_logger(str(tmp_path / "log" / "learner"), "learner", need_tb=False)
        logger.info("hello")
    (message,) = (text for text in caplog.messages if text != "hello")
    assert "learner_logger.txt fails with NotADirectoryError" in message


def test_the_vertical_table_has_a_row_for_each_number(tmp_path):
    logger = LoggerFactory.create_logger(str(tmp_path), "learner")
    table = logger.get_tabulate_vars({"loss": 1.0, "lr": 0.00025, "t": torch.tensor(2.5), "n": np.int64(3)})
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("|")]
    assert rows == [["Name", "Value"], ["loss", "1"], ["lr", "0.00025"], ["t", "2.5"], ["n", "3"]]


def test_the_vertical_table_refuses_strings(tmp_path):
    logger = LoggerFactory.create_logger(str(tmp_path), "learner")
    for bad in ("text", [1.0], np.zeros(2)):
        with pytest.raises(ValueError, match="a = .* is not a number"):
            logger.get_tabulate_vars({"a": bad})


def test_the_horizontal_table_has_four_variables_in_a_group(tmp_path):
    logger = LoggerFactory.create_logger(str(tmp_path), "learner")
    table = logger.get_tabulate_vars_hor({"a": 1, "b": 2.5, "c": "text", "d": np.float32(4), "e": torch.tensor([5])})
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("|")]
    assert rows == [
        ["Name", "a", "b", "c", "d"],
        ["Value", "1.000000", "2.500000", "text", "4.000000"],
        ["Name", "e"],
        ["Value", "5.000000"],
    ]
    assert logger.get_tabulate_vars_hor({}) == ""


def test_pretty_print_is_yaml_without_the_top_level_nones(capsys):
    text = pretty_print(EasyDict(a=1, b=None, c={"d": [1, "x"], "e": None}))
    assert text == "a: 1\nc:\n  d:\n  - 1\n  - x\n  e: null\n"
    assert capsys.readouterr().out == text + "\n"
    assert pretty_print({"a": 1}, direct_print=False) == "a: 1\n" and capsys.readouterr().out == ""


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


@contextlib.contextmanager
def full_disk(size):
    """Let no file of this process become longer than `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


PROGRAM = """
import sys
from ding.utils.log_helper import DistributedWriter

writer = DistributedWriter(sys.argv[1])
writer.add_scalar("x", 1.0, 1)
"""


def test_a_writer_that_nobody_closes_is_closed_when_the_program_ends(tmp_path):
    result = run_python("-W", "error", "-c", PROGRAM, tmp_path)
    assert (result.stderr, events(tmp_path)) == ("", [("x", 1, 1.0)])


@pytest.mark.guarantees("logs")
def test_a_full_disk_switches_the_writer_off_with_one_warning(tmp_path, caplog):
    with DistributedWriter(str(tmp_path)) as writer:
        writer.add_scalar("before", 1.0, 0)
        writer.flush()
        with full_disk(1000):
            for step in range(1100):  # more than the queue of tensorboardX takes
                writer.add_text("full", "x" * 2000, step)
                writer.flush()
        writer.add_scalar("after", 2.0, 0)
    (message,) = caplog.messages
    assert str(tmp_path) in message and "File too large" in message
    tags = [tag for tag, _, _ in events(tmp_path)]
    assert tags[0] == "before" and "after" not in tags


def test_other_kinds_of_entries_go_through_as_well(tmp_path):
    with DistributedWriter(logdir=str(tmp_path)) as writer:
        writer.add_histogram("actions", np.arange(10), 3)
        writer.add_text("note", "hello", 4)
        writer.add_scalars("group", {"a": 1.0}, 5)
    assert {(tag, step) for tag, step, _ in events(tmp_path)} >= {("actions", 3), ("note/text_summary", 4)}
    assert [step for tag, step, _ in events(tmp_path) if tag == "group"] == [5]


def test_writing_to_disk_can_be_switched_off(tmp_path):
    with DistributedWriter(str(tmp_path), write_to_disk=False) as writer:
        writer.add_scalar("x", 0.0, 1)
    assert list(tmp_path.iterdir()) == []


def test_get_instance_without_arguments_is_the_root(tmp_path, monkeypatch):
    monkeypatch.setattr(DistributedWriter, "root", None)
    first = DistributedWriter.get_instance(str(tmp_path))
    second = DistributedWriter.get_instance(str(tmp_path))
    assert DistributedWriter.get_instance() is first and second is not first


# What is only for showing: its failures are told once, and end nothing.


class Unready:
    """Like an env whose `__repr__` reads what only `reset` sets."""

    def __repr__(self) -> str:
        return f"Unready({self.inner})"  # type: ignore[attr-defined]


@pytest.mark.parametrize("text_of", [repr, str])
def test_an_object_that_cannot_be_shown_is_named_by_its_class(text_of: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert [shown(Unready(), text_of), shown(Unready())] == ["<Unready>", "<Unready>"]
    (message,) = caplog.messages
    assert "Unready" in message and "AttributeError" in message


def test_each_cause_is_told_once_for_each_set_of_what_was_told(caplog: pytest.LogCaptureFixture) -> None:
    own: set[str] = set()
    for told in (None, None, own, own):
        for what in ("one", "other"):
            with only_shows(what, told):
                raise OSError("disk\nfull")
    assert [message.split(";")[0] for message in caplog.messages] == [
        *("one fails with OSError: disk full", "other fails with OSError: disk full") * 2
    ]
    assert all(record.levelno == logging.WARNING for record in caplog.records)
