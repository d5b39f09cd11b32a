"""What differs between the action spaces of a policy-gradient method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ding.rl_utils.log_prob import ActionTerms, categorical_terms, gaussian_terms


class ActionKind(NamedTuple):
    """How actions of one kind are drawn and judged.

    Attributes:
        collect_wrapper, eval_wrapper: the model wrappers that add the action.
        terms: of a logit and the actions, the terms of each part that has a loss of its own.
        is_discrete: None where actions have parts of both kinds.
    """

    collect_wrapper: str
    eval_wrapper: str
    terms: Callable[[Any, Any], list[ActionTerms]]
    is_discrete: bool | None


def _discrete(logit: Any, action: Any) -> list[ActionTerms]:
    return [categorical_terms(logit, action)]


def _continuous(logit: Any, action: Any) -> list[ActionTerms]:
    return [gaussian_terms(logit, action)]


def _hybrid(logit: Any, action: Any) -> list[ActionTerms]:
    """The type and its arguments are two policies, as in H-PPO (https://arxiv.org/abs/1903.01344)."""
    return [
        categorical_terms(logit["action_type"], action["action_type"]),
        gaussian_terms(logit["action_args"], action["action_args"]),
    ]


ACTION_KINDS = {
    "discrete": ActionKind("multinomial_sample", "argmax_sample", _discrete, True),
    "continuous": ActionKind("reparam_sample", "deterministic_sample", _continuous, False),
    "hybrid": ActionKind("hybrid_reparam_multinomial_sample", "hybrid_deterministic_argmax_sample", _hybrid, None),
}
