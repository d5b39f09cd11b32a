"""Wrappers around models."""

from ding.utils.import_helper import lazy_names

_NAMES = {
    "model_wrappers": (
        "ActionNoiseWrapper ArgmaxSampleWrapper BaseModelWrapper DeterministicSampleWrapper "
        "EpsGreedyMultinomialSampleWrapper EpsGreedySampleWrapper HiddenStateWrapper HybridArgmaxSampleWrapper "
        "HybridDeterministicArgmaxSampleWrapper HybridEpsGreedyMultinomialSampleWrapper "
        "HybridEpsGreedySampleWrapper HybridReparamMultinomialSampleWrapper IModelWrapper MultinomialSampleWrapper "
        "ReparamSampleWrapper TargetNetworkWrapper model_wrap register_wrapper wrapper_name_map"
    ),
}

_MODULES = {name: f"ding.model.wrapper.{module}" for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_MODULES)
__getattr__ = lazy_names(__name__, _MODULES)
