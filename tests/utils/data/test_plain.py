"""Values as JSON has them."""

import numpy as np
import pytest
import torch
from easydict import EasyDict

from ding.utils.data.nested import plain


@pytest.mark.parametrize(
    ("value", "result"),
    [
        (np.float32(0.5), 0.5),
        (torch.tensor([1, 2]), [1, 2]),
        ((1, None, "a"), [1, None, "a"]),
        ([np.int64(1), [np.bool_(True)]], [1, [True]]),
        (EasyDict(a=np.zeros(2)), {"a": [0.0, 0.0]}),
        (True, True),
    ],
)
def test_values_become_what_json_has(value, result):
    found = plain(value)
    assert found == result and type(found) is type(result)
