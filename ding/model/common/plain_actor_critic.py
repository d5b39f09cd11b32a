"""The forward pass of plain fully connected actor-critic networks, without entering each of their modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from ding.model.common.encoder import FCEncoder
from ding.model.common.head import DiscreteHead, MultiHead, RegressionHead, ReparameterizationHead
from ding.model.common.plain_layers import Layer, PlainNet, has_own_forward, layers_of, run_layers


class PlainActorCritic(PlainNet):
    """Runs the linear layers and activations of a `VAC` as function calls, with the same values, bit for bit."""

    def __init__(
        self,
        model: nn.Module,
        encoders: list[list[Layer]],
        actor: Callable[[Tensor], Any],
        critic: list[Layer],
    ) -> None:
        super().__init__(model, encoders[0][0])
        self._encoder, self._critic_encoder = encoders[0], encoders[-1]
        self._is_shared = len(encoders) == 1
        self._actor = actor
        self._critic = critic

    @classmethod
    def build(cls, model: nn.Module) -> PlainActorCritic | None:
        """The plain form of `model`, or None where it has parts that this class does not know."""
        parts = dict(model._modules)
        names = ["encoder"] if "encoder" in parts else ["actor_encoder", "critic_encoder"]
        encoders = [_encoder_layers(parts[name]) for name in names]
        actor, critic = _actor(parts["actor_head"]), _critic_layers(parts["critic_head"])
        if has_own_forward(model) or actor is None or critic is None or any(layers is None for layers in encoders):
            return None
        return cls(model, [layers for layers in encoders if layers is not None], actor, critic)

    def compute_actor(self, x: Tensor) -> dict[str, Any]:
        """`{'logit'}` for the observations `x` [*, obs_shape]."""
        return {"logit": self._actor(run_layers(self._encoder, x))}

    def compute_critic(self, x: Tensor) -> dict[str, Any]:
        """`{'value'}`."""
        return {"value": self._value(run_layers(self._critic_encoder, x))}

    def compute_actor_critic(self, x: Tensor) -> dict[str, Any]:
        """`{'logit', 'value'}`."""
        embedding = run_layers(self._encoder, x)
        own = embedding if self._is_shared else run_layers(self._critic_encoder, x)
        return {"logit": self._actor(embedding), "value": self._value(own)}

    def _value(self, embedding: Tensor) -> Tensor:
        value = run_layers(self._critic, embedding)
        return value.squeeze(-1) if value.ndim > 1 else value


def _encoder_layers(encoder: nn.Module | None) -> list[Layer] | None:
    return layers_of([encoder.init, encoder.act, encoder.main]) if type(encoder) is FCEncoder else None


def _critic_layers(head: nn.Module | None) -> list[Layer] | None:
    is_plain = type(head) is RegressionHead and not head.final_tanh
    return layers_of([head.main, head.last]) if is_plain and isinstance(head, RegressionHead) else None


def _actor(head: nn.Module | None) -> Callable[[Tensor], Any] | None:
    """What makes the logit of an embedding."""
    if type(head) is ReparameterizationHead:
        hidden = layers_of([head.main])
        return None if hidden is None else lambda x: head.of_hidden(run_layers(hidden, x))
    if type(head) is MultiHead:
        members = [_actor(member) for member in head.pred]
        if any(member is None for member in members):
            return None
        return lambda x: [member(x) for member in members if member is not None]
    if type(head) is nn.Sequential:  # a projection, then the head
        before, after = layers_of(list(head)[:-1]), _actor(head[-1])
        return None if before is None or after is None else lambda x: after(run_layers(before, x))
    branch = layers_of([head.Q]) if type(head) is DiscreteHead else None
    return None if branch is None else lambda x: run_layers(branch, x)
