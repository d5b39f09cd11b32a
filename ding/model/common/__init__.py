"""Parts that model templates are built of."""

from ding.utils.import_helper import lazy_names

_NAMES = {
    "encoder": "ConvEncoder FCEncoder IMPALAConvEncoder",
    "head": (
        "BranchingHead DiscreteHead DistributionHead DuelingHead FQFHead MultiHead QRDQNHead QuantileHead "
        "RainbowHead RegressionHead ReparameterizationHead head_cls_map independent_normal_dist"
    ),
    "model_factory": "create_model",
}

_MODULES = {name: f"ding.model.common.{module}" for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_MODULES)
__getattr__ = lazy_names(__name__, _MODULES)
