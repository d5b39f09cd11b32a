"""Wrappers around models."""

from ding.model.wrapper.model_wrappers import (
    ActionNoiseWrapper,
    ArgmaxSampleWrapper,
    BaseModelWrapper,
    DeterministicSampleWrapper,
    EpsGreedyMultinomialSampleWrapper,
    EpsGreedySampleWrapper,
    HiddenStateWrapper,
    IModelWrapper,
    MultinomialSampleWrapper,
    ReparamSampleWrapper,
    TargetNetworkWrapper,
    model_wrap,
    register_wrapper,
    wrapper_name_map,
)

__all__ = [
    "ActionNoiseWrapper",
    "ArgmaxSampleWrapper",
    "BaseModelWrapper",
    "DeterministicSampleWrapper",
    "EpsGreedyMultinomialSampleWrapper",
    "EpsGreedySampleWrapper",
    "HiddenStateWrapper",
    "IModelWrapper",
    "MultinomialSampleWrapper",
    "ReparamSampleWrapper",
    "TargetNetworkWrapper",
    "model_wrap",
    "register_wrapper",
    "wrapper_name_map",
]
