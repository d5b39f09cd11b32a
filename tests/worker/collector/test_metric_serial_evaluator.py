"""MetricSerialEvaluator: what is measured, told, saved and logged."""

import numpy as np
import pytest
import torch
from easydict import EasyDict

from ding.utils.config_helper import ConfigError
from ding.worker.collector.base_serial_evaluator import create_serial_evaluator
from ding.worker.collector.metric_serial_evaluator import IMetric, MetricSerialEvaluator
from tests.fakes import FakeWriter
from tests.worker.collector.ranks import as_rank


class Accuracy(IMetric):
    """The percentage of right answers, at least as good when equal."""

    def eval(self, inputs, label):
        return {"acc": (inputs == label).float().mean().item() * 100}

    def reduce_mean(self, inputs):
        return {"acc": float(np.mean([one["acc"] for one in inputs]))}

    def gt(self, metric1, metric2):
        return metric2 is None or metric1["acc"] >= metric2["acc"]


class Doubling:
    """An eval mode that answers twice what it is asked."""

    def __init__(self):
        self.resets = 0
        self.asked = []

    def forward(self, inputs):
        self.asked.append(inputs)
        return inputs * 2

    def reset(self):
        self.resets += 1


RIGHT = [(np.array([1, 2]), np.array([2, 4])), (np.array([3, 4]), np.array([6, 8]))]
HALF = [(np.array([1, 2]), np.array([2, 9])), (np.array([3, 4]), np.array([6, 9]))]


def build(loader=RIGHT, cfg=(), tb=None, policy=None, metric=None, pair=tuple):
    config = MetricSerialEvaluator.default_config()
    config.update(EasyDict(cfg))
    env = pair([loader, Accuracy() if metric is None else metric])
    policy = Doubling() if policy is None else policy
    return MetricSerialEvaluator(config, env, policy, tb or FakeWriter(), "exp"), policy


@pytest.mark.parametrize("pair", [tuple, list])
def test_the_metric_is_the_mean_over_the_batches(pair):
    evaluator, policy = build([*RIGHT, *HALF, *HALF], pair=pair)
    stop, result = evaluator.eval(train_iter=1)
    assert stop is False and result == {"acc": pytest.approx(200 / 3)}
    assert [inputs.tolist() for inputs in policy.asked[:2]] == [[1, 2], [3, 4]]
    assert all(isinstance(inputs, torch.Tensor) for inputs in policy.asked)


def test_a_data_loader_is_measured():
    data = torch.utils.data.TensorDataset(torch.arange(4.0), torch.arange(4.0) * 2)
    assert build(torch.utils.data.DataLoader(data, batch_size=2))[0].eval(None, 1, 0) == (False, {"acc": 100.0})


@pytest.mark.parametrize(
    ("stop_value", "train_iter", "expected"),
    [({"acc": 75.0}, 1, True), ({"acc": 75.0}, 0, False), ({"acc": 75.0}, -1, False), ({"acc": 101.0}, 1, False)],
)
def test_reaching_the_stop_value_stops(stop_value, train_iter, expected):
    assert build(cfg={"stop_value": stop_value})[0].eval(train_iter=train_iter)[0] is expected


@pytest.mark.differs(
    "fails if an evaluator's config lacks `multi_gpu`, `stop_value` or `n_episode`, or a metric evaluator's loader "
    "is empty",
    "has defaults for them; an error names the empty loader",
)
def test_without_a_stop_value_it_never_stops():
    assert build()[0].eval(train_iter=5)[0] is False


def test_the_best_result_so_far_saves_a_checkpoint():
    saved = []
    evaluator, _ = build()
    for loader in (HALF, RIGHT, HALF, RIGHT):
        evaluator.reset_env((loader, Accuracy()))
        evaluator.eval(saved.append, train_iter=1)
    assert saved == ["ckpt_best.pth.tar"] * 3 and evaluator._max_avg_eval_result == {"acc": 100.0}


def test_logged_tags():
    class Told(Accuracy):
        def reduce_mean(self, inputs):
            return {"acc": torch.tensor(50.0), "each": [1, 2], "each_reward": 1.0, "text": "x"}

        def gt(self, metric1, metric2):
            return True

    tb = FakeWriter()
    evaluator, _ = build(tb=tb, metric=Told())
    evaluator.eval(train_iter=4, envstep=40)
    names = ["data_length", "evaluate_time", "avg_time_per_data", "acc"]
    assert [tag for tag, _, step in tb.scalars if step == 4] == [f"evaluator_iter/{name}" for name in names]
    assert [tag for tag, _, step in tb.scalars if step == 40] == [f"evaluator_step/{name}" for name in names]
    values = {tag.split("/")[1]: value for tag, value, _ in tb.scalars}
    assert values["data_length"] == 2 and values["acc"] == 50.0
    assert values["avg_time_per_data"] == values["evaluate_time"] / 2


def test_a_loader_without_batches_is_a_clear_error():
    with pytest.raises(ValueError, match="has no batch to evaluate"):
        build([])[0].eval()


@pytest.mark.parametrize("env", [RIGHT[0][0], (RIGHT,), [1, 2, 3], "ab"])
def test_anything_but_a_pair_is_refused(env):
    with pytest.raises(ValueError, match="needs the pair"):
        MetricSerialEvaluator(MetricSerialEvaluator.default_config(), env, Doubling(), FakeWriter(), "exp")


def test_pair_and_policy_may_come_later():
    evaluator = MetricSerialEvaluator(MetricSerialEvaluator.default_config(), None, None, FakeWriter(), "exp")
    assert evaluator.env is None and evaluator.policy is None
    evaluator.reset()
    with pytest.raises(RuntimeError, match="has no pair"):
        evaluator.eval()
    evaluator.reset_env([RIGHT, Accuracy()])
    evaluator.policy = Doubling()
    assert evaluator.env[0] is RIGHT and evaluator.eval(train_iter=1)[1] == {"acc": 100.0}


@pytest.mark.parametrize("bad", [{"eval_freq": "often"}, {"multi_gpu": 1}])
def test_wrong_config_is_refused_at_construction(bad):
    with pytest.raises(ConfigError):
        build(cfg=bad)


@pytest.mark.differs(
    "weights each rank's metric equally, however few batches it saw; each rank logs, saves and decides for itself",
    "averages over all batches; rank 0 decides",
)
def test_with_multi_gpu_the_result_is_the_mean_over_the_batches_of_all_ranks(monkeypatch):
    reduced, sent = as_rank(monkeypatch, 0, sums=[1.0, 40.0])  # the other rank: one batch of accuracy 40
    evaluator, _ = build(cfg={"multi_gpu": True, "stop_value": {"acc": 80.0}})
    assert evaluator.eval(train_iter=1) == (True, {"acc": 80.0})
    assert [(sums.tolist(), op) for sums, op in reduced] == [([2.0, 200.0], "sum")] and sent == [[True, {"acc": 80.0}]]


def test_the_config_and_the_factory():
    cfg = MetricSerialEvaluator.default_config()
    assert cfg == {"eval_freq": 50, "cfg_type": "MetricSerialEvaluatorDict"}
    cfg.type = "metric"
    kwargs = {"env": (RIGHT, Accuracy()), "policy": Doubling(), "tb_logger": FakeWriter(), "exp_name": "exp"}
    assert type(create_serial_evaluator(cfg, **kwargs)) is MetricSerialEvaluator
