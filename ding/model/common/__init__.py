"""Parts that model templates are built of."""

from ding.utils.import_helper import exports

__all__, __getattr__ = exports(
    __name__,
    {},
    {
        "encoder": "ConvEncoder FCEncoder IMPALAConvEncoder",
        "head": (
            "BranchingHead DiscreteHead DistributionHead DuelingHead FQFHead MultiHead QRDQNHead QuantileHead "
            "RainbowHead RegressionHead ReparameterizationHead head_cls_map independent_normal_dist"
        ),
        "model_factory": "create_model",
    },
)
