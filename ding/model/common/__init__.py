"""Parts that model templates are built of."""

from ding.model.common.distributional_heads import (
    BranchingHead,
    DistributionHead,
    FQFHead,
    QRDQNHead,
    QuantileHead,
    RainbowHead,
)
from ding.model.common.encoder import ConvEncoder, FCEncoder, IMPALAConvEncoder
from ding.model.common.head import (
    DiscreteHead,
    DuelingHead,
    MultiHead,
    RegressionHead,
    ReparameterizationHead,
    head_cls_map,
    independent_normal_dist,
)
from ding.model.common.model_factory import create_model

__all__ = [
    "BranchingHead",
    "ConvEncoder",
    "DiscreteHead",
    "DistributionHead",
    "DuelingHead",
    "FCEncoder",
    "FQFHead",
    "IMPALAConvEncoder",
    "MultiHead",
    "QRDQNHead",
    "QuantileHead",
    "RainbowHead",
    "RegressionHead",
    "ReparameterizationHead",
    "create_model",
    "head_cls_map",
    "independent_normal_dist",
]
