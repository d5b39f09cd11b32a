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


@pytest.mark.differs(
    "A small file of samples that zlib expands to any size takes all memory.",
    "It is a bad file: a chunk takes at most `chunk_bytes` (256 MiB), encoded, decompressed, and with all values "
    "written out.",
)
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
        ("<U1", (1,), b"\x00\x00\x11\x00"),
        ("nothing", (1,), b"1"),
    ],
)
def test_an_array_that_claims_another_size_or_dtype_than_its_bytes_have_is_refused(dtype, shape, body):
    with Peak() as peak, pytest.raises(ValueError):
        unpack(array_message(dtype, shape, body))
    assert peak.size_bytes < LIMIT


@pytest.mark.differs(
    "Bools of samples and weights may have bytes other than 0 and 1, with which functions of numpy and torch read "
    "foreign memory.",
    "They are 1.",
)
def test_bools_that_are_neither_0_nor_1_are_1():
    values = unpack(array_message("|b1", (4,), b"\x00\x02\xff\x01"))
    assert values.view(np.uint8).tolist() == [0, 1, 1, 1] and np.flatnonzero(values).tolist() == [1, 2, 3]
    tensor = pack(torch.tensor([False, True]))
    assert tensor.endswith(b"\x00\x01")
    assert unpack(tensor[:-2] + b"\x07\xff").view(torch.uint8).tolist() == [1, 1]


@pytest.mark.differs("Tensors of quantized dtypes that are made of bytes crash the process.", "They are refused.")
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


