"""An actor-critic network whose critic predicts the distribution of returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ding.model.common.encoder import as_shape, observations_of
from ding.model.common.head import DistributionHead, RegressionHead, ReparameterizationHead
from ding.model.template.qac import ActorAndCritic, action_size, branch
from ding.torch_utils.network.nn_module import Activation, as_activation
from ding.utils.registry_factory import MODEL_REGISTRY

ACTION_SPACES = ("regression", "reparameterization")
CRITIC_HEAD_TYPES = ("categorical",)


@MODEL_REGISTRY.register("qac_dist")
class QACDIST(ActorAndCritic):
    """An actor with real-valued actions, and a critic with a categorical distribution over `n_atom` returns.

    Args:
        obs_shape: a number (or 1-D shape): observations are vectors.
        action_shape: the number of dimensions A of an action.
        action_space: 'regression' (deterministic actions in (-1, 1)) or 'reparameterization' (mean and deviation of a
            Gaussian, both computed from the observation).
        critic_head_type: 'categorical', see `DistributionHead`.
        actor_head_hidden_size, critic_head_hidden_size: width of all hidden layers of actor and critic.
        actor_head_layer_num, critic_head_layer_num: hidden layers after the first one.
        v_min, v_max, n_atom: the returns are evenly spaced from `v_min` to `v_max`.

    Raises:
        AssertionError: `action_space` or `critic_head_type` is unknown.
        RuntimeError: `obs_shape` is not a number.

    Example:
        >>> model = QACDIST(obs_shape=3, action_shape=2, n_atom=11)
        >>> obs = torch.rand(5, 3)
        >>> action = model(obs, mode="compute_actor")["action"]
        >>> output = model({"obs": obs, "action": action}, mode="compute_critic")
        >>> output["q_value"].shape, output["distribution"].shape
        (torch.Size([5, 1]), torch.Size([5, 1, 11]))
    """

    def __init__(
        self,
        obs_shape: int | Sequence[int],
        action_shape: int | Sequence[int],
        action_space: str = "regression",
        critic_head_type: str = "categorical",
        actor_head_hidden_size: int = 64,
        actor_head_layer_num: int = 1,
        critic_head_hidden_size: int = 64,
        critic_head_layer_num: int = 1,
        activation: Activation = nn.ReLU,
        norm_type: str | None = None,
        v_min: float = -10,
        v_max: float = 10,
        n_atom: int = 51,
    ) -> None:
        super().__init__()
        _check(action_space, "action_space", ACTION_SPACES)
        _check(critic_head_type, "critic_head_type", CRITIC_HEAD_TYPES)
        size, width = as_shape(obs_shape), action_size(action_shape)
        if not isinstance(size, int):
            raise RuntimeError(f"obs_shape {obs_shape!r} is not supported; it must be a number for vectors")
        act = as_activation(activation)
        self.action_space = action_space
        self.critic_head_type = critic_head_type
        self._obs_shape = (size,)
        actor: dict[str, Any] = {"layer_num": actor_head_layer_num, "activation": act, "norm_type": norm_type}
        make_head: Any = (
            partial(RegressionHead, final_tanh=True)
            if action_space == "regression"
            else partial(ReparameterizationHead, sigma_type="conditioned")
        )
        critic_head = DistributionHead(
            critic_head_hidden_size,
            1,
            critic_head_layer_num,
            n_atom=n_atom,
            v_min=v_min,
            v_max=v_max,
            activation=act,
            norm_type=norm_type,
        )
        actor_head = make_head(actor_head_hidden_size, width, **actor)
        self.actor = branch(size, actor_head_hidden_size, act, actor_head)
        self.critic = branch(size + width, critic_head_hidden_size, act, critic_head)

    def compute_actor(self, inputs: Tensor) -> dict[str, Any]:
        """Return the actor's output for observations [B, obs_shape].

        'regression': `{'action': [B, A]}`, [B] with one dimension. 'reparameterization': `{'logit': [mu, sigma]}`, both
        [B, A].
        """
        output = self.actor(observations_of(inputs, self._obs_shape, self))
        if self.action_space == "regression":
            return {"action": output["pred"]}
        return {"logit": [output["mu"], output["sigma"]]}

    def compute_critic(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return `{'q_value': [B, 1], 'distribution': [B, 1, n_atom]}` of `{'obs': [B, obs_shape], 'action': [B, A]}`.

        An action of one dimension may be [B]. The value is the mean of the distribution.
        """
        obs, action = observations_of(inputs["obs"], self._obs_shape, self), inputs["action"]
        if action.dim() == 1:
            action = action.unsqueeze(1)
        output = self.critic(torch.cat([obs, action], 1))
        return {"q_value": output["logit"], "distribution": output["distribution"]}


def _check(value: str, name: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise AssertionError(f"{name} {value!r} is unknown; allowed: {', '.join(allowed)}")
