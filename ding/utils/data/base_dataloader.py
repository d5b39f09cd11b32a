"""The role of a dataloader."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class IDataLoader(ABC):
    """An endless iterator over batches."""

    @abstractmethod
    def __next__(self) -> Any:
        """The next batch."""

    @abstractmethod
    def __iter__(self) -> IDataLoader:
        """The dataloader itself."""

    @abstractmethod
    def close(self) -> None:
        """Stop loading and end all threads. May be called any number of times."""
