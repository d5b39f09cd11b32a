"""Q networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

from torch import Tensor, nn

from ding.model.common.encoder import ConvEncoder, FCEncoder
from ding.model.common.head import DiscreteHead, DuelingHead, MultiHead
from ding.model.common.plain_forward import PlainForward
from ding.torch_utils.network.activation import Activation, as_activation
from ding.torch_utils.network.nn_module import fc_block
from ding.torch_utils.network.noise_layer import NoiseLinearLayer
from ding.utils.default_helper import squeeze
from ding.utils.registry_factory import MODEL_REGISTRY


@MODEL_REGISTRY.register("dqn")
class DQN(nn.Module):
    """Encoder and head that give one Q value for each action.

    Args:
        obs_shape: a number (or 1-D shape) for vector observations, (C, H, W) for images.
        action_shape: the number of actions, or a list of them, one for each part of a multi-discrete action.
        dueling: whether the head is a `DuelingHead`; else it is a `DiscreteHead`.
        head_hidden_size: width of the head's hidden layers, the last encoder size when None. Where it is another
            width, a linear layer with activation, `projection`, stands between encoder and head.
        norm_type: normalisation in the head.
        dropout: dropout probability in a vector encoder and in the head, None for no dropout.
        init_bias: start of the bias of the head's last layer (of the advantages, if dueling).
        noise: whether the head consists of `NoiseLinearLayer`.

    Raises:
        RuntimeError: `obs_shape` has neither one nor three dimensions.

    Example:
        >>> import torch
        >>> model = DQN(obs_shape=4, action_shape=2)
        >>> model(torch.rand(3, 4))["logit"].shape
        torch.Size([3, 2])
    """

    # Not in __getstate__: made again at the first forward pass of a copy.
    _plain: PlainForward | None = None
    _may_be_plain = True

    def __init__(
        self,
        obs_shape: int | Sequence[int],
        action_shape: int | Sequence[int],
        encoder_hidden_size_list: Sequence[int] = (128, 128, 64),
        dueling: bool = True,
        head_hidden_size: int | None = None,
        head_layer_num: int = 1,
        activation: Activation = nn.ReLU,
        norm_type: str | None = None,
        dropout: float | None = None,
        init_bias: float | None = None,
        noise: bool = False,
    ) -> None:
        super().__init__()
        obs_shape, action_shape = _shape(obs_shape), _shape(action_shape)
        act = as_activation(activation)
        embedding_size = encoder_hidden_size_list[-1] if len(encoder_hidden_size_list) else 0
        hidden_size = embedding_size if head_hidden_size is None else head_hidden_size
        self.encoder = _build_encoder(obs_shape, encoder_hidden_size_list, act, norm_type, dropout)
        if hidden_size != embedding_size:
            self.projection = fc_block(embedding_size, hidden_size, activation=act)
        head_cls: type[nn.Module] = DuelingHead if dueling else DiscreteHead
        head_kwargs: dict[str, Any] = {
            "layer_num": head_layer_num,
            "activation": act,
            "norm_type": norm_type,
            "dropout": dropout,
            "noise": noise,
        }
        if isinstance(action_shape, int):
            self.head: nn.Module = head_cls(hidden_size, action_shape, **head_kwargs)
        else:
            self.head = MultiHead(head_cls, hidden_size, action_shape, **head_kwargs)
        self._obs_shape = (obs_shape,) if isinstance(obs_shape, int) else obs_shape
        if init_bias is not None:
            _fill_last_bias(self.head, init_bias)

    def forward(self, x: Tensor | Mapping[str, Any]) -> dict[str, Any]:
        """`{'logit': [B, action_shape]}` for observations [B, *obs_shape], a list of logits if multi-discrete.

        `x` may be a dict with `observation` and `action_mask` [B, action_shape] (a list of masks if multi-discrete,
        1 for a legal action); the mask is passed on in the output.

        Raises:
            ValueError: the observations do not have the shape that the model was made for.
            KeyError: a dict without `observation`.
        """
        if type(x) is Tensor:
            plain = self._plain
            if plain is None or not plain.fits(self):
                plain = self._plain_forward()
            if plain is not None and plain.may_run(x):
                return plain(x)
        elif isinstance(x, Mapping):
            return self._forward_dict(x)
        return self._forward_modules(x)

    def _plain_forward(self) -> PlainForward | None:
        """The plain form of the modules there are now, which have not been looked at or have been replaced."""
        if self._plain is not None or self._may_be_plain:
            self._plain = PlainForward.build(self)
            self._may_be_plain = self._plain is not None
        return self._plain

    def _forward_dict(self, x: Mapping[str, Any]) -> dict[str, Any]:
        if "observation" not in x:
            raise KeyError(f"a dict observation needs the key 'observation'; it has {', '.join(map(str, x)) or 'none'}")
        output = self.forward(x["observation"])
        if "action_mask" in x:
            output["action_mask"] = x["action_mask"]
        return output

    def _forward_modules(self, x: Tensor) -> dict[str, Any]:
        rank = len(self._obs_shape)
        if tuple(x.shape[-rank:]) != self._obs_shape or (rank == 3 and x.ndim != 4):
            raise ValueError(
                f"the model was made for obs_shape {self._obs_shape}, that is batches (B, {_join(self._obs_shape)}), "
                f"but got observations of shape {tuple(x.shape)}; check policy.model.obs_shape against the env"
            )
        if not x.is_floating_point():
            x = x.to(next(self.parameters()).dtype)
        x = self.encoder(x)
        if hasattr(self, "projection"):
            x = self.projection(x)
        output: dict[str, Any] = self.head(x)
        return output

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_plain", "_may_be_plain")}


def _shape(shape: int | Sequence[int]) -> int | tuple[int, ...]:
    squeezed: Any = squeeze(shape)
    return int(squeezed) if isinstance(squeezed, Integral) else tuple(squeezed)


def _build_encoder(
    obs_shape: int | Sequence[int],
    hidden_size_list: Sequence[int],
    activation: nn.Module | None,
    norm_type: str | None,
    dropout: float | None,
) -> nn.Module:
    if isinstance(obs_shape, int):
        return FCEncoder(obs_shape, hidden_size_list, activation=activation, norm_type=norm_type, dropout=dropout)
    if len(obs_shape) == 3:
        return ConvEncoder(obs_shape, hidden_size_list, activation=activation, norm_type=norm_type)
    raise RuntimeError(
        f"obs_shape {obs_shape!r} is not supported; it must be a number for vectors or (C, H, W) for images"
    )


def _fill_last_bias(head: nn.Module, value: float) -> None:
    members: list[Any] = list(head.pred) if isinstance(head, MultiHead) else [head]
    for member in members:
        branch: Any = member.A if isinstance(member, DuelingHead) else member.Q
        last = branch[-1][0]
        nn.init.constant_(last.bias_mu if isinstance(last, NoiseLinearLayer) else last.bias, value)


def _join(shape: Sequence[int]) -> str:
    return ", ".join(map(str, shape))
