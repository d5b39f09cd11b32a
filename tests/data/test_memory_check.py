"""What items take, and the warning before a buffer outgrows the memory."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ding.data.buffer import DequeBuffer, DequeBufferWrapper
from ding.data.buffer_interface import MemoryCheck, memory_of
from ding.utils.data.samples import Samples, Table
from ding.worker.replay_buffer import create_buffer

KIB = 1024
ARRAY_HEADER = range(100, 200)
TENSOR_HEADER = range(300, 600)


def free_memory(monkeypatch, size: int) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=size))


def image() -> torch.Tensor:
    return torch.zeros(4, 16, 16, dtype=torch.uint8)  # 1 KiB


def transitions(count: int) -> list[dict]:
    frames = [image() for _ in range(count + 1)]
    return [{"obs": frames[i], "next_obs": frames[i + 1], "done": False} for i in range(count)]


def host(*items: object) -> int:
    return memory_of(items)["cpu"]


def test_arrays_and_tensors_count_their_elements_and_a_little_more():
    assert host(np.zeros(1000)) - 8000 in ARRAY_HEADER
    assert host(torch.zeros(1000)) - 4000 in TENSOR_HEADER
    assert host(np.zeros((0, 3))) in ARRAY_HEADER and host(torch.zeros(0)) in TENSOR_HEADER


def test_an_object_that_is_there_several_times_counts_once():
    shared = [image(), image()]
    assert host(shared, shared, {"again": shared[0]}) < host(shared) + 300


def test_samples_take_what_their_columns_take():
    samples = Samples(Table.of([{"obs": np.zeros(100), "done": False, "name": "x" * 1000} for _ in range(10)]))
    assert host(samples) - 10 * 801 in range(1000, 1500)
    assert samples.table is not None


def test_nested_containers_are_looked_into():
    nested = {"obs": {"image": image(), "vector": (np.zeros(1000), [1.5, None])}, "steps": [{"a": torch.zeros(1000)}]}
    assert 13 * KIB < host(nested) < 15.5 * KIB
    objects = np.array([np.zeros(1000), None], dtype=object)
    assert 8000 < host(objects) < 8500


def test_a_structure_that_contains_itself_ends():
    item: dict = {"obs": image()}
    item["itself"] = item
    assert KIB < host(item) < 2 * KIB


def test_other_devices_are_told_apart():
    sizes = memory_of([torch.zeros(1000, device="meta"), torch.zeros(1000)])
    assert set(sizes) == {"cpu", "meta"} and 4000 < sizes["cpu"] < 5500
    sparse = torch.sparse_coo_tensor(torch.zeros(1, 1, dtype=torch.int64), torch.ones(1), (5,), check_invariants=True)
    assert memory_of([sparse])["cpu"] in TENSOR_HEADER


def test_the_warning_tells_sizes_and_a_capacity_that_fits(monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    free_memory(monkeypatch, 10 * 2**20)
    MemoryCheck(logging.getLogger("ding")).estimate(transitions(20), capacity=100_000)
    estimate, warning = caplog.records
    assert "a full buffer, 100000 items like the first 20, takes up to about" in estimate.message
    assert "only 10.0 MiB are free; reduce replay_buffer_size to about" in warning.message
    fits = int(warning.message.rpartition(" ")[2])
    assert 4500 < fits < 7500
    assert fits * host(*transitions(20)) / 20 == pytest.approx(10 * 2**20, rel=0.01)


def test_there_is_one_estimate_from_the_first_items(monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    free_memory(monkeypatch, 1)
    check = MemoryCheck(logging.getLogger("ding"))
    check.estimate([], 10)
    assert not check.is_done and not caplog.records
    check.estimate(transitions(1000), 10)
    check.estimate(transitions(3), 10)
    assert check.is_done and len(caplog.records) == 2
    assert "like the first 256" in caplog.text


def test_there_is_no_warning_where_it_fits(monkeypatch, caplog):
    free_memory(monkeypatch, 2**40)
    MemoryCheck(logging.getLogger("ding")).estimate(transitions(3), 10**6)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_memory_of_a_gpu_is_compared_with_what_is_free_there(monkeypatch, caplog):
    free_memory(monkeypatch, 2**40)
    monkeypatch.setattr("ding.data.buffer_interface.memory_of", lambda items: {"cpu": 5, "cuda:1": KIB, "meta": 2**50})
    free = {"cuda:1": 3 * 2**20}
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (free[device], 2**40))
    MemoryCheck(logging.getLogger("ding")).estimate([1], 2**22)
    (warning,) = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert warning == (
        "the buffer will not fit into memory of cuda:1: its 4194304 items take up to about 4.0 GiB, but only 3.0 MiB "
        "are free; reduce replay_buffer_size to about 3072"
    )


def test_free_is_what_the_machine_has_available_not_what_is_unused(monkeypatch, caplog):
    memory = SimpleNamespace(available=2**30, free=1, total=2**40)
    monkeypatch.setattr("psutil.virtual_memory", lambda: memory)
    for free, warns in ((2**30, False), (2**10, True)):
        memory.available = free
        MemoryCheck(logging.getLogger("ding")).estimate([torch.zeros(2**10)], 2**10)
        assert any("will not fit" in record.message for record in caplog.records) is warns


BUFFERS = ("naive", "sequence", "episode", "elastic", "advanced", "deque")


def made(name: str, size: int, folder: str) -> object:
    cfg = {"type": name, "replay_buffer_size": size}
    if name == "elastic":
        cfg["set_buffer_size"] = lambda envstep: 10
    return create_buffer(cfg, exp_name=folder, instance_name=name)


def warned(caplog) -> bool:
    return any("will not fit into memory" in record.message for record in caplog.records)


@pytest.mark.differs(
    "a buffer that outgrows the memory ends the process, hours later",
    "the first push estimates the full size, warns and names a capacity that fits",
)
@pytest.mark.parametrize("name", BUFFERS)
def test_every_buffer_warns_at_its_first_push(name, monkeypatch, caplog, tmp_path):
    monkeypatch.chdir(tmp_path)
    free_memory(monkeypatch, 2**20)
    data = [transitions(5), transitions(5)] if name == "episode" else transitions(10)
    small, big = made(name, 100, "small"), made(name, 10_000, "big")
    small.push(data, 0)
    assert not warned(caplog)
    big.push(data, 0)
    assert warned(caplog)
    caplog.clear()
    big.push(data, 0)
    assert not warned(caplog)
    for buffer in (small, big):
        buffer.close()


def test_a_single_item_is_enough(monkeypatch, caplog):
    free_memory(monkeypatch, 2**20)
    buffer = DequeBuffer(10_000)
    buffer.push(transitions(1)[0], meta={"episode": 1})
    assert warned(caplog)
    caplog.clear()
    DequeBufferWrapper({"replay_buffer_size": 10_000}).push(transitions(1)[0])
    assert warned(caplog)


def test_loading_a_file_is_a_first_push_too(monkeypatch, caplog, tmp_path):
    monkeypatch.chdir(tmp_path)
    with made("naive", 100, "one") as buffer, made("naive", 10_000, "other") as other:
        buffer.push(transitions(5), 0)
        buffer.save_data("data")
        free_memory(monkeypatch, 2**20)
        other.load_data("data")
    assert warned(caplog)
