"""Networks for behaviour cloning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from ding.model.common.encoder import (
    ConvEncoder,
    ObsShape,
    Widths,
    action_size,
    as_obs_shape,
    last_width,
    observations_of,
    public_shape,
    vector_size,
)
from ding.model.template.q_learning import DQN
from ding.model.template.qac import ACTION_HEADS, action_head, action_output, branch, check_choice
from ding.torch_utils.network.fast_modules import pass_through
from ding.torch_utils.network.nn_module import Activation, as_activation
from ding.utils.registry_factory import MODEL_REGISTRY


@MODEL_REGISTRY.register("discrete_bc")
class DiscreteBC(DQN):
    """The network of `DQN`, with one logit per action.

    Args:
        strides: the strides of the convolutions of an image encoder; None for the defaults.

    Example:
        >>> import torch
        >>> DiscreteBC(obs_shape=4, action_shape=2)(torch.rand(3, 4))["logit"].shape
        torch.Size([3, 2])
    """

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: int | Sequence[int],
        encoder_hidden_size_list: Sequence[int] = (128, 128, 64),
        dueling: bool = True,
        head_hidden_size: Widths | None = None,
        head_layer_num: int = 1,
        activation: Activation = nn.ReLU,
        norm_type: str | None = None,
        strides: Sequence[int] | None = None,
    ) -> None:
        sizes = encoder_hidden_size_list
        super().__init__(
            obs_shape, action_shape, sizes, dueling, head_hidden_size, head_layer_num, activation, norm_type
        )
        shape: Any = as_obs_shape(obs_shape)
        if strides is not None:
            if not isinstance(self.encoder, ConvEncoder):
                raise ValueError(f"strides = {strides!r} are for images [C, H, W]; obs_shape is {obs_shape!r}")
            act = as_activation(activation)
            self.encoder = ConvEncoder(shape, sizes, activation=act, stride=strides, norm_type=norm_type)


@MODEL_REGISTRY.register("continuous_bc")
class ContinuousBC(nn.Module):
    """A network with real-valued actions for vector observations.

    Args:
        obs_shape: the width of an observation.
        action_shape: the number of dimensions A of an action.
        action_space: 'regression' (actions in (-1, 1)) or 'reparameterization' (mean and deviation of a Gaussian, both
            computed from the observation).
        actor_head_hidden_size: width of all hidden layers; or the widths of the first ones.
        actor_head_layer_num: hidden layers after the first one.

    Raises:
        AssertionError: `action_space` is unknown.
        ValueError: the shape of observations or actions is not one-dimensional.

    Example:
        >>> import torch
        >>> ContinuousBC(3, 2, "regression")(torch.rand(5, 3))["action"].shape
        torch.Size([5, 2])
    """

    def __init__(
        self,
        obs_shape: int | Sequence[int],
        action_shape: int | Sequence[int],
        action_space: str,
        actor_head_hidden_size: Widths = 64,
        actor_head_layer_num: int = 1,
        activation: Activation = nn.ReLU,
        norm_type: str | None = None,
    ) -> None:
        super().__init__()
        check_choice("action_space", action_space, ACTION_HEADS)
        width = vector_size(obs_shape)
        if width is None:
            raise ValueError(f"obs_shape {obs_shape!r} is not supported; observations are vectors")
        self.action_space = action_space
        self.action_shape: Any = public_shape(action_shape)
        self._obs_shape = (width,)
        act, hidden = as_activation(activation), last_width(actor_head_hidden_size)
        options: dict[str, Any] = {"layer_num": actor_head_layer_num, "activation": act, "norm_type": norm_type}
        head = action_head(action_space, hidden, action_size(action_shape), **options)
        self.actor = branch(width, actor_head_hidden_size, act, head)

    def forward(self, inputs: Any) -> dict[str, Any]:
        """Return `{'action': [B, A]}`, or with 'reparameterization' `{'logit': [mu, sigma]}`, both [B, A]."""
        output = action_output(pass_through(observations_of(inputs, self._obs_shape, self), self, "actor"))
        if "action" in output and output["action"].dim() == 1:
            output["action"] = output["action"].unsqueeze(-1)
        return output
