import os

import pytest

from ding.league.base_league import copy_checkpoint
from tests.league.fakes import read, write


def test_a_copy_has_its_folder_made_and_replaces_what_was_there():
    write("source", "old")
    copy_checkpoint("source", "a/b/target")
    write("source", "new")
    assert read("a/b/target") == "old"
    copy_checkpoint("source", "a/b/target")
    assert read("a/b/target") == "new" and os.listdir("a/b") == ["target"]


def test_missing_weights_are_named():
    with pytest.raises(FileNotFoundError, match="nowhere"):
        copy_checkpoint("nowhere", "target")
    assert os.listdir() == []
