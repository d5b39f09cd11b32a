"""Q networks, and the pair of them of soft Q-learning (SQN)."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ding.model.common.encoder import (
    FCEncoder,
    ObsShape,
    Widths,
    as_obs_shape,
    as_shape,
    build_encoder,
    last_width,
    observations_of,
    pass_mask,
    vector_size,
)
from ding.model.common.head import (
    BranchingHead,
    DiscreteHead,
    DistributionHead,
    DuelingHead,
    FQFHead,
    MultiHead,
    QRDQNHead,
    QuantileHead,
    RainbowHead,
    head_of,
)
from ding.torch_utils.network.fast_modules import pass_through
from ding.torch_utils.network.nn_module import Activation, NoiseLinearLayer, as_activation, fc_block
from ding.torch_utils.network.rnn import get_lstm
from ding.utils.config_helper import ConfigError
from ding.utils.data.nested import is_mapping
from ding.utils.registry_factory import MODEL_REGISTRY


class QNetwork(nn.Module):
    """Base class of Q networks: an encoder, an optional projection, and a head of the class `_head_cls`.

    If `head_hidden_size` differs from the width of the encoder's output, a linear layer with activation, `projection`,
    is inserted between encoder and head; if it is a list, layers of these widths. For multi-discrete actions there is
    a head for each part.

    Args:
        dropout: dropout probability in a vector encoder, in the projection and in the head.
        head_kwargs: further arguments of the head.
    """

    projection: nn.Module | None
    _head_cls: type[nn.Module]
    # The head's input is the embedding divided by this.
    _divisor: int = 1

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: int | Sequence[int],
        encoder_hidden_size_list: Sequence[int] | None,
        head_hidden_size: Widths | None,
        activation: Activation,
        norm_type: str | None,
        dropout: float | None = None,
        scale_ob: float | None = None,
        **head_kwargs: Any,
    ) -> None:
        super().__init__()
        act = as_activation(activation)
        self.encoder = build_encoder(obs_shape, encoder_hidden_size_list, act, norm_type, dropout, scale_ob=scale_ob)
        embedding_size: Any = self.encoder.output_size
        hidden_size = embedding_size if head_hidden_size is None else head_hidden_size
        projection: nn.Module | None = None
        if isinstance(hidden_size, Sequence):
            projection = FCEncoder(embedding_size, hidden_size, activation=act, dropout=dropout)
        elif hidden_size != embedding_size:
            projection = fc_block(embedding_size, hidden_size, activation=act)
        self.register_module("projection", projection)
        head_kwargs |= {"activation": act, "norm_type": norm_type}
        if dropout is not None:
            head_kwargs["dropout"] = dropout
        self.head = head_of(self._head_cls, last_width(hidden_size), as_shape(action_shape), **head_kwargs)
        self._obs_shape = as_obs_shape(obs_shape)

    def forward(self, x: Tensor | Mapping[str, Any]) -> dict[str, Any]:
        """Return the head's output for observations [B, *obs_shape]: `logit` [B, N], and the head's other entries.

        For multi-discrete actions each entry is a list with one item per head. Dict observations have the entries
        of `obs_shape`. `x` may also be a dict with `observation` and `action_mask` [B, N] (1 for a legal
        action; see `mask_like` for multi-discrete ones); the mask is passed on.

        Raises:
            ValueError: the observations do not have the shape of the model's config.
            KeyError: a dict lacks `observation`, or an entry of `obs_shape`.
        """
        is_plain = type(x) is Tensor and x.shape[1:] == self._obs_shape and x.is_floating_point()
        observations = x if is_plain else observations_of(x, self._obs_shape, self)
        output: dict[str, Any]
        if self._divisor == 1:
            output = pass_through(observations, self, "encoder", "projection", "head")
        else:
            embedding = pass_through(observations, self, "encoder", "projection")
            output = pass_through(embedding / self._divisor, self, "head")
        return output if type(x) is Tensor else pass_mask(output, x)


@MODEL_REGISTRY.register("dqn")
class DQN(QNetwork):
    """An encoder, and a head with one Q value per action.

    Args:
        obs_shape: a number (or 1-D shape) for vector observations, (C, H, W) for images; a dict of shapes for dict
            observations, see `build_encoder`.
        action_shape: the number of actions, or a list of them, one per part of a multi-discrete action.
        dueling: whether to use a `DuelingHead` instead of a `DiscreteHead`.
        head_hidden_size: width of the head's hidden layers, the last encoder size when None. If it differs
            from the encoder's, a linear layer with activation, `projection`, is inserted; for a list, layers of these
            widths.
        norm_type: normalisation in the head.
        dropout: dropout probability in a vector encoder and in the head, None for no dropout.
        init_bias: initial bias of the head's last layer (of the advantages, if dueling).
        noise: whether the head consists of `NoiseLinearLayer`.
        scale_ob: what images are divided by, such as 255 for bytes; None leaves them as they are.

    Raises:
        RuntimeError: `obs_shape`, or an entry of it, has neither one nor three dimensions.

    Example:
        >>> import torch
        >>> model = DQN(obs_shape=4, action_shape=2)
        >>> model(torch.rand(3, 4))["logit"].shape
        torch.Size([3, 2])
    """

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: int | Sequence[int],
        encoder_hidden_size_list: Sequence[int] | None = (128, 128, 64),
        dueling: bool = True,
        head_hidden_size: Widths | None = None,
        head_layer_num: int = 1,
        activation: Activation = nn.ReLU,
        norm_type: str | None = None,
        dropout: float | None = None,
        init_bias: float | None = None,
        noise: bool = False,
        scale_ob: float | None = None,
    ) -> None:
        self._head_cls = DuelingHead if dueling else DiscreteHead
        super().__init__(
            obs_shape,
            action_shape,
            encoder_hidden_size_list,
            head_hidden_size,
            activation,
            norm_type,
            dropout,
            scale_ob,
            layer_num=head_layer_num,
            noise=noise,
        )
        if init_bias is not None:
            _fill_last_bias(self.head, init_bias)


@MODEL_REGISTRY.register("drqn")
class DRQN(nn.Module):
    """A recurrent Q network: encoder, recurrent layer and head (https://arxiv.org/abs/1507.06527).

    Args:
        obs_shape, action_shape, encoder_hidden_size_list, dueling, head_layer_num, activation, norm_type: as in `DQN`.
        head_hidden_size: h, width of the recurrent state and of the head, the last encoder size when None.
        lstm_type: the kind of recurrent layer, see `ding.torch_utils.network.rnn.get_lstm`.
        res_link: add the embedding to the output of the recurrent layer.
        scale_ob: as in `DQN`.

    Raises:
        RuntimeError: `obs_shape` has neither one nor three dimensions.
        ValueError: `res_link` is set, but the embedding is not as wide as the recurrent state.

    Example:
        >>> model = DRQN(obs_shape=4, action_shape=2)
        >>> output = model({"obs": torch.rand(3, 4), "prev_state": None}, inference=True)
        >>> output["logit"].shape, len(output["next_state"]), output["next_state"][0]["h"].shape
        (torch.Size([3, 2]), 3, torch.Size([1, 1, 64]))
    """

    def __init__(
        self,
        obs_shape: int | Sequence[int],
        action_shape: int | Sequence[int],
        encoder_hidden_size_list: Sequence[int] | None = (128, 128, 64),
        dueling: bool = True,
        head_hidden_size: int | None = None,
        head_layer_num: int = 1,
        lstm_type: str = "normal",
        activation: Activation = nn.ReLU,
        norm_type: str | None = None,
        res_link: bool = False,
        scale_ob: float | None = None,
    ) -> None:
        super().__init__()
        if is_mapping(obs_shape):
            raise ConfigError(f"obs_shape = {obs_shape!r} is not allowed: {type(self).__name__} takes no dicts")
        obs_shape, action_shape = as_shape(obs_shape), as_shape(action_shape)
        act = as_activation(activation)
        self.encoder = build_encoder(obs_shape, encoder_hidden_size_list, act, norm_type, scale_ob=scale_ob)
        embedding_size: Any = self.encoder.output_size
        hidden_size = embedding_size if head_hidden_size is None else head_hidden_size
        if res_link and hidden_size != embedding_size:
            raise ValueError(
                f"res_link = True needs head_hidden_size = {hidden_size} to be the last encoder size, {embedding_size}"
            )
        self.rnn = get_lstm(lstm_type, embedding_size, hidden_size)
        head_cls: type[nn.Module] = DuelingHead if dueling else DiscreteHead
        head_kwargs: dict[str, Any] = {"layer_num": head_layer_num, "activation": act, "norm_type": norm_type}
        self.head = head_of(head_cls, hidden_size, action_shape, **head_kwargs)
        self.res_link = res_link
        self._obs_shape = as_obs_shape(obs_shape)

    def forward(
        self, inputs: Mapping[str, Any], inference: bool = False, saved_state_timesteps: Sequence[int] | None = None
    ) -> dict[str, Any]:
        """Compute Q values of one step for B envs (`inference`), or of sequences of T steps.

        Args:
            inputs: `obs` [B, *obs_shape], or [T, B, *obs_shape] of sequences (or a dict with `observation` and
                `action_mask`, which is passed on), and `prev_state`, the B states before the first step, in any form
                that `ding.torch_utils.network.rnn` accepts; None means zeros.
            saved_state_timesteps: numbers of steps after which the states are also returned.

        Returns:
            `logit` [B, N] or [T, B, N] (a list if multi-discrete) and `next_state`, a list of B states. For
            sequences also `hidden_state` [T, B, H], the outputs of the recurrent layer, and with
            `saved_state_timesteps` also `saved_state`, a list of B states for each number (0: before the first step).
        """
        x, state = inputs["obs"], inputs["prev_state"]
        observation = x if isinstance(x, Tensor) else x["observation"]
        if inference:
            observation = observation.unsqueeze(0)
        steps, batch = observation.shape[:2]
        embedding = pass_through(observations_of(observation.flatten(0, 1), self._obs_shape, self), self, "encoder")
        embedding = embedding.view(steps, batch, -1)
        # The sequence is split where a state is saved.
        saved, outputs, start = {}, [], 0
        for stop in sorted({*(saved_state_timesteps or ()), steps}):
            if stop > start:
                hidden_states, state = self.rnn(embedding[start:stop], state)
                outputs.append(hidden_states)
                start = stop
            saved[stop] = state
        hidden = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
        features = hidden + embedding if self.res_link else hidden
        output: dict[str, Any] = pass_through(features.squeeze(0) if inference else features, self, "head")
        output["next_state"] = state
        pass_mask(output, x)
        if not inference:
            output["hidden_state"] = hidden
            if saved_state_timesteps is not None:
                output["saved_state"] = [saved[step] for step in saved_state_timesteps]
        return output


def _fill_last_bias(head: nn.Module, value: float) -> None:
    members: list[Any] = list(head.pred) if isinstance(head, MultiHead) else [head]
    for member in members:
        branch: Any = member.A if isinstance(member, DuelingHead) else member.Q
        last = branch[-1][0]
        nn.init.constant_(last.bias_mu if isinstance(last, NoiseLinearLayer) else last.bias, value)


@MODEL_REGISTRY.register("c51dqn")
class C51DQN(QNetwork):
    """An encoder and a `DistributionHead`: a categorical value distribution for each action.

    `forward` returns `logit` [B, N] and `distribution` [B, N, n_atom]. The arguments are those of `DQN`, plus the range
    and the number of the atoms.

    Example:
        >>> import torch
        >>> output = C51DQN(obs_shape=4, action_shape=2)(torch.rand(3, 4))
        >>> output["logit"].shape, output["distribution"].shape
        (torch.Size([3, 2]), torch.Size([3, 2, 51]))
    """

    _head_cls: type[nn.Module] = DistributionHead

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: int | Sequence[int],
        encoder_hidden_size_list: Sequence[int] | None = (128, 128, 64),
        head_hidden_size: Widths | None = None,
        head_layer_num: int = 1,
        activation: Activation = nn.ReLU,
        norm_type: str | None = None,
        v_min: float = -10,
        v_max: float = 10,
        n_atom: int = 51,
        scale_ob: float | None = None,
    ) -> None:
        super().__init__(
            obs_shape,
            action_shape,
            encoder_hidden_size_list,
            head_hidden_size,
            activation,
            norm_type,
            scale_ob=scale_ob,
            layer_num=head_layer_num,
            n_atom=n_atom,
            v_min=v_min,
            v_max=v_max,
        )


@MODEL_REGISTRY.register("rainbowdqn")
class RainbowDQN(C51DQN):
    """`C51DQN` with a `RainbowHead`, which is dueling and has noisy layers.

    Example:
        >>> import torch
        >>> RainbowDQN(obs_shape=4, action_shape=2)(torch.rand(3, 4))["distribution"].shape
        torch.Size([3, 2, 51])
    """

    _head_cls = RainbowHead


@MODEL_REGISTRY.register("qrdqn")
class QRDQN(QNetwork):
    """An encoder and a `QRDQNHead`: quantiles of each action's value at fixed fractions.

    `forward` returns `logit` [B, N], `q` [B, N, num_quantiles] and `tau` [B, num_quantiles, 1].

    Example:
        >>> import torch
        >>> QRDQN(obs_shape=4, action_shape=2)(torch.rand(3, 4))["q"].shape
        torch.Size([3, 2, 32])
    """

    _head_cls = QRDQNHead

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: int | Sequence[int],
        encoder_hidden_size_list: Sequence[int] | None = (128, 128, 64),
        head_hidden_size: Widths | None = None,
        head_layer_num: int = 1,
        num_quantiles: int = 32,
        activation: Activation = nn.ReLU,
        norm_type: str | None = None,
        scale_ob: float | None = None,
    ) -> None:
        super().__init__(
            obs_shape,
            action_shape,
            encoder_hidden_size_list,
            head_hidden_size,
            activation,
            norm_type,
            scale_ob=scale_ob,
            layer_num=head_layer_num,
            num_quantiles=num_quantiles,
        )


@MODEL_REGISTRY.register("iqn")
class IQN(QNetwork):
    """An encoder and a `QuantileHead`: values at random fractions.

    `forward` returns `logit` [B, N], `q` [num_quantiles, B, N] and `quantiles` [num_quantiles * B, 1].

    Example:
        >>> import torch
        >>> IQN(obs_shape=4, action_shape=2)(torch.rand(3, 4))["q"].shape
        torch.Size([32, 3, 2])
    """

    _head_cls: type[nn.Module] = QuantileHead

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: int | Sequence[int],
        encoder_hidden_size_list: Sequence[int] | None = (128, 128, 64),
        head_hidden_size: Widths | None = None,
        head_layer_num: int = 1,
        num_quantiles: int = 32,
        quantile_embedding_size: int = 128,
        activation: Activation = nn.ReLU,
        norm_type: str | None = None,
        scale_ob: float | None = None,
    ) -> None:
        super().__init__(
            obs_shape,
            action_shape,
            encoder_hidden_size_list,
            head_hidden_size,
            activation,
            norm_type,
            scale_ob=scale_ob,
            layer_num=head_layer_num,
            num_quantiles=num_quantiles,
            quantile_embedding_size=quantile_embedding_size,
        )


@MODEL_REGISTRY.register("fqf")
class FQF(IQN):
    """`IQN` with an `FQFHead`: values at learned fractions; see `FQFHead` for what `forward` returns.

    Example:
        >>> import torch
        >>> FQF(obs_shape=4, action_shape=2)(torch.rand(3, 4))["quantiles"].shape
        torch.Size([3, 33])
    """

    _head_cls = FQFHead


@MODEL_REGISTRY.register("bdq")
class BDQ(QNetwork):
    """An encoder and a `BranchingHead`: `forward` returns `logit` [B, num_branches, action_bins_per_branch].

    As in DI-engine, the head gets the embedding divided by `num_branches + 1`. (The paper divides its gradients.)

    Args:
        num_branches: the number of simultaneous actions, such as the dimensions of a continuous action; a number or
            a 1-D shape.
        action_bins_per_branch: the number of values of each action.
        layer_num, a_layer_num, v_layer_num: hidden layers of the head, of its advantage branch and of its value branch;
            the latter two are `layer_num` when None.

    Raises:
        ValueError: `num_branches` is below 1.

    Example:
        >>> import torch
        >>> BDQ(obs_shape=4, num_branches=2, action_bins_per_branch=5)(torch.rand(3, 4))["logit"].shape
        torch.Size([3, 2, 5])
    """

    _head_cls = BranchingHead

    def __init__(
        self,
        obs_shape: ObsShape,
        num_branches: int | Sequence[int] = 0,
        action_bins_per_branch: int = 2,
        layer_num: int = 3,
        a_layer_num: int | None = None,
        v_layer_num: int | None = None,
        encoder_hidden_size_list: Sequence[int] | None = (128, 128, 64),
        head_hidden_size: Widths | None = None,
        norm_type: str | None = None,
        activation: Activation = nn.ReLU,
        scale_ob: float | None = None,
    ) -> None:
        branches = vector_size(num_branches) or 0
        if branches < 1:
            raise ValueError(
                f"num_branches = {num_branches} is not allowed; it must be a number of branches, 1 or more"
            )
        self._divisor = branches + 1
        super().__init__(
            obs_shape,
            branches,
            encoder_hidden_size_list,
            head_hidden_size,
            activation,
            norm_type,
            scale_ob=scale_ob,
            action_bins_per_branch=action_bins_per_branch,
            layer_num=layer_num,
            a_layer_num=a_layer_num,
            v_layer_num=v_layer_num,
        )
        self.num_branches = branches
        self.action_bins_per_branch = action_bins_per_branch


@MODEL_REGISTRY.register("sqn")
class SQN(nn.Module):
    """Two `DQN`s with the same arguments; the output is `{'q_value': (q0, q1), 'logit': [B, N]}`.

    `logit` is the smaller of the two values of each action.

    Example:
        >>> output = SQN(obs_shape=4, action_shape=2)(torch.rand(3, 4))
        >>> [q.shape for q in output["q_value"]], output["logit"].shape
        ([torch.Size([3, 2]), torch.Size([3, 2])], torch.Size([3, 2]))
    """

    __signature__ = inspect.signature(DQN)  # by which unknown keys of a config are found

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.q0 = DQN(*args, **kwargs)
        self.q1 = DQN(*args, **kwargs)

    def forward(self, data: Tensor | Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of observations [B, *obs_shape]; an `action_mask` in a dict `data` is passed on."""
        outputs = pass_through(data, self, "q0"), pass_through(data, self, "q1")
        q0, q1 = outputs[0]["logit"], outputs[1]["logit"]
        return {**outputs[0], "q_value": (q0, q1), "logit": torch.min(q0, q1)}
