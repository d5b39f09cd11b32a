"""Actor-critic networks: Q(s, a), Q(s, .) for discrete actions, distributions of Q, and QVAC, which also has V(s)."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ding.model.common.encoder import (
    ConvEncoder,
    FCEncoder,
    ObsShape,
    Widths,
    action_size,
    as_obs_shape,
    build_encoder,
    hybrid_shapes,
    last_width,
    observations_of,
    pass_mask,
    public_shape,
    vector_size,
)
from ding.model.common.head import DiscreteHead, DistributionHead, RegressionHead, ReparameterizationHead
from ding.torch_utils.network.fast_modules import pass_through
from ding.torch_utils.network.nn_module import Activation, as_activation
from ding.utils.data.nested import is_mapping
from ding.utils.registry_factory import MODEL_REGISTRY

# Deterministic actions in (-1, 1), or mean and deviation of a Gaussian.
ACTION_HEADS = ("regression", "reparameterization")
ACTION_SPACES = (*ACTION_HEADS, "hybrid")
# Default layers of the encoder of dict observations.
_DICT_SIZES = (128, 128, 64)


class ActorAndCritic(nn.Module):
    """A model whose forward modes are methods: `compute_actor`, `compute_critic` and others in `mode`."""

    mode = ["compute_actor", "compute_critic"]

    def forward(self, inputs: Any, mode: str) -> dict[str, Any]:
        """Call the method named `mode` with `inputs`.

        Raises:
            AssertionError: the mode is unknown.
            ValueError: the observations do not have the shape of the model's config.
            KeyError: a dict of observations lacks an entry.
        """
        if mode not in self.mode:
            raise AssertionError(f"mode {mode!r} is unknown; allowed: {', '.join(self.mode)}")
        output: dict[str, Any] = getattr(self, mode)(inputs)
        return output


class QActorCritic(ActorAndCritic):
    """Base class of the models in this module: observations, encoders, one or two critics, two modes.

    Attributes:
        actor, critic: `[encoder, head]` of each. They contain the same modules as `actor_encoder`, `actor_head`, ...,
            so the state dict has each parameter under two names. The forward pass uses the latter attributes: to
            replace a part, assign `model.actor_encoder`, `model.actor_head`, ...
        twin_critic: whether there are two critics; the head is then a list.
    """

    actor_head: nn.Module
    # The attribute that is the critic's head.
    _critic_name: ClassVar[str] = "critic_head"
    # Whether there is another head, `critic_v_head`, with the value of a state.
    _has_value_head: ClassVar[bool] = False

    def __init__(
        self,
        obs_shape: ObsShape,
        hidden_size_list: Sequence[int] | None,
        share_encoder: bool,
        twin_critic: bool,
        activation: nn.Module | None,
        norm_type: str | None,
    ) -> None:
        super().__init__()
        self._obs_shape = as_obs_shape(obs_shape)
        self.share_encoder = share_encoder
        self.twin_critic = twin_critic
        make = partial(_make_encoder, self._obs_shape, hidden_size_list, share_encoder, activation, norm_type)
        self.actor_encoder, self.embedding_size = make()
        self.critic_encoder = self.actor_encoder if share_encoder else make()[0]

    def _set_heads(self, actor_head: nn.Module, critic_heads: list[nn.Module]) -> None:
        self.actor_head = actor_head
        critic_head = nn.ModuleList(critic_heads) if self.twin_critic else critic_heads[0]
        self.register_module(self._critic_name, critic_head)
        self.actor = nn.ModuleList([self.actor_encoder, self.actor_head])
        self.critic = nn.ModuleList([self.critic_encoder, critic_head])

    def _actor_embedding(self, obs: Any) -> Tensor:
        embedding: Tensor = pass_through(observations_of(obs, self._obs_shape, self), self, "actor_encoder")
        return embedding

    def _critic_embedding(self, obs: Any) -> Tensor:
        embedding: Tensor = pass_through(observations_of(obs, self._obs_shape, self), self, "critic_encoder")
        return embedding

    def _q_value(self, x: Tensor, key: str) -> Any:
        """Return the entry `key` of the critic's output; for two critics, a list of both."""
        heads: Any = getattr(self, self._critic_name)
        return [pass_through(x, head)[key] for head in heads] if self.twin_critic else pass_through(x, heads)[key]


