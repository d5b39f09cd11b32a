import os
import struct
from collections import OrderedDict, defaultdict, namedtuple

import msgpack
import numpy as np
import pytest
import torch
from easydict import EasyDict
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ding.utils.msgpack_helper import pack, unpack

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
keys = st.text() | st.integers() | st.tuples(st.integers(), st.text())
objects = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.lists(inner, max_size=4).map(tuple) | st.dictionaries(keys, inner, max_size=4)
    ),
    max_leaves=20,
)


def same(a, b):
    """Equal, and of equal types at every level."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


@settings(max_examples=50)
@given(objects)
def test_plain_objects_come_back_equal_with_their_types(obj):
    assert same(unpack(pack(obj)), obj)


@settings(max_examples=50)
@given(
    hnp.arrays(
        hnp.scalar_dtypes() | hnp.unicode_string_dtypes() | hnp.byte_string_dtypes(),
        hnp.array_shapes(min_dims=0, min_side=0, max_dims=3),
    )
)
def test_arrays_come_back_with_shape_dtype_and_bytes(array):
    result = unpack(pack(array))
    assert result.dtype == array.dtype and result.shape == array.shape and result.tobytes() == array.tobytes()
    assert result.flags.writeable


@pytest.mark.parametrize(
    "value", [np.float32(1.5), np.int64(-3), np.bool_(True), np.float64(2), np.str_("x"), np.uint8(7)]
)
def test_numpy_scalars_keep_their_type(value):
    result = unpack(pack(value))
    assert type(result) is type(value) and result == value


@pytest.mark.parametrize(
    "dtype",
    ["float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64"],
)
@pytest.mark.parametrize("shape", [(), (0, 2), (3,), (2, 3)])
def test_tensors_keep_dtype_shape_and_values(dtype, shape):
    tensor = (torch.rand(shape) * 10).to(getattr(torch, dtype))
    result = unpack(pack(tensor))
    assert result.dtype == tensor.dtype and result.shape == tensor.shape and torch.equal(result, tensor)
    result.zero_()


def test_tensors_leave_their_graph_behind_and_views_come_back_contiguous():
    base = torch.arange(6.0, requires_grad=True).reshape(2, 3)
    for tensor in (base.T, base[:, 1], torch.view_as_complex(torch.ones(2, 2)).conj()):
        result = unpack(pack({"x": tensor}))["x"]
        assert not result.requires_grad and result.is_contiguous() and torch.equal(result, tensor.detach())


def test_an_easydict_stays_one_and_other_mappings_become_dicts():
    result = unpack(pack([EasyDict(a={"b": 1}), OrderedDict(x=1), defaultdict(int, y=2)]))
    assert isinstance(result[0], EasyDict) and result[0].a.b == 1
    assert [type(item) for item in result[1:]] == [dict, dict] and result[1:] == [{"x": 1}, {"y": 2}]


def test_sets_complex_numbers_and_subclasses_of_plain_types_are_carried():
    class Name(str):
        def __str__(self):
            return "something else"

    result = unpack(pack({"set": {1, 2}, "complex": 1 + 2j, "name": Name("n"), "list": type("L", (list,), {})([1])}))
    assert result == {"set": {1, 2}, "complex": 1 + 2j, "name": "n", "list": [1]} and type(result["name"]) is str


def test_a_string_with_bytes_that_are_no_text_comes_back():
    name = os.fsdecode(b"/data/\xff.txt")
    assert unpack(pack({name: ("\ud800", name)})) == {name: ("\ud800", name)}


@pytest.mark.parametrize(
    ("obj", "name"),
    [
        (namedtuple("Step", ["x"])(1), "Step"),
        (object(), "object"),
        (len, "builtin_function_or_method"),
        (np.array([object()]), "dtype object"),
        (np.zeros(1, [("a", "f4")]), "dtype"),
        (torch.zeros(2, 2).to_sparse(), "sparse"),
    ],
)
def test_what_cannot_be_carried_is_refused_by_name(obj, name):
    with pytest.raises(TypeError, match=name):
        pack({"x": [obj]})


def array_payload(dtype, shape, body):
    return struct.pack(f"<B{len(dtype)}sB{len(shape)}Q", len(dtype), dtype.encode(), len(shape), *shape) + body


@pytest.mark.guarantees("files")
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        pack([1, 2])[:-1],
        pack([1]) + b"\x00",
        msgpack.packb(msgpack.ExtType(1, array_payload("O", (1,), b"12345678"))),
        msgpack.packb(msgpack.ExtType(1, array_payload("<f4", (1 << 40,), b"1234"))),
        msgpack.packb(msgpack.ExtType(3, array_payload("load", (1,), b"1"))),
    ],
)
def test_damaged_or_foreign_bytes_are_a_value_error(data):
    with pytest.raises(ValueError, match="damaged or of another format"):
        unpack(data)


@settings(max_examples=50)
@given(st.binary(max_size=60))
def test_random_bytes_give_an_object_or_a_value_error(data):
    try:
        unpack(data)
    except ValueError as error:
        assert "damaged" in str(error)
