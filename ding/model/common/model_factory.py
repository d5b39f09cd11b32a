"""Building a model from its config."""

from __future__ import annotations

import copy
import difflib
import inspect
from collections.abc import Callable, Container, Mapping
from typing import Any

from torch import nn

from ding.model.common.model_arguments import NET_ARCH, check_arguments, takes_net_arch, with_net_arch
from ding.utils.config_helper import ConfigError, is_of_package
from ding.utils.import_helper import import_module
from ding.utils.log_helper import shown
from ding.utils.references import is_reference, resolve_reference
from ding.utils.registry_factory import MODEL_REGISTRY

_ANY_NUMBER = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_MEANINGS = {
    "obs_shape": "the shape of the env's observations, such as 4 or [4, 84, 84]",
    "action_shape": "the number of the env's actions, or the length of its action vectors",
}


def constructor_of(cfg: Mapping[str, Any]) -> Callable[..., Any]:
    """Return the class or function that `cfg.type` names, after the import of the modules in `import_names`.

    The type is a registered name, a class or function, or its name `module:name`.

    Raises:
        ConfigError: `type` is of another kind, or the module has no such name.
        ImportError: there is no such module.
        KeyError: `type` is missing, or nothing is registered under it.
    """
    if "type" not in cfg:
        raise KeyError(f"the model config has no key 'type'; its keys: {', '.join(map(str, cfg)) or 'none'}")
    kind = cfg["type"]
    import_module(cfg.get("import_names", []))
    if is_reference(kind):
        kind = resolve_reference(kind, "policy.model.type")
    if not isinstance(kind, str) and not callable(kind):
        raise ConfigError(
            f"policy.model.type = {shown(kind)} is not allowed; it must be a registered name, a class or function "
            "that makes a network, or its name module:name"
        )
    constructor: Callable[..., Any] = MODEL_REGISTRY.get(kind) if isinstance(kind, str) else kind
    return constructor


def parameters_of(constructor: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a model's constructor; a class with `**kwargs` has those of its base class, too."""
    classes = getattr(constructor, "__mro__", (constructor,))
    found: dict[str, inspect.Parameter] = {}
    for cls in classes[: classes.index(nn.Module) if nn.Module in classes else None]:
        own = inspect.signature(cls).parameters
        found = {**own, **found}
        if not _takes_any(own):
            break
    return found


def create_model(cfg: Mapping[str, Any], *, optional: Container[str] = ()) -> nn.Module:
    """Build the model `cfg.type`, see `constructor_of`, with all other keys of `cfg` as keyword arguments.

    `cfg` is not changed.

    Args:
        optional: arguments that are passed only to models that know them.

    Raises:
        ConfigError: an argument that the model requires is missing, one is unknown to it, or it makes no `nn.Module`.
        KeyError: `type` is missing or nothing is registered under it.

    Example:
        >>> import ding.model.template.q_learning
        >>> model = create_model({"type": "dqn", "obs_shape": 4, "action_shape": 2})
        >>> sum(parameter.numel() for parameter in model.parameters())
        33923
    """
    constructor = constructor_of(cfg)
    arguments = copy.deepcopy({key: value for key, value in cfg.items() if key not in ("type", "import_names")})
    parameters = inspect.signature(constructor).parameters
    name = getattr(constructor, "__name__", type(constructor).__name__)
    if is_of_package(constructor):
        check_arguments(arguments, parameters)
        if arguments.get(NET_ARCH) is not None and takes_net_arch(parameters):
            arguments = with_net_arch(arguments.pop(NET_ARCH), arguments, parameters, optional)
    if not _takes_any(parameters):
        arguments = {key: value for key, value in arguments.items() if key in parameters or key not in optional}
        _check_names(name, arguments, parameters)
    for parameter in parameters.values():
        is_optional = parameter.default is not parameter.empty or parameter.kind in _ANY_NUMBER
        if not is_optional and parameter.name not in arguments:
            meaning = _MEANINGS.get(parameter.name, "what its documentation says")
            raise ConfigError(
                f"policy.model.{parameter.name} is missing: the model {name} needs it; set it to {meaning}"
            )
    model = constructor(**arguments)
    if not isinstance(model, nn.Module):
        raise ConfigError(f"policy.model.type = {name} made {shown(model)}; it must make an nn.Module")
    return model


class _UnknownArgument(ConfigError, TypeError):
    """Error of an unknown argument; also a TypeError, as Python raises it for such a call."""


def _takes_any(parameters: Mapping[str, inspect.Parameter]) -> bool:
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())


def _check_names(model: str, arguments: Mapping[str, Any], parameters: Mapping[str, inspect.Parameter]) -> None:
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    known = [name for name, parameter in parameters.items() if parameter.kind in by_name]
    for name in arguments:
        if name not in known:
            likeness = {other: difflib.SequenceMatcher(None, str(name), other).ratio() for other in known}
            nearest_first = sorted(known, key=lambda other: -likeness[other])
            raise _UnknownArgument(
                f"policy.model.{name} is unknown to the model {model}; it knows {', '.join(nearest_first) or 'no key'}"
            )
