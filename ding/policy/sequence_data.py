"""Sequences of steps as one batch."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from ding.utils.data.collate_fn import collate_steps
from ding.utils.data.samples import END_FLAGS, Samples, node_items


def collate_sequences(data: Sequence[dict[str, Any]], keys: Collection[str]) -> dict[str, Any]:
    """B sequences of L steps, dicts of lists or `Samples`, as tensors [L, B, ...] under those of `keys` that they have.

    - `done`, and `terminated` and `truncated` where any sequence tells them, are bool. One that does not tell how its
      episode ended ended for good where it is `done`.
    - `null` is bool, and false where a sequence does not tell it.
    - `weight` is the importance weight [B] (key `priority_IS`, or `IS`), else the sequences' own [L, B], else None.
    - `prev_state` is a tuple of the B recurrent states before the first steps, where the sequences have any.
    """
    columns = data.columns if isinstance(data, Samples) else None
    if columns is None:
        data = _with_flags(data)
        state = [sample["prev_state"][0] for sample in data] if "prev_state" in data[0] else None
    else:
        node = columns.get("prev_state")
        if node is None:
            state = None
        else:  # of the states at all steps only the first ones are made
            state = node_items(node[0]) if isinstance(node, list) else [states[0] for states in node_items(node)]
    batch = collate_steps(data, keys)
    for flag in ("done", *END_FLAGS):
        if flag in batch:
            batch[flag] = batch[flag].bool()
    null: Tensor | None = batch.get("null")
    batch["null"] = torch.zeros_like(batch["done"]) if null is None else null.bool()
    weight = batch.get("priority_IS", batch.get("IS"))
    batch["weight"] = batch.get("weight") if weight is None else weight.reshape(-1)
    if state is not None:
        batch["prev_state"] = tuple(state)
    return batch


def _with_flags(data: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """The sequences, all of which tell the flags that any of them tells."""
    partly = [flag for flag in (*END_FLAGS, "null") if 0 < sum(flag in sample for sample in data) < len(data)]
    return [{**_flags_of(sample, partly), **sample} for sample in data] if partly else data


def _flags_of(sample: dict[str, Any], flags: Sequence[str]) -> dict[str, Any]:
    done = [bool(step) for step in sample["done"]]
    nothing = [False] * len(done)
    truncated = sample.get("truncated", nothing)
    meaning = {
        "terminated": [is_done and not cut for is_done, cut in zip(done, truncated, strict=True)],
        "truncated": nothing,
        "null": nothing,
    }
    return {flag: meaning[flag] for flag in flags}