def _make_encoder(
    obs_shape: ObsShape,
    hidden_size_list: Sequence[int] | None,
    share_encoder: bool,
    activation: nn.Module | None,
    norm_type: str | None,
) -> tuple[nn.Module, int]:
    """Return the encoder for `obs_shape` (the identity for vectors), and the width of its embeddings."""
    size = vector_size(obs_shape)
    if size is not None:
        if hidden_size_list is not None or share_encoder:
            raise AssertionError(
                "encoder_hidden_size_list and share_encoder are for images and dict observations; for vectors set "
                "actor_head_layer_num and critic_head_layer_num"
            )
        return nn.Identity(), size
    if hidden_size_list is None:
        encoder = build_encoder(obs_shape, _DICT_SIZES if is_mapping(obs_shape) else None, activation, norm_type)
        return encoder, encoder.output_size  # type: ignore[return-value]
    layers = len(hidden_size_list)
    image_encoder = partial(
        ConvEncoder,
        hidden_size_list=hidden_size_list,
        activation=activation,
        kernel_size=[3] * layers,
        stride=[2] + [1] * (layers - 1),
        norm_type=norm_type,
    )
    encoder = build_encoder(obs_shape, hidden_size_list, activation, norm_type, image_encoder=image_encoder)
    output_size: Any = encoder.output_size
    return encoder, output_size


def branch(input_size: int, hidden_size: Widths, activation: nn.Module | None, head: nn.Module) -> nn.Sequential:
    """Prepend a linear layer with activation to `head`; for a list of widths, several."""
    if isinstance(hidden_size, Sequence):
        return nn.Sequential(FCEncoder(input_size, hidden_size, activation=activation), head)
    act = nn.Identity() if activation is None else activation
    return nn.Sequential(nn.Linear(input_size, hidden_size), act, head)


def check_choice(name: str, value: str, allowed: Sequence[str]) -> None:
    """Raise AssertionError if the argument `name` of a model has another value than those allowed."""
    if value not in allowed:
        raise AssertionError(f"{name} {value!r} is unknown; allowed: {', '.join(allowed)}")


def action_head(action_space: str, width: int, action_width: int, **head_kwargs: Any) -> nn.Module:
    """Return the head for one of `ACTION_HEADS`."""
    if action_space == "regression":
        return RegressionHead(width, action_width, final_tanh=True, **head_kwargs)
    return ReparameterizationHead(width, action_width, sigma_type="conditioned", **head_kwargs)


