"""The forward pass of plain fully connected Q networks, without the cost of entering each of their modules."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ding.model.common.encoder import FCEncoder
from ding.model.common.head import DiscreteHead, DuelingHead, MultiHead
from ding.model.common.plain_layers import Layer, PlainNet, has_own_forward, layers_of, run_layers


class PlainForward(PlainNet):
    """Runs the linear layers and activations of `encoder`, `projection` and `head` of a model as function calls.

    The values are those of the modules, bit for bit: the same functions run in the same order.
    """

    def __init__(self, model: nn.Module, trunk: list[Layer], heads: list[_Head], is_multi: bool) -> None:
        super().__init__(model, trunk[0])
        # Most often the head is a branch like the others; then it is run as part of the trunk.
        is_chain = not is_multi and heads[0].state_branch is None
        self._trunk = [*trunk, *heads[0].branch] if is_chain else trunk
        self._heads = [] if is_chain else heads
        self._is_multi = is_multi

    @classmethod
    def build(cls, model: nn.Module) -> PlainForward | None:
        """The plain form of `model`, or None where it has parts that this class does not know."""
        parts = dict(model._modules)
        encoder, projection, head = parts.pop("encoder", None), parts.pop("projection", None), parts.pop("head", None)
        if parts or type(encoder) is not FCEncoder or has_own_forward(model):
            return None
        members = list(head.pred) if type(head) is MultiHead else [head]
        layers = layers_of([encoder.init, encoder.act, encoder.main, *([] if projection is None else [projection])])
        heads = [_Head.build(member) for member in members]
        if layers is None or any(member is None for member in heads):
            return None
        return cls(model, layers, [member for member in heads if member is not None], type(head) is MultiHead)

    def __call__(self, x: Tensor) -> dict[str, Any]:
        """The output of the model's head for the observations `x` [*, obs_shape]."""
        x = run_layers(self._trunk, x)
        if self._is_multi:
            return {"logit": [head(x) for head in self._heads]}
        return {"logit": self._heads[0](x) if self._heads else x}


class _Head:
    """Values of a discrete head, or of a dueling head where there is a second branch."""

    def __init__(self, branch: list[Layer], state_branch: list[Layer] | None) -> None:
        self.branch = branch
        self.state_branch = state_branch

    @classmethod
    def build(cls, head: nn.Module | None) -> _Head | None:
        if type(head) is DiscreteHead:
            branch = layers_of([head.Q])
            return None if branch is None else cls(branch, None)
        if type(head) is DuelingHead:
            branch, state_branch = layers_of([head.A]), layers_of([head.V])
            return None if branch is None or state_branch is None else cls(branch, state_branch)
        return None

    def __call__(self, x: Tensor) -> Tensor:
        values = run_layers(self.branch, x)
        if self.state_branch is None:
            return values
        return values - values.mean(-1, keepdim=True) + run_layers(self.state_branch, x)
