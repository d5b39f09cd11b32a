"""Helpers of the policies: train batches, the input of models, calling a policy for a single env, noise."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ding.rl_utils.returns import bootstrap_mask
from ding.torch_utils.data_helper import WIDE_INTEGERS, to_device, to_ndarray, to_tensor
from ding.torch_utils.network.nn_module import NoiseLinearLayer
from ding.utils.config_helper import ConfigError
from ding.utils.data.collate_fn import collate_columns, default_collate
from ding.utils.data.nested import is_container, is_mapping, map_tensors, parts_of, rebuilt
from ding.utils.data.samples import (
    END_FLAGS,
    Column,
    IntArray,
    Items,
    Kind,
    Node,
    map_node,
    replaced,
    rows_of,
    table_of,
    values_of,
)
from ding.utils.import_helper import missing_package


def default_preprocess_learn(
    data: Sequence[dict[str, Any]],
    use_priority_IS_weight: bool = False,
    use_priority: bool = False,
    use_nstep: bool = False,
    ignore_done: bool = False,
    keys: Collection[str] | None = None,
) -> dict[str, Any]:
    """Collate B train samples (a list of dicts, or a table) into a dict of batches for a TD loss.

    Items [1] become [B] (all but plain observations) where the action is an int64 tensor or array, else [B, 1].
    `value`, `adv`, `return`, `done` and `weight` are [B] in any case. `done` is float32, and 0 where the value of
    `next_obs` counts: `terminated` and `truncated` of a sample take precedence (see
    `ding.rl_utils.bootstrap_mask`), so an episode cut off by a time limit still bootstraps. `weight` is the
    importance weight, else the samples' own, else None. With `use_nstep` the reward is [n, B] (or [n, B, agent]), else
    [B].

    The keys are those of the first sample, except `terminated` and `truncated`, which all samples must have. With
    `keys`, only these keys are collated (and always `weight`).

    Raises:
        AssertionError: importance weights are requested without priority.
        ConfigError: importance weights are requested, but the samples have none.
        ValueError: there are no samples, or the reward has an unexpected number of axes.
    """
    if use_priority_IS_weight and not use_priority:
        raise AssertionError("priority_IS_weight = True needs priority = True: it corrects prioritized sampling")
    size = len(data)
    if size == 0:
        check_not_empty(data)
    table = table_of(data)
    columns = None if table is None else table.columns
    if columns is None:
        batch = _collate_dicts(rows_of(data), keys)
    else:
        batch = collate_columns(columns, keys, cat_1dim=_has_integer_actions(columns))
    for key in ("obs", "next_obs"):
        if key in batch and isinstance(batch[key], Tensor) and batch[key].dim() == 1 and _is_row(data, columns, key):
            batch[key] = batch[key].view(size, 1)
    for key in ("value", "adv", "return", "done", "weight"):
        if key in batch:
            batch[key] = drop_last_axis(batch[key])
    if "done" in batch:
        batch["done"] = _final(data, batch, ignore_done)
    batch["weight"] = drop_last_axis(importance_weight(batch)) if use_priority_IS_weight else batch.get("weight")
    if "reward" in batch:
        batch["reward"] = _nstep_reward(batch["reward"]) if use_nstep else drop_last_axis(batch["reward"])
    return batch


def check_not_empty(data: Any) -> None:
    """Check that `learn_mode.forward` got any train samples.

    Raises:
        ValueError: there are none.
    """
    if len(data) == 0:
        raise ValueError("the batch is empty; learn_mode.forward and learner.train need at least one train sample")


def importance_weight(batch: Mapping[str, Any]) -> Any:
    """Return the importance weights of a batch from a prioritized buffer.

    Raises:
        ConfigError: the batch has none.
    """
    for key in ("priority_IS", "IS"):
        if key in batch:
            return batch[key]
    raise ConfigError(
        "policy.priority_IS_weight = True, but the samples have no importance weight (IS, priority_IS): use a buffer "
        "that samples by priority, such as replay_buffer.type = 'advanced', or set policy.priority_IS_weight = False"
    )


def _collate_dicts(data: Sequence[dict[str, Any]], keys: Collection[str] | None) -> dict[str, Any]:
    action = data[0].get("action")
    if isinstance(action, Tensor):
        cat_1dim = not (action.is_floating_point() or action.is_complex() or action.dtype is torch.bool)
    else:
        cat_1dim = isinstance(action, np.ndarray) and action.dtype.kind in "iu"
    wanted = [key for key in data[0] if keys is None or key in keys]
    partly = [flag for flag in END_FLAGS if flag in wanted and not all(flag in sample for sample in data)]
    if keys is None and not partly:
        everything: dict[str, Any] = default_collate(data, cat_1dim=cat_1dim)
        return everything
    wanted = [key for key in wanted if key not in partly]
    return {key: default_collate([sample[key] for sample in data], cat_1dim=cat_1dim) for key in wanted}


def _has_integer_actions(columns: dict[str, Node]) -> bool:
    action = columns.get("action")
    if not isinstance(action, Column) or action.kind not in (Kind.TENSOR, Kind.ARRAY) or action.steps:
        return False
    is_integer: bool = action.data.dtype.kind in "iu"
    return is_integer


def _is_row(data: Sequence[dict[str, Any]], columns: dict[str, Node] | None, key: str) -> bool:
    """Return whether an observation is a tensor or array [1] rather than a number."""
    if columns is None:
        shape: tuple[int, ...] = np.shape(data[0][key])
        return shape == (1,)
    node = columns[key]
    return isinstance(node, Column) and node.kind is not Kind.OBJECT and node.data.shape[1:] == (1,)


def _final(data: Sequence[dict[str, Any]], batch: dict[str, Any], ignore_done: bool) -> Tensor:
    """Return a float32 mask: 1 if the next value must not be used for bootstrapping."""
    done: Tensor = batch["done"]
    if ignore_done:
        return torch.zeros_like(done, dtype=torch.float32)
    if "terminated" in batch:  # all samples have it, and it takes precedence
        terminated: Tensor = batch["terminated"]
        if terminated.dtype is torch.bool and terminated.shape == done.shape:
            return terminated.float()
        goes_on: Tensor = bootstrap_mask(done, terminated)
    else:
        goes_on = bootstrap_mask(done, values_of(data, "terminated"), values_of(data, "truncated"))
    return (~goes_on).float()


def bootstraps(data: Items) -> NDArray[np.bool_]:
    """Return for each of N transitions whether to bootstrap from the next value; see `bootstrap_mask`."""
    done, terminated, truncated = (values_of(data, flag) for flag in ("done", *END_FLAGS))
    mask: NDArray[np.bool_] = bootstrap_mask(done, terminated, truncated)
    return mask


def is_end(data: Items) -> NDArray[np.bool_]:
    """Return whether each of N transitions is `done`, [N]; with a flag for each agent, whether all are."""
    goes_on: NDArray[np.bool_] = bootstrap_mask(values_of(data, "done"))
    return np.asarray(~goes_on.reshape(len(data), -1).any(axis=1))


def drop_column(data: Items, key: str) -> Any:
    """Return the transitions without `key`; a list is modified in place."""
    table = table_of(data)
    if table is not None:
        return replaced(data, table.without(key))
    for transition in rows_of(data):
        del transition[key]
    return data


def batch_observations(data: Items, key: str, rows: IntArray | None = None) -> Any:
    """Return the observations under `key` of the samples `rows` [N] (of all by default) as one batch."""
    table = table_of(data)
    if table is not None:
        node = table.columns[key]
        chosen = node if rows is None else map_node(lambda column: column.take(rows), node)
        return collate_columns({key: chosen}, cat_1dim=is_mapping(node))[key]
    samples = rows_of(data)
    samples = samples if rows is None else [samples[row] for row in rows.tolist()]
    return stack_observations({i: sample[key] for i, sample in enumerate(samples)})


def drop_last_axis(item: Any) -> Any:
    """Return a tensor [B, 1] as [B], and all else as it is."""
    return item.squeeze(1) if isinstance(item, Tensor) and item.dim() == 2 and item.shape[1] == 1 else item


def _nstep_reward(reward: Tensor) -> Tensor:
    if reward.dim() == 1:
        return reward.unsqueeze(0)
    if reward.dim() == 2:
        return reward.transpose(0, 1).contiguous()
    if reward.dim() == 3:
        return reward.permute(2, 0, 1).contiguous()
    raise ValueError(f"the reward has shape {tuple(reward.shape)}; it must be (B,), (B, nstep) or (B, agent, nstep)")


def single_env_forward_wrapper(forward_fn: Callable[..., Any]) -> Callable[[Any], Any]:
    """Wrap a policy mode's forward (dict in, dict out) to take one observation and return one action array."""

    def forward(obs: Any) -> Any:
        batched = map_tensors(lambda tensor: tensor.unsqueeze(0), to_tensor(obs))
        action = forward_fn({0: batched})[0]["action"]
        return to_ndarray(map_tensors(lambda tensor: tensor.squeeze(0), action))

    return forward


