"""Per-env items that are rows of one stacked batch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class EnvBatch(dict[int, Any]):
    """`{env_id: item}`, where the items are rows, in order, of one stacked batch.

    To any reader it is the documented dict of items. A reader that works on batches takes `stacked` (an array or tensor
    [E, *item_shape], or a dict of them) and need not stack the items again. `stacked` is None when the items
    cannot be stacked.

    Example:
        >>> import numpy as np
        >>> rows = np.arange(4.0).reshape(2, 2)
        >>> batch = EnvBatch([3, 7], rows, rows)
        >>> batch[7].tolist(), batch.stacked.shape
        ([2.0, 3.0], (2, 2))
    """

    __slots__ = ("stacked",)

    def __init__(self, env_ids: Iterable[int], items: Iterable[Any], stacked: Any = None) -> None:
        super().__init__(zip(env_ids, items, strict=True))
        self.stacked = stacked
