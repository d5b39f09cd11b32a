"""The serial evaluator that measures a policy on a data set."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, ClassVar

from ding.torch_utils.data_helper import to_tensor
from ding.utils.config_helper import NO_DEFAULT, Setting, Settings, boolean
from ding.utils.registry_factory import SERIAL_EVALUATOR_REGISTRY
from ding.worker.collector.base_serial_evaluator import SaveCheckpoint, SerialEvaluator
from ding.worker.collector.statistics import per


class IMetric(ABC):
    """The interface of metrics, which say how good the outputs of a policy are, as a dict of numbers.

    Example:
        >>> class Accuracy(IMetric):
        ...     def eval(self, inputs, label):
        ...         return {"acc": (inputs == label).float().mean().item()}
        ...     def reduce_mean(self, inputs):
        ...         return {"acc": sum(metric["acc"] for metric in inputs) / len(inputs)}
        ...     def gt(self, metric1, metric2):
        ...         return metric2 is None or metric1["acc"] >= metric2["acc"]
        >>> import torch
        >>> Accuracy().eval(torch.tensor([1, 2]), torch.tensor([1, 3]))
        {'acc': 0.5}
    """

    @abstractmethod
    def eval(self, inputs: Any, label: Any) -> dict[str, Any]:
        """Return the metric of one batch: `inputs` is the policy's output, `label` that of the data set."""
        raise NotImplementedError

    @abstractmethod
    def reduce_mean(self, inputs: list[Any]) -> Any:
        """Return the mean of the metrics of several batches."""
        raise NotImplementedError

    @abstractmethod
    def gt(self, metric1: Any, metric2: Any) -> bool:
        """Return whether `metric1` is at least as good as `metric2`; True when `metric2` is None."""
        raise NotImplementedError


@SERIAL_EVALUATOR_REGISTRY.register("metric")
class MetricSerialEvaluator(SerialEvaluator):
    """A serial evaluator that measures a policy with a metric, over a loader of batches `(inputs, label)`.

    On several ranks rank 0 measures and broadcasts the result. With `multi_gpu` each rank measures the batches of its
    own loader, and the result is the mean over all batches: that of the ranks' results, weighted by their numbers of
    batches. In both cases rank 0 alone logs, saves and decides.

    Args:
        cfg: config, see `default_config`; also `stop_value`, a metric such as `{'acc': 75.}` (None never stops), and
            `multi_gpu` (False).
        env: the pair (loader, metric), a list or tuple.
        policy: the eval mode of a policy; its forward is given a batch.
        tb_logger: a TensorBoard writer shared with others; without one, one is made.
        exp_name: the experiment's folder, for the logs.
        instance_name: name in the logs and tags.

    Example:
        >>> import torch
        >>> from types import SimpleNamespace
        >>> from ding.entry.utils import AccMetric
        >>> batches = [([[1], [2]], [1, 2]), ([[3], [4]], [3, 5])]
        >>> loader = [(torch.tensor(inputs), torch.tensor(label)) for inputs, label in batches]
        >>> policy = SimpleNamespace(forward=lambda batch: {"logit": batch}, reset=lambda: None)
        >>> evaluator = MetricSerialEvaluator(MetricSerialEvaluator.default_config(), (loader, AccMetric()), policy)
        >>> evaluator.eval(train_iter=1)
        (False, {'Acc': 0.75})
        >>> evaluator.close()
    """

    settings = Settings(
        {
            "stop_value": Setting(NO_DEFAULT, None, "Metric at which the training ends; None for no such end."),
            "multi_gpu": Setting(NO_DEFAULT, boolean, "Whether each rank measures the batches of its own loader."),
        },
        SerialEvaluator.settings,
    )
    _saved_if_plain: ClassVar = {
        "_max_avg_eval_result": "the best result so far is not made of plain values; it is forgotten"
    }
    _dataloader: Any = None
    _metric: Any = None

    def _read_settings(self, cfg: Mapping[str, Any]) -> None:
        super()._read_settings(cfg)
        self._stop_value = cfg.get("stop_value")
        self._multi_gpu = cfg.get("multi_gpu", False)

    @property
    def env(self) -> Any:
        """The pair (loader, metric), None without one."""
        return None if self._metric is None else (self._dataloader, self._metric)

    def reset_env(self, _env: Any = None) -> None:
        """Take over another pair (loader, metric); None changes nothing.

        Raises:
            ValueError: `_env` is not a pair.
        """
        if _env is None:
            return
        if not isinstance(_env, list | tuple) or len(_env) != 2:
            raise ValueError(f"{type(self).__name__} needs the pair (loader, metric) as its env, got {_env!r:.200}")
        self._dataloader, self._metric = _env

    def reset(self, _policy: Any = None, _env: Any = None) -> None:
        super().reset(_policy, _env)
        self._max_avg_eval_result: Any = None

    def eval(  # type: ignore[override]  # there are no episodes to count
        self, save_ckpt_fn: Callable[[str], Any] | None = None, train_iter: int = -1, envstep: int = -1
    ) -> tuple[bool, Any]:
        """Measure the policy; on several ranks all must call this together.

        Args:
            save_ckpt_fn: called with `ckpt_best.pth.tar` when the result is better than the best so far.
            train_iter: iteration of the policy.
            envstep: env steps of the training so far.

        Returns:
            `(stop, result)`: whether the result has reached `stop_value` (never before the first iteration), and what
            the metric's `reduce_mean` returned.

        Raises:
            RuntimeError: there is no pair (loader, metric) or no policy yet.
            ValueError: the loader has no batch.
        """
        if self._metric is None or self._policy is None:
            raise RuntimeError(
                f"{type(self).__name__} has no pair (loader, metric) or no policy yet: give it them with reset"
            )
        measured = self._measure() if self._multi_gpu or self._rank == 0 else None

        def conclude() -> tuple[bool, Any]:
            result, batches, seconds = measured  # type: ignore[misc]  # rank 0 has measured
            times = {"evaluate_time": seconds, "avg_time_per_data": per(seconds, batches)}
            self._report({"data_length": batches, **times, **result}, train_iter, envstep)
            return self._judge(result, save_ckpt_fn, train_iter), result

        return self._from_rank_0(conclude)

    def _measure(self) -> tuple[Any, int, float]:
        """Return the result, the number of batches of this rank, and how many seconds they took."""
        start = perf_counter()
        self._policy.reset()
        self._logger.info("evaluation begins")
        results = []
        for batch in self._dataloader:
            inputs, label = to_tensor(batch)
            results.append(self._metric.eval(self._policy.forward(inputs), label))
        if not results:
            raise ValueError(f"the loader of {type(self).__name__} has no batch to evaluate: {self._dataloader!r}")
        result = self._metric.reduce_mean(results)
        if self._multi_gpu:
            batches = len(results)
            total, *sums = self._sum_over_ranks(batches, *(float(value) * batches for value in result.values()))
            result = {key: value / total for key, value in zip(result, sums, strict=True)}
        return result, len(results), perf_counter() - start

    def _judge(self, result: Any, save_ckpt_fn: SaveCheckpoint | None, train_iter: int) -> bool:
        """Save a new best checkpoint; return whether training may stop."""
        is_best = bool(self._metric.gt(result, self._max_avg_eval_result))
        is_enough = self._stop_value is not None and bool(self._metric.gt(result, self._stop_value))
        stop = self._conclude(result, is_best, is_enough, save_ckpt_fn, train_iter)
        if is_best:
            self._max_avg_eval_result = result
        return stop
