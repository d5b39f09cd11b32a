"""What somebody who may write into the folders of samples and weights can do to their readers, and what not."""

import io
import os
import pathlib
import pickle
import tracemalloc
import zipfile
import zlib

import lz4.block
import numpy as np
import pytest
import torch

from ding.utils.msgpack_helper import pack, unpack
from ding.worker.learner.comm.chunk_source import ChunkReader, ChunkSource
from ding.worker.learner.comm.resume import newest_first
from ding.worker.transport.chunk import decode_chunk, encode_chunk
from ding.worker.transport.stores import FolderPolicyStore, FolderSampleStore

LIMIT = 2**20


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "folder"


@pytest.fixture
def reader(folder):
    """A reader of samples, with small limits."""
    store = FolderSampleStore(str(folder))
    store.limit_bytes = LIMIT
    return ChunkReader(store, budget_bytes=LIMIT, chunk_bytes=LIMIT)


@pytest.fixture
def policies(folder):
    store = FolderPolicyStore(str(folder))
    store.limit_bytes = 2**24
    return store


def meta(name, compressor="none", index=0):
    return {"data_id": name, "data_index": index, "compressor": compressor}


class Peak:
    """The most memory, in bytes, that Python and numpy have allocated in the block."""

    def __enter__(self):
        tracemalloc.start()
        return self

    def __exit__(self, *_):
        self.size_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()


# ---- samples: memory


def bomb(compressor, size):
    """A chunk that expands to many times its size."""
    packed = pack({"items": [{"obs": np.zeros(size, np.uint8)}]})
    return zlib.compress(packed, 9) if compressor == "zlib" else lz4.block.compress(packed)


@pytest.mark.parametrize("compressor", ["lz4", "zlib"])
def test_a_chunk_that_expands_beyond_the_limit_takes_no_more_memory_than_the_limit(reader, folder, compressor):
    data = bomb(compressor, 256 * LIMIT)
    (folder / "bomb").write_bytes(data)
    with (
        Peak() as peak,
        pytest.raises(ValueError, match=rf"(expands to more than {LIMIT} bytes|too large for samples)"),
    ):
        reader.sample(meta("bomb", compressor))
    assert peak.size_bytes < 4 * LIMIT


@pytest.mark.parametrize("compressor", ["none", "lz4", "zlib"])
def test_a_chunk_within_the_limit_is_read(reader, folder, compressor):
    (folder / "good").write_bytes(encode_chunk([{"obs": torch.ones(8)}] * 4, compressor))
    assert reader.sample(meta("good", compressor, 3))["obs"].tolist() == [1.0] * 8


def test_a_sparse_file_beyond_the_limit_is_not_read(reader, folder):
    with open(folder / "sparse", "wb") as file:
        file.truncate(2**40)
    with Peak() as peak, pytest.raises(ValueError, match=f"too large for samples: 1099511627776 bytes of {LIMIT}"):
        reader.sample(meta("sparse"))
    assert peak.size_bytes < LIMIT


def test_columns_whose_rows_repeat_take_no_more_memory_than_the_limit(reader, folder):
    count, plain = 2**16, {"size": 2**16, "blocks": [np.zeros((1, 1000), np.uint8)]}
    plain["columns"] = ["dict", {"obs": ["column", "tensor", False, 0, np.zeros(count, np.int8)]}]
    (folder / "rows").write_bytes(pack(plain))
    assert os.path.getsize(folder / "rows") < LIMIT / 8
    with Peak() as peak, pytest.raises(ValueError, match=rf"(take more than {LIMIT} bytes|cannot hold)"):
        reader.sample(meta("rows"))
    assert peak.size_bytes < 4 * LIMIT


def test_a_chunk_of_empty_dicts_takes_no_more_than_its_bytes_allow(folder):
    data = pack({"items": [{}] * 2**17})
    with Peak() as peak:
        decode_chunk(data, "none", LIMIT)
    assert peak.size_bytes < 80 * len(data)


@pytest.mark.parametrize("claim", [b"\xff\xff\xff\x3f", b"\xff\xff\xff\x7f", b"\x00\x00\x00\x10"])
def test_a_size_that_a_chunk_only_claims_is_not_allocated(reader, folder, claim):
    (folder / "claims").write_bytes(claim + bytes(100))
    with Peak() as peak, pytest.raises(ValueError, match=r"(cannot hold|expands to more|not compressed by lz4)"):
        reader.sample(meta("claims", "lz4"))
    assert peak.size_bytes < LIMIT


def test_a_chunk_is_never_decoded_as_an_image():
    with pytest.raises(ValueError, match="it is said to be an image"):
        decode_chunk(b"\x89PNG", "jpeg")


# ---- samples: content


