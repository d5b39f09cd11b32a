"""Wrappers that add an `action` to the model output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ding.model.wrapper.base_wrapper import IModelWrapper
from ding.rl_utils.exploration import create_noise_generator
from ding.utils.config_helper import ConfigError

# Subtracted from the logits of illegal actions: larger than any value, but finite to avoid NaN.
_ILLEGAL = 1e8


class _LogitSampleWrapper(IModelWrapper):
    """Wrapper that chooses an action from each `logit` [*B, N] of the output; for a list, it is a list of actions.

    If the output has an `action_mask` (of the logits' shape, 1 for legal, 0 for illegal), 1e8 is subtracted IN PLACE
    from the logits of illegal actions, so they are never chosen; the returned `logit` includes this.

    Raises:
        ValueError: the mask does not fit the logits, or a sampling wrapper finds a row without a legal action.
        TypeError: the model output is not a dict.
    """

    def _sample(self, output: Any, choose: Callable[..., Tensor], *args: Any) -> dict[str, Any]:
        """Set `output['action']` to `choose(logit, mask, *args)` for each head."""
        if not isinstance(output, dict):
            raise TypeError(f"{type(self).__name__} needs a model output dict, not {type(output).__name__}")
        logit, mask = output["logit"], output.get("action_mask")
        if mask is not None:
            mask_logits(output)
        if isinstance(logit, Tensor):
            output["action"] = choose(logit, mask, *args)
        else:
            masks = [None] * len(logit) if mask is None else mask
            output["action"] = [choose(*head, *args) for head in zip(logit, masks, strict=True)]
        return output


def mask_logits(output: Mapping[str, Any]) -> None:
    """Subtract 1e8 IN PLACE from the logits of illegal actions, if the model output has an `action_mask`.

    Raises:
        ValueError: the mask does not fit the logits.
    """
    logit, mask = output["logit"], output.get("action_mask")
    if mask is None:
        return
    if isinstance(logit, Tensor):
        _apply_mask(logit, mask)
        return
    if len(mask) != len(logit):
        raise ValueError(f"{len(mask)} action masks do not fit {len(logit)} logits; each head needs its own")
    for head_logit, head_mask in zip(logit, mask, strict=True):
        _apply_mask(head_logit, head_mask)


def _apply_mask(logit: Tensor, mask: Tensor) -> None:
    if mask.shape != logit.shape:
        raise ValueError(f"action_mask of shape {tuple(mask.shape)} does not fit logit of shape {tuple(logit.shape)}")
    logit.sub_((mask == 0).to(logit.dtype) * _ILLEGAL)


def _check_mask(mask: Tensor) -> None:
    stuck = (mask == 0).all(-1)
    if stuck.any():
        row = stuck.nonzero()[0].tolist()
        raise ValueError(f"action_mask leaves no legal action in row {row}; the env must allow at least one")


def _multinomial(logit: Tensor, mask: Tensor | None, alpha: float) -> Tensor:
    if mask is not None:
        _check_mask(mask)
    prob = torch.softmax(logit.detach() / alpha, -1)
    return torch.multinomial(prob.reshape(-1, prob.shape[-1]), 1).view(prob.shape[:-1])


def _uniform(logit: Tensor, mask: Tensor | None) -> Tensor:
    """Sample a legal action uniformly."""
    shape, num = logit.shape[:-1], logit.shape[-1]
    if mask is None:
        return torch.randint(num, shape, device=logit.device)
    legal = (mask != 0).to(torch.float32).reshape(-1, num)
    return torch.multinomial(legal, 1).view(shape)


def _explore(greedy: Tensor, logit: Tensor, mask: Tensor | None, eps: float | Tensor) -> Tensor:
    """Replace each entry of `greedy` [*B], independently with probability `eps`, by a uniform legal action."""
    if mask is not None:
        _check_mask(mask)
    if isinstance(eps, Tensor):
        eps = eps.to(greedy.device).view(-1, *[1] * (greedy.ndim - 1))
    elif eps <= 0:
        return greedy
    elif mask is None and greedy.is_cpu and greedy.dim() == 1:  # a tenth of the time of three torch operations
        coins = np.random.random(len(greedy))
        explores = (coins < eps).nonzero()[0]
        if len(explores):
            # A coin is uniform in [0, eps), so it also selects the action; rounding cannot reach the number of them.
            greedy.numpy()[explores] = coins[explores] / eps * logit.shape[-1]
        return greedy
    coin = torch.rand(greedy.shape, device=greedy.device)
    return torch.where(coin < eps, _uniform(logit, mask), greedy)


def _eps_greedy(logit: Tensor, mask: Tensor | None, eps: float | Tensor) -> Tensor:
    """Return the index [*B] of the largest logit, or, with probability `eps`, of a uniform legal one."""
    if mask is None and logit.is_cpu and logit.dim() == 2 and logit.dtype is torch.float32:
        # Same result as torch: with cold caches, one torch operation per round costs several times more.
        greedy = torch.from_numpy(logit.numpy(force=True).argmax(-1))
    else:
        greedy = logit.argmax(-1)
    return _explore(greedy, logit, mask, eps)


def _argmax(logit: Tensor, mask: Tensor | None) -> Tensor:
    return logit.argmax(-1)


def _eps_multinomial(logit: Tensor, mask: Tensor | None, alpha: float, eps: float | Tensor) -> Tensor:
    return _explore(_multinomial(logit, mask, alpha), logit, mask, eps)


def _eps_of_rows(eps: Mapping[int, float], data_id: Any, output: Any) -> Tensor:
    """Select the value of each row from one value per env, by `data_id` if given, otherwise by position."""
    logit = output["logit"]
    batch_size = len(logit if isinstance(logit, Tensor) else logit[0])
    ids = range(batch_size) if data_id is None else data_id
    return torch.tensor([float(eps[env_id]) for env_id in ids])


class ArgmaxSampleWrapper(_LogitSampleWrapper):
    """Wrapper whose `action` [B] is the index of the largest logit.

    Rows without a legal action are allowed: a learner also evaluates terminal observations.
    """

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return self._sample(super().forward(*args, **kwargs), _argmax)


class MultinomialSampleWrapper(_LogitSampleWrapper):
    """Wrapper whose `action` [B] is sampled from softmax(logit / alpha)."""

    def forward(self, *args: Any, alpha: float = 1.0, **kwargs: Any) -> dict[str, Any]:
        return self._sample(super().forward(*args, **kwargs), _multinomial, alpha)


class EpsGreedySampleWrapper(_LogitSampleWrapper):
    """Wrapper whose `action` [B] is uniformly random with probability `eps`, otherwise the index of the largest logit.

    Each row (env) and each head explores independently. `eps` is a number, or a dict with a number per env.
    """

    def forward(self, *args: Any, eps: float | Mapping[int, float], **kwargs: Any) -> dict[str, Any]:
        output = super().forward(*args, **kwargs)
        rows = _eps_of_rows(eps, kwargs.get("data_id"), output) if isinstance(eps, Mapping) else eps
        return self._sample(output, _eps_greedy, rows)


class EpsGreedyMultinomialSampleWrapper(_LogitSampleWrapper):
    """`EpsGreedySampleWrapper` with a sample from softmax(logit / alpha) instead of the largest logit."""

    def forward(
        self, *args: Any, eps: float | Mapping[int, float], alpha: float = 1.0, **kwargs: Any
    ) -> dict[str, Any]:
        output = super().forward(*args, **kwargs)
        rows = _eps_of_rows(eps, kwargs.get("data_id"), output) if isinstance(eps, Mapping) else eps
        return self._sample(output, _eps_multinomial, alpha, rows)


def _gaussian(output: Any, name: str) -> tuple[Tensor, Tensor]:
    if not isinstance(output, dict) or "logit" not in output:
        raise TypeError(f"{name} needs a model output dict with 'logit', not {type(output).__name__}")
    logit = output["logit"]
    return (logit["mu"], logit["sigma"]) if isinstance(logit, Mapping) else (logit[0], logit[1])


class ReparamSampleWrapper(IModelWrapper):
    """Wrapper whose `action` is sampled from Normal(mu, sigma), where `logit` is `{'mu', 'sigma'}` or the pair."""

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        output: dict[str, Any] = super().forward(*args, **kwargs)
        mu, sigma = _gaussian(output, type(self).__name__)
        with torch.no_grad():
            output["action"] = torch.normal(mu, sigma)
        return output


class DeterministicSampleWrapper(IModelWrapper):
    """Wrapper whose `action` is mu, where `logit` is `{'mu', 'sigma'}` or the pair."""

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        output: dict[str, Any] = super().forward(*args, **kwargs)
        output["action"], _ = _gaussian(output, type(self).__name__)
        return output


def _with_args(output: dict[str, Any]) -> dict[str, Any]:
    """Convert the `action` of `output`, an action type, into a hybrid action."""
    output["action"] = {"action_type": output["action"], "action_args": output["action_args"]}
    return output


class HybridArgmaxSampleWrapper(ArgmaxSampleWrapper):
    """Wrapper whose hybrid `action` has the type of the largest `logit` [B, N], and the `action_args` [B, A]."""

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return _with_args(super().forward(*args, **kwargs))


class HybridEpsGreedySampleWrapper(EpsGreedySampleWrapper):
    """`HybridArgmaxSampleWrapper` with a uniformly random type with probability `eps`."""

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return _with_args(super().forward(*args, **kwargs))


class HybridEpsGreedyMultinomialSampleWrapper(EpsGreedyMultinomialSampleWrapper):
    """`HybridEpsGreedySampleWrapper` with a sample from softmax(logit) instead of the largest logit."""

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return _with_args(super().forward(*args, **kwargs))


class HybridReparamMultinomialSampleWrapper(IModelWrapper):
    """Wrapper that samples a hybrid `action`: the type [B] from softmax, its arguments [B, A] from Normal(mu, sigma).

    `logit` is `{'action_type': [B, N], 'action_args': {'mu', 'sigma'}}`.
    """

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        output: dict[str, Any] = super().forward(*args, **kwargs)
        mu, sigma = _gaussian({"logit": output["logit"]["action_args"]}, type(self).__name__)
        with torch.no_grad():
            action_type = _multinomial(output["logit"]["action_type"], None, 1.0)
            output["action"] = {"action_type": action_type, "action_args": torch.normal(mu, sigma)}
        return output


class HybridDeterministicArgmaxSampleWrapper(IModelWrapper):
    """Wrapper whose hybrid `action` is the most likely one: the type with the largest logit, and the mean arguments."""

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        output: dict[str, Any] = super().forward(*args, **kwargs)
        mu, _ = _gaussian({"logit": output["logit"]["action_args"]}, type(self).__name__)
        output["action"] = {"action_type": output["logit"]["action_type"].argmax(-1), "action_args": mu}
        return output


def _check_range(name: str, bounds: Mapping[str, float] | None) -> None:
    if bounds is not None and not ("min" in bounds and "max" in bounds and bounds["min"] <= bounds["max"]):
        raise ConfigError(
            f"{name} = {dict(bounds)} is not allowed; it must be {{'min', 'max'}}, min not above max, or None"
        )


class ActionNoiseWrapper(IModelWrapper):
    """Wrapper that adds noise to the continuous `action` of the output (for a hybrid action, to `action_args`).

    Args:
        noise_type, noise_kwargs: see `ding.rl_utils.exploration.create_noise_generator`.
        noise_range: `{'min', 'max'}` to which the noise is clamped, None for no limit.
        action_range: `{'min', 'max'}` to which the noisy action is clamped, None for no limit.

    `forward` takes `sigma`, the standard deviation of the noise from then on.

    Raises:
        ConfigError: a range lacks `min` or `max`, or has a `min` above `max`.
    """

    def __init__(
        self,
        model: nn.Module | IModelWrapper,
        noise_type: str = "gauss",
        noise_kwargs: Mapping[str, Any] = {},
        noise_range: Mapping[str, float] | None = None,
        action_range: Mapping[str, float] | None = {"min": -1, "max": 1},
    ) -> None:
        super().__init__(model)
        _check_range("noise_range", noise_range)
        _check_range("action_range", action_range)
        self.noise_generator: Any = create_noise_generator(noise_type, noise_kwargs)
        self.noise_range = noise_range
        self.action_range = action_range

    def forward(self, *args: Any, sigma: float | None = None, **kwargs: Any) -> dict[str, Any]:
        if sigma is not None:
            self.noise_generator.sigma = sigma
        output: dict[str, Any] = super().forward(*args, **kwargs)
        key = "action" if "action" in output else "action_args"
        if key not in output:
            raise KeyError(f"action_noise needs 'action' or 'action_args' in the model output, not only {list(output)}")
        output[key] = self.add_noise(output[key])
        return output

    def add_noise(self, action: Tensor) -> Tensor:
        """Return `action` plus noise, clamped; `action` itself stays unchanged."""
        noise = self.noise_generator(action.shape, action.device)
        if self.noise_range is not None:
            noise = noise.clamp(self.noise_range["min"], self.noise_range["max"])
        action = action + noise
        return action if self.action_range is None else action.clamp(self.action_range["min"], self.action_range["max"])
