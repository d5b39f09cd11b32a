"""Files of `torch.save`, read by our own reader: equal to what was written, whoever reads them."""

import collections
import io
import pickle
import random
import zipfile

import numpy as np
import pytest
import torch

from ding.utils.file_helper import file_content
from ding.utils.torch_file import UnknownContent, load_archive

BASE = torch.arange(10.0)
VALUES = {
    "numbers": (1, -5, 2**40, 2**70, 2.5, None, True, 1j),
    "text": ["ä", "x" * 300, b"bytes", bytearray(b"more")],
    "containers": [{"a": {"b": []}}, (), (1,), {1, 2}, frozenset([3]), collections.Counter("aab")],
    "keys": [{((1, "a"), (2, (b"b", None))): 3}, {(1, (2,)), (3, frozenset([4]))}],
    "long list": list(range(3000)),
    "ordered": collections.OrderedDict(b=1, a=2),
    "dtypes": [torch.tensor([1, 0], dtype=dtype) for dtype in (torch.int8, torch.uint8, torch.bool, torch.float16)],
    "new dtypes": [torch.ones(2, dtype=torch.bfloat16), torch.ones(2, dtype=torch.uint16), torch.ones(2) * 1j],
    "shapes": [torch.tensor(1.5), torch.zeros(0, 3), torch.arange(6).reshape(2, 3).T, torch.zeros(1).expand(5)],
    "empty shapes": [torch.zeros(4, 0)[2:], torch.arange(4.0)[4:]],
    "gradients": torch.ones(2, requires_grad=True),
    "parameters": torch.nn.Parameter(torch.ones(2), requires_grad=False),
    "sizes": [torch.Size([1, 2]), torch.device("cpu"), torch.float32],
    "arrays": [np.arange(6.0).reshape(2, 3), np.asfortranarray(np.ones((2, 3))), np.zeros((0, 3)), np.array(3)],
    "odd arrays": [np.array([True, False]), np.array(["ab", "c"]), np.array([1, "a", None], dtype=object)],
    "scalars": [np.float32(3), np.int64(4), np.bool_(True)],
}


def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    return file


def assert_same(one, other):
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        one, other = list(one.values()), list(other.values())
    if isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            assert_same(*pair)
    elif isinstance(one, torch.Tensor):
        assert (one.dtype, one.shape, one.stride(), one.requires_grad) == (
            *(other.dtype, other.shape, other.stride(), other.requires_grad),
        )
        assert torch.equal(one, other)
    elif isinstance(one, np.ndarray):
        assert (one.dtype, one.shape, one.flags.f_contiguous) == (other.dtype, other.shape, other.flags.f_contiguous)
        assert one.flags.writeable and (one == other).all()
    else:
        assert one == other


@pytest.mark.parametrize("name", VALUES)
def test_what_was_saved_is_read(name):
    assert_same(load_archive(saved(VALUES[name])), VALUES[name])


def test_the_state_of_a_module_and_its_optimizer_is_read_with_its_metadata():
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.rand(3, 4)).sum().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    loaded = load_archive(saved(state))
    assert_same(loaded, state)
    assert loaded["model"]._metadata == state["model"]._metadata
    optimizer.load_state_dict(loaded["optimizer"])


def test_tensors_that_share_memory_share_it_when_they_are_read():
    whole, part = load_archive(saved([BASE, BASE[2:5]]))
    part += 100
    assert whole.tolist() == [0, 1, 102, 103, 104, 5, 6, 7, 8, 9]


def test_an_object_that_is_saved_twice_is_read_once():
    array = np.ones(3)
    first, second = load_archive(saved([array, array]))
    assert first is second


class Own:
    pass


@pytest.mark.parametrize(
    "value", [Own(), Own, [np.ndarray], {"a": np.dtype}, torch.ones(2).to_sparse(), np.array(["2026-01-01"], "M8[s]")]
)
def test_other_objects_are_unknown(value):
    with pytest.raises(UnknownContent):
        load_archive(saved(value))


def test_sparse_tensors_are_read_by_torch_where_its_reader_may_be_used():
    assert file_content(saved(torch.ones(2).to_sparse()).getvalue(), "data").to_dense().tolist() == [1.0, 1.0]


@pytest.mark.parametrize("data", [b"", b"no archive", b"PK\x03\x04"])
def test_what_is_no_archive_is_unknown(data):
    with pytest.raises(UnknownContent, match="not an archive of torch.save"):
        load_archive(io.BytesIO(data))


def test_the_structure_may_be_limited():
    file = saved(["x" * 10_000])
    assert load_archive(file, 20_000) == ["x" * 10_000]
    with pytest.raises(pickle.UnpicklingError, match=r"data.pkl has \d+ bytes, more than 5000"):
        load_archive(file, 5000)


@pytest.mark.parametrize(
    ("value", "old", "new"),
    [
        (np.array(["a"]), b"U1", b"m8[s/0]"),
        (np.array(["a"]), b"U1", b"V4"),
        (np.array(["a"]), b"a\x00\x00\x00", "\xff\xff\xff\xff".encode()),
        (np.str_("a"), b"a\x00\x00\x00", "\xff\xff\xff\xff".encode()),
    ],
)
def test_dtypes_and_text_that_numpy_does_not_write_are_refused(value, old, new):
    old, new = (len(text).to_bytes(4, "little") + text for text in (old, new))
    file = io.BytesIO()
    with zipfile.ZipFile(saved(value)) as source, zipfile.ZipFile(file, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            assert content.count(old) == name.endswith("data.pkl")
            target.writestr(name, content.replace(old, new))
    with pytest.raises(pickle.UnpicklingError):
        load_archive(file)


@pytest.mark.parametrize("seed", range(8))
def test_a_damaged_archive_is_an_error_or_other_values_and_nothing_else(seed):
    rng, damaged = random.Random(seed), 0
    with zipfile.ZipFile(saved(VALUES)) as source:
        records = {name: source.read(name) for name in source.namelist()}
    for _ in range(40):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as target:
            for name, content in records.items():
                changed = bytearray(content)
                if name.endswith("data.pkl"):
                    for _ in range(rng.randint(1, 4)):
                        start = rng.randrange(len(changed))
                        changed[start : start + rng.randint(0, 3)] = rng.randbytes(rng.randint(0, 3))
                target.writestr(name, bytes(changed))
        try:
            load_archive(file)
        except pickle.UnpicklingError:
            damaged += 1
    assert damaged > 10
