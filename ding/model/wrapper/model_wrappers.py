"""Wrappers of models: they sample actions, keep recurrent states, or follow an online network as a target network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from ding.model.common.encoder import mask_like
from ding.rl_utils.exploration import create_noise_generator
from ding.rl_utils.log_prob import mu_and_sigma
from ding.torch_utils.data_helper import get_tensor_data, zeros_like
from ding.torch_utils.network.fast_modules import weights_of
from ding.utils.action_mask import ACTION_MASK
from ding.utils.config_helper import ConfigError, integer, number
from ding.utils.data.nested import is_mapping, leaves
from ding.utils.default_helper import new_generator
from ding.utils.random_draws import draw_index, draw_normal, draw_uniform

# Subtracted from the logits of illegal actions: larger than any value, but finite to avoid NaN.
_ILLEGAL = 1e8


class IModelWrapper:
    """A wrapper around a model (or another wrapper) that changes its `forward` or adds state.

    A wrapper is neither an `nn.Module` nor callable: use `forward` and `reset`. All other attributes
    (`state_dict`, `parameters`, attributes of the model, ...) are looked up in the wrapped object.

    Attributes:
        _saved: the names of the attributes that are the wrapper's own state, see `SavedAttributes`.
    """

    _saved: ClassVar[tuple[str, ...]] = ("_inner",)

    def __init__(self, model: nn.Module | IModelWrapper) -> None:
        self._model: Any = model

    def __getattr__(self, key: str) -> Any:
        # Copying and unpickling look up dunder names, and other names before `_model` is set.
        if key == "_model" or (key.startswith("__") and key.endswith("__")):
            raise AttributeError(f"{type(self).__name__} has no attribute {key!r}")
        return getattr(self._model, key)

    @property
    def _inner(self) -> IModelWrapper | None:
        """The wrapper inside this one, if any, whose state belongs to this one's."""
        return self._model if isinstance(self._model, IModelWrapper) else None

    def unwrap(self) -> Any:
        """Return the model inside all wrappers."""
        model = self._model
        while isinstance(model, IModelWrapper):
            model = model._model
        return model

    def train(self, mode: bool = True) -> IModelWrapper:
        """Set the model to training mode, if it is not already."""
        model = self.unwrap()
        if not isinstance(model, nn.Module) or model.training is not mode:
            model.train(mode)
        return self

    def eval(self) -> IModelWrapper:
        """Set the model to evaluation mode, if it is not already."""
        return self.train(False)

    def info(self, attr_name: str) -> str:
        """Return the class names, outermost first, of the wrappers and the model with the attribute `attr_name`."""
        chain: list[Any] = [self]
        while isinstance(chain[-1], IModelWrapper):
            chain.append(chain[-1]._model)
        return " ".join(type(part).__name__ for part in chain if attr_name in dir(part))

    def reset(self, data_id: list[int] | None = None, **kwargs: Any) -> None:
        """Reset the state of the ids in `data_id` (None: all); other arguments are passed to inner wrappers."""
        if hasattr(self._model, "reset"):  # of modules, only some with a state have it
            self._model.reset(data_id=data_id, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Forward through the wrapped object. A module is called, so that its hooks run."""
        model = self._model
        if type(model) is BaseModelWrapper:  # it would only forward
            model = model._model
        return model(*args, **kwargs) if isinstance(model, nn.Module) else model.forward(*args, **kwargs)


class BaseModelWrapper(IModelWrapper):
    """The innermost wrapper: forwards everything, and ignores `reset` if the model has none."""


class _SamplingWrapper(IModelWrapper):
    """Wrapper that samples actions, with a generator of its own."""

    _saved = ("_rng",)

    def __init__(self, model: nn.Module | IModelWrapper) -> None:
        super().__init__(model)
        self._rng = new_generator()


class _LogitSampleWrapper(_SamplingWrapper):
    """Wrapper that chooses an action from each `logit` [*B, N] of the output; for a list, it is a list of actions.

    If the output has an `action_mask` (of the logits' shape, 1 for legal, 0 for illegal), 1e8 is subtracted IN PLACE
    from the logits of illegal actions, so they are never chosen; the returned `logit` includes this.

    Raises:
        ValueError: the mask does not fit the logits, or a sampling wrapper finds a row without a legal action.
        TypeError: the model output is not a dict.
    """

    def _sample(self, output: dict[str, Any], choose: Callable[[Tensor, Tensor | None], Tensor]) -> dict[str, Any]:
        """Set `output['action']` to `choose(logit, mask)` for each head."""
        if type(output) is not dict or "logit" not in output:
            _check_logit(output, self)
        if output.get(ACTION_MASK) is not None:
            mask_logits(output)
        logit, mask = output["logit"], output.get(ACTION_MASK)
        if isinstance(logit, Tensor):
            output["action"] = choose(logit, mask)
        else:
            if is_mapping(logit):
                raise TypeError(
                    f"{type(self.unwrap()).__name__} returned a logit with {', '.join(logit)}, but the policy chooses "
                    "discrete actions; return a tensor [B, N], or set policy.action_space"
                )
            masks = [None] * len(logit) if mask is None else mask
            output["action"] = [choose(head, legal) for head, legal in zip(logit, masks, strict=True)]
        return output


def _check_logit(output: Any, wrapper: IModelWrapper) -> None:
    """Raise TypeError unless the output of a model is a dict with `logit`."""
    if not isinstance(output, dict) or "logit" not in output:
        found = f"a dict with {', '.join(output) or 'nothing'}" if isinstance(output, dict) else type(output).__name__
        raise TypeError(
            f"{type(wrapper.unwrap()).__name__} returned {found}; the policy needs a dict with 'logit' (page 'Your own "
            "network' of the docs)"
        )


def mask_logits(output: MutableMapping[str, Any]) -> None:
    """Subtract 1e8 IN PLACE from the logits of illegal actions, if the model output has an `action_mask`.

    The mask in the output gets the form of the logits; see `mask_like`.

    Raises:
        ValueError: the mask does not fit the logits.
    """
    if output.get(ACTION_MASK) is None:
        return
    logit = output["logit"]
    mask = output[ACTION_MASK] = mask_like(logit, output[ACTION_MASK])
    for head, legal in [(logit, mask)] if isinstance(logit, Tensor) else zip(logit, mask, strict=True):
        head.sub_((legal == 0).to(head.dtype) * _ILLEGAL)


def _check_mask(mask: Tensor) -> None:
    stuck = (mask == 0).all(-1)
    if stuck.any():
        row = stuck.nonzero()[0].tolist()
        raise ValueError(f"action_mask leaves no legal action in row {row}; the env must allow at least one")


def _multinomial(logit: Tensor, mask: Tensor | None, alpha: float, rng: np.random.Generator) -> Tensor:
    if mask is not None:
        _check_mask(mask)
    return draw_index(rng, torch.softmax(logit.detach() / alpha, -1))


def _explore(
    logit: Tensor, mask: Tensor | None, eps: float | Tensor, rng: np.random.Generator, alpha: float | None = None
) -> Tensor:
    """Return the index [*B] of the largest logit, or, with probability `eps`, of a uniform legal action.

    With `alpha`, that of the largest logit is replaced by one sampled from softmax(logit / alpha).
    """
    if alpha is not None:
        chosen = _multinomial(logit, mask, alpha, rng)
    elif mask is None and logit.is_cpu and logit.dim() == 2 and logit.dtype is torch.float32:
        # Same result as torch: with cold caches, one torch operation per round costs several times more.
        chosen = torch.from_numpy(logit.numpy(force=True).argmax(-1))
    else:
        chosen = logit.argmax(-1)
    if mask is not None:
        _check_mask(mask)
    if isinstance(eps, Tensor):
        eps = eps.to(chosen.device).view(-1, *[1] * (chosen.ndim - 1))
    elif eps <= 0:
        return chosen
    elif mask is None and chosen.is_cpu and chosen.dim() == 1:  # a tenth of the time of three torch operations
        coins = rng.random(len(chosen))
        explores = (coins < eps).nonzero()[0]
        if len(explores):
            # A coin is uniform in [0, eps), so it also selects the action; rounding cannot reach the number of them.
            chosen.numpy()[explores] = coins[explores] / eps * logit.shape[-1]
        return chosen
    coin = draw_uniform(rng, chosen.shape, like=logit)
    legal = torch.ones_like(logit) if mask is None else mask != 0
    return torch.where(coin < eps, draw_index(rng, legal), chosen)


def _eps_of_rows(eps: Mapping[int, float], data_id: Any, output: Any) -> Tensor:
    """Select the value of each row from one value per env, by `data_id` if given, otherwise by position."""
    ids = range(len(next(leaves(output["logit"])))) if data_id is None else data_id
    return torch.tensor([float(eps[env_id]) for env_id in ids])


class ArgmaxSampleWrapper(_LogitSampleWrapper):
    """Wrapper whose `action` [B] is the index of the largest logit.

    Rows without a legal action are allowed: a learner also evaluates terminal observations.
    """

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return self._sample(super().forward(*args, **kwargs), lambda logit, mask: logit.argmax(-1))


class MultinomialSampleWrapper(_LogitSampleWrapper):
    """Wrapper whose `action` [B] is sampled from softmax(logit / alpha)."""

    def forward(self, *args: Any, alpha: float = 1.0, **kwargs: Any) -> dict[str, Any]:
        return self._sample(super().forward(*args, **kwargs), partial(_multinomial, alpha=alpha, rng=self._rng))


class EpsGreedySampleWrapper(_LogitSampleWrapper):
    """Wrapper whose `action` [B] is uniformly random with probability `eps`, otherwise the index of the largest logit.

    Each row (env) and each head explores independently. `eps` is a number, or a dict with a number per env.
    """

    def forward(self, *args: Any, eps: float | Mapping[int, float], **kwargs: Any) -> dict[str, Any]:
        output = super().forward(*args, **kwargs)
        rows = _eps_of_rows(eps, kwargs.get("data_id"), output) if isinstance(eps, Mapping) else eps
        return self._sample(output, partial(_explore, eps=rows, rng=self._rng))


class EpsGreedyMultinomialSampleWrapper(_LogitSampleWrapper):
    """`EpsGreedySampleWrapper` with a sample from softmax(logit / alpha) instead of the largest logit."""

    def forward(
        self, *args: Any, eps: float | Mapping[int, float], alpha: float = 1.0, **kwargs: Any
    ) -> dict[str, Any]:
        output = super().forward(*args, **kwargs)
        rows = _eps_of_rows(eps, kwargs.get("data_id"), output) if isinstance(eps, Mapping) else eps
        return self._sample(output, partial(_explore, eps=rows, rng=self._rng, alpha=alpha))


def _gaussian(logit: Any, wrapper: IModelWrapper) -> tuple[Tensor, Tensor]:
    if isinstance(logit, Tensor):
        raise TypeError(
            f"{type(wrapper.unwrap()).__name__} returned a tensor as logit, but the policy's actions are real-valued; "
            "return {'mu': [B, A], 'sigma': [B, A]}, or set policy.action_space"
        )
    return mu_and_sigma(logit)


class ReparamSampleWrapper(_SamplingWrapper):
    """Wrapper whose `action` is sampled from Normal(mu, sigma), where `logit` is `{'mu', 'sigma'}` or the pair."""

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        output: dict[str, Any] = super().forward(*args, **kwargs)
        _check_logit(output, self)
        mu, sigma = _gaussian(output["logit"], self)
        if is_mapping(output["logit"]):
            output["logit"] = {"mu": mu, "sigma": sigma}  # a row for each env
        with torch.no_grad():
            output["action"] = mu + sigma * draw_normal(self._rng, mu.shape, like=mu)
        return output


class DeterministicSampleWrapper(IModelWrapper):
    """Wrapper whose `action` is mu, where `logit` is `{'mu', 'sigma'}` or the pair."""

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        output: dict[str, Any] = super().forward(*args, **kwargs)
        _check_logit(output, self)
        output["action"], _ = _gaussian(output["logit"], self)
        return output


class _HybridWrapper(_LogitSampleWrapper):
    """Wrapper before another one that chooses the type of a hybrid `action`, to which it adds the `action_args`."""

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        output: dict[str, Any] = super().forward(*args, **kwargs)
        output["action"] = {"action_type": output["action"], "action_args": output["action_args"]}
        return output


class HybridArgmaxSampleWrapper(_HybridWrapper, ArgmaxSampleWrapper):
    """Wrapper whose hybrid `action` has the type of the largest `logit` [B, N], and the `action_args` [B, A]."""


class HybridEpsGreedySampleWrapper(_HybridWrapper, EpsGreedySampleWrapper):
    """`HybridArgmaxSampleWrapper` with a uniformly random type with probability `eps`."""


class HybridEpsGreedyMultinomialSampleWrapper(_HybridWrapper, EpsGreedyMultinomialSampleWrapper):
    """`HybridEpsGreedySampleWrapper` with a sample from softmax(logit) instead of the largest logit."""


class HybridReparamMultinomialSampleWrapper(_SamplingWrapper):
    """Wrapper that samples a hybrid `action`: the type [B] from softmax, its arguments [B, A] from Normal(mu, sigma).

    `logit` is `{'action_type': [B, N], 'action_args': {'mu', 'sigma'}}`.
    """

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        output: dict[str, Any] = super().forward(*args, **kwargs)
        mu, sigma = _gaussian(output["logit"]["action_args"], self)
        with torch.no_grad():
            action_type = _multinomial(output["logit"]["action_type"], None, 1.0, self._rng)
            action_args = mu + sigma * draw_normal(self._rng, mu.shape, like=mu)
            output["action"] = {"action_type": action_type, "action_args": action_args}
        return output


class HybridDeterministicArgmaxSampleWrapper(IModelWrapper):
    """Wrapper whose hybrid `action` is the most likely one: the type with the largest logit, and the mean arguments."""

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        output: dict[str, Any] = super().forward(*args, **kwargs)
        mu, _ = _gaussian(output["logit"]["action_args"], self)
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

    _saved = ("noise_generator",)

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


def _no_state() -> None:  # a lambda could not be pickled
    return None


class HiddenStateWrapper(IModelWrapper):
    """Wrapper that stores one recurrent state per id: it is passed as `prev_state`, and updated by `next_state`.

    Args:
        state_num: the number of ids, which are 0 .. state_num - 1.
        save_prev_state: whether the output gets `prev_state`, a list of detached copies of the input states
            (zeros if there was none), in the place of `next_state`.
        init_fn: creates the initial state of an id.
        stack_prev_state: whether these copies become one dict of stacked tensors, if the states are dicts of tensors.

    Example:
        >>> class Counter(nn.Module):
        ...     def forward(self, data):
        ...         return {"next_state": [(state or 0) + 1 for state in data["prev_state"]]}
        >>> model = HiddenStateWrapper(Counter(), state_num=2)
        >>> _ = model.forward({}), model.forward({}, data_id=[1])
        >>> model._state
        {0: 1, 1: 2}
    """

    _saved = ("_state",)

    def __init__(
        self,
        model: nn.Module | IModelWrapper,
        state_num: int,
        save_prev_state: bool = False,
        init_fn: Callable[[], Any] = _no_state,
        stack_prev_state: bool = False,
    ) -> None:
        super().__init__(model)
        self._save_prev_state = save_prev_state
        self._init_fn = init_fn
        self._stack_prev_state = stack_prev_state
        self._state: dict[int, Any] = {index: init_fn() for index in range(state_num)}

    def forward(
        self, data: dict[str, Any], data_id: list[int] | None = None, valid_id: list[int] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Forward `data` with the states of `data_id` (None: all ids).

        Only the states of `valid_id` (None: of `data_id`) are updated.

        Raises:
            KeyError: an id is not in 0 .. state_num - 1, or one of `valid_id` not in `data_id`.
            AssertionError: the model returns a different number of states than it received.
        """
        ids = list(self._state) if data_id is None else list(data_id)
        before = [self._state[index] for index in ids]
        output: dict[str, Any] = super().forward({**data, "prev_state": before}, **kwargs)
        after = output.pop("next_state", None)
        if after is None:
            return output
        if len(after) != len(ids):
            raise AssertionError(f"the model returned {len(after)} next states for the {len(ids)} ids {ids}")
        states = dict(zip(ids, after, strict=True))
        self._state.update(states if valid_id is None else {index: states[index] for index in valid_id})
        if self._save_prev_state:
            output["prev_state"] = self._copies(before, zeros_like(after[0]))
        return output

    def _copies(self, states: list[Any], zeros: Any) -> Any:
        """Copy the states, with `zeros` for None; see `stack_prev_state`."""
        are_dicts = all(state is None or type(state) is dict for state in (*states, zeros))
        if self._stack_prev_state and are_dicts and all(isinstance(part, Tensor) for part in zeros.values()):
            columns = {key: [zero if state is None else state[key] for state in states] for key, zero in zeros.items()}
            return {key: torch.stack(column).detach() for key, column in columns.items()}
        return [zeros if state is None else get_tensor_data(state) for state in states]

    def reset(self, data_id: list[int] | None = None, state: list[Any] | None = None, **kwargs: Any) -> None:
        """Set the states of the ids in `data_id` (None: all) to `state`, or to initial ones.

        Raises:
            ValueError: `state` and the ids differ in length.
        """
        ids = list(self._state) if data_id is None else list(data_id)
        states = [self._init_fn() for _ in ids] if state is None else list(state)
        self._state.update(zip(ids, states, strict=True))
        super().reset(data_id=data_id, **kwargs)


class TargetNetworkWrapper(IModelWrapper):
    """A model whose weights follow those of an online model.

    Args:
        update_type: at every `freq`-th update 'assign' copies the online weights, and 'momentum' moves the parameters
            to (1 - theta) * own + theta * online and copies the buffers.
        update_kwargs: `{'freq': n}` or `{'theta': t, 'freq': n}`; the latter's frequency is 1 by default.

    The weights are changed in place.

    Raises:
        ConfigError: `update_type` is unknown, or `freq` or `theta` is missing or out of range.

    Example:
        >>> online, target = nn.Linear(1, 1), nn.Linear(1, 1)
        >>> wrapper = TargetNetworkWrapper(target, "assign", {"freq": 2})
        >>> wrapper.update(online)
        >>> bool(target.bias == online.bias)
        False
        >>> wrapper.update(online)
        >>> bool(target.bias == online.bias)
        True
    """

    _saved = ("_update_count",)

    def __init__(self, model: nn.Module | IModelWrapper, update_type: str, update_kwargs: Mapping[str, Any]) -> None:
        super().__init__(model)
        if update_type not in ("assign", "momentum"):
            raise ConfigError(f"target update_type {update_type!r} is unknown; allowed: assign, momentum")
        self._is_copied = update_type == "assign"
        self._freq = update_kwargs.get("freq", None if self._is_copied else 1)
        self._theta: Any = update_kwargs.get("theta")
        if (allowed := integer(1)(self._freq)) is not None:
            raise ConfigError(f"target update of type {update_type!r}: freq = {self._freq!r}; it must be {allowed}")
        if not self._is_copied and (number(0, 1)(self._theta) is not None or self._theta == 0):
            raise ConfigError(f"target update: theta = {self._theta!r}; it must be a number above 0, and 1 at most")
        self._update_count = 0

    @property
    def update_count(self) -> int:
        """Number of updates since the start or the last direct one; `reset` sets it."""
        return self._update_count

    def reset(self, data_id: list[int] | None = None, target_update_count: int | None = None, **kwargs: Any) -> None:
        """Set the counter of the updates to `target_update_count`, unless that is None."""
        if target_update_count is not None:
            self._update_count = target_update_count
        super().reset(data_id=data_id, **kwargs)

    def update(self, state_dict: Mapping[str, Any] | nn.Module | IModelWrapper, direct: bool = False) -> None:
        """Count one update to the online weights; with `direct`, load them now and restart the counter.

        Args:
            state_dict: the weights, or a model, whose weights are read only when they are due.

        Raises:
            RuntimeError: loading finds missing, unexpected or misshaped entries.
            KeyError: a parameter is missing in a momentum update.
        """
        self._update_count = 0 if direct else self._update_count + 1
        if self._update_count % self._freq:
            return
        if direct or self._is_copied:
            weights = state_dict if isinstance(state_dict, Mapping) else state_dict.state_dict()
            self.unwrap().load_state_dict(weights, strict=True)
        elif isinstance(state_dict, Mapping):
            self._follow(state_dict)
        else:
            module = state_dict.unwrap() if isinstance(state_dict, IModelWrapper) else state_dict
            parameters, buffers = weights_of(module)
            self._follow({**parameters, **buffers})

    @torch.no_grad()
    def _follow(self, online: Mapping[str, Tensor]) -> None:
        """Move the own parameters towards those in `online`, and copy its buffers."""
        parameters, buffers = weights_of(self.unwrap())
        moved = set()
        for name, target_weight in parameters.items():
            if id(target_weight) in moved:  # under another name
                continue
            moved.add(id(target_weight))
            if name not in online:
                raise KeyError(
                    f"target update: the online model has no weight {name!r}; what is changed later, such as by "
                    "spectral_norm, must be changed in both models"
                )
            online_weight = online[name]
            if online_weight.shape != target_weight.shape:  # which might be broadcast
                raise RuntimeError(
                    f"target update: the online weight {name!r} of shape {tuple(online_weight.shape)} does not fit a "
                    f"target weight of shape {tuple(target_weight.shape)}; build both models in the same way"
                )
            is_alike = online_weight.dtype is target_weight.dtype and online_weight.device == target_weight.device
            target_weight.lerp_(online_weight if is_alike else online_weight.to(target_weight), self._theta)
        for name, buffer in buffers.items():
            if name in online:
                buffer.copy_(online[name])


wrapper_name_map: dict[str, type[IModelWrapper]] = {
    "base": BaseModelWrapper,
    "hidden_state": HiddenStateWrapper,
    "argmax_sample": ArgmaxSampleWrapper,
    "eps_greedy_sample": EpsGreedySampleWrapper,
    "multinomial_sample": MultinomialSampleWrapper,
    "eps_greedy_multinomial_sample": EpsGreedyMultinomialSampleWrapper,
    "reparam_sample": ReparamSampleWrapper,
    "deterministic_sample": DeterministicSampleWrapper,
    "hybrid_argmax_sample": HybridArgmaxSampleWrapper,
    "hybrid_eps_greedy_sample": HybridEpsGreedySampleWrapper,
    "hybrid_eps_greedy_multinomial_sample": HybridEpsGreedyMultinomialSampleWrapper,
    "hybrid_reparam_multinomial_sample": HybridReparamMultinomialSampleWrapper,
    "hybrid_deterministic_argmax_sample": HybridDeterministicArgmaxSampleWrapper,
    "action_noise": ActionNoiseWrapper,
    "target": TargetNetworkWrapper,
}


def model_wrap(model: nn.Module | IModelWrapper, wrapper_name: str, *args: Any, **kwargs: Any) -> IModelWrapper:
    """Wrap `model` by the wrapper named `wrapper_name`; other arguments are passed to it.

    A plain module is first wrapped by the base wrapper.

    Raises:
        TypeError: no wrapper has this name.

    Example:
        >>> import torch
        >>> from ding.model.template.q_learning import DQN
        >>> model = model_wrap(DQN(4, 2), wrapper_name="argmax_sample")
        >>> model.forward(torch.rand(3, 4))["action"].shape
        torch.Size([3])
    """
    if wrapper_name not in wrapper_name_map:
        raise TypeError(f"unknown model wrapper {wrapper_name!r}; known: {', '.join(wrapper_name_map)}")
    if wrapper_name != "base" and not isinstance(model, IModelWrapper):
        model = BaseModelWrapper(model)
    return wrapper_name_map[wrapper_name](model, *args, **kwargs)


def register_wrapper(name: str, wrapper_type: type[IModelWrapper]) -> None:
    """Register `wrapper_type` for `model_wrap` as `name`, replacing an existing wrapper of that name.

    Raises:
        TypeError: `name` is not a string, or `wrapper_type` is not a subclass of `IModelWrapper`.
    """
    if not isinstance(name, str):
        raise TypeError(f"a wrapper name must be a string, not {name!r}")
    if not (isinstance(wrapper_type, type) and issubclass(wrapper_type, IModelWrapper)):
        raise TypeError(f"wrapper {name!r} must be a subclass of IModelWrapper, not {wrapper_type!r}")
    wrapper_name_map[name] = wrapper_type
