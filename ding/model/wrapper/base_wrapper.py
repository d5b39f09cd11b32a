"""Base class of model wrappers."""

from __future__ import annotations

from typing import Any

from torch import nn


class IModelWrapper:
    """A wrapper around a model (or another wrapper) that changes its `forward` or adds state.

    A wrapper is neither an `nn.Module` nor callable: use `forward` and `reset`. All other attributes
    (`state_dict`, `parameters`, attributes of the model, ...) are looked up in the wrapped object.
    """

    def __init__(self, model: nn.Module | IModelWrapper) -> None:
        self._model: Any = model

    def __getattr__(self, key: str) -> Any:
        # Copying and unpickling look up dunder names, and other names before `_model` is set.
        if key == "_model" or (key.startswith("__") and key.endswith("__")):
            raise AttributeError(f"{type(self).__name__} has no attribute {key!r}")
        return getattr(self._model, key)

    def unwrap(self) -> Any:
        """Return the model inside all wrappers."""
        model = self._model
        while isinstance(model, IModelWrapper):
            model = model._model
        return model

    def train(self, mode: bool = True) -> IModelWrapper:
        """Set the model to training mode, if it is not already."""
        model = self.unwrap()
        if getattr(model, "training", None) is not mode:
            model.train(mode)
        return self

    def eval(self) -> IModelWrapper:
        """Set the model to evaluation mode, if it is not already."""
        return self.train(False)

    def info(self, attr_name: str) -> str:
        """Return the class names, outermost first, of the wrappers and the model with the attribute `attr_name`."""
        chain: list[Any] = [self]
        while isinstance(chain[-1], IModelWrapper):
            chain.append(chain[-1]._model)
        return " ".join(type(part).__name__ for part in chain if attr_name in dir(part))

    def reset(self, data_id: list[int] | None = None, **kwargs: Any) -> None:
        """Reset the state of the ids in `data_id` (None: all); other arguments are passed to inner wrappers."""
        if hasattr(self._model, "reset"):
            self._model.reset(data_id=data_id, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Forward through the wrapped object. A module is called, so that its hooks run."""
        model = self._model
        return model(*args, **kwargs) if isinstance(model, nn.Module) else model.forward(*args, **kwargs)


class BaseModelWrapper(IModelWrapper):
    """The innermost wrapper: forwards everything, and ignores `reset` if the model has none."""