def action_output(output: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return what an `action_head` shows: `{'action': [B, A]}`, [B] with one dimension, or `{'logit': [mu, sigma]}`."""
    return {"action": output["pred"]} if "pred" in output else {"logit": [output["mu"], output["sigma"]]}


@MODEL_REGISTRY.register("continuous_qac")
class ContinuousQAC(QActorCritic):
    """An actor with real-valued actions, and one or two critics Q(s, a).

    Args:
        obs_shape: a number (or 1-D shape) for vector observations, which have no encoder; (C, H, W) for images; a dict
            of shapes for dict observations, see `build_encoder`.
        action_shape: the number of dimensions A of an action. For hybrid actions a dict with `action_type_shape`, the
            number of types N, and `action_args_shape`, the number of dimensions A of the arguments.
        action_space: 'regression' (deterministic actions in (-1, 1)), 'reparameterization' (mean and deviation of a
            Gaussian, both computed from the observation) or 'hybrid' (logits of the type and deterministic arguments).
        twin_critic: whether there are two critics.
        actor_head_hidden_size, critic_head_hidden_size: width of all hidden layers of actor and critic; or the widths
            of the first ones.
        actor_head_layer_num, critic_head_layer_num: hidden layers after the first one.
        norm_type: normalisation in the heads, and in image encoders.
        encoder_hidden_size_list: the widths of the encoders; None for vectors. By default they are (32, 64, 64, 128)
            for images, and (128, 128, 64) for dict observations.
        share_encoder: whether actor and critic have one encoder.

    Raises:
        AssertionError: `action_space` is unknown, or encoder settings are given for vectors.
        RuntimeError: `obs_shape`, or an entry of it, has neither one nor three dimensions.

    Example:
        >>> model = ContinuousQAC(obs_shape=3, action_shape=2, action_space="regression", twin_critic=True)
        >>> obs = torch.rand(5, 3)
        >>> action = model(obs, mode="compute_actor")["action"]
        >>> [q.shape for q in model({"obs": obs, "action": action}, mode="compute_critic")["q_value"]]
        [torch.Size([5]), torch.Size([5])]
    """

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: int | Sequence[int] | Mapping[str, Any],
        action_space: str,
        twin_critic: bool = False,
        actor_head_hidden_size: Widths = 64,
        actor_head_layer_num: int = 1,
        critic_head_hidden_size: Widths = 64,
        critic_head_layer_num: int = 1,
        activation: Activation = nn.ReLU,
        norm_type: str | None = None,
        encoder_hidden_size_list: Sequence[int] | None = None,
        share_encoder: bool = False,
    ) -> None:
        check_choice("action_space", action_space, ACTION_SPACES)
        act = as_activation(activation)
        super().__init__(obs_shape, encoder_hidden_size_list, share_encoder, twin_critic, act, norm_type)
        self.action_space = action_space
        self.action_shape: Any = public_shape(action_shape)
        size = self.embedding_size
        actor_branch = partial(branch, size, actor_head_hidden_size, act)
        actor_width = last_width(actor_head_hidden_size)
        actor: dict[str, Any] = {"layer_num": actor_head_layer_num, "activation": act, "norm_type": norm_type}
        if action_space == "hybrid":
            types, width = map(action_size, hybrid_shapes(action_shape))
            action_width = types + width
            actor_head: nn.Module = nn.ModuleList(
                [
                    actor_branch(DiscreteHead(actor_width, types, **actor)),
                    actor_branch(RegressionHead(actor_width, width, final_tanh=True, **actor)),
                ]
            )
        else:
            action_width = action_size(action_shape)
            actor_head = actor_branch(action_head(action_space, actor_width, action_width, **actor))

        def value_head(width: int) -> nn.Sequential:
            head = RegressionHead(
                last_width(critic_head_hidden_size), 1, critic_head_layer_num, activation=act, norm_type=norm_type
            )
            return branch(width, critic_head_hidden_size, act, head)

        self._set_heads(actor_head, [value_head(size + action_width) for _ in range(2 if twin_critic else 1)])
        if self._has_value_head:
            self.critic_v_head = value_head(size)
            self.critic.append(self.critic_v_head)

    def compute_actor(self, obs: Any) -> dict[str, Any]:
        """Return the actor's output for observations [B, *obs_shape].

        'regression': `{'action': [B, A]}`, [B] with one dimension. 'reparameterization': `{'logit': [mu, sigma]}`, both
        [B, A]. 'hybrid': `{'logit': [B, N], 'action_args': [B, A]}`, [B] with one dimension.
        """
        embedding = self._actor_embedding(obs)
        if self.action_space == "hybrid":
            heads: Any = self.actor_head
            logit, args = pass_through(embedding, heads, "0"), pass_through(embedding, heads, "1")
            return {"logit": logit["logit"], "action_args": args["pred"]}
        return action_output(pass_through(embedding, self, "actor_head"))

    def compute_critic(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return `{'q_value': [B]}` of `{'obs': ..., 'action': [B, A]}`; for two critics a list of two.

        An action of one dimension may be [B]. Of a hybrid action, `inputs` has `logit` [B, N], whose softmax is the
        critic's input, and `action` has `action_args` [B, A].
        """
        embedding, action = self._critic_embedding(inputs["obs"]), inputs["action"]
        if self.action_space == "hybrid":
            action = action["action_args"]
        if action.dim() == 1:
            action = action.unsqueeze(1)
        parts = [embedding, action]
        if self.action_space == "hybrid":
            parts.insert(1, torch.softmax(inputs["logit"], -1))
        return {"q_value": self._q_value(torch.cat(parts, 1), "pred")}


def _with_earlier_names(signature: inspect.Signature) -> inspect.Signature:
    parameters = dict(signature.parameters)
    parameters["action_space"] = parameters["action_space"].replace(default=None)
    parameters["actor_head_type"] = inspect.Parameter("actor_head_type", inspect.Parameter.KEYWORD_ONLY, default=None)
    return signature.replace(parameters=list(parameters.values()))


@MODEL_REGISTRY.register("qac")
class QAC(ContinuousQAC):
    """`ContinuousQAC` under its earlier name; `action_space` may also be called `actor_head_type`, as then.

    Raises:
        TypeError: neither `action_space` nor `actor_head_type` is given, or they differ.

    Example:
        >>> model = QAC(obs_shape=3, action_shape=2, actor_head_type="regression")
        >>> model(torch.rand(5, 3), mode="compute_actor")["action"].shape
        torch.Size([5, 2])
    """

    __signature__ = _with_earlier_names(inspect.signature(ContinuousQAC))  # by which unknown keys of a config are found

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: int | Sequence[int] | Mapping[str, Any],
        action_space: str | None = None,
        *args: Any,
        actor_head_type: str | None = None,
        **kwargs: Any,
    ) -> None:
        names = list({name for name in (action_space, actor_head_type) if name is not None})
        if len(names) != 1:
            raise TypeError(
                f"QAC needs either action_space or actor_head_type, one of {', '.join(ACTION_SPACES)}; got "
                f"action_space = {action_space!r} and actor_head_type = {actor_head_type!r}"
            )
        super().__init__(obs_shape, action_shape, names[0], *args, **kwargs)


