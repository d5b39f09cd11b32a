"""Normalisation layers by name."""

from __future__ import annotations

import torch
from torch import nn

_BY_DIM: dict[str, dict[int, type[nn.Module]]] = {
    "BN": {1: nn.BatchNorm1d, 2: nn.BatchNorm2d},
    "IN": {1: nn.InstanceNorm1d, 2: nn.InstanceNorm2d},
}
_ANY_DIM: dict[str, type[nn.Module]] = {"LN": nn.LayerNorm, "SyncBN": nn.SyncBatchNorm}


def build_normalization(norm_type: str, dim: int | None = None) -> type[nn.Module]:
    """Return the class of a normalisation layer; 'BN' and 'IN' need the number of data dimensions `dim`.

    Raises:
        KeyError: the name is unknown and `dim` is None, or `dim` of 'BN' or 'IN' is not 1 or 2.
        NotImplementedError: the name is unknown and `dim` is given.

    Example:
        >>> build_normalization("BN", dim=1)(16)
        BatchNorm1d(16, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)
    """
    if norm_type in _ANY_DIM:
        return _ANY_DIM[norm_type]
    if dim is None:
        if norm_type in _BY_DIM:
            raise KeyError(f"norm_type {norm_type!r} needs dim, 1 or 2")
        raise KeyError(f"unknown norm_type {norm_type!r}; known: {', '.join([*_BY_DIM, *_ANY_DIM])}")
    if norm_type not in _BY_DIM:
        raise NotImplementedError(f"unknown norm_type {norm_type!r}; known: {', '.join([*_BY_DIM, *_ANY_DIM])}")
    if dim not in _BY_DIM[norm_type]:
        raise KeyError(f"norm_type {norm_type!r} knows dim 1 and 2, not {dim}")
    return _BY_DIM[norm_type][dim]


def build_conv_normalization(norm_type: str, channels: int, num_groups_for_gn: int = 1) -> nn.Module:
    """Return the normalisation that follows a 2-d convolution with `channels` outputs: BN, IN, SyncBN, LN or GN.

    'LN' normalises over all channels and pixels of one image, which is a group norm with a single group.

    Raises:
        KeyError: the name is unknown.
    """
    if norm_type == "LN":
        return nn.GroupNorm(1, channels)
    if norm_type == "GN":
        return nn.GroupNorm(num_groups_for_gn, channels)
    if norm_type not in ("BN", "IN", "SyncBN"):
        raise KeyError(f"unknown norm_type {norm_type!r} after a convolution; known: BN, IN, SyncBN, LN, GN")
    return build_normalization(norm_type, dim=2)(channels)


class ChannelLayerNorm(nn.Module):
    """Layer norm over the channels of each pixel; input and output are [B, C, H, W]."""

    def __init__(self, channels: int, eps: float = 1e-3) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels, eps=eps)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed: torch.Tensor = self.norm(x.permute(0, 2, 3, 1))
        return normed.permute(0, 3, 1, 2)
