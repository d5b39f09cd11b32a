"""Models, the parts that they are built of, and the wrappers around them."""

from importlib import import_module

from ding.utils.import_helper import lazy_names

_NAMES = {
    "common.encoder": "ConvEncoder FCEncoder IMPALAConvEncoder",
    "common.head": (
        "BranchingHead DiscreteHead DistributionHead DuelingHead FQFHead MultiHead QRDQNHead QuantileHead "
        "RainbowHead RegressionHead ReparameterizationHead head_cls_map independent_normal_dist"
    ),
    "common.model_factory": "create_model",
    "template.bc": "ContinuousBC DiscreteBC",
    "template.q_learning": "BDQ C51DQN DQN DRQN FQF IQN QRDQN RainbowDQN SQN",
    "template.qac": "ContinuousQAC ContinuousQVAC DiscreteQAC QAC QACDIST",
    "template.vac": "ACER MAVAC PG PPG VAC",
    "wrapper.model_wrappers": "BaseModelWrapper IModelWrapper model_wrap register_wrapper",
}

_MODULES = {name: f"ding.model.{module}" for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_MODULES)
__getattr__ = lazy_names(__name__, _MODULES)

# Models are registered when their module is imported.
for _module in _NAMES:
    import_module(f"{__name__}.{_module}")
