"""Actor-critic networks with values of states and of actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import nn

from ding.model.common.encoder import ObsShape
from ding.model.common.head import RegressionHead
from ding.model.template.qac import ContinuousQAC, branch
from ding.torch_utils.network.activation import Activation, as_activation
from ding.utils.registry_factory import MODEL_REGISTRY


@MODEL_REGISTRY.register("continuous_qvac")
class ContinuousQVAC(ContinuousQAC):
    """`ContinuousQAC` with an additional head for V(s) on the critic's encoder, as wide and deep as the critic's.

    Attributes:
        critic_q_head, critic_v_head: the heads of Q(s, a), a list for two critics, and of V(s).
        critic: also contains the value head.

    Example:
        >>> import torch
        >>> model = ContinuousQVAC(obs_shape=3, action_shape=2, action_space="reparameterization")
        >>> output = model({"obs": torch.rand(5, 3), "action": torch.rand(5, 2)}, mode="compute_critic")
        >>> output["q_value"].shape, output["v_value"].shape
        (torch.Size([5]), torch.Size([5]))
    """

    mode = ["compute_actor", "compute_critic", "compute_value"]
    _critic_name: ClassVar[str] = "critic_q_head"

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: int | Sequence[int] | Mapping[str, Any],
        action_space: str,
        twin_critic: bool = False,
        actor_head_hidden_size: int = 64,
        actor_head_layer_num: int = 1,
        critic_head_hidden_size: int = 64,
        critic_head_layer_num: int = 1,
        activation: Activation = nn.ReLU,
        norm_type: str | None = None,
        encoder_hidden_size_list: Sequence[int] | None = None,
        share_encoder: bool = False,
    ) -> None:
        super().__init__(
            obs_shape,
            action_shape,
            action_space,
            twin_critic,
            actor_head_hidden_size,
            actor_head_layer_num,
            critic_head_hidden_size,
            critic_head_layer_num,
            activation,
            norm_type,
            encoder_hidden_size_list,
            share_encoder,
        )
        act, width = as_activation(activation), critic_head_hidden_size
        head = RegressionHead(width, 1, layer_num=critic_head_layer_num, activation=act, norm_type=norm_type)
        self.critic_v_head = branch(self.embedding_size, width, act, head)
        self.critic.append(self.critic_v_head)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        return super().load_state_dict(_renamed(state_dict), strict=strict, assign=assign)

    def compute_critic(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return `{'q_value': [B], 'v_value': [B]}` of `{'obs', 'action'}`; for two critics, `q_value` is a list."""
        return {**super().compute_critic(inputs), **self.compute_value(inputs["obs"])}

    def compute_value(self, obs: Any) -> dict[str, Any]:
        """Return `{'v_value': [B]}` of the observations [B, *obs_shape]."""
        return {"v_value": self.critic_v_head(self._critic_embedding(obs))["pred"]}


def _renamed(state_dict: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state with the current names of the heads, which differ in earlier versions of this package."""
    names = {"critic_head": "critic_q_head", "value_head": "critic_v_head"}
    split = {key: key.partition(".") for key in state_dict}
    return {
        names.get(split[key][0], split[key][0]) + "".join(split[key][1:]): value for key, value in state_dict.items()
    }
