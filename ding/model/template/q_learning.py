"""Q networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from ding.model.common.encoder import ObsShape, build_encoder
from ding.model.common.head import DiscreteHead, DuelingHead, MultiHead
from ding.model.common.inputs import as_obs_shape, as_shape, observations_of
from ding.torch_utils.network.activation import Activation, as_activation
from ding.torch_utils.network.nn_module import fc_block
from ding.torch_utils.network.noise_layer import NoiseLinearLayer
from ding.utils.registry_factory import MODEL_REGISTRY


@MODEL_REGISTRY.register("dqn")
class DQN(nn.Module):
    """Encoder and head that give one Q value for each action.

    Args:
        obs_shape: a number (or 1-D shape) for vector observations, (C, H, W) for images; a dict of such for dict
            observations, see `build_encoder`.
        action_shape: the number of actions, or a list of them, one for each part of a multi-discrete action.
        dueling: whether the head is a `DuelingHead`; else it is a `DiscreteHead`.
        head_hidden_size: width of the head's hidden layers, the last encoder size when None. Where it is another
            width, a linear layer with activation, `projection`, stands between encoder and head.
        norm_type: normalisation in the head.
        dropout: dropout probability in a vector encoder and in the head, None for no dropout.
        init_bias: start of the bias of the head's last layer (of the advantages, if dueling).
        noise: whether the head consists of `NoiseLinearLayer`.

    Raises:
        RuntimeError: `obs_shape`, or an entry of it, has neither one nor three dimensions.

    Example:
        >>> import torch
        >>> model = DQN(obs_shape=4, action_shape=2)
        >>> model(torch.rand(3, 4))["logit"].shape
        torch.Size([3, 2])
    """

    projection: nn.Module | None

    def __init__(
        self,
        obs_shape: ObsShape,
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
        action_shape = as_shape(action_shape)
        act = as_activation(activation)
        embedding_size = encoder_hidden_size_list[-1] if len(encoder_hidden_size_list) else 0
        hidden_size = embedding_size if head_hidden_size is None else head_hidden_size
        self.encoder = build_encoder(obs_shape, encoder_hidden_size_list, act, norm_type, dropout)
        is_projected = hidden_size != embedding_size
        projection = fc_block(embedding_size, hidden_size, activation=act) if is_projected else None
        self.register_module("projection", projection)
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
        self._obs_shape = as_obs_shape(obs_shape)
        if init_bias is not None:
            _fill_last_bias(self.head, init_bias)

    def forward(self, x: Tensor | Mapping[str, Any]) -> dict[str, Any]:
        """`{'logit': [B, action_shape]}` for observations [B, *obs_shape], a list of logits if multi-discrete.

        Dict observations have the entries of `obs_shape`. `x` may also be a dict with `observation` and `action_mask`
        [B, action_shape] (a list of masks if multi-discrete, 1 for a legal action); the mask is passed on.

        Raises:
            ValueError: the observations do not have the shape that the model was made for.
            KeyError: a dict without `observation`, or without an entry of `obs_shape`.
        """
        embedding = self.encoder(observations_of(x, self._obs_shape, self))
        projection = self.projection
        output: dict[str, Any] = self.head(embedding if projection is None else projection(embedding))
        if not isinstance(x, Tensor) and isinstance(x, Mapping) and "action_mask" in x:
            output["action_mask"] = x["action_mask"]
        return output


def _fill_last_bias(head: nn.Module, value: float) -> None:
    members: list[Any] = list(head.pred) if isinstance(head, MultiHead) else [head]
    for member in members:
        branch: Any = member.A if isinstance(member, DuelingHead) else member.Q
        last = branch[-1][0]
        nn.init.constant_(last.bias_mu if isinstance(last, NoiseLinearLayer) else last.bias, value)
