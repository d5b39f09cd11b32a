"""Wrappers around models."""

from ding.model.wrapper.base_wrapper import BaseModelWrapper, IModelWrapper
from ding.model.wrapper.hidden_state_wrapper import HiddenStateWrapper
from ding.model.wrapper.model_wrappers import model_wrap, register_wrapper, wrapper_name_map
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

__all__ = [
    "ActionNoiseWrapper",
    "ArgmaxSampleWrapper",
    "BaseModelWrapper",
    "DeterministicSampleWrapper",
    "EpsGreedyMultinomialSampleWrapper",
    "EpsGreedySampleWrapper",
    "HiddenStateWrapper",
    "HybridArgmaxSampleWrapper",
    "HybridDeterministicArgmaxSampleWrapper",
    "HybridEpsGreedyMultinomialSampleWrapper",
    "HybridEpsGreedySampleWrapper",
    "HybridReparamMultinomialSampleWrapper",
    "IModelWrapper",
    "MultinomialSampleWrapper",
    "ReparamSampleWrapper",
    "TargetNetworkWrapper",
    "model_wrap",
    "register_wrapper",
    "wrapper_name_map",
]