def single_env_forward_wrapper_ttorch(forward_fn: Callable[..., Any], cuda: bool = True) -> Callable[[Any], Any]:
    """Wrap a forward like `single_env_forward_wrapper`, if it takes a treetensor batch and returns one with `action`.

    Raises:
        ImportError: DI-treetensor is not installed.
    """
    try:
        import treetensor.torch as ttorch
    except ImportError as e:
        raise missing_package("single_env_forward_wrapper_ttorch", "DI-treetensor", "tree") from e

    def forward(obs: Any) -> Any:
        batched = ttorch.as_tensor(obs).unsqueeze(0)
        if cuda and torch.cuda.is_available():
            batched = batched.cuda()
        return forward_fn(batched).action.squeeze(0).cpu().numpy()

    return forward


def set_noise_mode(module: nn.Module, noise_enabled: bool) -> None:
    """Enable or disable the noise of every noisy linear layer in `module`."""
    for layer in module.modules():
        if isinstance(layer, NoiseLinearLayer):
            layer.enable_noise = noise_enabled


def stack_observations(data: Mapping[int, Any]) -> Any:
    """Return the observations of all envs as one batch [E, *obs_shape] (or a dict of such).

    Entries [1] of a dict observation become [E], as in a batch of train samples.
    """
    observations = list(data.values())
    return default_collate(observations, cat_1dim=is_mapping(observations[0]))


