"""Export of the greedy policy of a run as one network, from observations of the env to actions for it."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ding.entry.checks import members_of
from ding.entry.trained import TrainedPolicy
from ding.envs.common.gym_compat import spaces_like
from ding.envs.env.gymnasium_spaces import bin_values
from ding.model.wrapper.model_wrappers import HiddenStateWrapper
from ding.utils.config_helper import ConfigError
from ding.utils.file_helper import atomic_write
from ding.utils.import_helper import missing_package

_TRACED, _CHECKED = 2, 5  # numbers of observations: for tracing, and for the comparison of the result
_INPUT, _OUTPUT = "obs", "action"


class PolicyNetwork(nn.Module):
    """The greedy policy of a run as a network.

    `forward` takes observations [B, *obs_shape], or a dict of them, as the env shows them. It returns the actions
    [B, *action_shape] for the env: indices of discrete actions, and real-valued actions within the bounds of the env.

    Args:
        policy: a policy with an eval mode.
        space: the action space of the env.
        is_scaled: whether the actions of the policy, in [-1, 1], are mapped onto the bounds of the space.
        bins: the number of values that each number of a real-valued action is chosen from, if it is.

    Raises:
        ConfigError: the policy keeps a state from one step to the next, or its actions are not an array.
    """

    def __init__(self, policy: Any, space: Any, is_scaled: bool, bins: int | None = None) -> None:
        super().__init__()
        _refuse_memory(policy)
        spaces = spaces_like(space)
        if not isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete)):
            raise ConfigError(f"policies with the action space {space} cannot be exported; it must be one array")
        self.network = policy._model
        self._act: Callable[..., dict[str, Any]] = policy._act_eval
        self._shape = [int(size) for size in space.shape]
        self._is_real = isinstance(space, spaces.Box)
        if is_scaled and self._is_real:
            low, high = torch.from_numpy(space.low), torch.from_numpy(space.high)
            self.factor, self.middle = nn.Buffer((high - low) / 2), nn.Buffer((high + low) / 2)
        self._is_scaled = is_scaled and self._is_real
        self._is_binned = bins is not None
        if bins is not None:
            self.values = nn.Buffer(torch.from_numpy(bin_values(space, bins)).T.contiguous())  # [D, bins]

    def forward(self, obs: Any) -> Tensor:
        obs = part = _in_float32(obs)
        while isinstance(part, Mapping):
            part = next(iter(part.values()))
        action = self._act(obs, list(range(part.shape[0])))["action"]
        if not isinstance(action, Tensor):
            action = torch.stack([head.reshape(-1) for head in action], -1)
        if self._is_binned:
            action = self.values.gather(1, action.reshape(-1, len(self.values)).T).T
        action = action.reshape([-1, *self._shape])
        if self._is_scaled:
            return action.clamp(-1, 1) * self.factor + self.middle
        return action.float() if self._is_real else action


def _refuse_memory(policy: Any) -> None:
    wrapper = policy._eval_model
    while wrapper is not None:
        if isinstance(wrapper, HiddenStateWrapper):
            raise ConfigError(
                f"{type(policy).__name__} keeps a hidden state from one step to the next, which an exported network "
                "cannot; use load_policy"
            )
        wrapper = getattr(wrapper, "_model", None)


def export_policy(
    trained: TrainedPolicy, spaces: tuple[Any, Any], is_scaled: bool, path: str, bins: int | None = None
) -> None:
    """Write the greedy policy to a file that needs nothing of this package; see `Training.export`.

    The result is compared with the policy on observations that the space samples before it is written.

    Args:
        spaces: the observation and the action space of the env.
        is_scaled, bins: see `PolicyNetwork`.

    Raises:
        ConfigError: the policy keeps a state from one step to the next, draws random numbers, or has actions that are
            not an array.
        ImportError: the package onnx is not installed.
        ValueError: the suffix of `path` is not supported.
    """
    write = _WRITERS.get(os.path.splitext(path)[1])
    if write is None:
        raise ValueError(f"{path!r} is not allowed; its suffix must be {' or '.join(_WRITERS)}")
    name = type(trained.policy).__name__
    network = PolicyNetwork(trained.policy, spaces[1], is_scaled, bins).eval().requires_grad_(False)
    example, others = (_batch(spaces[0], size) for size in (_TRACED, _CHECKED))
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # warnings of torch about Python values: the comparison finds those that matter
        traced: Any = torch.jit.trace(network, (example,), check_trace=False, strict=False)  # type: ignore[no-untyped-call]
        try:
            is_same = all(torch.equal(traced(others), network(others)) for _ in range(2))
        except RuntimeError:  # the number of observations is fixed in what was traced
            is_same = False
        if not is_same:
            raise ConfigError(
                f"{name} cannot be exported: its network draws random numbers, or depends on the number of observations"
            )
        write(traced, network, example, path)


def _batch(space: Any, size: int) -> Any:
    """Return a batch of observations that a space samples, as tensors."""
    members = members_of(space)
    if members is not None:
        return {key: _batch(member, size) for key, member in members.items()}
    return torch.from_numpy(np.stack([space.sample() for _ in range(size)]))


def _in_float32(obs: Any) -> Any:
    """Return the observations with float64 as float32, with which the policy was trained."""
    if isinstance(obs, Mapping):
        return {key: _in_float32(part) for key, part in obs.items()}
    return obs.float() if obs.dtype == torch.float64 else obs


def _write_torchscript(traced: Any, network: nn.Module, example: Any, path: str) -> None:
    with atomic_write(path, "wb") as f:
        torch.jit.save(traced, f)


def _write_onnx(traced: Any, network: nn.Module, example: Any, path: str) -> None:
    try:
        import onnx  # noqa: F401
    except ImportError as e:
        raise missing_package("exporting to ONNX", "onnx", "export") from e
    names = list(_names(example))
    axes = {name: {0: "batch"} for name in (*names, _OUTPUT)}
    # A dict as the last argument would be taken for keyword arguments.
    arguments = (example, {}) if isinstance(example, dict) else (example,)
    content = io.BytesIO()
    how: dict[str, Any] = {"input_names": names, "output_names": [_OUTPUT], "dynamic_axes": axes, "dynamo": False}
    torch.onnx.export(network, arguments, content, **how)  # type: ignore[arg-type,unused-ignore]
    with atomic_write(path, "wb") as f:
        f.write(content.getvalue())


def _names(example: Any, prefix: str = "") -> Iterator[str]:
    if not isinstance(example, Mapping):
        yield prefix or _INPUT
        return
    for key, part in example.items():
        yield from _names(part, f"{prefix}.{key}" if prefix else str(key))


_WRITERS = {".pt": _write_torchscript, ".onnx": _write_onnx}
