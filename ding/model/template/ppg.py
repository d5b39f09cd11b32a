"""The networks of phasic policy gradient: an actor-critic, and a separate critic."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from ding.model.common.encoder import ObsShape
from ding.model.template.vac import VAC
from ding.torch_utils.network.activation import Activation
from ding.utils.registry_factory import MODEL_REGISTRY


@MODEL_REGISTRY.register("ppg")
class PPG(nn.Module):
    """A `VAC`, `actor_critic`, and `aux_critic`, a separate critic that starts as a copy of its critic.

    The arguments are those of `VAC`.

    Example:
        >>> import torch
        >>> model = PPG(obs_shape=4, action_shape=2)
        >>> output = model(torch.rand(3, 4), mode="compute_actor_critic")
        >>> output["logit"].shape, model(torch.rand(3, 4), mode="compute_critic")["value"].shape
        (torch.Size([3, 2]), torch.Size([3]))
    """

    mode = ["compute_actor", "compute_critic", "compute_actor_critic"]

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: int | Sequence[int] | Mapping[str, Any],
        action_space: str = "discrete",
        share_encoder: bool = True,
        encoder_hidden_size_list: Sequence[int] = (128, 128, 64),
        actor_head_hidden_size: int = 64,
        actor_head_layer_num: int = 2,
        critic_head_hidden_size: int = 64,
        critic_head_layer_num: int = 1,
        activation: Activation = nn.ReLU,
        norm_type: str | None = None,
        impala_cnn_encoder: bool = False,
    ) -> None:
        super().__init__()
        self.actor_critic = VAC(
            obs_shape,
            action_shape,
            action_space,
            share_encoder,
            encoder_hidden_size_list,
            actor_head_hidden_size,
            actor_head_layer_num,
            critic_head_hidden_size,
            critic_head_layer_num,
            activation,
            norm_type,
            impala_cnn_encoder=impala_cnn_encoder,
        )
        self.aux_critic = copy.deepcopy(self.actor_critic.critic)

    def forward(self, inputs: Tensor | Mapping[str, Any], mode: str) -> dict[str, Any]:
        """Call the method named `mode` with observations [B, *obs_shape]; see `VAC`.

        Raises:
            AssertionError: the mode is unknown.
        """
        if mode not in self.mode:
            raise AssertionError(f"mode {mode!r} is unknown; allowed: {', '.join(self.mode)}")
        output: dict[str, Any] = getattr(self, mode)(inputs)
        return output

    def compute_actor(self, x: Tensor | Mapping[str, Any]) -> dict[str, Any]:
        """Return `{'logit': ...}` of `actor_critic`."""
        return self.actor_critic.compute_actor(x)

    def compute_critic(self, x: Tensor | Mapping[str, Any]) -> dict[str, Any]:
        """Return `{'value': [B]}` of `aux_critic`."""
        encoder, head = self.aux_critic
        return {"value": head(encoder(self.actor_critic._observations(x)))["pred"]}

    def compute_actor_critic(self, x: Tensor | Mapping[str, Any]) -> dict[str, Any]:
        """Return `{'logit': ..., 'value': [B]}` of `actor_critic`."""
        return self.actor_critic.compute_actor_critic(x)
