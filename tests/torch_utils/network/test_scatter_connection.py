"""Entities on a map."""

import pytest
import torch

from ding.torch_utils.network.nn_module import ScatterConnection


def naive_map(x, size, location, scatter_type):
    result = torch.zeros(x.shape[0], x.shape[2], *size)
    for b in range(x.shape[0]):
        for m in range(x.shape[1]):
            row, column = location[b, m].tolist()
            if scatter_type == "add":
                result[b, :, row, column] += x[b, m]
            else:
                result[b, :, row, column] = x[b, m]
    return result


@pytest.mark.parametrize("scatter_type", ["add", "cover"])
@pytest.mark.parametrize("entities", [0, 1, 40])
def test_features_lie_where_their_entities_are_and_later_ones_cover_earlier_ones(scatter_type, entities):
    torch.manual_seed(0)
    x, size = torch.randn(2, entities, 3), (4, 5)
    location = torch.stack([torch.randint(4, (2, entities)), torch.randint(5, (2, entities))], dim=-1)
    scatter = ScatterConnection(scatter_type)
    expected = naive_map(x, size, location, scatter_type)
    assert torch.allclose(scatter(x, size, location), expected, atol=1e-5)
    assert torch.allclose(scatter.xy_forward(x, size, location[..., 1], location[..., 0]), expected, atol=1e-5)


def test_locations_outside_of_the_map_and_unknown_types_are_refused():
    scatter = ScatterConnection("add")
    with pytest.raises(ValueError, match="columns from 0 to 3"):
        scatter(torch.rand(1, 2, 1), (2, 3), torch.tensor([[[1, 3], [0, 0]]]))
    with pytest.raises(ValueError):
        scatter(torch.rand(1, 2, 1), (2, 3), torch.tensor([[[-1, 2], [0, 0]]]))
    with pytest.raises(AssertionError):
        ScatterConnection("mean")
