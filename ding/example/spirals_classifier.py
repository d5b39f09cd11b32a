"""Supervised learning with the learner and the metric evaluator: a network separates two noisy spirals.

The parts are those that any project of your own would have: a policy with its learn mode and eval mode, a data set
behind torch's `DataLoader`, and a metric. Run it with `python -m ding.example.spirals_classifier [--seed N]`.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import math
import os
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import torch
from easydict import EasyDict
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from ding.config.config import compile_config
from ding.policy.base_policy import Policy
from ding.torch_utils.data_helper import to_device
from ding.torch_utils.network.nn_module import MLP
from ding.torch_utils.optimizer_helper import Adam
from ding.torch_utils.thread_count import threads
from ding.utils.default_helper import set_pkg_seed
from ding.utils.log_helper import DistributedWriter
from ding.worker.collector.metric_serial_evaluator import IMetric, MetricSerialEvaluator
from ding.worker.learner.base_learner import BaseLearner

spirals_classifier_config = EasyDict(
    exp_name="spirals_classifier",
    policy={
        "cuda": False,
        "learn": {
            "batch_size": 64,
            "learning_rate": 0.005,
            "train_epoch": 60,
            "learner": {"hook": {"log_show_after_iter": 50}},
        },
        "eval": {"evaluator": {"eval_freq": 64, "multi_gpu": False, "stop_value": {"acc": 98.0}}},
    },
)


def spirals(points: int, seed: int, noise: float = 0.1, turns: float = 1.5) -> TensorDataset:
    """Return `points` points on two interleaved spirals of radius 1 to 4, each as (float32 [2], int64 0 or 1)."""
    generator = torch.Generator().manual_seed(seed)
    label = torch.arange(points) % 2
    share = torch.rand(points, generator=generator)
    angle = 2 * math.pi * turns * share + math.pi * label
    radius = 1 + 3 * share
    where = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)
    return TensorDataset(where + noise * torch.randn(points, 2, generator=generator), label)


class ClassifierPolicy(Policy):
    """A policy that learns from batches (inputs, labels) with the cross-entropy, and evaluates inputs to logits."""

    config = {
        "type": "classifier",
        "on_policy": False,
        "cuda": False,
        "learn": {"batch_size": 64, "learning_rate": 0.001, "train_epoch": 10},
    }

    def _init_learn(self) -> None:
        self._optimizer = Adam(self._model.parameters(), lr=self._cfg.learn.learning_rate)
        self._learn_model = self._model

    def _forward_learn(self, data: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        inputs, label = to_device(data, self._device)
        self._learn_model.train()
        logit = self._learn_model(inputs)
        loss = F.cross_entropy(logit, label)
        self._backward_and_step(loss, self._optimizer)
        acc = (logit.argmax(-1) == label).float().mean() * 100
        return {"cur_lr": self._cfg.learn.learning_rate, "total_loss": loss.item(), "acc": acc.item()}

    def _monitor_vars_learn(self) -> list[str]:
        return [*super()._monitor_vars_learn(), "acc"]

    def _init_eval(self) -> None:
        self._eval_model = self._model

    def _forward_eval(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        self._eval_model.eval()
        with torch.no_grad():
            return self._eval_model(to_device(data, self._device)).cpu()

    def _init_collect(self) -> None:
        raise _no_collect_mode()

    def _forward_collect(self, data: dict[int, Any], *args: Any, **kwargs: Any) -> dict[int, Any]:
        raise _no_collect_mode()

    def _process_transition(self, obs: Any, policy_output: dict[str, Any], timestep: Any) -> dict[str, Any]:
        raise _no_collect_mode()

    def _get_train_sample(self, transitions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        raise _no_collect_mode()


def _no_collect_mode() -> NotImplementedError:
    return NotImplementedError("a classifier has no collect mode; build it with enable_field=['learn', 'eval']")


class AccuracyMetric(IMetric):
    """The percentage of correct classifications, `{'acc': percent}`."""

    def eval(self, inputs: Tensor, label: Tensor) -> dict[str, Any]:
        return {"acc": (inputs.argmax(-1) == label).float().mean().item() * 100}

    def reduce_mean(self, inputs: list[Any]) -> dict[str, float]:
        return {"acc": sum(result["acc"] for result in inputs) / len(inputs)}

    def gt(self, metric1: Any, metric2: Any) -> bool:
        return metric2 is None or metric1["acc"] >= metric2["acc"]


def build_policy(cfg: EasyDict) -> ClassifierPolicy:
    """Build the policy of a compiled config, with its own network."""
    model = nn.Sequential(MLP(2, 64, 64, layer_num=3, activation=nn.ReLU()), nn.Linear(64, 2))
    return ClassifierPolicy(cfg.policy, model=model, enable_field=["learn", "eval"])


def train(cfg: EasyDict) -> tuple[bool, dict[str, float], int]:
    """Train with a compiled config; return whether the stop value was reached, the last metric, and the iterations."""
    set_pkg_seed(cfg.seed, use_cuda=cfg.policy.cuda)
    batch_size, epochs = cfg.policy.learn.batch_size, cfg.policy.learn.train_epoch
    learn_loader = DataLoader(spirals(2048, seed=2 * cfg.seed), batch_size, shuffle=True)
    eval_loader = DataLoader(spirals(512, seed=2 * cfg.seed + 1), batch_size)
    policy = build_policy(cfg)
    env = (eval_loader, AccuracyMetric())
    with (
        DistributedWriter(os.path.join(cfg.exp_name, "log", "serial")) as writer,
        closing(BaseLearner(cfg.policy.learn.learner, policy.learn_mode, writer, exp_name=cfg.exp_name)) as learner,
        closing(
            MetricSerialEvaluator(cfg.policy.eval.evaluator, env, policy.eval_mode, writer, cfg.exp_name)
        ) as evaluator,
    ):
        learner.call_hook("before_run")
        for epoch in itertools.count():
            if evaluator.should_eval(learner.train_iter) or epoch == epochs:
                stop, metric = evaluator.eval(learner.save_checkpoint, learner.train_iter)
                if stop or epoch == epochs:
                    break
            for batch in learn_loader:
                learner.train(batch)
        learner.call_hook("after_run")
        return stop, metric, learner.train_iter


def main(argv: Sequence[str] | None = None) -> int:
    """Train with `--seed N` (0), for at most `--epochs N` passes over the data (60).

    Returns:
        The exit status: 0 if the stop value was reached, otherwise 1.
    """
    parser = argparse.ArgumentParser(description="Train a classifier of two spirals until it is accurate enough.")
    parser.add_argument("--seed", type=int, default=0, help="of everything random in the run (default 0)")
    epochs = spirals_classifier_config.policy.learn.train_epoch
    parser.add_argument("--epochs", type=int, default=epochs, help="passes over the data at most (default %(default)s)")
    args = parser.parse_args(argv)
    if args.epochs < 0:
        parser.error(f"--epochs {args.epochs} is not allowed; it must be 0 or more")
    config = copy.deepcopy(spirals_classifier_config)
    config.exp_name = f"{config.exp_name}_seed{args.seed}"
    config.policy.learn.train_epoch = args.epochs
    cfg = compile_config(config, policy=ClassifierPolicy, evaluator=MetricSerialEvaluator, seed=args.seed)
    start = time.perf_counter()
    with threads(1):
        stop, metric, iterations = train(cfg)
    print(
        f"{'solved' if stop else 'NOT solved'}: accuracy {metric['acc']:.1f} % "
        f"(stop value {cfg.policy.eval.evaluator.stop_value.acc:g} %) after {iterations} iterations and "
        f"{time.perf_counter() - start:.1f} s; results are in ./{cfg.exp_name}/"
    )
    return 0 if stop else 1


if __name__ == "__main__":
    raise SystemExit(main())