def array_message(dtype, shape, body):
    """A packed array whose header says what the caller wants: an extension of the type 1 of msgpack."""
    header = bytes([len(dtype)]) + dtype.encode() + bytes([len(shape)])
    content = header + b"".join(number.to_bytes(8, "little") for number in shape) + body
    return bytes([0xC7, len(content), 1]) + content


def test_an_array_is_packed_as_assumed_here():
    assert unpack(array_message("<i2", (2,), b"\x01\x00\x02\x00")).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("dtype", "shape", "body"),
    [
        ("<f4", (2**40,), b"1234"),
        ("<f4", (2**63, 2), b""),
        ("<f4", (3,), b"12345678"),
        ("<f4", (1,), b""),
        ("|S0", (2**40,), b""),
        ("<U0", (7,), b""),
        ("|O", (1,), b"12345678"),
        ("|V8", (1,), b"12345678"),
        ("<m8[0s]", (1,), b"12345678"),
        ("<M8[s/0]", (1,), b"12345678"),
        ("nothing", (1,), b"1"),
    ],
)
def test_an_array_that_claims_another_size_or_dtype_than_its_bytes_have_is_refused(dtype, shape, body):
    with Peak() as peak, pytest.raises(ValueError):
        unpack(array_message(dtype, shape, body))
    assert peak.size_bytes < LIMIT


def test_bools_that_are_neither_0_nor_1_are_1():
    values = unpack(array_message("|b1", (4,), b"\x00\x02\xff\x01"))
    assert values.view(np.uint8).tolist() == [0, 1, 1, 1] and np.flatnonzero(values).tolist() == [1, 2, 3]
    tensor = pack(torch.tensor([False, True]))
    assert tensor.endswith(b"\x00\x01")
    assert unpack(tensor[:-2] + b"\x07\xff").view(torch.uint8).tolist() == [1, 1]


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_tensors_of_quantized_or_unusual_dtypes_are_refused():
    for name in (name for name in dir(torch) if isinstance(getattr(torch, name), torch.dtype)):
        itemsize = getattr(torch, name).itemsize
        for count in (0, 3):
            data = bytearray(array_message(name, (count,), bytes(itemsize * count)))
            data[2] = 3  # the type of a tensor
            try:
                assert repr(unpack(data)).startswith("tensor(")
            except ValueError as e:
                assert name.startswith(("q", "bit", "int", "uint")) and "is not a dtype of numbers" in str(e)


def batch_of(reader, *rows):
    warnings, source = [], ChunkSource(reader, 0.0, lambda wait_s: False)
    source.warn = warnings.append
    batch, readable = source.load([*rows])
    return source, batch, readable


@pytest.mark.guarantees("files")
@pytest.mark.parametrize("cut", [0, 1, 10, -1])
def test_a_truncated_chunk_is_a_bad_one_and_the_others_are_read(reader, folder, cut):
    data = encode_chunk([{"obs": torch.ones(64), "n": i} for i in range(4)], "lz4")
    (folder / "cut").write_bytes(data[:cut])
    (folder / "good").write_bytes(data)
    source, batch, readable = batch_of(reader, meta("cut", "lz4"), meta("good", "lz4", 2))
    assert (batch, readable, source.bad_files) == (None, 1, {"cut"})


def test_a_chunk_that_is_swapped_for_another_gives_the_samples_of_that_one(reader, folder):
    for name, value in (("a", 1.0), ("b", 2.0)):
        (folder / name).write_bytes(encode_chunk([{"obs": torch.full((2,), value)}], "lz4"))
    os.rename(folder / "b", folder / "a")
    _, (first, second), _ = batch_of(reader, meta("a", "lz4"), meta("a", "lz4"))
    assert first["obs"].tolist() == second["obs"].tolist() == [2.0, 2.0]


@pytest.mark.parametrize("count", [1, 3])
def test_a_chunk_with_fewer_samples_or_other_columns_is_no_reason_to_read_foreign_memory(reader, folder, count):
    (folder / "a").write_bytes(encode_chunk([{"obs": torch.ones(2), "n": i} for i in range(8)], "lz4"))
    (folder / "b").write_bytes(encode_chunk([{"obs": np.ones(3, np.int8)} for _ in range(count)], "lz4"))
    source, batch, readable = batch_of(reader, meta("a", "lz4", 7), meta("b", "lz4", 2))
    if count == 3:
        assert [sample["obs"].tolist() for sample in batch] == [[1.0, 1.0], [1, 1, 1]]
    else:
        assert (batch, readable, source.bad_files) == (None, 1, {"b"})


# ---- names, links, and what is no file


def test_samples_and_weights_behind_links_are_not_read(reader, policies, folder, tmp_path):
    (tmp_path / "secret").write_bytes(encode_chunk([{"x": 1}], "none"))
    os.symlink(tmp_path / "secret", folder / "link")
    with pytest.raises(OSError, match="symbolic link"):
        reader.sample(meta("link"))
    torch.save({"model": {}, "iter": 1}, tmp_path / "weights")
    os.symlink(tmp_path / "weights", folder / "policy")
    with pytest.raises(ValueError, match="is a symbolic link"):
        policies.read("policy")


