"""Encoders: observations [B, *obs_shape] to embeddings [B, size]."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ding.torch_utils.network.fast_modules import pass_through
from ding.torch_utils.network.nn_module import Activation, ChannelLayerNorm, Dropout, as_activation
from ding.torch_utils.network.resnet import ResBlock, ResFCBlock
from ding.utils.action_mask import ACTION_MASK, action_mask_of, masks_by_choice
from ding.utils.config_helper import ConfigError
from ding.utils.data.nested import is_container, is_mapping
from ding.utils.default_helper import squeeze


def as_shape(shape: int | Sequence[int]) -> int | tuple[int, ...]:
    """Return a number for a number or a 1-D shape, otherwise a tuple."""
    squeezed: Any = squeeze(shape)
    return int(squeezed) if isinstance(squeezed, Integral) else tuple(squeezed)


def vector_size(shape: Any) -> int | None:
    """Return the number for a number or a 1-D shape, None for any other shape or a dict of shapes."""
    size = None if is_mapping(shape) else as_shape(shape)
    return size if isinstance(size, int) else None


def action_size(action_shape: Any) -> int:
    """Return the number of dimensions of an action vector.

    Raises:
        ConfigError: the shape is not one-dimensional.
    """
    size = vector_size(action_shape)
    if size is None:
        raise ConfigError(
            f"policy.model.action_shape = {action_shape!r} is not allowed; real-valued actions must be vectors [A]: "
            "wrap the env, as by env.wrappers = ['ding.envs.env.gymnasium_spaces:flat_actions'], or train a network "
            "of your own"
        )
    return size


def hybrid_shapes(action_shape: Any) -> tuple[Any, Any]:
    """Return the shapes of the types and of the arguments of hybrid actions.

    Raises:
        ValueError: `action_shape` is no dict of both.
    """
    if not is_mapping(action_shape) or {"action_type_shape", "action_args_shape"} - action_shape.keys():
        raise ValueError(
            f"action_shape {action_shape!r} does not fit the action_space 'hybrid'; it must be a dict with "
            "action_type_shape (a number of actions) and action_args_shape (a number of dimensions)"
        )
    return action_shape["action_type_shape"], action_shape["action_args_shape"]


def pass_mask(output: dict[str, Any], x: Any) -> dict[str, Any]:
    """Add the `action_mask` of a dict observation, if it has one, to the output of a model, in the form of its `logit`.

    Raises:
        ValueError: the mask does not fit the logits.
    """
    mask = action_mask_of(x)
    if mask is not None:
        output[ACTION_MASK] = mask_like(output["logit"], mask)
    return output


def mask_like(logit: Any, mask: Any) -> Any:
    """Return an action mask, in a form that `masks_by_choice` takes, in the form of the logits.

    These are [*B, N], [*B, K, N] for K branches, or a list of [*B, N_k] of K heads.

    Raises:
        ValueError: the mask does not fit the logits.
    """
    if not isinstance(logit, Tensor):
        return masks_by_choice(mask, [head.shape[-1] for head in logit], logit[0].shape[:-1])
    if isinstance(mask, Tensor) and mask.shape == logit.shape:
        return mask
    *batch, count = logit.shape
    if len(batch) > 1 and np.shape(mask) != (*batch, 1, count):
        return torch.stack(masks_by_choice(mask, [count] * batch[-1], batch[:-1]), -2)
    return masks_by_choice(mask, [count], batch)[0]


def public_shape(shape: Any) -> Any:
    """Return a shape as models show it in their attributes: like `as_shape`, but with None and dicts unchanged."""
    return shape if shape is None or is_mapping(shape) else as_shape(shape)


def as_obs_shape(shape: ObsShape) -> ObsShape:
    """Return the shape as a tuple, (N,) for a number; for dict observations a dict of tuples."""
    if is_mapping(shape):
        return {name: as_obs_shape(entry) for name, entry in shape.items()}
    return tuple(np.atleast_1d(as_shape(shape)).tolist())


def observations_of(x: Any, obs_shape: ObsShape, model: nn.Module, path: str = "") -> Any:
    """Return the observations [*B, *obs_shape] in `x` in floating point.

    They are `x` itself, or its entry `observation` if `x` is a dict, also for dict observations. Integers
    are converted to the dtype of the first parameter of `model`. Observations of shape (1,) may be numbers, [B].

    Args:
        obs_shape: a tuple; for dict observations a dict of tuples, whose keys are read from `x`.
        path: the place of `obs_shape` within that of the model, for error messages.

    Raises:
        KeyError: a dict lacks `observation`, or an entry of `obs_shape`.
        TypeError: the observations are tuples.
        ValueError: the observations have another shape, or are images that are not [B, C, H, W].
    """
    if type(obs_shape) is dict:
        return _entries(x, obs_shape, model, path)
    observations = x if isinstance(x, Tensor) else _entry_observation(x)
    if obs_shape == (1,) and observations.dim() == 1:
        observations = observations.unsqueeze(-1)
    wanted: Any = obs_shape
    shape, rank = observations.shape, len(wanted)
    if shape[-rank:] != wanted or (rank == 3 and len(shape) != 4):
        raise ValueError(
            f"the model was made for obs_shape{path} {wanted}, that is batches (B, {', '.join(map(str, wanted))})"
            f", but got observations of shape {tuple(shape)}; check policy.model.obs_shape against the env"
        )
    if observations.is_floating_point():
        return observations
    return observations.to(next(model.parameters()).dtype)


def _entries(x: Any, obs_shape: Mapping[str, Any], model: nn.Module, path: str) -> dict[str, Any]:
    if not path and is_mapping(x) and "observation" not in obs_shape and is_mapping(x.get("observation")):
        x = x["observation"]
    if not is_mapping(x) or obs_shape.keys() - x.keys():
        found = f"the entries {', '.join(map(str, x))}" if is_mapping(x) else type(x).__name__
        raise KeyError(
            f"obs_shape{path} has the entries {', '.join(obs_shape)}, but the observation has {found}; check "
            "policy.model.obs_shape against the env"
        )
    entries: dict[str, Any] = {}
    for name, shape in obs_shape.items():
        entry = x[name]
        if shape == (1,) and entry.dim() > 1 and entry.shape[-1] != 1:
            entry = entry.unsqueeze(-1)  # in a batch of dicts, entries [1] are [B]
        entries[name] = observations_of(entry, shape, model, f"{path}[{name!r}]")
    return entries


def _entry_observation(x: Any) -> Tensor:
    if is_mapping(x):
        if "observation" not in x:
            raise KeyError(f"a dict observation needs the key 'observation'; it has {', '.join(map(str, x)) or 'none'}")
        x = x["observation"]
    if not isinstance(x, Tensor):
        found = f"tuple of {len(x)} parts" if is_container(x) else type(x).__name__
        raise TypeError(
            f"the model takes observations as one tensor or a dict of tensors, not as a {found}; let the env "
            "return an array, or a dict with policy.model.obs_shape as a dict of shapes, or pass a model of your own"
        )
    return x


# A number (or [number]) for vectors, (C, H, W) for images, a mapping of names to shapes for dict observations.
ObsShape = int | Sequence[int] | Mapping[str, Any]

# Images with a smaller side do not fit the default kernels of `ConvEncoder`.
_SMALL_IMAGE = 36
# Channels of the default encoder of images, and the width of its embeddings, which is also that of dicts.
_IMAGE_SIZES = (32, 64, 64, 128)

# The widths of hidden layers: of all of them, or of each.
Widths = int | Sequence[int]


def last_width(widths: Widths) -> int:
    """Return the width of the last of the hidden layers."""
    return widths[-1] if isinstance(widths, Sequence) else int(widths)


def build_encoder(
    obs_shape: ObsShape,
    hidden_size_list: Sequence[int] | None,
    activation: Activation = nn.ReLU,
    norm_type: str | None = None,
    dropout: float | None = None,
    image_encoder: Callable[[Sequence[int]], nn.Module] | None = None,
    scale_ob: float | None = None,
) -> nn.Module:
    """Build the encoder for observations of `obs_shape`; its attribute `output_size` is the width of its embeddings.

    Args:
        obs_shape: a number (or 1-D shape) for vectors, encoded by an `FCEncoder`; (C, H, W) for images, whose
            convolutions are 3 x 3 with stride 2 if one side is below 36; a (nested) dict of shapes for dict
            observations, encoded by a `DictEncoder`.
        hidden_size_list: the widths of the layers; the last one is the width of the embeddings. With None, vectors are
            their own embeddings, and images have (32, 64, 64, 128).
        dropout: dropout probability in vector encoders, None for no dropout.
        image_encoder: creates the encoder for images of shape (C, H, W); None creates a `ConvEncoder` from
            `hidden_size_list`. Its embeddings may have another width.
        scale_ob: what a `ConvEncoder` divides pixels by, such as 255 for images of bytes; None leaves them as they are.

    Raises:
        RuntimeError: a shape has neither one nor three dimensions, or a dict is empty.

    Example:
        >>> encoder = build_encoder({"position": 2, "goal": 2}, [32, 16])
        >>> encoder({"position": torch.rand(5, 2), "goal": torch.rand(5, 2)}).shape
        torch.Size([5, 16])
    """
    if is_mapping(obs_shape) and obs_shape:
        entries = {
            str(name): build_encoder(shape, hidden_size_list, activation, norm_type, dropout, image_encoder, scale_ob)
            for name, shape in obs_shape.items()
        }
        return DictEncoder(entries, (hidden_size_list or _IMAGE_SIZES)[-1], activation)
    shape: Any = squeeze(obs_shape)
    if isinstance(shape, Integral):
        if hidden_size_list is None:
            identity: Any = nn.Identity()
            identity.output_size = int(shape)
            return identity  # type: ignore[no-any-return]
        return FCEncoder(int(shape), hidden_size_list, activation=activation, norm_type=norm_type, dropout=dropout)
    if is_container(shape) and len(shape) == 3:
        if image_encoder is not None:
            return image_encoder(shape)
        sizes = hidden_size_list or _IMAGE_SIZES
        if min(shape[1:]) >= _SMALL_IMAGE:
            return ConvEncoder(shape, sizes, activation, norm_type=norm_type, scale_ob=scale_ob)
        layers = max(1, len(sizes) - 1)
        kernels, strides, pads = [3] * layers, [2] * layers, [1] * layers
        return ConvEncoder(shape, sizes, activation, kernels, strides, pads, norm_type=norm_type, scale_ob=scale_ob)
    raise RuntimeError(
        f"obs_shape {shape!r} is not supported; it must be a number for vectors, (C, H, W) for images, or a dict "
        "of such shapes"
    )


class DictEncoder(nn.Module):
    """An encoder for each entry of a dict observation, and a layer that joins their embeddings.

    It maps `{name: [B, *shape]}` to [B, output_size]. Entries without an encoder are ignored.

    Args:
        encoders: the encoder of each entry, with an attribute `output_size`.
        output_size: the width of the joint embeddings.
        activation: the activation after the joining layer.

    Example:
        >>> encoder = DictEncoder({"arm": FCEncoder(3, [8]), "camera": ConvEncoder((1, 36, 36), [4, 4, 8])}, 16)
        >>> encoder({"arm": torch.rand(2, 3), "camera": torch.rand(2, 1, 36, 36)}).shape
        torch.Size([2, 16])
    """

    def __init__(self, encoders: Mapping[str, nn.Module], output_size: int, activation: Activation = nn.ReLU) -> None:
        super().__init__()
        # Sorted by name, so that the order in the config does not matter. A ModuleDict would require valid attribute
        # names.
        self.names = sorted(encoders)
        self.encoders = nn.ModuleList(encoders[name] for name in self.names)
        self.output_size = output_size
        widths: list[Any] = [encoder.output_size for encoder in self.encoders]
        self.join = nn.Linear(sum(widths), output_size)
        self.act = as_activation(activation) or nn.Identity()

    def forward(self, x: Mapping[str, Any]) -> torch.Tensor:
        parts = [pass_through(x[name], encoder) for name, encoder in zip(self.names, self.encoders, strict=True)]
        embedding: torch.Tensor = pass_through(torch.cat(parts, -1), self, "join", "act")
        return embedding


class FCEncoder(nn.Module):
    """Fully connected encoder: [*, obs_shape] -> [*, hidden_size_list[-1]].

    Args:
        obs_shape: the width of an observation.
        hidden_size_list: the widths of the layers; with `res_block` they must be equal, one block per entry.
        norm_type: normalisation inside the residual blocks; plain layers are not normalised.
        dropout: dropout probability, None for no dropout.

    Raises:
        AssertionError: `hidden_size_list` is empty, or its entries differ although `res_block` is set.

    Example:
        >>> FCEncoder(4, [32, 16])(torch.rand(2, 4)).shape
        torch.Size([2, 16])
    """

    passes = ("init", "act", "main")

    def __init__(
        self,
        obs_shape: int,
        hidden_size_list: Sequence[int],
        res_block: bool = False,
        activation: Activation = nn.ReLU,
        norm_type: str | None = None,
        dropout: float | None = None,
    ) -> None:
        super().__init__()
        sizes = _checked_sizes(hidden_size_list)
        self.obs_shape = obs_shape
        self.output_size = sizes[-1]
        self.act = as_activation(activation) or nn.Identity()
        self.init = nn.Linear(obs_shape, sizes[0])
        if res_block:
            if len(set(sizes)) != 1:
                raise AssertionError(f"with res_block all of hidden_size_list must be equal, not {sizes}")
            blocks = [ResFCBlock(size, self.act, norm_type, dropout) for size in sizes]
            self.main: nn.Module = blocks[0] if len(blocks) == 1 else nn.Sequential(*blocks)
            return
        layers: list[nn.Module] = []
        for size_in, size_out in zip(sizes, sizes[1:], strict=False):
            layers += [nn.Linear(size_in, size_out), self.act]
            if dropout is not None:
                layers.append(Dropout(dropout))
        self.main = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not x.is_floating_point():
            x = x.to(self.init.weight.dtype)
        embedding: torch.Tensor = pass_through(x, self, *self.passes)
        return embedding


class ConvEncoder(nn.Module):
    """Convolutional encoder: [B, C, H, W] -> [B, hidden_size_list[-1]].

    It consists of a convolution with activation per kernel, a `ResBlock` per further size except the last, and a linear
    layer without activation.

    Args:
        obs_shape: (C, H, W).
        hidden_size_list: the channels of the convolutions and residual blocks, and finally the size of the embedding
            (also the channels of the last convolution if the list is not longer than `kernel_size`).
        padding: one number per convolution; None means no padding.
        layer_norm: normalise each pixel over its channels after each convolution.
        norm_type: normalisation inside the residual blocks.
        scale_ob: what pixels are divided by first, such as 255 for images of bytes; None leaves them as they are.

    Raises:
        AssertionError: there are fewer sizes than kernels, or a residual block is not as wide as the last convolution.
        ValueError: `kernel_size`, `stride` and `padding` differ in length, or an image is too small for the kernels.

    Example:
        >>> ConvEncoder((4, 84, 84))(torch.rand(2, 4, 84, 84)).shape
        torch.Size([2, 128])
    """

    def __init__(
        self,
        obs_shape: Sequence[int],
        hidden_size_list: Sequence[int] = (32, 64, 64, 128),
        activation: Activation = nn.ReLU,
        kernel_size: Sequence[int] = (8, 4, 3),
        stride: Sequence[int] = (4, 2, 1),
        padding: Sequence[int] | None = None,
        layer_norm: bool = False,
        norm_type: str | None = None,
        scale_ob: float | None = None,
    ) -> None:
        super().__init__()
        sizes = _checked_sizes(hidden_size_list)
        pads = [0] * len(kernel_size) if padding is None else list(padding)
        if len(sizes) < len(kernel_size):
            raise AssertionError(f"hidden_size_list {sizes} needs a size for each of the {len(kernel_size)} kernels")
        last_conv = len(kernel_size) - 1
        if len(set(sizes[last_conv:-1])) > 1:
            raise AssertionError(
                f"hidden_size_list {sizes}: the residual blocks {sizes[last_conv + 1 : -1]} must be as wide as "
                f"the last convolution, {sizes[last_conv]}"
            )
        self.obs_shape = tuple(obs_shape)
        self.output_size = sizes[-1]
        self.scale_ob = scale_ob
        self.act = as_activation(activation) or nn.Identity()
        layers: list[nn.Module] = []
        channels = self.obs_shape[0]
        for size, kernel, step, pad in zip(sizes, kernel_size, stride, pads, strict=False):
            layers.append(nn.Conv2d(channels, size, kernel, step, pad))
            if layer_norm:
                layers.append(ChannelLayerNorm(size))
            layers.append(self.act)
            channels = size
        layers += [ResBlock(channels, self.act, norm_type) for _ in sizes[len(kernel_size) : -1]]
        layers.append(nn.Flatten())
        self.main = nn.Sequential(*layers)
        image = list(self.obs_shape[1:])
        for kernel, step, pad in zip(kernel_size, stride, pads, strict=True):
            image = [(size + 2 * pad - kernel) // step + 1 for size in image]
            if min(image) < 1:
                raise ValueError(
                    f"images of obs_shape {self.obs_shape} are too small for kernel_size {list(kernel_size)} with "
                    f"stride {list(stride)}; use smaller kernels or larger images"
                )
        self.mid = nn.Linear(channels * math.prod(image), self.output_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not x.is_floating_point():  # images of bytes
            x = x.to(self.mid.weight.dtype)
        if self.scale_ob is not None:
            x = x / self.scale_ob
        embedding: torch.Tensor = pass_through(x, self, "main", "mid")
        return embedding


def _checked_sizes(hidden_size_list: Sequence[int]) -> list[int]:
    if len(hidden_size_list) == 0:
        raise AssertionError("hidden_size_list is empty; an encoder needs at least one size")
    return list(hidden_size_list)


class _ImpalaResidual(nn.Module):
    """Residual block x + conv(relu(conv(relu(x))))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv0 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        change: torch.Tensor = self.conv1(F.relu(self.conv0(F.relu(x))))
        return x + change


