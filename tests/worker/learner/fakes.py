"""A scripted learn mode and a TensorBoard writer that remembers."""

from typing import Any

from easydict import EasyDict

from ding.worker.learner import BaseLearner
from tests.fakes import FakeWriter


class FakePolicy:
    """A learn mode whose k-th forward returns `outputs[k]`, from the second-last on the last one.

    Args:
        outputs: what forward returns; each time a shallow copy.
        names: the monitored names.
    """

    def __init__(self, *outputs: Any, names: tuple[str, ...] = ("cur_lr", "total_loss")) -> None:
        self.outputs = outputs or ({"cur_lr": 0.1, "total_loss": 0.5},)
        self.names = list(names)
        self.calls: list[tuple[Any, dict[str, Any]]] = []
        self.state: dict[str, Any] = {"model": {"w": 1.5}}
        self.attributes = {"batch_size": 2, "device": "cpu"}

    def forward(self, data: Any, **kwargs: Any) -> Any:
        output = self.outputs[min(len(self.calls), len(self.outputs) - 1)]
        self.calls.append((data, kwargs))
        if isinstance(output, list):
            return [dict(part) for part in output]
        return dict(output) if isinstance(output, dict) else output

    def monitor_vars(self) -> list[str]:
        return self.names

    def info(self) -> str:
        return "a scripted policy"

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = state

    def get_attribute(self, name: str) -> Any:
        return self.attributes[name]


class RecordingWriter(FakeWriter):
    """Remembers what was written, in order, as (method, tag, value, step)."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[tuple[str, str, Any, int]] = []

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self.written.append(("scalar", tag, value, step))

    def add_scalars(self, tag: str, values: dict[str, float], step: int) -> None:
        self.written.append(("scalars", tag, values, step))

    def add_histogram(self, tag: str, values: Any, step: int) -> None:
        self.written.append(("histogram", tag, values.tolist(), step))


def learner_cfg(hook: dict[str, Any] | None = None, **changes: Any) -> EasyDict:
    """The default config with the given hooks (none by default) and changes."""
    cfg = BaseLearner.default_config()
    cfg.hook = {} if hook is None else hook
    cfg.update(changes)
    return cfg


def make_learner(policy: Any = None, hook: dict[str, Any] | None = None, **kwargs: Any) -> BaseLearner:
    """A learner with a recording writer and the given hooks."""
    changes = kwargs.pop("changes", {})
    kwargs.setdefault("tb_logger", RecordingWriter())
    return BaseLearner(
        learner_cfg(hook, **changes), FakePolicy() if policy is None else policy, exp_name="exp", **kwargs
    )
