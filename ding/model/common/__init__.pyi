# Written by docs/generate.py: the exports of the table in __init__.py, for type checkers and editors.

from ding.model.common.encoder import ConvEncoder as ConvEncoder
from ding.model.common.encoder import FCEncoder as FCEncoder
from ding.model.common.encoder import IMPALAConvEncoder as IMPALAConvEncoder
from ding.model.common.head import BranchingHead as BranchingHead
from ding.model.common.head import DiscreteHead as DiscreteHead
from ding.model.common.head import DistributionHead as DistributionHead
from ding.model.common.head import DuelingHead as DuelingHead
from ding.model.common.head import FQFHead as FQFHead
from ding.model.common.head import MultiHead as MultiHead
from ding.model.common.head import QRDQNHead as QRDQNHead
from ding.model.common.head import QuantileHead as QuantileHead
from ding.model.common.head import RainbowHead as RainbowHead
from ding.model.common.head import RegressionHead as RegressionHead
from ding.model.common.head import ReparameterizationHead as ReparameterizationHead
from ding.model.common.head import head_cls_map as head_cls_map
from ding.model.common.head import independent_normal_dist as independent_normal_dist
from ding.model.common.model_factory import create_model as create_model
