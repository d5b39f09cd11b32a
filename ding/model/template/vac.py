"""Actor-critic networks: a policy and a state value; for ACER, a value for each action."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.distributions import Categorical

from ding.model.common.encoder import (
    FCEncoder,
    IMPALAConvEncoder,
    ObsShape,
    Widths,
    action_size,
    as_obs_shape,
    as_shape,
    build_encoder,
    hybrid_shapes,
    last_width,
    observations_of,
    pass_mask,
    public_shape,
    vector_size,
)
from ding.model.common.head import (
    DiscreteHead,
    RegressionHead,
    ReparameterizationHead,
    head_of,
    independent_normal_dist,
)
from ding.model.template.qac import ActorAndCritic, branch
from ding.model.wrapper.model_wrappers import mask_logits
from ding.torch_utils.data_helper import WIDE_INTEGERS
from ding.torch_utils.network.fast_modules import pass_through
from ding.torch_utils.network.nn_module import Activation, as_activation, fc_block
from ding.utils.data.nested import is_mapping
from ding.utils.registry_factory import MODEL_REGISTRY


def _check_action_space(space: str, *allowed: str) -> None:
    if space not in allowed:
        raise ValueError(f"action_space {space!r} is unknown; allowed: {', '.join(allowed)}")


@MODEL_REGISTRY.register("vac")
class VAC(ActorAndCritic):
    """Encoders with an actor head (action distribution) and a critic head (state value).

    Observations are [B, *obs_shape]; dict observations have the entries of `obs_shape`. They may also be a dict with
    `observation` and `action_mask` [B, N] (1 for a legal action; see `mask_like` for multi-discrete ones); the mask is
    passed on in the actor's output.

    Args:
        obs_shape: a number (or 1-D shape) for vector observations, (C, H, W) for images; a dict of shapes for dict
            observations, see `build_encoder`.
        action_shape: the number of discrete actions, or a list of them, one per part of a multi-discrete action;
            the number of dimensions of a continuous action; for hybrid actions a dict with
            `action_type_shape` and `action_args_shape`.
        action_space: 'discrete', 'continuous' or 'hybrid'.
        share_encoder: whether actor and critic have one encoder.
        encoder_hidden_size_list: the widths of the encoder's layers; see `build_encoder` for None.
        actor_head_hidden_size, critic_head_hidden_size: width of the heads' hidden layers. If the width
            of a discrete actor head differs from that of the embedding, a linear layer with activation is inserted. A
            list is the widths of layers before the head's own.
        norm_type: normalisation in the heads, and in image encoders.
        sigma_type, fixed_sigma_value, bound_type: settings of continuous actions, see `ReparameterizationHead`.
        encoder: an encoder module that replaces the one for `obs_shape`; without sharing, the critic gets a copy. Its
            input is the observations [B, *obs_shape], the entries of a dict `obs_shape`, or unchanged nested
            observations if `obs_shape` is None or a plain shape. The width of its embeddings is its attribute
            `output_size`, or the hidden size of the heads if it has none.
        impala_cnn_encoder: whether to encode images with `IMPALAConvEncoder`, whose channels are
            `encoder_hidden_size_list` and whose embeddings are as wide as the hidden layers of the head.
        scale_ob: the divisor of images, such as 255 for bytes. None leaves them unchanged, except with
            `impala_cnn_encoder`, which divides by 255.

    Attributes:
        obs_shape, action_shape: the given shapes, where 1-D shapes become a number.
        multi_head: whether actions are multi-discrete; the actor's logit is then a list.
        actor, critic: `[encoder, head]` of each. They contain the same modules as `actor_head`, `encoder`, ..., so the
            state dict has each parameter under two names. The forward pass uses the latter attributes: to
            replace a part, assign `model.encoder`, `model.actor_head`, ...

    Raises:
        ValueError: `action_space` is unknown, or `encoder` is not a module.
        RuntimeError: `obs_shape`, or an entry of it, has neither one nor three dimensions.

    Example:
        >>> import torch
        >>> model = VAC(obs_shape=4, action_shape=2)
        >>> output = model(torch.rand(3, 4), mode="compute_actor_critic")
        >>> output["logit"].shape, output["value"].shape
        (torch.Size([3, 2]), torch.Size([3]))
    """

    mode = ["compute_actor", "compute_critic", "compute_actor_critic"]

    def __init__(
        self,
        obs_shape: ObsShape | None,
        action_shape: int | Sequence[int] | Mapping[str, Any],
        action_space: str = "discrete",
        share_encoder: bool = True,
        encoder_hidden_size_list: Sequence[int] | None = (128, 128, 64),
        actor_head_hidden_size: Widths = 64,
        actor_head_layer_num: int = 1,
        critic_head_hidden_size: Widths = 64,
        critic_head_layer_num: int = 1,
        activation: Activation = nn.ReLU,
        norm_type: str | None = None,
        sigma_type: str | None = "independent",
        fixed_sigma_value: float = 0.3,
        bound_type: str | None = None,
        encoder: nn.Module | None = None,
        impala_cnn_encoder: bool = False,
        scale_ob: float | None = None,
    ) -> None:
        super().__init__()
        _check_action_space(action_space, "discrete", "continuous", "hybrid")
        if encoder is not None and not isinstance(encoder, nn.Module):
            raise ValueError(f"encoder must be an nn.Module or None, not {type(encoder).__name__}")
        act = as_activation(activation)
        self._obs_shape: Any = None if obs_shape is None else as_obs_shape(obs_shape)
        self.obs_shape = public_shape(obs_shape)
        self.action_shape: Any = public_shape(action_shape)
        self.multi_head = action_space == "discrete" and vector_size(action_shape) is None
        self._has_own_encoder = encoder is not None
        self.action_space = action_space
        self.share_encoder = share_encoder
        self.impala_cnn_encoder = impala_cnn_encoder
        sizes = None if encoder_hidden_size_list is None else list(encoder_hidden_size_list)
        make = partial(_make_encoder, obs_shape, encoder, impala_cnn_encoder, sizes, act, norm_type, scale_ob)
        actor_encoder, actor_size = make(actor_head_hidden_size)
        critic_encoder, critic_size = actor_encoder, actor_size
        if share_encoder:
            self.encoder = actor_encoder
        else:
            critic_encoder, critic_size = make(critic_head_hidden_size)
            if encoder is not None:
                critic_encoder = copy.deepcopy(encoder)
            self.actor_encoder = actor_encoder
            self.critic_encoder = critic_encoder
        self.critic_head = _value_head(critic_size, 1, critic_head_hidden_size, critic_head_layer_num, act, norm_type)
        gaussian = {"sigma_type": sigma_type, "fixed_sigma_value": fixed_sigma_value, "bound_type": bound_type}
        options = {"layer_num": actor_head_layer_num, "activation": act, "norm_type": norm_type}
        self.actor_head = _actor_head(
            action_space, action_shape, actor_size, actor_head_hidden_size, gaussian, **options
        )
        self.actor = nn.ModuleList([actor_encoder, self.actor_head])
        self.critic = nn.ModuleList([critic_encoder, self.critic_head])

    def forward(self, x: Tensor | Mapping[str, Any], mode: str) -> dict[str, Any]:
        """Call the method named `mode` with the observations `x`; see `ActorAndCritic`."""
        return super().forward(x, mode)

    def compute_actor(self, x: Tensor | Mapping[str, Any]) -> dict[str, Any]:
        """Return `{'logit': ...}`.

        The logit is [B, N] for discrete actions (a list of them if multi-discrete), `{'mu': [B, A], 'sigma': [B, A]}`
        for continuous ones, and for hybrid ones `{'action_type': [B, N], 'action_args': {'mu', 'sigma'}}`.
        """
        return self._with_mask({"logit": self._logit(self._actor_embedding(self._observations(x)))}, x)

    def compute_critic(self, x: Tensor | Mapping[str, Any]) -> dict[str, Any]:
        """Return `{'value': [B]}`."""
        encoder = "encoder" if self.share_encoder else "critic_encoder"
        return {"value": pass_through(self._observations(x), self, encoder, "critic_head")["pred"]}

    def compute_actor_critic(self, x: Tensor | Mapping[str, Any]) -> dict[str, Any]:
        """Return `{'logit': ..., 'value': [B]}`."""
        observations = self._observations(x)
        embedding = self._actor_embedding(observations)
        logit = self._logit(embedding)
        if self.share_encoder:
            output = pass_through(embedding, self, "critic_head")
        else:
            output = pass_through(observations, self, "critic_encoder", "critic_head")
        return self._with_mask({"logit": logit, "value": output["pred"]}, x)

    def _observations(self, x: Tensor | Mapping[str, Any]) -> Any:
        if self._has_own_encoder and not is_mapping(self._obs_shape):
            x = x["observation"] if is_mapping(x) and "observation" in x else x
            if self._obs_shape is None or not isinstance(x, Tensor) or x.dtype in WIDE_INTEGERS:
                return x  # integers, too: the encoder may look them up in an embedding
        return observations_of(x, self._obs_shape, self)

    def _actor_embedding(self, observations: Any) -> Tensor:
        embedding: Tensor = pass_through(observations, self, "encoder" if self.share_encoder else "actor_encoder")
        return embedding

    def _logit(self, embedding: Tensor) -> Any:
        if self.action_space == "hybrid":
            kind, args = pass_through(embedding, self.actor_head, "0"), pass_through(embedding, self.actor_head, "1")
            return {"action_type": kind["logit"], "action_args": args}
        output = pass_through(embedding, self, "actor_head")
        return output["logit"] if self.action_space == "discrete" else output

    def _with_mask(self, output: dict[str, Any], x: Tensor | Mapping[str, Any]) -> dict[str, Any]:
        return pass_mask(output, x) if self.action_space == "discrete" else output


def _make_encoder(
    obs_shape: ObsShape | None,
    given: nn.Module | None,
    is_impala: bool,
    hidden_size_list: list[int] | None,
    activation: nn.Module | None,
    norm_type: str | None,
    scale_ob: float | None,
    head_size: Widths,
) -> tuple[nn.Module, int]:
    """Return the encoder for a head with hidden layers of `head_size`, and the width of its embeddings."""
    if given is not None:
        return given, getattr(
            given, "output_size", last_width(head_size)
        )  # an encoder of a user's own need not have it
    if obs_shape is None:
        raise RuntimeError("obs_shape None is not supported without your own encoder")
    image_encoder = None
    if is_impala:
        if vector_size(obs_shape) is not None:
            raise RuntimeError(f"obs_shape {obs_shape!r} does not fit impala_cnn_encoder, which needs (C, H, W)")
        scale = 255.0 if scale_ob is None else scale_ob
        channels: dict[str, Any] = {} if hidden_size_list is None else {"channels": hidden_size_list}
        image_encoder = partial(IMPALAConvEncoder, **channels, outsize=last_width(head_size), scale_ob=scale)
    encoder = build_encoder(obs_shape, hidden_size_list, activation, norm_type, None, image_encoder, scale_ob)
    output_size: Any = encoder.output_size
    return encoder, output_size


def _actor_head(
    action_space: str, action_shape: Any, input_size: int, hidden_size: Widths, gaussian: dict[str, Any], **options: Any
) -> nn.Module:
    """Return the actor's head; a discrete one of another width than `input_size` gets a layer in between.

    Args:
        gaussian: further arguments of a `ReparameterizationHead`.
        options: `layer_num`, `activation` and `norm_type` of the heads.
    """
    if action_space == "hybrid":
        spaces = zip(("discrete", "continuous"), hybrid_shapes(action_shape), strict=True)
        heads = (_actor_head(space, shape, input_size, hidden_size, gaussian, **options) for space, shape in spaces)
        return nn.ModuleList(heads)
    width, act = last_width(hidden_size), options["activation"]
    if action_space == "discrete":
        head = head_of(DiscreteHead, width, as_shape(action_shape), **options)
        if input_size == hidden_size:
            return head
        if not isinstance(hidden_size, Sequence):
            return nn.Sequential(fc_block(input_size, width, activation=act), head)
    else:
        size = action_size(action_shape)
        if not isinstance(hidden_size, Sequence):
            return ReparameterizationHead(input_size, size, hidden_size=width, **gaussian, **options)
        head = ReparameterizationHead(width, size, **gaussian, **options)
    return branch(input_size, hidden_size, act, head)


def _value_head(
    input_size: int,
    output_size: int,
    hidden_size: Widths,
    layer_num: int,
    activation: nn.Module | None,
    norm_type: str | None,
) -> nn.Module:
    if isinstance(hidden_size, Sequence):
        head = RegressionHead(hidden_size[-1], output_size, layer_num, activation=activation, norm_type=norm_type)
        return branch(input_size, hidden_size, activation, head)
    return RegressionHead(
        input_size,
        output_size,
        layer_num,
        activation=activation,
        norm_type=norm_type,
        hidden_size=hidden_size,
    )


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
        encoder_hidden_size_list: Sequence[int] | None = (128, 128, 64),
        actor_head_hidden_size: Widths = 64,
        actor_head_layer_num: int = 1,
        critic_head_hidden_size: Widths = 64,
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
        act = as_activation(activation)
        self.critic_head = _value_head(
            embedding_size, actions, critic_head_hidden_size, critic_head_layer_num, act, norm_type
        )
        self.critic = nn.ModuleList([self.critic_encoder, self.critic_head])

    def compute_critic(self, x: Tensor | Mapping[str, Any]) -> dict[str, Any]:
        """Return `{'q_value': [B, N]}`."""
        return {"q_value": pass_through(self._observations(x), self, "critic_encoder", "critic_head")["pred"]}


@MODEL_REGISTRY.register("ppg")
class PPG(ActorAndCritic):
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
        encoder_hidden_size_list: Sequence[int] | None = (128, 128, 64),
        actor_head_hidden_size: Widths = 64,
        actor_head_layer_num: int = 2,
        critic_head_hidden_size: Widths = 64,
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

    def compute_actor(self, x: Tensor | Mapping[str, Any]) -> dict[str, Any]:
        """Return `{'logit': ...}` of `actor_critic`."""
        return self.actor_critic.compute_actor(x)

    def compute_critic(self, x: Tensor | Mapping[str, Any]) -> dict[str, Any]:
        """Return `{'value': [B]}` of `aux_critic`."""
        return {"value": pass_through(self.actor_critic._observations(x), self.aux_critic, "0", "1")["pred"]}

    def compute_actor_critic(self, x: Tensor | Mapping[str, Any]) -> dict[str, Any]:
        """Return `{'logit': ..., 'value': [B]}` of `actor_critic`."""
        return self.actor_critic.compute_actor_critic(x)


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
            discrete head differs from that of the embedding, a linear layer with activation is inserted. A list is the
            widths of layers before the head's own.
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
        encoder_hidden_size_list: Sequence[int] | None = (128, 128, 64),
        head_hidden_size: Widths | None = None,
        head_layer_num: int = 1,
        activation: Activation = nn.ReLU,
        norm_type: str | None = None,
        scale_ob: float | None = None,
    ) -> None:
        super().__init__()
        _check_action_space(action_space, "discrete", "continuous")
        act = as_activation(activation)
        self._obs_shape = as_obs_shape(obs_shape)
        self.action_space = action_space
        self.encoder = build_encoder(obs_shape, encoder_hidden_size_list, act, norm_type, scale_ob=scale_ob)
        size: Any = self.encoder.output_size
        hidden_size = size if head_hidden_size is None else head_hidden_size
        options = {"layer_num": head_layer_num, "activation": act, "norm_type": norm_type}
        self.head = _actor_head(action_space, action_shape, size, hidden_size, {"sigma_type": "independent"}, **options)

    def forward(self, x: Tensor | Mapping[str, Any]) -> dict[str, Any]:
        """Return `{'logit': ..., 'dist': ...}` for observations [B, *obs_shape].

        The logit is [B, N] for discrete actions, with a categorical distribution (lists of both if multi-discrete),
        and `{'mu': [B, A], 'sigma': [B, A]}` with an independent normal one for continuous actions.

        Dict observations have the entries of `obs_shape`. `x` may also be a dict with `observation` and `action_mask`
        [B, N] (1 for a legal action; see `mask_like` for multi-discrete ones). Illegal actions are then never sampled,
        and the mask is passed on.

        Raises:
            ValueError: the observations do not have the shape of the model's config.
            KeyError: a dict lacks `observation`, or an entry of `obs_shape`.
        """
        observations = observations_of(x, self._obs_shape, self)
        output: dict[str, Any] = pass_through(observations, self, "encoder", "head")
        if self.action_space == "continuous":
            return {"logit": output, "dist": independent_normal_dist(output)}
        mask_logits(pass_mask(output, x))
        logit = output["logit"]
        is_one = isinstance(logit, Tensor)
        output["dist"] = Categorical(logits=logit) if is_one else [Categorical(logits=part) for part in logit]
        return output


@MODEL_REGISTRY.register("mavac")
class MAVAC(ActorAndCritic):
    """The model of multi-agent PPO (https://arxiv.org/abs/2103.01955): A agents share one actor and one critic.

    Its inputs are `agent_state` [B, A, *agent_obs_shape], `global_state` [B, A, *global_obs_shape] or
    [B, *global_obs_shape], and optionally `action_mask` [B, A, N] (1 for a legal action), which is passed on.

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
        actor_head_hidden_size: Widths = 256,
        actor_head_layer_num: int = 2,
        critic_head_hidden_size: Widths = 512,
        critic_head_layer_num: int = 1,
        action_space: str = "discrete",
        activation: Activation = nn.ReLU,
        norm_type: str | None = None,
        sigma_type: str | None = "independent",
        bound_type: str | None = None,
        encoder: Sequence[nn.Module] | None = None,
    ) -> None:
        super().__init__()
        _check_action_space(action_space, "discrete", "continuous")
        encoders: Sequence[nn.Module | None] = (None, None)
        if encoder is not None:
            if len(encoder) != 2 or not all(isinstance(part, nn.Module) for part in encoder):
                raise ValueError("encoder must be None or two nn.Modules, one for the actor and one for the critic")
            # First of all, for the order of the parameters.
            encoders = self.actor_encoder, self.critic_encoder = encoder
        self.agent_num = agent_num
        self.action_space = action_space
        self.agent_obs_shape, self.global_obs_shape = public_shape(agent_obs_shape), public_shape(global_obs_shape)
        self._agent_obs_shape, self._global_obs_shape = as_obs_shape(agent_obs_shape), as_obs_shape(global_obs_shape)
        self.action_shape: Any = public_shape(action_shape)
        act, size = as_activation(activation), vector_size(action_shape)
        actor_size, critic_size = last_width(actor_head_hidden_size), last_width(critic_head_hidden_size)
        head: nn.Module
        if size is None:
            raise ValueError(f"action_shape {action_shape!r} is not supported; it must be a number")
        if action_space == "discrete":
            head = DiscreteHead(actor_size, size, actor_head_layer_num, activation=act, norm_type=norm_type)
        else:
            head = ReparameterizationHead(
                actor_size,
                size,
                actor_head_layer_num,
                activation=act,
                norm_type=norm_type,
                sigma_type=sigma_type,
                bound_type=bound_type,
            )
        self.actor_encoder, self.actor_head = _encoder_and_head(
            encoders[0], agent_obs_shape, actor_head_hidden_size, act, head
        )
        value = RegressionHead(critic_size, 1, critic_head_layer_num, activation=act, norm_type=norm_type)
        self.critic_encoder, self.critic_head = _encoder_and_head(
            encoders[1], global_obs_shape, critic_head_hidden_size, act, value
        )
        self.actor = nn.ModuleList([self.actor_encoder, self.actor_head])
        self.critic = nn.ModuleList([self.critic_encoder, self.critic_head])

    def compute_actor(self, x: Mapping[str, Any]) -> dict[str, Any]:
        """Return `{'logit': [B, A, N]}`; for continuous actions it is `{'mu', 'sigma'}`, each [B, A, action_shape]."""
        observations = observations_of(x["agent_state"], self._agent_obs_shape, self)
        output = pass_through(observations, self, "actor_encoder", "actor_head")
        if self.action_space == "continuous":
            return {"logit": output}
        return pass_mask({"logit": output["logit"]}, x)

    def compute_critic(self, x: Mapping[str, Any]) -> dict[str, Any]:
        """Return `{'value': [B, A]}`, or [B] if all agents share one global state."""
        state: Tensor = observations_of(x["global_state"], self._global_obs_shape, self)
        return {"value": pass_through(state, self, "critic_encoder", "critic_head")["pred"]}

    def compute_actor_critic(self, x: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs of `compute_actor` and `compute_critic`."""
        return {**self.compute_actor(x), **self.compute_critic(x)}


def _encoder_and_head(
    encoder: nn.Module | None, obs_shape: Any, size: Widths, act: nn.Module | None, head: nn.Module
) -> tuple[nn.Module, nn.Module]:
    """Return the encoder and the head, with a linear layer and activation before `head`.

    If there is no encoder, this layer is the encoder, as in DI-engine, so that its states can be loaded.
    """
    # An `nn.Identity`, and an encoder of a user's own, do not have it.
    width: Any = getattr(encoder, "output_size", None) or vector_size(obs_shape)
    if width is None:
        raise ValueError(f"obs_shape {obs_shape!r} is not supported without an encoder that has an output_size")
    if isinstance(size, Sequence):
        layers: list[nn.Module] = [FCEncoder(width, size, activation=act)]
    else:
        layers = [nn.Linear(width, size), act or nn.Identity()]
    return (nn.Sequential(*layers), head) if encoder is None else (encoder, nn.Sequential(*layers, head))
