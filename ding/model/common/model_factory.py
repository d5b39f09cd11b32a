"""Building a model from its config: the checks of its arguments, and the setting `net_arch`."""

from __future__ import annotations

import copy
import difflib
import inspect
import numbers
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from torch import nn

from ding.model.common.encoder import vector_size
from ding.torch_utils.network.nn_module import ACTIVATIONS, as_activation
from ding.utils.config_helper import ConfigError, Rule, boolean, count, is_of_package, number, one_of
from ding.utils.data.nested import is_mapping
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
        parameters = inspect.signature(cls).parameters
        found = {**parameters, **found}
        if not _takes_any(parameters):
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


# --- the arguments of the models of this package ---

_LIST = "a list of ints of 1 or more, such as [64, 64]"


def _widths(value: Any) -> str | None:
    is_list = isinstance(value, Sequence) and not isinstance(value, str) and len(value) > 0
    return None if is_list and all(count(1)(width) is None for width in value) else _LIST


def _width(value: Any) -> str | None:
    return None if count(1)(value) is None or _widths(value) is None else f"an int of 1 or more, or {_LIST}"


def _net_arch(value: Any) -> str | None:
    lists = [value]
    if is_mapping(value):
        lists = [*value.values()] if set(value) in ({"pi", "vf"}, {"pi", "qf"}) else [None]
    if all(_widths(widths) is None for widths in lists):
        return None
    return f"{_LIST}, or for actor and critic dict(pi=[64], vf=[64])"


def _activation(value: Any) -> str | None:
    try:
        module = as_activation(value)
    except (KeyError, ValueError, TypeError):
        module = value
    if module is None or isinstance(module, nn.Module):
        return None
    return f"a class of torch.nn, such as nn.Tanh, None, or one of {', '.join(ACTIVATIONS)}"


def _obs_shape(value: Any) -> str | None:
    if is_mapping(value) and value:
        return next(filter(None, map(_obs_shape, value.values())), None)
    shape = [value] if isinstance(value, numbers.Integral) else value
    is_shape = isinstance(shape, Sequence) and not isinstance(shape, str)
    if not is_shape or any(count(1)(size) is not None for size in shape) or len(shape) not in (1, 3):
        return (
            "a number for vectors, [channels, height, width] for images, or a dict of these: flatten other arrays, as "
            "by env.wrappers = ['gymnasium.wrappers:FlattenObservation'], or train a network of your own"
        )
    if len(shape) == 3 and shape[2] in (1, 3, 4) and shape[2] < shape[1] and shape[0] not in (1, 2, 3, 4):
        return (
            "[channels, height, width] for images: turn them, as by env.wrappers = "
            "['ding.envs.env.gymnasium_spaces:channels_first']"
        )
    return None


_RULES: dict[str, Rule] = {
    "obs_shape": _obs_shape,
    "net_arch": _net_arch,
    "activation": _activation,
    "norm_type": one_of("BN", "LN", "IN", "GN", "SyncBN"),
    "dropout": number(0, 1),
    **dict.fromkeys(("encoder_hidden_size_list", "strides"), _widths),
    **dict.fromkeys(("head_hidden_size", "actor_head_hidden_size", "critic_head_hidden_size"), _width),
    **dict.fromkeys(("head_layer_num", "actor_head_layer_num", "critic_head_layer_num"), count(0)),
    **dict.fromkeys(("layer_num", "a_layer_num", "v_layer_num"), count(0)),
    **dict.fromkeys(("share_encoder", "twin_critic", "dueling", "noise", "res_link", "impala_cnn_encoder"), boolean),
}


def check_arguments(arguments: Mapping[str, Any], parameters: Mapping[str, inspect.Parameter]) -> None:
    """Check the arguments of a model of this package; None is allowed where it is the default.

    Raises:
        ConfigError: a value is not allowed.
    """
    for name, value in arguments.items():
        if name not in _RULES:
            continue
        is_default = value is None and name in parameters and parameters[name].default is None
        is_encoded = name == "obs_shape" and arguments.get("encoder") is not None  # by a user's own, which takes any
        if not (is_default or is_encoded) and (allowed := _RULES[name](value)) is not None:
            raise ConfigError(f"policy.model.{name} = {value!r} is not allowed; it must be {allowed}")


# --- net_arch ---

NET_ARCH = "net_arch"
_NUMBERS = ("head_layer_num", "actor_head_layer_num", "critic_head_layer_num", "layer_num")
_HEADS = ("head_hidden_size", "actor_head_hidden_size", "critic_head_hidden_size")
_LAYERS = (*_NUMBERS, *_HEADS, "encoder_hidden_size_list", "a_layer_num", "v_layer_num")


def takes_net_arch(names: Container[str]) -> bool:
    """Return whether a model of this package with arguments of these names takes `net_arch`."""
    return any(name in names for name in _HEADS)


def without_layers(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments without those whose place `net_arch` takes."""
    return {name: value for name, value in arguments.items() if name not in _LAYERS}


def with_net_arch(
    net_arch: Any, arguments: Mapping[str, Any], names: Container[str], optional: Container[str]
) -> dict[str, Any]:
    """Return the arguments of a model with `net_arch`, the widths of its hidden layers as in Stable-Baselines3.

    The layers are between the observations and the output, and separate for actor and critic. Images are encoded by
    the default encoder first. The layers of a recurrent model are before its recurrent layer.

    Args:
        names: the names of the model's arguments.
        optional: names of arguments that `net_arch` may override.

    Raises:
        ConfigError: another argument gives the layers, too, or the model has no actor and critic.
    """
    both = next((name for name in arguments if name in _LAYERS and name not in optional), None)
    if both is not None:
        raise ConfigError(
            f"policy.model.{NET_ARCH} = {net_arch!r} and policy.model.{both} = {arguments[both]!r} both give widths of "
            "hidden layers; leave one of them out"
        )
    layers: dict[str, Any] = {**dict.fromkeys(_NUMBERS, 0), "encoder_hidden_size_list": None}
    if "lstm_type" in names:
        if vector_size(arguments.get("obs_shape")) is None:
            raise ConfigError(
                f"policy.model.{NET_ARCH} = {net_arch!r} has no effect on images before a recurrent layer; set "
                "encoder_hidden_size_list and head_hidden_size"
            )
        layers["encoder_hidden_size_list"] = net_arch
    elif is_mapping(net_arch):
        if "critic_head_hidden_size" not in names:
            raise ConfigError(
                f"policy.model.{NET_ARCH} = {net_arch!r} is not allowed; it must be {_LIST}: this policy has no actor "
                "and critic"
            )
        critic = net_arch["vf"] if "vf" in net_arch else net_arch["qf"]
        layers |= {"actor_head_hidden_size": net_arch["pi"], "critic_head_hidden_size": critic}
    else:
        layers |= dict.fromkeys(_HEADS, net_arch)
    return {**without_layers(arguments), **{name: value for name, value in layers.items() if name in names}}
