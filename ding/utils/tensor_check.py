"""A check for tensors without importing torch, which takes more than a second."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import TypeGuard

    import torch


def is_tensor(value: Any) -> TypeGuard[torch.Tensor]:
    """Return whether `value` is a tensor, which it cannot be before torch is imported."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)
