"""Building a model from its configuration."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from torch import nn

from ding.utils.import_helper import import_module
from ding.utils.registry_factory import MODEL_REGISTRY


def create_model(cfg: Mapping[str, Any]) -> nn.Module:
    """The registered model `cfg.type`, constructed with all other keys of `cfg` as keyword arguments.

    Modules named in `import_names` are imported first, so that they can register the type. `cfg` stays untouched.

    Raises:
        KeyError: `type` is missing or nothing is registered under it.
        TypeError: the model does not take one of the keys.

    Example:
        >>> import ding.model.template.q_learning
        >>> model = create_model({"type": "dqn", "obs_shape": 4, "action_shape": 2})
        >>> sum(parameter.numel() for parameter in model.parameters())
        33923
    """
    arguments = copy.deepcopy(dict(cfg))
    if "type" not in arguments:
        raise KeyError(f"the model config has no key 'type'; its keys: {', '.join(map(str, arguments)) or 'none'}")
    import_module(arguments.pop("import_names", []))
    model: nn.Module = MODEL_REGISTRY.build(arguments.pop("type"), **arguments)
    return model
