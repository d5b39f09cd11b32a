"""Building a model from its config."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import Any

from torch import nn

from ding.utils.config_helper import ConfigError
from ding.utils.import_helper import import_module
from ding.utils.registry_factory import MODEL_REGISTRY

_ANY_NUMBER = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_MEANINGS = {
    "obs_shape": "the shape of the env's observations, such as 4 or [4, 84, 84]",
    "action_shape": "the number of the env's actions, or the length of its action vectors",
}


def create_model(cfg: Mapping[str, Any]) -> nn.Module:
    """Build the registered model `cfg.type`, with all other keys of `cfg` as keyword arguments.

    Modules named in `import_names` are imported first, so that they can register the type. `cfg` is not changed.

    Raises:
        ConfigError: an argument that the model requires is missing.
        KeyError: `type` is missing or nothing is registered under it.
        TypeError: the model does not accept one of the keys.

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
    constructor = MODEL_REGISTRY.get(arguments.pop("type"))
    for parameter in inspect.signature(constructor).parameters.values():
        is_optional = parameter.default is not parameter.empty or parameter.kind in _ANY_NUMBER
        if not is_optional and parameter.name not in arguments:
            meaning = _MEANINGS.get(parameter.name, "what its documentation says")
            raise ConfigError(
                f"policy.model.{parameter.name} is missing: the model {constructor.__name__} needs it; "
                f"set it to {meaning}"
            )
    model: nn.Module = constructor(**arguments)
    return model
