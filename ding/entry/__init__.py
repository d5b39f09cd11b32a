"""Training pipelines, each imported when it is first used: the command `ding` answers at once."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ding.entry.parallel_entry import parallel_pipeline
    from ding.entry.serial_entry import serial_pipeline
    from ding.entry.serial_entry_onpolicy import serial_pipeline_onpolicy
    from ding.entry.utils import mark_not_expert, mark_warm_up, random_collect

__all__ = [
    "mark_not_expert",
    "mark_warm_up",
    "parallel_pipeline",
    "random_collect",
    "serial_pipeline",
    "serial_pipeline_onpolicy",
]

_MODULES = {
    "mark_not_expert": "utils",
    "mark_warm_up": "utils",
    "parallel_pipeline": "parallel_entry",
    "random_collect": "utils",
    "serial_pipeline": "serial_entry",
    "serial_pipeline_onpolicy": "serial_entry_onpolicy",
}


def __getattr__(name: str) -> Any:
    # Not `lazy_names`: importing anything of `ding.utils` imports torch.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"ding.entry.{_MODULES[name]}"), name)
