"""Heads: embeddings [B, hidden_size] to the outputs that policies read."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Independent, Normal

from ding.rl_utils.distributional import beta_function_map
from ding.rl_utils.log_prob import mu_and_sigma
from ding.torch_utils.network.fast_modules import pass_through
from ding.torch_utils.network.nn_module import MLP, Activation, NoiseLinearLayer, as_activation, fc_block, noise_block
from ding.utils.config_helper import ConfigError
from ding.utils.data.nested import is_container, is_mapping
from ding.utils.random_draws import RandomModule, draw_uniform

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

    passes, output = ("Q",), "logit"

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
        return {"logit": pass_through(x, self, "Q")}


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
        advantage = pass_through(x, self, "A")
        return {"logit": advantage - advantage.mean(-1, keepdim=True) + pass_through(x, self, "V")}


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
        pred = pass_through(x, self, "main", "last")
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
        self.log_sigma_layer: nn.Linear | None = None
        self.log_sigma_param: nn.Parameter | None = None
        if sigma_type == "fixed":
            self.register_buffer("sigma", torch.full((1, output_size), float(fixed_sigma_value)), persistent=False)
        elif sigma_type == "conditioned":
            self.log_sigma_layer = nn.Linear(last_width, output_size)
        else:
            start = torch.zeros(1, output_size) if sigma_type == "independent" else torch.ones(1, output_size)
            self.log_sigma_param = nn.Parameter(start)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        x = pass_through(x, self, "main")
        mu = pass_through(x, self, "mu")
        if self.bound_type == "tanh":
            mu = torch.tanh(mu)
        if self.log_sigma_layer is not None:
            sigma = pass_through(x, self, "log_sigma_layer").clamp(LOG_SIGMA_MIN, LOG_SIGMA_MAX).exp()
        else:
            if self.log_sigma_param is None:
                sigma = self.sigma[0]
            elif self.sigma_type == "independent":
                sigma = self.log_sigma_param[0].exp()
            else:
                sigma = 0.5 * torch.sigmoid(self.log_sigma_param[0])
            sigma = sigma.repeat(*mu.shape[:-1], 1)
        return {"mu": mu, "sigma": sigma}


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
        outputs = [pass_through(x, head) for head in self.pred]
        return {key: [output[key] for output in outputs] for key in outputs[0]}


def head_of(
    head_cls: Callable[..., nn.Module], hidden_size: int, action_shape: int | Sequence[int], **head_kwargs: Any
) -> nn.Module:
    """Return a `head_cls` for a number of actions, or for a list of numbers a `MultiHead` of such heads."""
    if isinstance(action_shape, int):
        return head_cls(hidden_size, action_shape, **head_kwargs)
    return MultiHead(head_cls, hidden_size, action_shape, **head_kwargs)


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
    if is_mapping(logits) or (is_container(logits) and len(logits) == 2):
        mu, sigma = mu_and_sigma(logits)
        return Independent(Normal(mu, sigma), 1)
    raise TypeError(f"logits must be {{'mu', 'sigma'}} or a pair (mu, sigma), not {type(logits).__name__}")


class DistributionHead(nn.Module):
    """Head with a categorical value distribution per action: `{'logit': [B, N], 'distribution': [B, N, n_atom]}`.

    The distribution gives a probability to each of `n_atom` values, evenly spaced from `v_min` to `v_max`, plus `eps`,
    to keep logarithms finite. `logit` is its mean. See https://arxiv.org/abs/1707.06887.

    Raises:
        ConfigError: there are fewer than two atoms, or `v_min` is not below `v_max`.

    Example:
        >>> output = DistributionHead(8, 3, n_atom=11)(torch.rand(2, 8))
        >>> output["logit"].shape, output["distribution"].shape
        (torch.Size([2, 3]), torch.Size([2, 3, 11]))
    """

    support: Tensor

    def __init__(
        self,
        hidden_size: int,
        output_size: int,
        layer_num: int = 1,
        n_atom: int = 51,
        v_min: float = -10,
        v_max: float = 10,
        activation: Activation = nn.ReLU,
        norm_type: str | None = None,
        noise: bool = False,
        eps: float = 1e-6,
    ) -> None:
        super().__init__()
        act = as_activation(activation)
        self.Q = head_branch(hidden_size, output_size * n_atom, layer_num, act, norm_type, None, noise)
        self.register_buffer("support", _support(v_min, v_max, n_atom), persistent=False)
        self.n_atom = n_atom
        self.eps = eps

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return _expected(pass_through(x, self, "Q").unflatten(-1, (-1, self.n_atom)), self.support, self.eps)


class RainbowHead(nn.Module):
    """`DistributionHead` with dueling advantages and values for each atom; by default its layers are noisy.

    See https://arxiv.org/abs/1710.02298.

    Raises:
        ConfigError: as for `DistributionHead`.

    Example:
        >>> RainbowHead(8, 3, n_atom=11)(torch.rand(2, 8))["distribution"].shape
        torch.Size([2, 3, 11])
    """

    support: Tensor

    def __init__(
        self,
        hidden_size: int,
        output_size: int,
        layer_num: int = 1,
        n_atom: int = 51,
        v_min: float = -10,
        v_max: float = 10,
        activation: Activation = nn.ReLU,
        norm_type: str | None = None,
        noise: bool = True,
        eps: float = 1e-6,
    ) -> None:
        super().__init__()
        act = as_activation(activation)
        self.A = head_branch(hidden_size, output_size * n_atom, layer_num, act, norm_type, None, noise)
        self.Q = head_branch(hidden_size, n_atom, layer_num, act, norm_type, None, noise)
        self.register_buffer("support", _support(v_min, v_max, n_atom), persistent=False)
        self.n_atom = n_atom
        self.eps = eps

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        advantage = pass_through(x, self, "A").unflatten(-1, (-1, self.n_atom))
        value = pass_through(x, self, "Q").unsqueeze(-2)
        return _expected(advantage - advantage.mean(-2, keepdim=True) + value, self.support, self.eps)


def _support(v_min: float, v_max: float, n_atom: int) -> Tensor:
    if not v_min < v_max or n_atom < 2:
        raise ConfigError(
            f"v_min = {v_min}, v_max = {v_max}, n_atom = {n_atom} are not allowed: a value distribution needs two "
            "atoms or more, and v_min below v_max"
        )
    return torch.linspace(v_min, v_max, n_atom)


def _expected(scores: Tensor, support: Tensor, eps: float) -> dict[str, Tensor]:
    distribution = scores.softmax(-1) + eps
    return {"logit": (distribution * support).sum(-1), "distribution": distribution}


class QRDQNHead(nn.Module):
    """T quantiles of each action's value: `{'logit': [B, N], 'q': [B, N, T], 'tau': [B, T, 1]}`.

    `tau` are the fractions, the same for all: the midpoints of T equal parts of [0, 1]. `logit` is the mean of the
    quantiles. See https://arxiv.org/abs/1710.10044.

    Example:
        >>> output = QRDQNHead(8, 3, num_quantiles=4)(torch.rand(2, 8))
        >>> output["q"].shape, output["tau"][0, :, 0]
        (torch.Size([2, 3, 4]), tensor([0.1250, 0.3750, 0.6250, 0.8750]))
    """

    def __init__(
        self,
        hidden_size: int,
        output_size: int,
        layer_num: int = 1,
        num_quantiles: int = 32,
        activation: Activation = nn.ReLU,
        norm_type: str | None = None,
        noise: bool = False,
    ) -> None:
        super().__init__()
        act = as_activation(activation)
        self.Q = head_branch(hidden_size, output_size * num_quantiles, layer_num, act, norm_type, None, noise)
        self.num_quantiles = num_quantiles

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        q = pass_through(x, self, "Q").unflatten(-1, (-1, self.num_quantiles))
        tau = (torch.arange(self.num_quantiles, device=q.device, dtype=q.dtype) + 0.5) / self.num_quantiles
        return {"logit": q.mean(-1), "q": q, "tau": tau.view(1, -1, 1).repeat(len(q), 1, 1)}


class QuantileHead(RandomModule):
    """Values at T random fractions: `{'logit': [B, N], 'q': [T, B, N], 'quantiles': [T * B, 1]}`.

    The fractions are drawn at each forward, for each row of the batch; row b of fraction t is row t * B + b of
    `quantiles`. `logit` is the mean of the values or, with risk distortion, of the values at T other, distorted
    fractions. See https://arxiv.org/abs/1806.06923.

    Args:
        quantile_embedding_size: the number of cosines in the embedding of a fraction.
        beta_function_type: the risk distortion, a key of `ding.rl_utils.distributional.beta_function_map`.

    Raises:
        KeyError: `beta_function_type` is unknown.

    Example:
        >>> output = QuantileHead(8, 3, num_quantiles=4)(torch.rand(2, 8))
        >>> output["q"].shape, output["quantiles"].shape
        (torch.Size([4, 2, 3]), torch.Size([8, 1]))
    """

    def __init__(
        self,
        hidden_size: int,
        output_size: int,
        layer_num: int = 1,
        num_quantiles: int = 32,
        quantile_embedding_size: int = 128,
        beta_function_type: str = "uniform",
        activation: Activation = nn.ReLU,
        norm_type: str | None = None,
        noise: bool = False,
    ) -> None:
        super().__init__()
        if beta_function_type not in beta_function_map:
            raise KeyError(
                f"beta_function_type {beta_function_type!r} is unknown; allowed: {', '.join(beta_function_map)}"
            )
        self.Q = head_branch(hidden_size, output_size, layer_num, as_activation(activation), norm_type, None, noise)
        self.iqn_fc = nn.Linear(quantile_embedding_size, hidden_size)
        self.num_quantiles = num_quantiles
        self.quantile_embedding_size = quantile_embedding_size
        self.beta_function = beta_function_map[beta_function_type]
        self._is_distorted = beta_function_type != "uniform"

    def forward(self, x: Tensor, num_quantiles: int | None = None) -> dict[str, Tensor]:
        """Forward [B, hidden_size] with `num_quantiles` instead of the default number of fractions."""
        count = self.num_quantiles if num_quantiles is None else num_quantiles
        tau = draw_uniform(self.rng, (count, len(x), 1), like=x)
        q = distorted = self._values(x, tau)
        if self._is_distorted:
            distorted = self._values(x, self.beta_function(draw_uniform(self.rng, tau.shape, like=x)))
        return {"logit": distorted.mean(0), "q": q, "quantiles": tau.flatten(0, 1)}

    def _values(self, x: Tensor, tau: Tensor) -> Tensor:
        """Return the values [T, B, N] at fractions [T, B, 1]."""
        multiples = torch.arange(1, self.quantile_embedding_size + 1, device=x.device, dtype=x.dtype)
        embedding = torch.relu(pass_through(torch.cos(math.pi * multiples * tau), self, "iqn_fc"))
        values: Tensor = pass_through((x * embedding).flatten(0, 1), self, "Q").unflatten(0, tau.shape[:2])
        return values


class FQFHead(nn.Module):
    """Values at T fractions that a network proposes for each observation. See https://arxiv.org/abs/1911.02140.

    The output:

    - `quantiles` [B, T + 1]: the fractions, from 0 to 1.
    - `quantiles_hats` [B, T]: the midpoints between them, without gradient.
    - `q` [B, T, N]: the values at the midpoints; `logit` [B, N]: their mean.
    - `q_tau_i` [B, T - 1, N]: the values at the inner fractions, without gradient.
    - `entropies` [B, 1]: the entropy of the widths of the parts.

    The embedding gets no gradient from the proposal.

    Example:
        >>> output = FQFHead(8, 3, num_quantiles=4)(torch.rand(2, 8))
        >>> output["quantiles"].shape, output["q"].shape, output["q_tau_i"].shape
        (torch.Size([2, 5]), torch.Size([2, 4, 3]), torch.Size([2, 3, 3]))
    """

    sigma_pi: Tensor

    def __init__(
        self,
        hidden_size: int,
        output_size: int,
        layer_num: int = 1,
        num_quantiles: int = 32,
        quantile_embedding_size: int = 128,
        activation: Activation = nn.ReLU,
        norm_type: str | None = None,
        noise: bool = False,
    ) -> None:
        super().__init__()
        self.Q = head_branch(hidden_size, output_size, layer_num, as_activation(activation), norm_type, None, noise)
        self.fqf_fc = nn.Sequential(nn.Linear(quantile_embedding_size, hidden_size), nn.ReLU())
        multiples = math.pi * torch.arange(1, quantile_embedding_size + 1, dtype=torch.float32)
        self.register_buffer("sigma_pi", multiples.view(1, 1, -1))
        proposal = nn.Linear(hidden_size, num_quantiles)
        nn.init.xavier_uniform_(proposal.weight, gain=0.01)
        nn.init.zeros_(proposal.bias)
        self.quantiles_proposal = nn.Sequential(proposal, nn.LogSoftmax(dim=1))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        log_width = pass_through(x.detach(), self, "quantiles_proposal")  # [B, T]
        width = log_width.exp()
        quantiles = nn.functional.pad(width.cumsum(1), (1, 0))  # [B, T + 1]
        midpoints = ((quantiles[:, 1:] + quantiles[:, :-1]) / 2).detach()
        q = self._values(x, midpoints)
        with torch.no_grad():
            q_tau_i = self._values(x, quantiles[:, 1:-1])
        return {
            "logit": q.mean(1),
            "q": q,
            "quantiles": quantiles,
            "quantiles_hats": midpoints,
            "q_tau_i": q_tau_i,
            "entropies": -(width * log_width).sum(1, keepdim=True),
        }

    def _values(self, x: Tensor, fractions: Tensor) -> Tensor:
        """Return the values [B, T', N] at fractions [B, T']."""
        embedding = pass_through(torch.cos(fractions.unsqueeze(-1) * self.sigma_pi), self, "fqf_fc")
        values = pass_through((x.unsqueeze(1) * embedding).flatten(0, 1), self, "Q")
        by_sample: Tensor = values.unflatten(0, fractions.shape)
        return by_sample


class BranchingHead(nn.Module):
    """Values of D simultaneous actions: `{'logit': [B, D, bins]}`.

    Each branch has its own advantages, with zero mean, added to a shared state value. See
    https://arxiv.org/abs/1711.08946.

    Example:
        >>> BranchingHead(8, num_branches=2, action_bins_per_branch=5)(torch.rand(3, 8))["logit"].shape
        torch.Size([3, 2, 5])
    """

    def __init__(
        self,
        hidden_size: int,
        num_branches: int = 0,
        action_bins_per_branch: int = 2,
        layer_num: int = 1,
        a_layer_num: int | None = None,
        v_layer_num: int | None = None,
        norm_type: str | None = None,
        activation: Activation = nn.ReLU,
        noise: bool = False,
    ) -> None:
        super().__init__()
        act = as_activation(activation)
        a_layers = layer_num if a_layer_num is None else a_layer_num
        v_layers = layer_num if v_layer_num is None else v_layer_num
        self.V = head_branch(hidden_size, 1, v_layers, act, norm_type, None, noise)
        self.branches = nn.ModuleList(
            head_branch(hidden_size, action_bins_per_branch, a_layers, act, norm_type, None, noise)
            for _ in range(num_branches)
        )

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        advantage = torch.stack([pass_through(x, branch) for branch in self.branches], -2)
        return {"logit": advantage - advantage.mean(-1, keepdim=True) + pass_through(x, self, "V").unsqueeze(-2)}


head_cls_map.update(
    distribution=DistributionHead,
    rainbow=RainbowHead,
    qrdqn=QRDQNHead,
    quantile=QuantileHead,
    fqf=FQFHead,
    branch=BranchingHead,
)
