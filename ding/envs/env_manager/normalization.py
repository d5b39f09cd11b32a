"""The statistics of wrappers that normalize, one for all envs of a manager.

Two functions work on an env, in whatever process it is: a manager asks each env for what it has gathered, and gives
each the sum. That takes two requests an env for each round of collecting, and none where no env has such a wrapper.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from ding.envs.env_wrappers.normalize_wrappers import RunningMeanStd, RunningNormWrapper
from ding.utils.running_stats import Moments


def take_moments(env: Any) -> dict[str, Moments]:
    """By the name of each wrapper what it has gathered since the last call."""
    return {name: wrapper.take_moments() for name, wrapper in _normalizers(env)}


def put_moments(env: Any, moments: Mapping[str, Moments], is_frozen: bool) -> None:
    """Give the wrappers the statistics of their names; one that has none stays as it is."""
    for name, wrapper in _normalizers(env):
        if name in moments:
            wrapper.put_moments(moments[name], is_frozen)


# Of what attributes an env is made, an object that answers to any name does not end.
_DEEPEST = 64

ENV_CALLS: dict[str, Callable[..., Any]] = {"take_moments": take_moments, "put_moments": put_moments}


def env_layers(env: Any) -> Iterator[Any]:
    """`env` and what it is made of, the outermost first."""
    for _ in range(_DEEPEST):
        yield env
        inner = getattr(env, "env", None)
        env = getattr(env, "_env", None) if inner is None else inner  # a BaseEnv keeps what it is made of in private
        if env is None:
            return


def _normalizers(env: Any) -> Iterator[tuple[str, RunningNormWrapper]]:
    """`(name, wrapper)`, the outermost first: those that share; the name is that of its class, with a number."""
    numbers: Counter[str] = Counter()
    for layer in env_layers(env):
        if isinstance(layer, RunningNormWrapper) and layer.keep_statistics is not False:
            kind = type(layer).__name__
            yield f"{kind}{numbers[kind]}", layer
            numbers[kind] += 1


class Normalization:
    """What the wrappers of all envs of a manager have gathered.

    Attributes:
        moments: the statistics by the names of the wrappers.
        is_frozen: whether nothing is to be added.
    """

    def __init__(self) -> None:
        self.moments: dict[str, Moments] = {}
        self.is_frozen = False

    def merge(self, gathered: Sequence[Mapping[str, Moments]]) -> None:
        """Add what the envs have gathered, in their order."""
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
        """Go on from what `state_dict` returned; frozen ones are not added to."""
        self.is_frozen = is_frozen
        self.moments = {
            name: Moments(parts["mean"].numpy().copy(), parts["var"].numpy().copy(), float(parts["size"]))
            for name, parts in state_dict.items()
        }