def archive(code, records=(), compression=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as target:
        target.writestr("archive/data.pkl", code)
        for name, content in records:
            target.writestr(f"archive/{name}", content)
    return file.getvalue()


def call(module, name, *sizes):
    """A pickle that calls a function with integers."""
    numbers = b"".join(b"\x8a\x09" + size.to_bytes(9, "little", signed=True) for size in sizes)
    return f"\x80\x02c{module}\n{name}\n(".encode("latin1") + numbers + b"tR."


HUGE = 2**40
EVIL_WEIGHTS = {
    "a tensor without content": archive(call("torch", "Tensor", HUGE)),
    "an array without content": archive(call("numpy", "ndarray", HUGE)),
    "bytes without content": archive(call("builtins", "bytearray", HUGE)),
    "a storage without content": archive(call("torch.storage", "UntypedStorage", HUGE)),
    "an array to be filled": archive(
        b"\x80\x02cnumpy._core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(J\xff\xff\xff\x7ftU\x01btR."
    ),
    "compressed records": archive(bytes(10**8), compression=zipfile.ZIP_DEFLATED),
    "a place in the memo that takes memory": archive(b"\x80\x02Nr\xff\xff\xff\x7f."),
    "an older format": b"".join([b"\x80\x02", b"N."]),
    "a structure that is too large": archive(b"\x80\x02" + b"}" * 2**24 + b"."),
}


@pytest.mark.differs(
    "Weights are unpickled; also `torch.load(weights_only=True)` can be made to allocate any amount, and to return "
    "memory that was never written.",
    "Our own reader makes tensors and arrays of bytes that the file has, of at most `policy_bytes` (4 GiB), in a "
    "third of the time.",
)
@pytest.mark.parametrize("what", sorted(set(EVIL_WEIGHTS) - {"a place in the memo that takes memory"}))
def test_weights_cannot_make_a_reader_allocate_what_the_file_does_not_hold(policies, folder, what):
    (folder / "policy").write_bytes(EVIL_WEIGHTS[what])
    with Peak() as peak, pytest.raises((ValueError, pickle.UnpicklingError)):
        policies.read("policy")
    assert peak.size_bytes < 20 * LIMIT


def often(call):
    """A pickle of a list of results of the same call."""
    return b"](" + 1000 * call + b"e."


BYTES = b"c_codecs\nencode\nq\x00(X\x00\x00\x01\x00" + 2**16 * b"x" + b"X\x06\x00\x00\x00latin1tq\x01"
ITEMS = b"".join(b"M" + number.to_bytes(2, "little") + b"N" for number in range(2000))
ARRAY = (
    b"Rq\x02cnumpy._core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nK\x00\x85N\x87q\x04cnumpy\ndtype\n"
    b"(X\x02\x00\x00\x00u1\x89\x88tRq\x05(K\x01J\x00\x00\x01\x00\x85h\x05\x89h\x02tq\x06"
)
COPIES = {
    "bytes": BYTES + often(b"h\x00h\x01R"),
    "bytearrays": BYTES + b"Rq\x02cbuiltins\nbytearray\nq\x03" + often(b"h\x03h\x02\x85R"),
    "sets": b"cbuiltins\nset\nq\x00](" + ITEMS + b"e\x85q\x01" + often(b"h\x00h\x01R"),
    "dicts": b"ccollections\nCounter\nq\x00}(" + ITEMS + b"u\x85q\x01" + often(b"h\x00h\x01R"),
    "arrays": BYTES + ARRAY + often(b"h\x03h\x04Rh\x06b"),
}


def test_a_scalar_of_weights_is_made_of_bytes_which_are_counted(policies, folder):
    code = b"cnumpy._core.multiarray\nscalar\n(cnumpy\ndtype\n(X\x02\x00\x00\x00S4\x89\x88tRcbuiltins\nbytearray\n"
    code += b"c_codecs\nencode\n(X\x04\x00\x00\x00abcdX\x06\x00\x00\x00latin1tR\x85RtR."
    (folder / "policy").write_bytes(archive(b"\x80\x02" + code))
    with pytest.raises(pickle.UnpicklingError, match="a scalar is made of a bytearray"):
        policies.read("policy")


@pytest.mark.parametrize("kind", COPIES)
def test_what_weights_hold_once_is_not_copied_again_and_again(policies, folder, kind):
    (folder / "policy").write_bytes(archive(b"\x80\x02" + COPIES[kind]))
    with Peak() as peak, pytest.raises(pickle.UnpicklingError, match="the pickle repeats parts of itself too often"):
        policies.read("policy")
    assert peak.size_bytes < 200 * os.path.getsize(folder / "policy")


def test_a_large_number_in_a_pickle_takes_no_memory(policies, folder):
    (folder / "policy").write_bytes(EVIL_WEIGHTS["a place in the memo that takes memory"])
    with Peak() as peak, pytest.raises(ValueError, match="holds a NoneType, not weights"):
        policies.read("policy")
    assert peak.size_bytes < LIMIT


def saved_tensor(count=4, **changes):
    """A file of `torch.save` with a tensor of a few values, of which the pickle says something else."""
    file = io.BytesIO()
    torch.save({"w": torch.arange(float(count))}, file)
    with zipfile.ZipFile(file) as source:
        records = {name.partition("/")[2]: source.read(name) for name in source.namelist()}
    code = records["data.pkl"]
    for old, new in changes.values():
        assert code.count(old) >= 1
        code = code.replace(old, new, 1)
    return archive(code, [(name, content) for name, content in records.items() if name != "data.pkl"])


# In the pickle: the number of values of the storage (K\x04), and offset, size and stride of the tensor.
CLAIMS = {
    "a storage larger than its record": {"storage": (b"K\x04tq\x07Q", b"J\xff\xff\xff\x7ftq\x07Q")},
    "a tensor beyond its storage": {"size": (b"K\x00K\x04\x85", b"K\x00J\xff\xff\xff\x7f\x85")},
    "an offset beyond the storage": {"offset": (b"K\x00K\x04\x85", b"J\xff\xff\xff\x7fK\x04\x85")},
    "a negative offset": {"offset": (b"K\x00K\x04\x85", b"J\xfe\xff\xff\xffK\x04\x85")},
    "a negative size": {"size": (b"K\x00K\x04\x85", b"K\x00J\xfe\xff\xff\xff\x85")},
    "a negative stride": {"stride": (b"\x85q\x08K\x01\x85", b"\x85q\x08J\xff\xff\xff\xff\x85")},
    "a size that is text": {"size": (b"K\x00K\x04\x85", b"K\x00J\x00\x00\x00\x10X\x01\x00\x00\x00a\x86")},
    "a tensor beyond an empty storage": {"count": 0, "size": (b"K\x00K\x00\x85", b"K\x00J\x00\x00\x01\x00\x85")},
    "a stride beyond an empty storage": {
        "count": 0,
        "stride": (b"K\x00K\x00\x85q\x08K\x01\x85", b"K\x00K\x02\x85q\x08J\x00\x00\x00\x10\x85"),
    },
    "an offset beyond an empty storage": {"count": 0, "offset": (b"K\x00K\x00\x85", b"J\x00\x00\x00\x10K\x01\x85")},
    "another storage": {"key": (b"X\x01\x00\x00\x000", b"X\x01\x00\x00\x001")},
    "values of a wider type": {"type": (b"FloatStorage", b"DoubleStorage")},
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_tensor_is_never_made_of_memory_that_is_not_in_the_file(policies, folder, claim):
    (folder / "policy").write_bytes(saved_tensor(**CLAIMS[claim]))
    with Peak() as peak, pytest.raises((ValueError, pickle.UnpicklingError)):
        policies.read("policy")
    assert peak.size_bytes < LIMIT


DEEP = b")" + b"\x85" * 2**18  # tuples in each other
KEY = "a key of more than 32 nested tuples"
NESTED = {
    "a key of a dict": (b"}" + DEEP + b"Ns.", KEY),
    "a member of a set": (b"\x8f(" + DEEP + b"\x90.", KEY),
    "a set that is made of a list": (b"cbuiltins\nset\n]" + DEEP + b"a\x85R.", KEY),
    "a mapping that is made of a list": (b"ccollections\nOrderedDict\n]" + DEEP + b"N\x86a\x85R.", "are not a dict"),
    "the name of a function": (DEEP + b"X\x01\x00\x00\x00x\x93.", "a name is not text"),
    "the key of a storage": (
        b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\n" + DEEP + b"X\x03\x00\x00\x00cpuK\x00tQ.",
        "the key of a storage is not text",
    ),
    "arrays of objects in each other": (
        b"cnumpy._core.multiarray\n_reconstruct\nq\x00cnumpy\nndarray\nK\x00\x85N\x87q\x01cnumpy\ndtype\n"
        b"(X\x02\x00\x00\x00O8\x89\x88tRq\x02"
        + b"h\x00h\x01R(K\x01K\x01\x85h\x02\x89]" * 2**18
        + b"N"
        + b"atb" * 2**18,
        "it holds an array of objects within another one",
    ),
    "a tuple that is hashed again and again": (
        b"})" + b"q\x00h\x00\x86" * 25 + b"Ns.",
        "the pickle repeats parts of itself too often",
    ),
}


@pytest.mark.parametrize("what", NESTED)
def test_nesting_in_weights_does_not_end_a_process_or_keep_it_busy(policies, folder, what):
    code, told = NESTED[what]
    (folder / "policy").write_bytes(archive(b"\x80\x02" + code))
    with pytest.raises(pickle.UnpicklingError, match=told):
        policies.read("policy")


def test_without_changes_the_same_file_is_read(policies, folder):
    (folder / "policy").write_bytes(saved_tensor())
    assert policies.read("policy").state["w"].tolist() == [0.0, 1.0, 2.0, 3.0]


def test_a_sparse_file_of_weights_beyond_the_limit_is_not_read(policies, folder):
    policies.write("policy", {"model": {}, "iter": 1})
    with open(folder / "policy", "ab") as file:
        file.truncate(2**40)
    with Peak() as peak, pytest.raises(ValueError, match=f"too large for weights: {2**40} bytes of {2**24}"):
        policies.read("policy")
    assert peak.size_bytes < LIMIT


@pytest.mark.parametrize("name", ["system", "Popen", "eval"])
def test_no_function_that_weights_name_is_called(policies, folder, tmp_path, name):
    module = {"system": "os", "Popen": "subprocess", "eval": "builtins"}[name]
    code = f"\x80\x02c{module}\n{name}\n(X\x05\x00\x00\x00touch\x74R.".encode("latin1")
    (folder / "policy").write_bytes(archive(code))
    with pytest.raises(pickle.UnpicklingError, match=f"it holds a {module}.{name}"):
        policies.read("policy")
    assert [path.name for path in pathlib.Path(tmp_path).iterdir()] == ["folder"]
