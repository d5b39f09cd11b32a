"""The registered wrappers, and wrapping by name."""

from __future__ import annotations

from typing import Any

from torch import nn

from ding.model.wrapper.base_wrapper import BaseModelWrapper, IModelWrapper
from ding.model.wrapper.hidden_state_wrapper import HiddenStateWrapper
from ding.model.wrapper.sample_wrappers import (
    ActionNoiseWrapper,
    ArgmaxSampleWrapper,
    DeterministicSampleWrapper,
    EpsGreedyMultinomialSampleWrapper,
    EpsGreedySampleWrapper,
    HybridArgmaxSampleWrapper,
    HybridDeterministicArgmaxSampleWrapper,
    HybridEpsGreedyMultinomialSampleWrapper,
    HybridEpsGreedySampleWrapper,
    HybridReparamMultinomialSampleWrapper,
    MultinomialSampleWrapper,
    ReparamSampleWrapper,
)
from ding.model.wrapper.target_wrapper import TargetNetworkWrapper

__all__ = ["model_wrap", "register_wrapper", "wrapper_name_map"]

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
