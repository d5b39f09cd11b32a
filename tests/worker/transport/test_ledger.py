import threading

from ding.worker.transport.ledger import ChunkLedger


def rows(*names):
    return [{"data_id": name} for name in names]


def test_a_chunk_is_deleted_when_its_last_use_has_ended():
    deleted = []
    ledger = ChunkLedger(deleted.append)
    ledger.add(rows("a", "a", "b"))
    ledger.add(rows("a"))  # a batch of it is on its way
    ledger.release(rows("a", "a"))
    assert deleted == [] and len(ledger) == 2
    ledger.release(rows("b", "a"))
    assert sorted(deleted) == ["a", "b"] and len(ledger) == 0


def test_samples_without_a_chunk_and_unknown_ones_are_passed_over():
    deleted = []
    ledger = ChunkLedger(deleted.append)
    ledger.add([{"obs": 1}, {"data_id": "a"}])
    ledger.release([{"obs": 1}, {"data_id": "x"}, None])
    assert deleted == [] and len(ledger) == 1


def test_clear_deletes_all():
    deleted = []
    ledger = ChunkLedger(deleted.append)
    ledger.add(rows("a", "a", "b"))
    ledger.clear()
    assert sorted(deleted) == ["a", "b"]
    ledger.release(rows("a"))
    assert sorted(deleted) == ["a", "b"]


def test_threads_that_add_and_release_delete_each_chunk_once():
    deleted = []
    ledger = ChunkLedger(deleted.append)
    ledger.add(rows(*(f"c{i}" for i in range(50) for _ in range(4))))
    threads = [threading.Thread(target=lambda: [ledger.release(rows(f"c{i}")) for i in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(deleted) == sorted(f"c{i}" for i in range(50))
