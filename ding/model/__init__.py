"""Models, the parts they are built of, and the wrappers around them."""

from ding.model.common import (
    ConvEncoder,
    DiscreteHead,
    DuelingHead,
    FCEncoder,
    IMPALAConvEncoder,
    MultiHead,
    RegressionHead,
    ReparameterizationHead,
    create_model,
    head_cls_map,
    independent_normal_dist,
)
from ding.model.template import DQN, VAC
from ding.model.wrapper import BaseModelWrapper, IModelWrapper, model_wrap, register_wrapper

__all__ = [
    "DQN",
    "VAC",
    "BaseModelWrapper",
    "ConvEncoder",
    "DiscreteHead",
    "DuelingHead",
    "FCEncoder",
    "IMPALAConvEncoder",
    "IModelWrapper",
    "MultiHead",
    "RegressionHead",
    "ReparameterizationHead",
    "create_model",
    "head_cls_map",
    "independent_normal_dist",
    "model_wrap",
    "register_wrapper",
]
