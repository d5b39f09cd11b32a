"""Action masks: where an observation has one, and the forms that it may have."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from ding.utils.data.nested import is_container, is_mapping, parts_of

ACTION_MASK = "action_mask"


def action_mask_of(obs: Any) -> Any:
    """Return the entry `action_mask` of a dict observation, which is 1 for legal actions; None if it has none."""
    return obs[ACTION_MASK] if is_mapping(obs) and ACTION_MASK in obs else None


def masks_by_choice(mask: Any, counts: Sequence[int], batch: Sequence[int] = ()) -> list[Any]:
    """Return the masks [*batch, N_k] of an action that makes K choices, the k-th among N_k values.

    Args:
        mask: K arrays or tensors [*batch, N_k], or one: [*batch, N_1 + ... + N_K], or [*batch, K, N] if each choice is
            among N values.
        counts: N_1 ... N_K.

    Raises:
        ValueError: `mask` has another shape.

    Example:
        >>> [part.tolist() for part in masks_by_choice(np.array([1, 0, 0, 1, 1]), [2, 3])]
        [[1, 0], [0, 1, 1]]
    """
    flat, square = (*batch, sum(counts)), (*batch, len(counts), counts[0])
    if is_container(mask):
        masks = [part for _, part in parts_of(mask)]
    elif np.shape(mask) == flat:
        masks = [mask[..., end - count : end] for count, end in zip(counts, accumulate(counts), strict=True)]
    else:
        masks = [mask[..., choice, :] for choice in range(len(counts))] if np.shape(mask) == square else [mask]
    wanted, found = [(*batch, count) for count in counts], [tuple(np.shape(part)) for part in masks]
    if found != wanted:
        forms = [flat, *([square] if len({*counts}) == 1 < len(counts) else [])]
        each = f", or {len(counts)} arrays of the shapes {', '.join(map(str, wanted))}" * (len(counts) > 1)
        raise ValueError(
            f"action_mask of shape {', '.join(map(str, found))} does not fit the actions; it must be "
            f"{' or '.join(map(str, forms))}{each}" + (", the first axis for the envs" if batch else "")
        )
    return masks
