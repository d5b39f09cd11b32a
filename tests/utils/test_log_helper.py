import copy
import gc
import logging
import pickle
import re

import numpy as np
import pytest
import torch
from easydict import EasyDict

from ding.utils.log_helper import LoggerFactory, TBLoggerFactory, build_logger, pretty_print


@pytest.fixture(autouse=True)
def parents_as_before():
    yield
    for name in ("learner_logger", "default_logger"):
        parent = logging.getLogger(name)
        parent.disabled = False
        parent.setLevel(logging.NOTSET)


def lines(path):
    return [re.sub(r"^\[[^\]]*\]", "", line) for line in path.read_text().splitlines()]


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


def test_the_level_can_be_given(tmp_path):
    logger, _ = build_logger(str(tmp_path), "learner", need_tb=False, text_level=logging.DEBUG)
    logger.debug("shown")
    assert lines(tmp_path / "learner_logger.txt") == ["[DEBUG] shown"]


@pytest.mark.differs("loggers of one name share all their files", "each logger writes only its own file")
def test_two_experiments_with_one_instance_name_keep_their_texts_apart(tmp_path):
    first, _ = build_logger(str(tmp_path / "a"), "learner", need_tb=False)
    second, _ = build_logger(str(tmp_path / "b"), "learner", need_tb=False)
    first.info("to a")
    second.info("to b")
    assert lines(tmp_path / "a" / "learner_logger.txt") == ["[INFO] to a"]
    assert lines(tmp_path / "b" / "learner_logger.txt") == ["[INFO] to b"]


def test_a_second_logger_for_one_file_appends_each_line_once(tmp_path):
    for text in ("first", "second"):
        build_logger(str(tmp_path), "learner", need_tb=False)[0].info(text)
    assert lines(tmp_path / "learner_logger.txt") == ["[INFO] first", "[INFO] second"]


def test_the_python_logger_of_that_name_silences_all_of_them(tmp_path):
    logger, _ = build_logger(str(tmp_path), "learner", need_tb=False)
    parent = logging.getLogger("learner_logger")
    parent.disabled = True
    logger.error("silent")
    assert logger.disabled
    parent.disabled = False
    parent.setLevel(logging.ERROR)
    logger.info("silent")
    logger.error("loud")
    logging.disable(logging.ERROR)
    logger.error("silent")
    logging.disable(logging.NOTSET)
    logger.disabled = True
    logger.error("silent")
    assert lines(tmp_path / "learner_logger.txt") == ["[ERROR] loud"]


def test_handlers_of_the_python_logger_see_the_records(tmp_path, caplog):
    logger, _ = build_logger(str(tmp_path), "learner", need_tb=False)
    with caplog.at_level(logging.INFO):
        logger.info("seen")
    assert [(record.name, record.message) for record in caplog.records] == [("learner_logger", "seen")]


def test_no_file_stays_open_and_a_relative_path_is_fixed_at_the_start(tmp_path, monkeypatch, recwarn):
    monkeypatch.chdir(tmp_path)
    logger, _ = build_logger("./exp/log", "learner", need_tb=False)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    logger.info("text")
    del logger
    gc.collect()
    assert not recwarn.list
    assert lines(tmp_path / "exp" / "log" / "learner_logger.txt") == ["[INFO] text"]


def test_a_folder_removed_in_between_is_made_again(tmp_path):
    logger, _ = build_logger(str(tmp_path / "log"), "learner", need_tb=False)
    (tmp_path / "log" / "learner_logger.txt").unlink()
    (tmp_path / "log").rmdir()
    logger.info("text")
    assert lines(tmp_path / "log" / "learner_logger.txt") == ["[INFO] text"]


def test_a_record_that_cannot_be_written_is_reported_and_does_not_stop_the_program(tmp_path, caplog, monkeypatch):
    logger, _ = build_logger(str(tmp_path), "learner", need_tb=False)
    # pytest's own handler, which would raise, is further up.
    monkeypatch.setattr(logging.getLogger("learner_logger"), "propagate", False)
    for _ in range(2):
        logger.info("%d", "not a number")
    (message,) = caplog.messages
    assert "learner_logger.txt fails with TypeError: %d format" in message


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda logger: pickle.loads(pickle.dumps(logger))])
def test_a_copied_logger_writes_to_the_same_file(tmp_path, duplicate):
    logger, _ = build_logger(str(tmp_path), "learner", need_tb=False)
    duplicate(logger).info("copied")
    assert lines(tmp_path / "learner_logger.txt") == ["[INFO] copied"]


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


def test_the_tensorboard_factory_makes_a_writer_of_its_own_each_time(tmp_path):
    one, two = (TBLoggerFactory.create_logger(str(tmp_path / "tb")) for _ in range(2))
    assert one is not two and not (tmp_path / "tb").exists()


def test_pretty_print_is_yaml_without_the_top_level_nones(capsys):
    text = pretty_print(EasyDict(a=1, b=None, c={"d": [1, "x"], "e": None}))
    assert text == "a: 1\nc:\n  d:\n  - 1\n  - x\n  e: null\n"
    assert capsys.readouterr().out == text + "\n"
    assert pretty_print({"a": 1}, direct_print=False) == "a: 1\n" and capsys.readouterr().out == ""


def test_pretty_print_refuses_what_is_not_json():
    with pytest.raises(TypeError):
        pretty_print({"a": object()}, direct_print=False)
