"""The samples of one collection as a batch, for several epochs of minibatches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ding.policy.common_utils import batch_observations, default_preprocess_learn
from ding.rl_utils.returns import gae, gae_data
from ding.torch_utils.data_helper import to_device
from ding.utils.data.nested import leaves, map_leaves, map_tensors, parts_of, rebuilt
from ding.utils.data.samples import IntArray, Items, columns_of, rows_of, table_of

_COLUMNS = frozenset(("action", "logit", "value", "adv", "return", "reward", "done", "traj_flag", "weight"))


class OnPolicyData:
    """B samples in the order of their trajectories, collated once.

    Args:
        data: samples with `obs, action` and what the policy needs of `logit, value, adv, return, reward, done,
            traj_flag, weight`.
        ignore_done: bootstrap from terminal states too.
        with_next: also include the next observations, which `estimate` requires.
        device: the device of the batch.

    Attributes:
        size: B.
        columns: `{key: [B, ...]}` of all but the observations; see `default_preprocess_learn`.
        observations: the B observations, then the next observations that are not the observation of the next sample.
    """

    def __init__(
        self, data: Sequence[dict[str, Any]], ignore_done: bool, with_next: bool = False, device: str | None = None
    ) -> None:
        self.size = len(data)
        self.columns: dict[str, Any] = default_preprocess_learn(data, ignore_done=ignore_done, keys=_COLUMNS)
        self.observations = batch_observations(data, "obs")
        self._next_rows = torch.zeros(0, dtype=torch.int64)
        if with_next:
            next_rows, others = _next_rows(data)
            self._next_rows = torch.from_numpy(next_rows)
            if others.size:
                further = batch_observations(data, "next_obs", others)
                self.observations = map_leaves(lambda *parts: torch.cat(parts), self.observations, further)
        if device is not None:
            self.columns = to_device(self.columns, device)
            self.observations = to_device(self.observations, device)
            self._next_rows = to_device(self._next_rows, device)

    @property
    def acted_on(self) -> Any:
        """The observations of the B samples."""
        return narrow(self.observations, 0, self.size)

    def estimate(self, values: Tensor, scale: float, gamma: float, gae_lambda: float) -> None:
        """Set the columns `value`, `adv` and `unscaled_return` from the values of all `observations`.

        Values are in units of `scale`, advantages and returns in those of the rewards. A trajectory ends where
        `traj_flag` is set, and bootstraps there unless `done` is set.
        """
        value, next_value = values[: self.size], values[self._next_rows]
        columns = self.columns
        done, traj_flag = columns["done"], columns.get("traj_flag")
        adv = gae(gae_data(value * scale, next_value * scale, columns["reward"], done, traj_flag), gamma, gae_lambda)
        columns.update(value=value, adv=adv, unscaled_return=value * scale + adv)

    def parts(self, item: Any, size: int) -> Iterator[Any]:
        """Yield the rows of `item` (`observations`, or columns) in order, in parts of at most `size`."""
        total = len(next(leaves(item)))
        for start in range(0, total, size):
            yield narrow(item, start, min(size, total - start))

    def minibatches(self, keys: Sequence[str], size: int, rng: np.random.Generator) -> Iterator[dict[str, Any]]:
        """Yield `obs` and the columns `keys` (None if missing) in batches of `size`, shuffled by `rng`.

        They are views of one copy. The last batch is filled up with samples of the previous one; fewer than `size`
        samples form a single batch.
        """
        order = torch.from_numpy(rng.permutation(self.size))
        columns: dict[str, Any] = {key: self.columns.get(key) for key in keys}
        columns["obs"] = self.acted_on
        shuffled = take(columns, order.to(self._next_rows.device))
        yield from _split(shuffled, min(size, self.size))


def _next_rows(data: Items) -> tuple[IntArray, IntArray]:
    """Return for each of N samples the row of its next observation, and the samples whose `next_obs` is an extra row.

    Within a trajectory the `next_obs` of a sample is the `obs` of the next one, so its value is computed once.
    """
    table = table_of(data)
    if table is not None:
        obs, next_obs = (list(columns_of(table.columns[key])) for key in ("obs", "next_obs"))
        is_shared = np.ones(len(data) - 1, np.bool_)
        for one, other in zip(obs, next_obs, strict=True):
            if one.data is not other.data or one.rows is None or other.rows is None:
                is_shared[:] = False
                break
            is_shared &= one.rows[1:] == other.rows[:-1]
    else:
        samples = rows_of(data)
        following = (sample["obs"] for sample in samples[1:])
        is_shared = np.array(
            [sample["next_obs"] is obs for sample, obs in zip(samples, following, strict=False)], np.bool_
        )
    others = np.flatnonzero(~np.append(is_shared, False))
    rows = np.arange(1, len(data) + 1)
    rows[others] = len(data) + np.arange(len(others))
    return rows, others


def take(item: Any, rows: Tensor) -> Any:
    """Select rows of each tensor in nested data; None is kept."""
    return map_tensors(lambda tensor: tensor.index_select(0, rows), item)


def _split(item: Any, size: int) -> Iterable[Any]:
    """Return parts of `size` rows of each tensor in nested dicts and lists, as views; None is kept.

    The last part is filled up with rows of the one before. The structure is walked through once, not for each part.
    """
    if isinstance(item, Tensor):
        parts = item.split(size)  # type: ignore[no-untyped-call]
        return parts if len(item) % size == 0 else (*parts[:-1], item.narrow(0, len(item) - size, size))
    # None and empty containers have no end.
    parts = [_split(part, size) for _, part in parts_of(item)]
    return (rebuilt(item, row) for row in zip(*parts, strict=False)) if parts else repeat(item)


def narrow(item: Any, start: int, size: int) -> Any:
    """Return the rows `start` to `start + size` of each tensor in nested data, as views; None is kept."""
    return map_tensors(lambda tensor: tensor.narrow(0, start, size), item)