@MODEL_REGISTRY.register("qac_pixel")
class QACPixel(QAC):
    """`QAC` for images (C, H, W), under its earlier name; `ContinuousQAC` now encodes images itself.

    Args:
        encoder_hidden_size_list: channels of the convolutions, and finally the width of the embedding.

    Example:
        >>> model = QACPixel(obs_shape=(3, 48, 48), action_shape=2, actor_head_type="regression")
        >>> model(torch.rand(5, 3, 48, 48), mode="compute_actor")["action"].shape
        torch.Size([5, 2])
    """

    def __init__(self, *args: Any, encoder_hidden_size_list: Sequence[int] = (32, 64, 256), **kwargs: Any) -> None:
        super().__init__(*args, encoder_hidden_size_list=encoder_hidden_size_list, **kwargs)


@MODEL_REGISTRY.register("discrete_qac")
class DiscreteQAC(QActorCritic):
    """A softmax policy over N discrete actions, and one or two critics with a value for each action.

    Args:
        obs_shape: as in `ContinuousQAC`, like all other arguments.
        action_shape: the number of actions N.

    Raises:
        AssertionError: encoder settings are given for vectors.
        RuntimeError: `obs_shape`, or an entry of it, has neither one nor three dimensions.
        ValueError: `action_shape` is not a number.

    Example:
        >>> model = DiscreteQAC(obs_shape=4, action_shape=2, twin_critic=True)
        >>> obs = torch.rand(5, 4)
        >>> model(obs, mode="compute_actor")["logit"].shape
        torch.Size([5, 2])
        >>> [q.shape for q in model(obs, mode="compute_critic")["q_value"]]
        [torch.Size([5, 2]), torch.Size([5, 2])]
    """

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: int | Sequence[int],
        twin_critic: bool = False,
        actor_head_hidden_size: Widths = 64,
        actor_head_layer_num: int = 1,
        critic_head_hidden_size: Widths = 64,
        critic_head_layer_num: int = 1,
        activation: Activation = nn.ReLU,
        norm_type: str | None = None,
        encoder_hidden_size_list: Sequence[int] | None = None,
        share_encoder: bool = False,
    ) -> None:
        act = as_activation(activation)
        super().__init__(obs_shape, encoder_hidden_size_list, share_encoder, twin_critic, act, norm_type)
        actions = vector_size(action_shape)
        if actions is None:
            raise ValueError(f"action_shape {action_shape!r} is not supported; it must be a number of actions")

        def make(hidden_size: Widths, layer_num: int) -> nn.Module:
            head = DiscreteHead(last_width(hidden_size), actions, layer_num, act, norm_type)
            return branch(self.embedding_size, hidden_size, act, head)

        actor_head = make(actor_head_hidden_size, actor_head_layer_num)
        critics = [make(critic_head_hidden_size, critic_head_layer_num) for _ in range(2 if twin_critic else 1)]
        self._set_heads(actor_head, critics)

    def compute_actor(self, inputs: Any) -> dict[str, Any]:
        """Return `{'logit': [B, N]}` for observations [B, *obs_shape].

        `inputs` may also be a dict with `observation` and `action_mask` [B, N] (1 for a legal action); the mask is
        passed on.
        """
        return pass_mask(pass_through(self._actor_embedding(inputs), self, "actor_head"), inputs)

    def compute_critic(self, inputs: Any) -> dict[str, Any]:
        """Return `{'q_value': [B, N]}`; for two critics a list of two."""
        return {"q_value": self._q_value(self._critic_embedding(inputs), "logit")}


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
    _critic_name = "critic_q_head"
    _has_value_head = True

    def compute_critic(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return `{'q_value': [B], 'v_value': [B]}` of `{'obs', 'action'}`; for two critics, `q_value` is a list."""
        return {**super().compute_critic(inputs), **self.compute_value(inputs["obs"])}

    def compute_value(self, obs: Any) -> dict[str, Any]:
        """Return `{'v_value': [B]}` of the observations [B, *obs_shape]."""
        return {"v_value": pass_through(self._critic_embedding(obs), self, "critic_v_head")["pred"]}


@MODEL_REGISTRY.register("qac_dist")
class QACDIST(ActorAndCritic):
    """An actor with real-valued actions, and a critic with a categorical distribution over `n_atom` returns.

    Args:
        obs_shape: a number (or 1-D shape): observations are vectors.
        action_shape: the number of dimensions A of an action.
        action_space: 'regression' (deterministic actions in (-1, 1)) or 'reparameterization' (mean and deviation of a
            Gaussian, both computed from the observation).
        critic_head_type: 'categorical', see `DistributionHead`.
        actor_head_hidden_size, critic_head_hidden_size: width of all hidden layers of actor and critic; or the widths
            of the first ones.
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
        actor_head_hidden_size: Widths = 64,
        actor_head_layer_num: int = 1,
        critic_head_hidden_size: Widths = 64,
        critic_head_layer_num: int = 1,
        activation: Activation = nn.ReLU,
        norm_type: str | None = None,
        v_min: float = -10,
        v_max: float = 10,
        n_atom: int = 51,
    ) -> None:
        super().__init__()
        check_choice("action_space", action_space, ACTION_HEADS)
        check_choice("critic_head_type", critic_head_type, ("categorical",))
        size, width = vector_size(obs_shape), action_size(action_shape)
        if size is None:
            raise RuntimeError(f"obs_shape {obs_shape!r} is not supported; it must be a number for vectors")
        act = as_activation(activation)
        self.action_space = action_space
        self.critic_head_type = critic_head_type
        self._obs_shape = (size,)
        actor: dict[str, Any] = {"layer_num": actor_head_layer_num, "activation": act, "norm_type": norm_type}
        critic_head = DistributionHead(
            last_width(critic_head_hidden_size),
            1,
            critic_head_layer_num,
            n_atom=n_atom,
            v_min=v_min,
            v_max=v_max,
            activation=act,
            norm_type=norm_type,
        )
        actor_head = action_head(action_space, last_width(actor_head_hidden_size), width, **actor)
        self.actor = branch(size, actor_head_hidden_size, act, actor_head)
        self.critic = branch(size + width, critic_head_hidden_size, act, critic_head)

    def compute_actor(self, inputs: Tensor) -> dict[str, Any]:
        """Return the actor's output for observations [B, obs_shape].

        'regression': `{'action': [B, A]}`, [B] with one dimension. 'reparameterization': `{'logit': [mu, sigma]}`, both
        [B, A].
        """
        return action_output(pass_through(observations_of(inputs, self._obs_shape, self), self, "actor"))

    def compute_critic(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return `{'q_value': [B, 1], 'distribution': [B, 1, n_atom]}` of `{'obs': [B, obs_shape], 'action': [B, A]}`.

        An action of one dimension may be [B]. The value is the mean of the distribution.
        """
        obs, action = observations_of(inputs["obs"], self._obs_shape, self), inputs["action"]
        if action.dim() == 1:
            action = action.unsqueeze(1)
        output = pass_through(torch.cat([obs, action], 1), self, "critic")
        return {"q_value": output["logit"], "distribution": output["distribution"]}
