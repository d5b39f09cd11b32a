"""Wrapper that stores the recurrent state of each env."""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType
from typing import Any

import torch
from torch import Tensor, nn

from ding.model.wrapper.base_wrapper import IModelWrapper
from ding.torch_utils.nested_tensor import get_tensor_data, zeros_like


def _no_state() -> None:
    return None


def _is_dict_of_tensors(state: Any) -> bool:
    return type(state) is dict and all(isinstance(part, Tensor) for part in state.values())


class HiddenStateWrapper(IModelWrapper):
    """Wrapper that stores one recurrent state per id: it is passed as `prev_state`, and updated by `next_state`.

    Args:
        state_num: the number of ids, which are 0 .. state_num - 1.
        save_prev_state: whether the output gets `prev_state`, a list of detached copies of the input states
            (zeros if there was none), in the place of `next_state`.
        init_fn: creates the initial state of an id.
        stack_prev_state: whether these copies become one dict of stacked tensors, if the states are dicts of tensors.

    Example:
        >>> class Counter(nn.Module):
        ...     def forward(self, data):
        ...         return {"next_state": [(state or 0) + 1 for state in data["prev_state"]]}
        >>> model = HiddenStateWrapper(Counter(), state_num=2)
        >>> _ = model.forward({}), model.forward({}, data_id=[1])
        >>> model._state
        {0: 1, 1: 2}
    """

    def __init__(
        self,
        model: nn.Module | IModelWrapper,
        state_num: int,
        save_prev_state: bool = False,
        init_fn: Callable[[], Any] = _no_state,
        stack_prev_state: bool = False,
    ) -> None:
        super().__init__(model)
        self._state_num = state_num
        self._save_prev_state = save_prev_state
        self._init_fn = init_fn
        self._stack_prev_state = stack_prev_state
        self._state: dict[int, Any] = {index: init_fn() for index in range(state_num)}

    def forward(
        self, data: dict[str, Any], data_id: list[int] | None = None, valid_id: list[int] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Forward `data` with the states of `data_id` (None: all ids).

        Only the states of `valid_id` (None: of `data_id`) are updated.

        Raises:
            KeyError: an id is not in 0 .. state_num - 1.
            AssertionError: the model returns a different number of states than it received, or `valid_id` is not in
                `data_id`.
        """
        ids = list(self._state) if data_id is None else list(data_id)
        self._check_ids(ids)
        before = [self._state[index] for index in ids]
        output: dict[str, Any] = super().forward({**data, "prev_state": before}, **kwargs)
        after = output.pop("next_state", None)
        if after is None:
            return output
        if len(after) != len(ids):
            raise AssertionError(f"the model returned {len(after)} next states for the {len(ids)} ids {ids}")
        self._keep(ids, after, valid_id)
        if self._save_prev_state:
            output["prev_state"] = self._copies(before, zeros_like(after[0]))
        return output

    def _check_ids(self, ids: list[int]) -> None:
        if not self._state.keys() >= set(ids):
            unknown = next(index for index in ids if index not in self._state)
            raise KeyError(f"id {unknown} has no hidden state; state_num = {self._state_num} allows ids below that")

    def _copies(self, states: list[Any], zeros: Any) -> Any:
        """Copy the states, with `zeros` for None; see `stack_prev_state`."""
        are_dicts = {type(state) for state in states} <= {dict, NoneType}
        if self._stack_prev_state and are_dicts and _is_dict_of_tensors(zeros):
            columns = {key: [zero if state is None else state[key] for state in states] for key, zero in zeros.items()}
            return {key: torch.stack(column).detach() for key, column in columns.items()}
        return [zeros if state is None else get_tensor_data(state) for state in states]

    def _keep(self, ids: list[int], states: Any, valid_id: list[int] | None) -> None:
        after = dict(zip(ids, states, strict=True))
        if valid_id is not None:
            if not after.keys() >= set(valid_id):
                raise AssertionError(f"valid_id {valid_id} must be among data_id {ids}")
            after = {index: after[index] for index in valid_id}
        self._state.update(after)

    def reset(self, data_id: list[int] | None = None, state: list[Any] | None = None, **kwargs: Any) -> None:
        """Set the states of the ids in `data_id` (None: all) to `state`, or to initial ones.

        Raises:
            AssertionError: `state` and the ids differ in length.
            KeyError: an id is not in 0 .. state_num - 1.
        """
        ids = list(self._state) if data_id is None else list(data_id)
        states = [self._init_fn() for _ in ids] if state is None else list(state)
        if len(states) != len(ids):
            raise AssertionError(f"{len(states)} states do not fit the {len(ids)} ids {ids}")
        self._check_ids(ids)
        self._state.update(zip(ids, states, strict=True))
        super().reset(data_id=data_id, **kwargs)
