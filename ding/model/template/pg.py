"""The network of policy gradient methods without a critic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.distributions import Categorical, Distribution

from ding.model.common.encoder import ObsShape, build_encoder
from ding.model.common.head import independent_normal_dist
from ding.model.common.inputs import as_obs_shape, observations_of
from ding.model.template.vac import ActorHeads
from ding.model.wrapper.model_wrappers import mask_logits
from ding.torch_utils.network.activation import Activation, as_activation
from ding.utils.registry_factory import MODEL_REGISTRY

ACTION_SPACES = ("discrete", "continuous")


@MODEL_REGISTRY.register("pg")
class PG(nn.Module):
    """An encoder, and a head for the action distribution.

    Args:
        obs_shape: a number (or 1-D shape) for vector observations, (C, H, W) for images; a dict of shapes for dict
            observations, see `build_encoder`.
        action_shape: the number of discrete actions, or a list of them, one per part of a multi-discrete action;
            the number of dimensions of a continuous action.
        action_space: 'discrete' or 'continuous'. The deviation of continuous actions is a parameter.
        head_hidden_size: width of the head's hidden layers, the last encoder size when None. If the width of a
            discrete head differs from that of the embedding, a linear layer with activation is inserted.
        norm_type: normalisation in the head, and in image encoders.
        scale_ob: what images are divided by, such as 255 for bytes; None leaves them as they are.

    Raises:
        ValueError: `action_space` is unknown.
        RuntimeError: `obs_shape`, or an entry of it, has neither one nor three dimensions.

    Example:
        >>> import torch
        >>> output = PG(obs_shape=4, action_shape=2)(torch.rand(3, 4))
        >>> output["logit"].shape, output["dist"].sample().shape
        (torch.Size([3, 2]), torch.Size([3]))
    """

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: int | Sequence[int],
        action_space: str = "discrete",
        encoder_hidden_size_list: Sequence[int] = (128, 128, 64),
        head_hidden_size: int | None = None,
        head_layer_num: int = 1,
        activation: Activation = nn.ReLU,
        norm_type: str | None = None,
        scale_ob: float | None = None,
    ) -> None:
        super().__init__()
        if action_space not in ACTION_SPACES:
            raise ValueError(f"action_space {action_space!r} is unknown; allowed: {', '.join(ACTION_SPACES)}")
        act = as_activation(activation)
        self._obs_shape = as_obs_shape(obs_shape)
        self.action_space = action_space
        self.encoder = build_encoder(obs_shape, encoder_hidden_size_list, act, norm_type, scale_ob=scale_ob)
        size = encoder_hidden_size_list[-1]
        heads = ActorHeads(size, size if head_hidden_size is None else head_hidden_size, head_layer_num, act, norm_type)
        self.head = heads.build(action_space, action_shape, {"sigma_type": "independent"})

    def forward(self, x: Tensor | Mapping[str, Any]) -> dict[str, Any]:
        """Return `{'logit': ..., 'dist': ...}` for observations [B, *obs_shape].

        The logit is [B, N] for discrete actions, with a categorical distribution (lists of both if multi-discrete),
        and `{'mu': [B, A], 'sigma': [B, A]}` with an independent normal one for continuous actions.

        Dict observations have the entries of `obs_shape`. `x` may also be a dict with `observation` and `action_mask`
        [B, N] (a list of masks if multi-discrete, 1 for a legal action). Illegal actions are then never sampled, and
        the mask is passed on.

        Raises:
            ValueError: the observations do not have the shape of the model's config.
            KeyError: a dict lacks `observation`, or an entry of `obs_shape`.
        """
        output: dict[str, Any] = self.head(self.encoder(observations_of(x, self._obs_shape, self)))
        if self.action_space == "continuous":
            return {"logit": output, "dist": independent_normal_dist(output)}
        if isinstance(x, Mapping) and "action_mask" in x:
            output["action_mask"] = x["action_mask"]
            mask_logits(output)
        output["dist"] = _categorical(output["logit"])
        return output


def _categorical(logit: Any) -> Distribution | list[Distribution]:
    if isinstance(logit, Tensor):
        return Categorical(logits=logit)
    return [Categorical(logits=part) for part in logit]
