"""Heads: embeddings [B, hidden_size] to the outputs that policies read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.distributions import Independent, Normal

from ding.torch_utils.network.activation import Activation, as_activation
from ding.torch_utils.network.nn_module import MLP, fc_block, noise_block
from ding.torch_utils.network.noise_layer import NoiseLinearLayer

LOG_SIGMA_MIN, LOG_SIGMA_MAX = -20.0, 2.0


def head_branch(
    hidden_size: int,
    output_size: int,
    layer_num: int,
    activation: nn.Module | None,
    norm_type: str | None,
    dropout: float | None,
    noise: bool,
) -> nn.Sequential:
    """Return `layer_num` hidden layers followed by a linear layer without activation."""
    block: Callable[..., nn.Module] = noise_block if noise else fc_block
    hidden = MLP(
        hidden_size,
        hidden_size,
        hidden_size,
        layer_num,
        layer_fn=NoiseLinearLayer if noise else None,
        activation=activation,
        norm_type=norm_type,
        use_dropout=dropout is not None,
        dropout_probability=0.0 if dropout is None else dropout,
    )
    return nn.Sequential(hidden, block(hidden_size, output_size))


class DiscreteHead(nn.Module):
    """Head with one value (or logit) per action: `{'logit': [B, output_size]}`.

    With `noise` its layers are `NoiseLinearLayer`.

    Example:
        >>> DiscreteHead(8, 3)(torch.rand(2, 8))["logit"].shape
        torch.Size([2, 3])
    """

    def __init__(
        self,
        hidden_size: int,
        output_size: int,
        layer_num: int = 1,
        activation: Activation = nn.ReLU,
        norm_type: str | None = None,
        dropout: float | None = None,
        noise: bool = False,
    ) -> None:
        super().__init__()
        self.Q = head_branch(hidden_size, output_size, layer_num, as_activation(activation), norm_type, dropout, noise)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logit": self.Q(x)}


class DuelingHead(nn.Module):
    """Dueling head, zero-mean advantages plus a state value: `{'logit': [B, output_size]}`.

    See "Dueling Network Architectures for Deep Reinforcement Learning", https://arxiv.org/abs/1511.06581.

    Args:
        a_layer_num, v_layer_num: hidden layers of the advantage and of the value branch; `layer_num` when None.

    Example:
        >>> DuelingHead(8, 3)(torch.rand(2, 8))["logit"].shape
        torch.Size([2, 3])
    """

    def __init__(
        self,
        hidden_size: int,
        output_size: int,
        layer_num: int = 1,
        a_layer_num: int | None = None,
        v_layer_num: int | None = None,
        activation: Activation = nn.ReLU,
        norm_type: str | None = None,
        dropout: float | None = None,
        noise: bool = False,
    ) -> None:
        super().__init__()
        act = as_activation(activation)
        a_layers = layer_num if a_layer_num is None else a_layer_num
        v_layers = layer_num if v_layer_num is None else v_layer_num
        self.A = head_branch(hidden_size, output_size, a_layers, act, norm_type, dropout, noise)
        self.V = head_branch(hidden_size, 1, v_layers, act, norm_type, dropout, noise)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        advantage = self.A(x)
        return {"logit": advantage - advantage.mean(-1, keepdim=True) + self.V(x)}


class RegressionHead(nn.Module):
    """Head with real-valued outputs: `{'pred': [B, output_size]}`, [B] when `output_size` is 1.

    Args:
        hidden_size: width of the `layer_num` hidden layers; `input_size` when None.
        final_tanh: squash the output into (-1, 1).

    Example:
        >>> RegressionHead(8, 1)(torch.rand(2, 8))["pred"].shape
        torch.Size([2])
    """

    def __init__(
        self,
        input_size: int,
        output_size: int,
        layer_num: int = 2,
        final_tanh: bool = False,
        activation: Activation = nn.ReLU,
        norm_type: str | None = None,
        hidden_size: int | None = None,
    ) -> None:
        super().__init__()
        width = input_size if hidden_size is None else hidden_size
        self.main = MLP(input_size, width, width, layer_num, activation=activation, norm_type=norm_type)
        self.last = nn.Linear(width if layer_num > 0 else input_size, output_size)
        self.final_tanh = final_tanh

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        pred = self.last(self.main(x))
        if self.final_tanh:
            pred = torch.tanh(pred)
        if pred.ndim > 1 and pred.shape[-1] == 1:
            pred = pred.squeeze(-1)
        return {"pred": pred}


class ReparameterizationHead(nn.Module):
    """Head with mean and deviation of a Gaussian action: `{'mu': [B, output_size], 'sigma': [B, output_size]}`.

    Args:
        sigma_type: the source of sigma. 'fixed': `fixed_sigma_value`; 'independent': exp of one parameter for each
            action dimension; 'conditioned': exp of a layer on the embedding, its logarithm clamped to [-20, 2];
            'happo': 0.5 * sigmoid of one parameter for each action dimension.
        bound_type: 'tanh' squashes mu into (-1, 1); None does not.
        hidden_size: width of the `layer_num` hidden layers; `input_size` when None.

    Raises:
        AssertionError: `sigma_type` or `bound_type` is unknown.

    Example:
        >>> out = ReparameterizationHead(8, 2, sigma_type="conditioned")(torch.rand(4, 8))
        >>> out["mu"].shape, out["sigma"].shape
        (torch.Size([4, 2]), torch.Size([4, 2]))
    """

    sigma: torch.Tensor
    default_sigma_type = ["fixed", "independent", "conditioned", "happo"]
    default_bound_type = ["tanh", None]

    def __init__(
        self,
        input_size: int,
        output_size: int,
        layer_num: int = 2,
        sigma_type: str | None = None,
        fixed_sigma_value: float = 1.0,
        activation: Activation = nn.ReLU,
        norm_type: str | None = None,
        bound_type: str | None = None,
        hidden_size: int | None = None,
    ) -> None:
        super().__init__()
        if sigma_type not in self.default_sigma_type:
            raise AssertionError(f"sigma_type {sigma_type!r} is unknown; allowed: {self.default_sigma_type}")
        if bound_type not in self.default_bound_type:
            raise AssertionError(f"bound_type {bound_type!r} is unknown; allowed: {self.default_bound_type}")
        self.sigma_type = sigma_type
        self.bound_type = bound_type
        width = input_size if hidden_size is None else hidden_size
        self.main = MLP(input_size, width, width, layer_num, activation=activation, norm_type=norm_type)
        last_width = width if layer_num > 0 else input_size
        self.mu = nn.Linear(last_width, output_size)
        if sigma_type == "fixed":
            self.register_buffer("sigma", torch.full((1, output_size), float(fixed_sigma_value)), persistent=False)
        elif sigma_type == "conditioned":
            self.log_sigma_layer = nn.Linear(last_width, output_size)
        else:
            start = torch.zeros(1, output_size) if sigma_type == "independent" else torch.ones(1, output_size)
            self.log_sigma_param = nn.Parameter(start)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.main(x)
        mu = self.mu(x)
        if self.bound_type == "tanh":
            mu = torch.tanh(mu)
        if self.sigma_type == "conditioned":
            sigma = self.log_sigma_layer(x).clamp(LOG_SIGMA_MIN, LOG_SIGMA_MAX).exp()
        else:
            sigma = self._shared_sigma().repeat(*mu.shape[:-1], 1)
        return {"mu": mu, "sigma": sigma}

    def _shared_sigma(self) -> torch.Tensor:
        if self.sigma_type == "fixed":
            return self.sigma[0]
        if self.sigma_type == "independent":
            return self.log_sigma_param[0].exp()
        return 0.5 * torch.sigmoid(self.log_sigma_param[0])


class MultiHead(nn.Module):
    """One head per part of a composite action; the output is `{key: [output of each head]}`.

    Args:
        head_cls: the class of the heads, called with `hidden_size`, its entry of `output_size_list` and `head_kwargs`.

    Example:
        >>> out = MultiHead(DiscreteHead, 8, [2, 3], layer_num=1)(torch.rand(4, 8))
        >>> [logit.shape for logit in out["logit"]]
        [torch.Size([4, 2]), torch.Size([4, 3])]
    """

    def __init__(
        self, head_cls: Callable[..., nn.Module], hidden_size: int, output_size_list: Sequence[int], **head_kwargs: Any
    ) -> None:
        super().__init__()
        self.pred = nn.ModuleList(head_cls(hidden_size, size, **head_kwargs) for size in output_size_list)

    def forward(self, x: torch.Tensor) -> dict[str, list[torch.Tensor]]:
        outputs = [head(x) for head in self.pred]
        return {key: [output[key] for output in outputs] for key in outputs[0]}


head_cls_map: dict[str, type[nn.Module]] = {
    "discrete": DiscreteHead,
    "dueling": DuelingHead,
    "regression": RegressionHead,
    "reparameterization": ReparameterizationHead,
    "multi": MultiHead,
}


def independent_normal_dist(logits: Mapping[str, torch.Tensor] | Sequence[torch.Tensor]) -> Independent[Normal]:
    """Return the independent Gaussian of `{'mu', 'sigma'}` or the pair (mu, sigma).

    Raises:
        TypeError: `logits` is neither a mapping nor a pair.
    """
    if isinstance(logits, Mapping):
        return Independent(Normal(logits["mu"], logits["sigma"]), 1)
    if isinstance(logits, (list, tuple)) and len(logits) == 2:
        return Independent(Normal(*logits), 1)
    raise TypeError(f"logits must be {{'mu', 'sigma'}} or a pair (mu, sigma), not {type(logits).__name__}")
