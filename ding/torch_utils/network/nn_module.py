"""Building blocks of networks: linear and convolutional blocks, the MLP, normalization, one-hot encoding."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ding.utils.random_draws import RandomModule, draw_normal, draw_uniform
from ding.utils.references import is_reference, resolve_reference

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


# What layers accept as their `activation`: a module, a module class (instantiated once per network), a name, also that
# of a class, `module:name`, as saved configs have it, or None.
Activation = nn.Module | type[nn.Module] | str | None


class Square(nn.Module):
    """The activation x * x, element-wise."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * x


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "prelu": nn.PReLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "swish": nn.SiLU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "softplus": nn.Softplus,
    "square": Square,
    "identity": nn.Identity,
}


def build_activation(activation: str, inplace: bool | None = None) -> Any:
    """Return a new activation module called `activation`; only 'relu' supports `inplace`.

    Raises:
        KeyError: the name is unknown.
        AssertionError: `inplace` is given for another activation than 'relu'.

    Example:
        >>> build_activation("relu", inplace=True)
        ReLU(inplace=True)
    """
    if activation not in ACTIVATIONS:
        raise KeyError(f"unknown activation {activation!r}; known: {', '.join(ACTIVATIONS)}")
    if inplace is None:
        return ACTIVATIONS[activation]()
    if activation != "relu":
        raise AssertionError(f"inplace={inplace} is only understood by 'relu', not by {activation!r}")
    return nn.ReLU(inplace=inplace)


def as_activation(activation: Activation) -> nn.Module | None:
    """Return the module for `activation`; a module is returned as it is, so one instance may be used in several places.

    Raises:
        KeyError: the name is unknown.
    """
    if is_reference(activation):
        activation = resolve_reference(str(activation), "activation")
    if isinstance(activation, str):
        module: nn.Module = build_activation(activation)
        return module
    return activation() if isinstance(activation, type) else activation


# torch's layer, under the name that this package has always had for it.
Flatten = nn.Flatten

_PAD_LAYERS = {"reflect": nn.ReflectionPad2d, "replication": nn.ReplicationPad2d}


def sequential_pack(layers: Iterable[nn.Module]) -> nn.Sequential:
    """Return an `nn.Sequential` of `layers`, whose attribute `out_channels` is their last width, if they have one."""
    packed = nn.Sequential(*layers)
    for layer in reversed(list(packed)):
        # Convolutions and linear layers have these, and so may layers of a user's own.
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
        layers.append(Dropout(dropout))
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
    dropout = dropout_probability if use_dropout else None
    tail = _after_linear(out_channels, as_activation(activation), norm_type, dropout)
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
    dropout = dropout_probability if use_dropout else None
    tail = _after_linear(out_channels, as_activation(activation), norm_type, dropout)
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
    linear_layers = [layer for layer in layers if isinstance(layer, nn.Linear)]
    if last_linear_layer_init_zero and linear_layers:
        for parameter in linear_layers[-1].parameters():
            nn.init.zeros_(parameter)
    return nn.Sequential(*layers)


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


class Dropout(RandomModule, nn.Dropout):
    """torch's `Dropout` that draws from a generator of its own.

    Example:
        >>> Dropout(0.5)(torch.ones(2, 3)).shape
        torch.Size([2, 3])
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        is_kept = draw_uniform(self.rng, x.shape, like=x) >= self.p
        return x * is_kept / max(1 - self.p, torch.finfo(x.dtype).tiny)


class NoiseLinearLayer(RandomModule):
    """A linear layer whose weights are mu + sigma * eps, with eps factorised Gaussian noise.

    See "Noisy Networks for Exploration", https://arxiv.org/abs/1706.10295. The noise is used only while `enable_noise`
    is true (it is false at first, also in training mode), and stays the same until `reset_noise`.

    Example:
        >>> layer = NoiseLinearLayer(4, 2)
        >>> layer.enable_noise = True
        >>> layer.reset_noise()
        >>> layer(torch.ones(3, 4)).shape
        torch.Size([3, 2])
    """

    _saved = ("enable_noise",)
    weight_eps: torch.Tensor
    bias_eps: torch.Tensor

    def __init__(self, in_channels: int, out_channels: int, sigma0: float = 0.4) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.sigma0 = sigma0
        self.enable_noise = False
        self.weight_mu = nn.Parameter(torch.empty(out_channels, in_channels))
        self.weight_sigma = nn.Parameter(torch.empty(out_channels, in_channels))
        self.bias_mu = nn.Parameter(torch.empty(out_channels))
        self.bias_sigma = nn.Parameter(torch.empty(out_channels))
        self.register_buffer("weight_eps", torch.empty(out_channels, in_channels))
        self.register_buffer("bias_eps", torch.empty(out_channels))
        self.reset_parameters()
        self.reset_noise()

    def reset_parameters(self) -> None:
        """Draw mu uniformly from +-1/sqrt(in); set sigma to sigma0/sqrt(in) (weight) and sigma0/sqrt(out) (bias)."""
        bound = 1 / math.sqrt(self.in_channels)
        nn.init.uniform_(self.weight_mu, -bound, bound)
        nn.init.uniform_(self.bias_mu, -bound, bound)
        nn.init.constant_(self.weight_sigma, self.sigma0 / math.sqrt(self.in_channels))
        nn.init.constant_(self.bias_sigma, self.sigma0 / math.sqrt(self.out_channels))

    def reset_noise(self) -> None:
        """Draw new noise."""
        noise_in = self._scaled_noise(self.in_channels)
        noise_out = self._scaled_noise(self.out_channels)
        self.weight_eps.copy_(torch.outer(noise_out, noise_in))
        self.bias_eps.copy_(noise_out)

    def _scaled_noise(self, size: int) -> torch.Tensor:
        x = draw_normal(self.rng, (size,), like=self.weight_mu.detach())
        return x.sign() * x.abs().sqrt()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.enable_noise:
            return F.linear(x, self.weight_mu, self.bias_mu)
        weight = self.weight_mu + self.weight_sigma * self.weight_eps
        bias = self.bias_mu + self.bias_sigma * self.bias_eps
        return F.linear(x, weight, bias)

    def extra_repr(self) -> str:
        return f"in_channels={self.in_channels}, out_channels={self.out_channels}, sigma0={self.sigma0}"
