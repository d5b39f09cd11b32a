"""The statistics of wrappers that normalize, one for all envs of a manager.

Two functions run in the process of an env: a manager collects the statistics that each env has gathered, and gives each
env the sum. That takes two requests to each env for each round of collecting, and none if no env has such a wrapper.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from ding.envs.env_wrappers.normalize_wrappers import RunningMeanStd, RunningNormWrapper
from ding.utils.running_stats import Moments


def take_moments(env: Any) -> dict[str, Moments]:
    """The statistics that each wrapper has gathered since the last call, by its name."""
    return {name: wrapper.take_moments() for name, wrapper in _normalizers(env)}


def put_moments(env: Any, moments: Mapping[str, Moments], is_frozen: bool) -> None:
    """Give the wrappers the statistics under their names; a wrapper without any keeps its own."""
    for name, wrapper in _normalizers(env):
        if name in moments:
            wrapper.put_moments(moments[name], is_frozen)


# An object that has every attribute would have no innermost env.
_DEEPEST = 64

ENV_CALLS: dict[str, Callable[..., Any]] = {"take_moments": take_moments, "put_moments": put_moments}


def env_layers(env: Any) -> Iterator[Any]:
    """`env` and the envs that it wraps, the outermost first."""
    for _ in range(_DEEPEST):
        yield env
        inner = attribute_of(env, "env")
        env = attribute_of(env, "_env") if inner is None else inner  # a BaseEnv keeps its inner env private
        if env is None:
            return


def attribute_of(obj: Any, name: str) -> Any:
    """Return an attribute; None if there is none, or if reading it fails, as with an env that was not reset."""
    try:
        return getattr(obj, name, None)
    except Exception:
        return None


def _normalizers(env: Any) -> Iterator[tuple[str, RunningNormWrapper]]:
    """`(name, wrapper)` of wrappers that share statistics, the outermost first; a name is the class and a number."""
    numbers: Counter[str] = Counter()
    for layer in env_layers(env):
        if isinstance(layer, RunningNormWrapper) and layer.keep_statistics is not False:
            kind = type(layer).__name__
            yield f"{kind}{numbers[kind]}", layer
            numbers[kind] += 1


class Normalization:
    """The statistics that the wrappers of all envs of a manager have gathered.

    Attributes:
        moments: the statistics by the names of the wrappers.
        is_frozen: whether the statistics no longer change.
    """

    def __init__(self) -> None:
        self.moments: dict[str, Moments] = {}
        self.is_frozen = False

    def merge(self, gathered: Sequence[Mapping[str, Moments]]) -> None:
        """Add the statistics of the envs, in their order."""
        for moments_by_name in gathered:
            for name, moments in moments_by_name.items():
                total = RunningMeanStd(shape=moments.mean.shape)
                if name in self.moments:
                    total.moments = self.moments[name]
                if moments.size:
                    total.merge(*moments)
                self.moments[name] = total.moments

    def state_dict(self) -> dict[str, dict[str, torch.Tensor]]:
        """The statistics as float64 tensors."""
        return {
            name: {key: torch.as_tensor(value, dtype=torch.float64) for key, value in moments._asdict().items()}
            for name, moments in self.moments.items()
        }

    def load_state_dict(self, state_dict: Mapping[str, Mapping[str, torch.Tensor]], is_frozen: bool) -> None:
        """Restore a state of `state_dict`; frozen statistics no longer change."""
        self.is_frozen = is_frozen
        self.moments = {
            name: Moments(parts["mean"].numpy().copy(), parts["var"].numpy().copy(), float(parts["size"]))
            for name, parts in state_dict.items()
        }
