"""The actor-critic network of cooperating agents: decentralized actors and a centralized critic."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from ding.model.common.head import DiscreteHead, RegressionHead, ReparameterizationHead
from ding.model.common.inputs import as_obs_shape, as_shape, observations_of, public_shape
from ding.torch_utils.network.activation import Activation, as_activation
from ding.utils.registry_factory import MODEL_REGISTRY

ACTION_SPACES = ("discrete", "continuous")
# Beginnings of earlier names of parameters, and what they are today.
_LAYERS = {
    "actor_head.0.": "actor_encoder.0.",
    "actor_head.2.": "actor_head.",
    "actor.1.0.": "actor.0.0.",
    "actor.1.2.": "actor.1.",
    "critic_head.0.": "critic_encoder.0.",
    "critic_head.2.": "critic_head.",
    "critic.1.0.": "critic.0.0.",
    "critic.1.2.": "critic.1.",
}
_EARLIER = re.compile("|".join(f"^{re.escape(name)}" for name in _LAYERS))


@MODEL_REGISTRY.register("mavac")
class MAVAC(nn.Module):
    """The model of multi-agent PPO (https://arxiv.org/abs/2103.01955): A agents share one actor and one critic.

    Args:
        agent_obs_shape: the width of an agent's own observation.
        global_obs_shape: the width of the state that the critic evaluates.
        action_shape: the number of discrete actions of an agent, or of dimensions of its continuous action.
        agent_num: A.
        action_space: 'discrete' or 'continuous'.
        sigma_type, bound_type: settings of continuous actions, see `ReparameterizationHead`.
        encoder: two modules that encode the inputs of actor and critic. The width of their embeddings is their
            attribute `output_size`, or that of the observations if they have none.

    Attributes:
        actor, critic: `[encoder, head]` of each. They contain the same modules as `actor_head`, `critic_head`, ..., so
            the state dict has each parameter under two names.

    Raises:
        ValueError: `action_space` is unknown, or `encoder` is not a pair of modules.

    Example:
        >>> import torch
        >>> model = MAVAC(agent_obs_shape=8, global_obs_shape=12, action_shape=5, agent_num=3)
        >>> obs = {"agent_state": torch.rand(2, 3, 8), "global_state": torch.rand(2, 3, 12)}
        >>> output = model(obs, mode="compute_actor_critic")
        >>> output["logit"].shape, output["value"].shape
        (torch.Size([2, 3, 5]), torch.Size([2, 3]))
    """

    mode = ["compute_actor", "compute_critic", "compute_actor_critic"]

    def __init__(
        self,
        agent_obs_shape: int | Sequence[int],
        global_obs_shape: int | Sequence[int],
        action_shape: int | Sequence[int],
        agent_num: int,
        actor_head_hidden_size: int = 256,
        actor_head_layer_num: int = 2,
        critic_head_hidden_size: int = 512,
        critic_head_layer_num: int = 1,
        action_space: str = "discrete",
        activation: Activation = nn.ReLU,
        norm_type: str | None = None,
        sigma_type: str | None = "independent",
        bound_type: str | None = None,
        encoder: Sequence[nn.Module] | None = None,
    ) -> None:
        super().__init__()
        if action_space not in ACTION_SPACES:
            raise ValueError(f"action_space {action_space!r} is unknown; allowed: {', '.join(ACTION_SPACES)}")
        own: Sequence[nn.Module | None] = (None, None)
        if encoder is not None:
            if len(encoder) != 2 or not all(isinstance(part, nn.Module) for part in encoder):
                raise ValueError("encoder must be None or two nn.Modules, one for the actor and one for the critic")
            # First of all, for the order of the parameters.
            own = self.actor_encoder, self.critic_encoder = encoder
        self._encodes_by_itself = encoder is None
        self.agent_num = agent_num
        self.action_space = action_space
        self.agent_obs_shape, self.global_obs_shape = public_shape(agent_obs_shape), public_shape(global_obs_shape)
        self._agent_obs_shape, self._global_obs_shape = as_obs_shape(agent_obs_shape), as_obs_shape(global_obs_shape)
        self.action_shape: Any = public_shape(action_shape)
        act, size = as_activation(activation), as_shape(action_shape)
        actor_size, critic_size = actor_head_hidden_size, critic_head_hidden_size
        options: dict[str, Any] = {"activation": act, "norm_type": norm_type}
        head: nn.Module
        if not isinstance(size, int):
            raise ValueError(f"action_shape {action_shape!r} is not supported; it must be a number")
        if action_space == "discrete":
            head = DiscreteHead(actor_size, size, actor_head_layer_num, **options)
        else:
            options_of_actor = {**options, "sigma_type": sigma_type, "bound_type": bound_type}
            head = ReparameterizationHead(actor_size, size, actor_head_layer_num, **options_of_actor)
        self.actor_encoder, self.actor_head = _encoder_and_head(own[0], agent_obs_shape, actor_size, act, head)
        value = RegressionHead(critic_size, 1, critic_head_layer_num, **options)
        self.critic_encoder, self.critic_head = _encoder_and_head(own[1], global_obs_shape, critic_size, act, value)
        self.actor = nn.ModuleList([self.actor_encoder, self.actor_head])
        self.critic = nn.ModuleList([self.critic_encoder, self.critic_head])

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        state = _renamed(state_dict) if self._encodes_by_itself else state_dict
        return super().load_state_dict(state, strict=strict, assign=assign)

    def forward(self, inputs: Mapping[str, Any], mode: str) -> dict[str, Any]:
        """Call the method named `mode`.

        Args:
            inputs: `agent_state` [B, A, *agent_obs_shape], `global_state` [B, A, *global_obs_shape] or
                [B, *global_obs_shape], and optionally `action_mask` [B, A, N] (1 for a legal action), which is passed
                on.

        Raises:
            AssertionError: the mode is unknown.
            ValueError: the observations do not have the shapes of the model's config.
            KeyError: an observation is missing.
        """
        if mode not in self.mode:
            raise AssertionError(f"mode {mode!r} is unknown; allowed: {', '.join(self.mode)}")
        output: dict[str, Any] = getattr(self, mode)(inputs)
        return output

    def compute_actor(self, x: Mapping[str, Any]) -> dict[str, Any]:
        """Return `{'logit': [B, A, N]}`; for continuous actions it is `{'mu', 'sigma'}`, each [B, A, action_shape]."""
        output = self.actor_head(self.actor_encoder(observations_of(x["agent_state"], self._agent_obs_shape, self)))
        if self.action_space == "continuous":
            return {"logit": output}
        return {"logit": output["logit"], **({"action_mask": x["action_mask"]} if "action_mask" in x else {})}

    def compute_critic(self, x: Mapping[str, Any]) -> dict[str, Any]:
        """Return `{'value': [B, A]}`, or [B] if all agents share one global state."""
        state: Tensor = observations_of(x["global_state"], self._global_obs_shape, self)
        return {"value": self.critic_head(self.critic_encoder(state))["pred"]}

    def compute_actor_critic(self, x: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs of `compute_actor` and `compute_critic`."""
        return {**self.compute_actor(x), **self.compute_critic(x)}


def _encoder_and_head(
    encoder: nn.Module | None, obs_shape: Any, size: int, act: nn.Module | None, head: nn.Module
) -> tuple[nn.Module, nn.Module]:
    """Return the encoder and the head, with a linear layer and activation before `head`.

    If there is no encoder, this layer is the encoder, as in DI-engine, so that its states can be loaded.
    """
    width: Any = getattr(encoder, "output_size", None) or as_shape(obs_shape)
    if not isinstance(width, int):
        raise ValueError(f"obs_shape {obs_shape!r} is not supported without an encoder that has an output_size")
    layer = nn.Linear(width, size), act or nn.Identity()
    return (nn.Sequential(*layer), head) if encoder is None else (encoder, nn.Sequential(*layer, head))


def _renamed(state_dict: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state with current names; in earlier versions of this package the layer was part of the head."""
    return {_EARLIER.sub(lambda found: _LAYERS[found[0]], name): value for name, value in state_dict.items()}