def acting_input(
    obs: Any, dtype: torch.dtype = torch.float32, device: str | None = None, is_entry: bool = False
) -> Any:
    """Convert a stacked batch to tensors of a model's `dtype` on its `device`; integers as in `model_input`.

    Entries [E, 1] of a dict become [E], as in `stack_observations`. Tensors are moved before they are converted, so
    that images of bytes are transferred as bytes.

    Args:
        device: None leaves tensors where they are.
        is_entry: whether `obs` is an entry of a dict.
    """
    if isinstance(obs, np.ndarray):
        obs = torch.from_numpy(obs if obs.flags.writeable else obs.copy())
    if isinstance(obs, Tensor):
        if is_entry and obs.shape[1:] == (1,):
            obs = obs.squeeze(1)
        if device is not None:
            obs = to_device(obs, device)
        is_ready = obs.dtype is dtype or obs.dtype in WIDE_INTEGERS
        return obs if is_ready else obs.to(dtype)
    is_dict = is_mapping(obs)
    parts = [acting_input(part, dtype, device, is_dict) for _, part in parts_of(obs)]
    return rebuilt(obs, parts) if is_container(obs) else obs


def model_input(obs: Any, dtype: torch.dtype = torch.float32, integers: bool = False) -> Any:
    """Convert every tensor of `obs` to the model's `dtype`; until here observations keep theirs (uint8, float64).

    Integers other than bytes are converted only if `integers` is set, since a model may look them up in an embedding;
    the models of this package convert them. See `Policy._model_input`, which knows the model.
    """

    def convert(tensor: Tensor) -> Tensor:
        is_ready = tensor.dtype is dtype or (tensor.dtype in WIDE_INTEGERS and not integers)
        return tensor if is_ready else tensor.to(dtype)

    return map_tensors(convert, obs)
