"""What several learners say, as if one had said it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

# Where all learners of a task say the same.
_OF_THE_FIRST = ("learner_step", "buffer_id", "task_id", "learner_done")


def merge_info(infos: Sequence[Any]) -> Any:
    """One value for what each of several learners says, in their order.

    Scalars (None, int, float, str) become the list of them; lists and tuples are put one after the other; dicts are
    merged by key, those that only some have too. In a dict `learner_step`, `buffer_id`, `task_id` and `learner_done`
    are those of the first learner.

    Raises:
        TypeError: they are of different kinds, or of a kind that is not merged.
        ValueError: there are none.

    Example:
        >>> merge_info([{"learner_step": 5, "priority": [1.0], "loss": 3}, {"learner_step": 5, "priority": [2.0]}])
        {'learner_step': 5, 'priority': [1.0, 2.0], 'loss': [3]}
    """
    if not infos:
        raise ValueError("there is nothing to merge: no learner has said anything")
    if all(info is None or isinstance(info, (int, float, str)) for info in infos):
        return list(infos)
    for kind in (list, tuple):
        if all(isinstance(info, kind) for info in infos):
            return kind(itertools.chain.from_iterable(infos))
    if all(isinstance(info, Mapping) for info in infos):
        keys = dict.fromkeys(itertools.chain.from_iterable(infos))
        return {key: _merge_entry(key, [info[key] for info in infos if key in info]) for key in keys}
    kinds = ", ".join(sorted({type(info).__name__ for info in infos}))
    raise TypeError(f"infos of the type {kinds} cannot be merged; they must all be scalars, lists, tuples or dicts")


def _merge_entry(key: str, values: list[Any]) -> Any:
    return values[0] if key in _OF_THE_FIRST else merge_info(values)
