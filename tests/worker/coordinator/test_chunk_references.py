import threading

from ding.worker.coordinator.buffer_set import ChunkReferences


def rows(*names):
    return [{"data_id": name} for name in names]


def test_a_chunk_is_deleted_when_its_last_use_has_ended():
    deleted = []
    references = ChunkReferences(deleted.extend)
    references.add(rows("a", "a", "b"))
    references.add(rows("a"))  # a batch of it is on its way
    references.release(["a", "a"])
    assert deleted == [] and "a" in references and "b" in references
    references.release(["b", "a"])
    assert sorted(deleted) == ["a", "b"] and "a" not in references and "b" not in references


def test_threads_that_add_and_release_delete_each_chunk_once():
    deleted = []
    references = ChunkReferences(deleted.extend)
    references.add(rows(*(f"c{i}" for i in range(50) for _ in range(4))))
    threads = [threading.Thread(target=lambda: [references.release([f"c{i}"]) for i in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(deleted) == sorted(f"c{i}" for i in range(50))
