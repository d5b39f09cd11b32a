"""The base of reward models, as a program outside builds on it."""

import pytest
import torch
from easydict import EasyDict

from ding.reward_model.base_reward_model import BaseRewardModel
from ding.utils import REWARD_MODEL_REGISTRY


class Doubling(BaseRewardModel):
    config = {"type": "doubling_for_test", "factors": [2]}

    def __init__(self, config, device="cpu", tb_logger=None):
        self.cfg, self.device, self.tb_logger, self.seen = config, device, tb_logger, []

    def estimate(self, data):
        data = self.reward_deepcopy(data)
        for sample in data:
            sample["reward"].mul_(self.cfg.factors[0])
        return data

    def train(self):
        return len(self.seen)

    def collect_data(self, data):
        self.seen.extend(data)

    def clear_data(self):
        self.seen.clear()


def test_a_model_is_registered_and_built_by_its_name():
    REWARD_MODEL_REGISTRY.register("doubling_for_test", Doubling, force_overwrite=True)
    cfg = Doubling.default_config()
    assert cfg == EasyDict(type="doubling_for_test", factors=[2], cfg_type="DoublingDict")
    cfg.factors.append(3)
    assert Doubling.config["factors"] == [2]
    model = REWARD_MODEL_REGISTRY.build(cfg.type, cfg, "cpu", "logger")
    assert (type(model), model.device, model.tb_logger) == (Doubling, "cpu", "logger")


def test_rewards_are_copied_and_all_else_is_shared():
    model = Doubling(Doubling.default_config())
    data = [{"obs": torch.zeros(2), "reward": torch.ones(1)}]
    estimated = model.estimate(data)
    assert estimated[0]["reward"].item() == 2.0 and data[0]["reward"].item() == 1.0
    assert estimated[0]["obs"] is data[0]["obs"]


def test_samples_are_taken_in_and_forgotten():
    model = Doubling(Doubling.default_config())
    model.collect_data([1, 2])
    assert model.train() == 2
    model.clear_data()
    assert model.train() == 0
    assert model.load_expert_data([1]) is None and model.train() == 0


def test_a_model_must_define_its_methods():
    class Half(BaseRewardModel):
        def train(self):
            return None

    with pytest.raises(TypeError, match="abstract.*clear_data.*collect_data.*estimate"):
        Half({}, "cpu", None)
