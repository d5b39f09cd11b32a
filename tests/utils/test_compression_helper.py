import pickle
import zlib

import numpy as np
import pytest
import torch

from ding.utils.compression_helper import (
    CloudPickleWrapper,
    get_data_compressor,
    get_data_decompressor,
    jpeg_data_decompressor,
)

DATA = {"obs": np.arange(6.0).reshape(2, 3), "action": torch.tensor([1]), "info": ("x", None, 1.5)}


@pytest.mark.parametrize("name", ["lz4", "zlib", "none"])
def test_data_survives_compression(name):
    result = get_data_decompressor(name)(get_data_compressor(name)(DATA))
    assert np.array_equal(result["obs"], DATA["obs"]) and torch.equal(result["action"], DATA["action"])
    assert result["info"] == DATA["info"]


def test_none_hands_the_same_object_on():
    assert get_data_compressor("none")(DATA) is DATA and get_data_decompressor("none")(DATA) is DATA


@pytest.mark.parametrize("get", [get_data_compressor, get_data_decompressor])
def test_an_unknown_name_is_a_key_error_that_lists_the_known(get):
    with pytest.raises(KeyError, match="'bz2'.*lz4, zlib, none, jpeg"):
        get("bz2")


@pytest.mark.parametrize("name", ["lz4", "zlib"])
@pytest.mark.parametrize("data", [b"", b"nothing", b"\xff\xff\xff\x7f" + bytes(20), b"\x10\0\0\0\xff\xff"])
def test_damaged_bytes_are_a_value_error(name, data):
    with pytest.raises(ValueError):
        get_data_decompressor(name)(data)


def test_pickled_content_is_refused_and_not_run():
    with pytest.raises(ValueError):
        get_data_decompressor("zlib")(zlib.compress(pickle.dumps(DATA)))


@pytest.mark.differs("ends the process if lz4 or cv2 is missing", "raises an ImportError that names the package")
def test_a_missing_package_is_named(put_module):
    put_module("lz4.block", None)
    with pytest.raises(ImportError, match="lz4"):
        get_data_compressor("lz4")(DATA)
    put_module("cv2", None)
    with pytest.raises(ImportError, match="opencv-python-headless"):
        get_data_compressor("jpeg")(np.zeros((2, 2), np.uint8))


def test_jpeg_is_close_to_the_image_and_gray_images_have_one_channel():
    pytest.importorskip("cv2")
    image = np.full((16, 16, 3), (10, 100, 200), np.uint8)
    data = get_data_compressor("jpeg")(image)
    result = get_data_decompressor("jpeg")(data)
    assert isinstance(data, bytes) and result.shape == image.shape and np.abs(result.astype(int) - image).max() < 8
    assert jpeg_data_decompressor(data, gray_scale=True).shape == (16, 16, 1)
    with pytest.raises(ValueError, match="not an image"):
        jpeg_data_decompressor(b"x")


def test_cloudpickle_wrapper_carries_closures():
    offset = 3
    wrapper = pickle.loads(pickle.dumps(CloudPickleWrapper(lambda x: x + offset)))
    assert wrapper.data(4) == 7