def test_weights_that_become_a_link_while_they_are_read_are_not_read(policies, folder, tmp_path, monkeypatch):
    policies.write("policy", {"model": {}, "iter": 1})
    torch.save({"model": {}, "iter": 2}, tmp_path / "other")
    stat = os.stat

    def swapped(path, **how):
        status = stat(path, **how)
        if os.fspath(path).endswith("policy") and not os.path.islink(path):
            os.remove(path)
            os.symlink(tmp_path / "other", path)
        return status

    monkeypatch.setattr(os, "stat", swapped)
    with pytest.raises(OSError, match="symbolic link"):
        policies.read("policy")


def test_nothing_is_written_through_a_link(policies, folder, tmp_path):
    samples, outside = FolderSampleStore(str(folder)), tmp_path / "outside"
    outside.write_bytes(b"as it was")
    for name in ("chunk", "policy"):
        os.symlink(outside, folder / name)
    samples.write("chunk", b"new")
    policies.write("policy", {"model": {}, "iter": 1})
    assert outside.read_bytes() == b"as it was" and not (folder / "chunk").is_symlink()
    os.symlink(outside, folder / "last")
    samples.delete("last")
    assert outside.read_bytes() == b"as it was" and not (folder / "last").exists()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_a_pipe_or_a_folder_in_the_place_of_a_file_is_refused_at_once(reader, policies, folder, make):
    make(folder / "thing")
    with pytest.raises(ValueError, match=r"thing is not a regular file; samples are read from regular files"):
        reader.sample(meta("thing"))
    with pytest.raises(ValueError, match=r"thing is not a regular file; weights are read from regular files"):
        policies.read("thing")
    assert FolderSampleStore(str(folder)).names() == set()


@pytest.mark.guarantees("files")
@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/b", "..", ".hidden", "x\0", "x\ny", "", "C:x", "x" * 999])
def test_no_name_leads_out_of_the_folder(reader, policies, name):
    for call in (reader.sample, lambda row: policies.read(row["data_id"])):
        with pytest.raises(ValueError, match="file name"):
            call(meta(name))


def test_files_that_vanish_between_listing_and_opening_are_missing_files(reader, folder, monkeypatch):
    (folder / "a").write_bytes(encode_chunk([{"x": 1}], "none"))
    names = FolderSampleStore(str(folder)).names()
    os.remove(folder / "a")
    for name in names:
        with pytest.raises(FileNotFoundError):
            reader.sample(meta(name))


def test_a_checkpoint_that_vanishes_while_the_folder_is_listed_is_left_out(folder, monkeypatch):
    folder.mkdir()
    for name in ("a.pth.tar", "b.pth.tar"):
        (folder / name).write_bytes(b"")
    scandir = os.scandir

    class Vanishing:
        def __init__(self, entry):
            self.name, self.path, self._entry = entry.name, entry.path, entry

        def is_file(self):
            return True

        def stat(self):
            if self.name == "a.pth.tar":
                raise FileNotFoundError(self.path)
            return self._entry.stat()

    class Listing:
        def __enter__(self):
            return map(Vanishing, list(scandir(folder)))

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(os, "scandir", lambda path: Listing())
    assert newest_first(str(folder)) == [str(folder / "b.pth.tar")]


# ---- weights


def archive(code):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as target:
        target.writestr("archive/data.pkl", code)
        target.writestr("archive/version", "3\n")
    return file.getvalue()


def test_a_sparse_file_of_weights_beyond_the_limit_is_not_read(policies, folder):
    policies.write("policy", {"model": {}, "iter": 1})
    with open(folder / "policy", "ab") as file:
        file.truncate(2**40)
    with Peak() as peak, pytest.raises(ValueError, match=f"too large for weights: {2**40} bytes of {2**24}"):
        policies.read("policy")
    assert peak.size_bytes < LIMIT


@pytest.mark.guarantees("files")
@pytest.mark.parametrize("name", ["system", "Popen", "eval"])
def test_no_function_that_weights_name_is_called(policies, folder, tmp_path, name):
    module = {"system": "os", "Popen": "subprocess", "eval": "builtins"}[name]
    code = f"\x80\x02c{module}\n{name}\n(X\x05\x00\x00\x00touch\x74R.".encode("latin1")
    (folder / "policy").write_bytes(archive(code))
    with pytest.raises(pickle.UnpicklingError, match=f"(?i:unsupported) .*{name}"):
        policies.read("policy")
    assert [path.name for path in pathlib.Path(tmp_path).iterdir()] == ["folder"]
