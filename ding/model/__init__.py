"""Models, the parts that they are built of, and the wrappers around them."""

from ding.utils.import_helper import exports

__all__, __getattr__ = exports(
    __name__,
    {
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
    },
)
