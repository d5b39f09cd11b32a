"""Ids of messages that have been dealt with: the network may bring a message twice."""

from __future__ import annotations

from collections import OrderedDict


class RecentIds:
    """The last `limit` ids that were added. Not thread-safe."""

    def __init__(self, limit: int = 1024) -> None:
        self._limit = limit
        self._ids: OrderedDict[str, None] = OrderedDict()

    def add(self, key: str) -> None:
        """Remember `key`, and forget the oldest one where there are too many."""
        self._ids[key] = None
        if len(self._ids) > self._limit:
            self._ids.popitem(last=False)

    def __contains__(self, key: str) -> bool:
        return key in self._ids
