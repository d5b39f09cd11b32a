"""The base of all model wrappers."""

from __future__ import annotations

from typing import Any

from torch import nn


class IModelWrapper:
    """Something around a model (or around another wrapper) that changes its `forward` or adds state to it.

    A wrapper is neither an `nn.Module` nor callable: use `forward` and `reset`. All it does not define itself
    (`state_dict`, `parameters`, attributes of the model, ...) is looked up in what it wraps.
    """

    def __init__(self, model: nn.Module | IModelWrapper) -> None:
        self._model: Any = model

    def __getattr__(self, key: str) -> Any:
        # Copying and unpickling look up dunder names, and other names before `_model` is set.
        if key == "_model" or (key.startswith("__") and key.endswith("__")):
            raise AttributeError(f"{type(self).__name__} has no attribute {key!r}")
        return getattr(self._model, key)

    def unwrap(self) -> Any:
        """The model inside all wrappers."""
        model = self._model
        while isinstance(model, IModelWrapper):
            model = model._model
        return model

    def train(self, mode: bool = True) -> IModelWrapper:
        """Put the model into training mode; nothing is done when it is there already."""
        model = self.unwrap()
        if getattr(model, "training", None) is not mode:
            model.train(mode)
        return self

    def eval(self) -> IModelWrapper:
        """Put the model into evaluation mode; nothing is done when it is there already."""
        return self.train(False)

    def info(self, attr_name: str) -> str:
        """The class names, from the outside in, of the wrappers and the model that have the attribute `attr_name`."""
        chain: list[Any] = [self]
        while isinstance(chain[-1], IModelWrapper):
            chain.append(chain[-1]._model)
        return " ".join(type(part).__name__ for part in chain if attr_name in dir(part))

    def reset(self, data_id: list[int] | None = None, **kwargs: Any) -> None:
        """Reset what is kept for the ids in `data_id` (None: for all); arguments go inwards to who understands them."""
        if hasattr(self._model, "reset"):
            self._model.reset(data_id=data_id, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The output of what is wrapped. A module is called, so that its hooks run."""
        model = self._model
        return model(*args, **kwargs) if isinstance(model, nn.Module) else model.forward(*args, **kwargs)


class BaseModelWrapper(IModelWrapper):
    """The innermost wrapper: passes everything through, and ends `reset` where the model has none."""
