"""The actor-critic network of ACER: a policy and a value for each action."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from ding.model.common.encoder import ObsShape
from ding.model.common.head import RegressionHead
from ding.model.common.inputs import as_shape
from ding.model.template.vac import VAC
from ding.torch_utils.network.activation import Activation, as_activation
from ding.utils.registry_factory import MODEL_REGISTRY


@MODEL_REGISTRY.register("acer")
class ACER(VAC):
    """`VAC` for discrete actions with two encoders and a critic with one Q value per action.

    Args:
        obs_shape, encoder_hidden_size_list, activation, norm_type: as in `VAC`.
        action_shape: the number of actions.
        actor_head_hidden_size, actor_head_layer_num, critic_head_hidden_size, critic_head_layer_num: as in `VAC`.

    Example:
        >>> import torch
        >>> model = ACER(obs_shape=4, action_shape=2)
        >>> model(torch.rand(3, 4), mode="compute_critic")["q_value"].shape
        torch.Size([3, 2])
    """

    mode = ["compute_actor", "compute_critic"]

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: int | Sequence[int],
        encoder_hidden_size_list: Sequence[int] = (128, 128, 64),
        actor_head_hidden_size: int = 64,
        actor_head_layer_num: int = 1,
        critic_head_hidden_size: int = 64,
        critic_head_layer_num: int = 1,
        activation: Activation = nn.ReLU,
        norm_type: str | None = None,
    ) -> None:
        super().__init__(
            obs_shape,
            action_shape,
            share_encoder=False,
            encoder_hidden_size_list=encoder_hidden_size_list,
            actor_head_hidden_size=actor_head_hidden_size,
            actor_head_layer_num=actor_head_layer_num,
            critic_head_hidden_size=critic_head_hidden_size,
            critic_head_layer_num=critic_head_layer_num,
            activation=activation,
            norm_type=norm_type,
        )
        embedding_size: Any = self.critic_encoder.output_size
        actions: Any = as_shape(action_shape)
        self.critic_head = RegressionHead(
            embedding_size,
            actions,
            critic_head_layer_num,
            activation=as_activation(activation),
            norm_type=norm_type,
            hidden_size=critic_head_hidden_size,
        )
        self.critic = nn.ModuleList([self.critic_encoder, self.critic_head])

    def compute_critic(self, x: Tensor | Mapping[str, Any]) -> dict[str, Any]:
        """Return `{'q_value': [B, N]}`."""
        return {"q_value": self.critic_head(self.critic_encoder(self._observations(x)))["pred"]}
