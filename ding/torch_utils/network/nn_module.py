"""Building blocks of networks: linear and convolutional blocks, the MLP, one-hot encoding."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ding.torch_utils.network.activation import Activation, as_activation
from ding.torch_utils.network.noise_layer import NoiseLinearLayer
from ding.torch_utils.network.normalization import build_conv_normalization, build_normalization

# torch's layer, under the name that this package has always had for it.
Flatten = nn.Flatten

__all__ = [
    "MLP",
    "Flatten",
    "NoiseLinearLayer",
    "conv2d_block",
    "fc_block",
    "noise_block",
    "one_hot",
    "sequential_pack",
]

_PAD_LAYERS = {"reflect": nn.ReflectionPad2d, "replication": nn.ReplicationPad2d}


def sequential_pack(layers: Iterable[nn.Module]) -> nn.Sequential:
    """Return an `nn.Sequential` of `layers`, whose attribute `out_channels` is their last width, if they have one."""
    packed = nn.Sequential(*layers)
    for layer in reversed(list(packed)):
        width = getattr(layer, "out_channels", getattr(layer, "out_features", None))
        if width is not None:
            packed.out_channels = width
            break
    return packed


def _after_linear(
    width: int, activation: nn.Module | None, norm_type: str | None, dropout: float | None
) -> list[nn.Module]:
    layers: list[nn.Module] = []
    if norm_type is not None:
        layers.append(build_normalization(norm_type, dim=1)(width))
    if activation is not None:
        layers.append(activation)
    if dropout is not None:
        layers.append(nn.Dropout(dropout))
    return layers


def fc_block(
    in_channels: int,
    out_channels: int,
    activation: Activation = None,
    norm_type: str | None = None,
    use_dropout: bool = False,
    dropout_probability: float = 0.5,
) -> nn.Sequential:
    """Return a linear layer followed by normalisation, activation and dropout, as far as requested."""
    tail = _after_linear(
        out_channels, as_activation(activation), norm_type, dropout_probability if use_dropout else None
    )
    return sequential_pack([nn.Linear(in_channels, out_channels), *tail])


def noise_block(
    in_channels: int,
    out_channels: int,
    activation: Activation = None,
    norm_type: str | None = None,
    use_dropout: bool = False,
    dropout_probability: float = 0.5,
    sigma0: float = 0.4,
) -> nn.Sequential:
    """Return an `fc_block` with a `NoiseLinearLayer` instead of the linear layer."""
    tail = _after_linear(
        out_channels, as_activation(activation), norm_type, dropout_probability if use_dropout else None
    )
    return sequential_pack([NoiseLinearLayer(in_channels, out_channels, sigma0=sigma0), *tail])


def conv2d_block(
    in_channels: int,
    out_channels: int,
    kernel_size: int,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    pad_type: str = "zero",
    activation: Activation = None,
    norm_type: str | None = None,
    num_groups_for_gn: int = 1,
    bias: bool = True,
) -> nn.Sequential:
    """Return a 2-d convolution followed by normalisation and activation as far as requested, with `out_channels`.

    `pad_type` 'reflect' and 'replication' put a padding layer of width `padding` before the convolution.

    Raises:
        AssertionError: `pad_type` is not 'zero', 'reflect' or 'replication'.
        KeyError: `norm_type` is not BN, IN, SyncBN, LN or GN.
    """
    layers: list[nn.Module] = []
    if pad_type in _PAD_LAYERS:
        layers.append(_PAD_LAYERS[pad_type](padding))
        padding = 0
    elif pad_type != "zero":
        raise AssertionError(f"pad_type {pad_type!r} is unknown; allowed: zero, {', '.join(_PAD_LAYERS)}")
    layers.append(
        nn.Conv2d(in_channels, out_channels, kernel_size, stride, padding, dilation=dilation, groups=groups, bias=bias)
    )
    if norm_type is not None:
        layers.append(build_conv_normalization(norm_type, out_channels, num_groups_for_gn))
    act = as_activation(activation)
    if act is not None:
        layers.append(act)
    return sequential_pack(layers)


def MLP(
    in_channels: int,
    hidden_channels: int,
    out_channels: int,
    layer_num: int,
    layer_fn: Callable[[int, int], nn.Module] | None = None,
    activation: Activation = None,
    norm_type: str | None = None,
    use_dropout: bool = False,
    dropout_probability: float = 0.5,
    output_activation: bool = True,
    output_norm: bool = True,
    last_linear_layer_init_zero: bool = False,
) -> nn.Sequential:
    """Return a flat sequence of `layer_num` linear layers, each followed by its normalisation, activation and dropout.

    All activations are one instance. With `layer_num` 0, the result is an identity.

    Args:
        layer_fn: makes a layer from its two widths; `nn.Linear` when None.
        output_activation: whether activation and dropout follow the last layer too.
        output_norm: whether the normalisation follows the last layer too.
        last_linear_layer_init_zero: whether weight and bias of the last `nn.Linear` start at zero.

    Raises:
        AssertionError: `layer_num` is negative.

    Example:
        >>> MLP(4, 8, 2, layer_num=2, activation=nn.ReLU(), output_activation=False)
        Sequential(
          (0): Linear(in_features=4, out_features=8, bias=True)
          (1): ReLU()
          (2): Linear(in_features=8, out_features=2, bias=True)
        )
    """
    if layer_num < 0:
        raise AssertionError(f"layer_num = {layer_num} is not allowed; it must be 0 or more")
    if layer_num == 0:
        return nn.Sequential(nn.Identity())
    make_layer = nn.Linear if layer_fn is None else layer_fn
    act = as_activation(activation)
    dropout = dropout_probability if use_dropout else None
    widths = [in_channels, *[hidden_channels] * (layer_num - 1), out_channels]
    layers: list[nn.Module] = []
    for index in range(layer_num):
        is_inner = index < layer_num - 1
        layers.append(make_layer(widths[index], widths[index + 1]))
        layers += _after_linear(
            widths[index + 1],
            act if is_inner or output_activation else None,
            norm_type if is_inner or output_norm else None,
            dropout if is_inner or output_activation else None,
        )
    if last_linear_layer_init_zero:
        _zero_last_linear(layers)
    return nn.Sequential(*layers)


def _zero_last_linear(layers: list[nn.Module]) -> None:
    for layer in reversed(layers):
        if isinstance(layer, nn.Linear):
            nn.init.zeros_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
            return


def one_hot(val: torch.Tensor, num: int, num_first: bool = False) -> torch.Tensor:
    """Return the float one-hot code of the integers `val` [*shape]: [*shape, num], or [num, *shape] with `num_first`.

    Raises:
        AssertionError: `val` is not a tensor.
        RuntimeError: a value is outside of [0, num).

    Example:
        >>> one_hot(torch.tensor([2, 0]), 3)
        tensor([[0., 0., 1.],
                [1., 0., 0.]])
    """
    if not isinstance(val, torch.Tensor):
        raise AssertionError(f"one_hot needs a tensor, not {type(val).__name__}")
    if val.numel() > 0 and (val.min() < 0 or val.max() >= num):
        raise RuntimeError(f"one_hot: values in [{val.min()}, {val.max()}] do not fit into num = {num}")
    encoded = F.one_hot(val.long(), num).float()
    return encoded.movedim(-1, 0) if num_first else encoded


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


class DataParallel(nn.DataParallel[nn.Module]):
    """torch's `DataParallel` with access to the attributes and methods of the model.

    A batch is split along its first axis into one part for each GPU; without a GPU, the model runs unchanged. Names in
    the state dict start with `module.`.

    Example:
        >>> model = DataParallel(nn.Linear(4, 2))
        >>> model.out_features
        2
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            # `module` is missing while the object is created or copied.
            if name == "module" or name.startswith("__"):
                raise
            return getattr(self.module, name)
