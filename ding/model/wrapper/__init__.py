"""Wrappers around models."""

from ding.utils.import_helper import exports

__all__, __getattr__ = exports(
    __name__,
    {},
    {
        "model_wrappers": (
            "ActionNoiseWrapper ArgmaxSampleWrapper BaseModelWrapper DeterministicSampleWrapper "
            "EpsGreedyMultinomialSampleWrapper EpsGreedySampleWrapper HiddenStateWrapper HybridArgmaxSampleWrapper "
            "HybridDeterministicArgmaxSampleWrapper HybridEpsGreedyMultinomialSampleWrapper "
            "HybridEpsGreedySampleWrapper HybridReparamMultinomialSampleWrapper IModelWrapper MultinomialSampleWrapper "
            "ReparamSampleWrapper TargetNetworkWrapper model_wrap register_wrapper wrapper_name_map"
        ),
    },
)
