"""Scattering of the features of entities onto a map."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ScatterConnection(nn.Module):
    """Layer that scatters the features of M entities onto a map of H x W cells; cells without an entity are zero.

    If several entities share a cell, 'add' sums them, and 'cover' keeps the last one.

    Raises:
        AssertionError: `scatter_type` is unknown.

    Example:
        >>> scatter = ScatterConnection("add")
        >>> scatter(torch.ones(1, 2, 1), (2, 2), torch.tensor([[[0, 1], [0, 1]]]))
        tensor([[[[0., 2.],
                  [0., 0.]]]])
    """

    def __init__(self, scatter_type: str) -> None:
        super().__init__()
        if scatter_type not in ("add", "cover"):
            raise AssertionError(f"scatter_type {scatter_type!r} is unknown; allowed: add, cover")
        self.scatter_type = scatter_type

    def forward(self, x: Tensor, spatial_size: tuple[int, int], location: Tensor) -> Tensor:
        """Return the map [B, N, H, W] of features `x` [B, M, N]; `location` is [B, M, 2] int64, (row, column).

        Raises:
            ValueError: a location is outside of `spatial_size`, (H, W).
        """
        return self.xy_forward(x, spatial_size, location[..., 1], location[..., 0])

    def xy_forward(self, x: Tensor, spatial_size: tuple[int, int], coord_x: Tensor, coord_y: Tensor) -> Tensor:
        """Return the map like `forward`, with separate columns `coord_x` and rows `coord_y`, [B, M] int64 each.

        Raises:
            ValueError: a location is outside of `spatial_size`, (H, W).
        """
        height, width = spatial_size
        for name, coordinate, size in (("row", coord_y, height), ("column", coord_x, width)):
            if coordinate.numel() and not 0 <= int(coordinate.min()) <= int(coordinate.max()) < size:
                low, high = int(coordinate.min()), int(coordinate.max())
                raise ValueError(f"{name}s from {low} to {high} are outside of the map; they must be in [0, {size})")
        cell = coord_y.long() * width + coord_x.long()  # [B, M]
        scatter = _add if self.scatter_type == "add" else _cover
        flat = scatter(x, cell, height * width)
        return flat.movedim(-1, 1).reshape(x.shape[0], x.shape[2], height, width)


def _add(x: Tensor, cell: Tensor, cells: int) -> Tensor:
    """Return the sum [B, cells, N] of the entities of each cell."""
    empty = x.new_zeros(x.shape[0], cells, x.shape[2])
    return empty.scatter_add(1, cell.unsqueeze(-1).expand_as(x), x)


def _cover(x: Tensor, cell: Tensor, cells: int) -> Tensor:
    """Return the last entity of each cell [B, cells, N]; with a plain scatter, any entity of a cell could win."""
    order = torch.arange(1, x.shape[1] + 1, device=x.device).expand_as(cell)
    last = torch.zeros(x.shape[0], cells, dtype=torch.int64, device=x.device).scatter_reduce(1, cell, order, "amax")
    padded = torch.cat([x.new_zeros(x.shape[0], 1, x.shape[2]), x], dim=1)  # entity 0: nobody
    return padded.gather(1, last.unsqueeze(-1).expand(-1, -1, x.shape[2]))
