"""Arrays in shared memory."""

import importlib
import multiprocessing

import numpy as np
import pytest

from ding.utils.shm_buffer import ShmBuffer, ShmBufferContainer

DTYPES = [
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    "float16",
    "float32",
    "float64",
    ">f4",
    "U3",
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_filled_in_comes_out_in_a_copy(dtype):
    buffer = ShmBuffer(np.dtype(dtype), (2, 3))
    data = np.arange(6).reshape(2, 3).astype(dtype)
    buffer.fill(data)
    seen = buffer.get()
    assert (seen.dtype, seen.tolist()) == (np.dtype(dtype), data.tolist())
    buffer.fill(np.zeros_like(data))
    assert seen.tolist() == data.tolist()


def test_without_copy_on_get_it_is_the_memory_itself():
    buffer = ShmBuffer(np.float32, (2,), copy_on_get=False)
    seen = buffer.get()
    buffer.fill(np.array([1, 2], np.float32))
    assert seen.tolist() == [1, 2]


@pytest.mark.parametrize("data", [[1.0, 2.0], None, np.zeros(3), np.zeros((2, 1)), np.float32(1)])
def test_only_arrays_of_its_shape_are_filled_in(data):
    with pytest.raises(AssertionError, match=r"shape \(2,\)"):
        ShmBuffer(np.float64, (2,)).fill(data)


def _double(buffer):
    buffer.fill(buffer.get() * 2)


def test_a_child_writes_into_the_same_memory():
    buffer = ShmBuffer(np.int64, (2,))
    buffer.fill(np.array([3, 4]))
    process = multiprocessing.get_context("forkserver").Process(target=_double, args=(buffer,))
    process.start()
    process.join(60)
    assert buffer.get().tolist() == [6, 8]


def test_a_container_is_nested_as_its_shape():
    container = ShmBufferContainer({"a": np.int64, "b": {"c": bool}}, {"a": (2,), "b": {"c": ()}})
    data = {"a": np.array([1, 2]), "b": {"c": np.array(True)}}
    container.fill(data)
    assert container.get() == {"a": pytest.approx(data["a"]), "b": {"c": np.array(True)}}
    one = ShmBufferContainer(np.float32, {"a": (1,), "b": [1]}, copy_on_get=False)
    seen = one.get()
    one.fill({"a": np.ones(1), "b": np.ones(1) * 2})
    assert (seen["a"].tolist(), seen["b"].tolist()) == ([1], [2])
    plain = ShmBufferContainer(np.float32, (2,))
    plain.fill(np.ones(2))
    assert plain.get().tolist() == [1, 1]


def test_the_buffers_are_where_di_engine_has_them():
    module = importlib.import_module("ding.data.shm_buffer")
    assert module.ShmBuffer is ShmBuffer and module.ShmBufferContainer is ShmBufferContainer
