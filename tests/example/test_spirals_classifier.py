import pytest
import torch
from easydict import EasyDict
from torch.utils.data import DataLoader

from ding.example.spirals_classifier import AccuracyMetric, ClassifierPolicy, build_policy, main, spirals
from ding.utils.file_helper import read_file
from ding.worker.collector.metric_serial_evaluator import MetricSerialEvaluator


def new_policy(**kwargs):
    cfg = EasyDict(policy=ClassifierPolicy.default_config())
    return build_policy(cfg) if not kwargs else ClassifierPolicy(cfg.policy, **kwargs)


def test_it_learns_until_the_stop_value_and_keeps_its_best_checkpoint(capsys):
    assert main(["--seed", "2"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("solved: accuracy ") and out.endswith("results are in ./spirals_classifier_seed2/\n")
    told = float(out.split("accuracy ")[1].split(" %")[0])
    assert told >= 98

    policy = new_policy()
    policy.learn_mode.load_state_dict(read_file("spirals_classifier_seed2/ckpt/ckpt_best.pth.tar"))
    cfg = MetricSerialEvaluator.default_config()
    cfg.stop_value = None
    evaluator = MetricSerialEvaluator(cfg, (DataLoader(spirals(512, seed=5), 64), AccuracyMetric()), policy.eval_mode)
    assert evaluator.eval()[1]["acc"] == pytest.approx(told, abs=0.05)
    evaluator.close()


def test_one_that_is_not_trained_says_so_and_returns_1(capsys):
    assert main(["--epochs", "0"]) == 1
    assert capsys.readouterr().out.startswith("NOT solved: accuracy ")


def test_the_points_lie_on_two_spirals_and_depend_on_the_seed_alone():
    points, label = spirals(100, seed=1, noise=0.0).tensors
    assert label.bincount().tolist() == [50, 50]
    radius = points.norm(dim=1)
    share = (radius - 1) / 3
    assert share.min() >= 0 and share.max() <= 1
    angle = 2 * torch.pi * 1.5 * share + torch.pi * label
    assert torch.allclose(points, radius[:, None] * torch.stack([angle.cos(), angle.sin()], 1), atol=1e-4)
    assert torch.equal(spirals(100, seed=1).tensors[0], spirals(100, seed=1).tensors[0])
    assert not torch.equal(spirals(100, seed=1).tensors[0], spirals(100, seed=2).tensors[0])
