"""What is in a store, and which chunks a ledger knows."""

import os

import pytest

from ding.worker.transport.stores import FolderSampleStore, MemorySampleStore, forget_memory_stores


@pytest.mark.parametrize("make", [FolderSampleStore, MemorySampleStore])
def test_a_store_tells_what_is_in_it(make, tmp_path):
    store = make(str(tmp_path / "data"))
    assert store.names() == set()
    for name in ("a", "b", "c"):
        store.write(name, b"content")
    store.delete("b")
    assert store.names() == {"a", "c"}
    forget_memory_stores(store.root)


def test_of_a_folder_only_plain_files_count_that_are_whole(tmp_path):
    store = FolderSampleStore(str(tmp_path))
    store.write("a", b"")
    (tmp_path / ".b.tmp").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    os.symlink(tmp_path / "a", tmp_path / "link")
    assert store.names() == {"a"}