class _ImpalaStage(nn.Module):
    """A convolution, a max pooling that halves the image, and residual blocks."""

    def __init__(self, in_channels: int, channels: int, nblock: int) -> None:
        super().__init__()
        self.firstconv = nn.Conv2d(in_channels, channels, 3, padding=1)
        self.blocks = nn.ModuleList(_ImpalaResidual(channels) for _ in range(nblock))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(self.firstconv(x), kernel_size=3, stride=2, padding=1)
        for block in self.blocks:
            x = block(x)
        return x


class IMPALAConvEncoder(nn.Module):
    """The residual image encoder of IMPALA (https://arxiv.org/abs/1802.01561): [*, C, H, W] -> [*, outsize].

    Pixels are divided by `scale_ob` first; each entry of `channels` is a stage that halves height and width.

    Example:
        >>> IMPALAConvEncoder((3, 16, 16), outsize=8)(torch.zeros(2, 3, 16, 16, dtype=torch.uint8)).shape
        torch.Size([2, 8])
    """

    def __init__(
        self,
        obs_shape: Sequence[int],
        channels: Sequence[int] = (16, 32, 32),
        outsize: int = 256,
        scale_ob: float = 255.0,
        nblock: int = 2,
        final_relu: bool = True,
    ) -> None:
        super().__init__()
        self.obs_shape = tuple(obs_shape)
        self.output_size = outsize
        self.scale_ob = scale_ob
        self.final_relu = final_relu
        in_channels, *image = self.obs_shape
        self.stacks = nn.ModuleList()
        for width in channels:
            self.stacks.append(_ImpalaStage(in_channels, width, nblock))
            in_channels = width
            image = [(n + 1) // 2 for n in image]
        self.dense = nn.Linear(in_channels * math.prod(image), outsize)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        leading = x.shape[: -len(self.obs_shape)]
        x = x.reshape(-1, *self.obs_shape) / self.scale_ob
        for stage in self.stacks:
            x = stage(x)
        embedding: torch.Tensor = self.dense(F.relu(x.flatten(1)))
        if self.final_relu:
            embedding = F.relu(embedding)
        return embedding.reshape(*leading, self.output_size)
