"""Value squashings and their inverses."""

import torch

from ding.rl_utils.returns import inv_symlog, symlog, value_inv_transform, value_transform

VALUES = torch.tensor([-100.0, -3.0, -0.5, 0.0, 0.5, 3.0, 100.0])


def test_value_transform_has_the_values_of_its_formula():
    assert torch.allclose(value_transform(torch.tensor([3.0, -3.0])), torch.tensor([1.03, -1.03]))


def test_inverse_value_transform_undoes_the_transform():
    assert torch.allclose(value_inv_transform(value_transform(VALUES)), VALUES, rtol=1e-3, atol=1e-4)
    assert torch.allclose(value_inv_transform(value_transform(VALUES, 0.1), 0.1), VALUES, rtol=1e-3, atol=1e-4)


def test_inverse_symlog_undoes_symlog():
    assert torch.allclose(symlog(torch.tensor([torch.e - 1, 1 - torch.e])), torch.tensor([1.0, -1.0]))
    assert torch.allclose(inv_symlog(symlog(VALUES)), VALUES, rtol=1e-4)
