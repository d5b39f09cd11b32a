"""Hindsight experience replay: the goal of a sample is often replaced by one that its episode has reached."""

from __future__ import annotations

from typing import Any

import numpy as np

from ding.data.ring import BoolArray, Slots, done_flags
from ding.envs.env.goals import ACHIEVED, DESIRED, GOAL_KEYS, GoalFunctions
from ding.utils.config_helper import Setting, Settings, number, one_of
from ding.utils.data.samples import Column, Items, Kind, Node, Table, columns_of
from ding.utils.registry_factory import BUFFER_REGISTRY
from ding.utils.segment_tree import IntArray
from ding.worker.replay_buffer.naive_buffer import NaiveReplayBuffer


@BUFFER_REGISTRY.register("her")
class HindsightReplayBuffer(NaiveReplayBuffer):
    """A naive buffer that replaces goals in k of k + 1 samples (https://arxiv.org/abs/1707.01495).

    Items are transitions of an env with goals. The new goal is one that the stored part of the episode has reached;
    `goals` computes the reward and, if the env tells that, whether the step is terminal. Time limits end no episode
    for another goal, either: `truncated` stays as it is.

    An episode ends with `done`, where the next item does not continue it, and with each push: the items of an episode
    must be pushed together and in order.

    Attributes:
        goals: The reward for any goal. It must be set before `sample` is called.

    Raises:
        ValueError: by `push`, if an item has no `reward` or `done`, or its `obs` or `next_obs` is not a dict of arrays
            with `observation`, `achieved_goal` and `desired_goal`.
    """

    settings = Settings(
        {
            "type": "her",
            "strategy": Setting(
                "future",
                one_of("future", "final", "episode"),
                "Goals that replace that of a sample: one reached in this or a later step, in the last step, or in any "
                "step of its episode.",
            ),
            "k": Setting(4, number(0), "Samples with such a goal for each one with its own, on average."),
        },
        NaiveReplayBuffer.settings,
    )
    # The number of the episode, and how many transitions of it were pushed before and after that in the slot.
    _slot_fields = (("episode", np.int64), ("before", np.int32), ("after", np.int32))

    def _begin(self) -> None:
        self._strategy, self._share = self._cfg.strategy, 1 - 1 / (self._cfg.k + 1)
        self.goals: GoalFunctions | None = None

    def _prepare(self, data: Items | Any) -> Items:
        items = super()._prepare(data)
        columns = items.columns if isinstance(items, Table) else {}
        has_goals = all(_has_goals(columns.get(key)) for key in ("obs", "next_obs"))
        if len(items) and not (has_goals and {"reward", "done"} <= columns.keys()):
            raise ValueError(
                "the buffer 'her' needs transitions with reward and done, whose obs and next_obs are dicts of arrays "
                "with observation, achieved_goal and desired_goal; use another replay_buffer.type for other samples"
            )
        return items

    def _write(self, items: Items) -> tuple[Slots, int]:
        assert isinstance(items, Table)
        begins = np.concatenate(([True], _ends(items)[:-1]))
        episode = self._store.push_count + begins.cumsum()  # an episode has at least one item: no number comes again
        written = super()._write(items)
        self._note_episodes(written[0], episode)
        return written

    def _note_episodes(self, slots: Slots, episode: IntArray) -> None:
        """Write the fields of n >= 1 successive `slots`, whose `episode` [n] increases."""
        first = np.searchsorted(episode, episode)
        last = np.searchsorted(episode, episode, side="right") - 1
        order, fields = np.arange(len(episode)), self._store.fields
        fields["episode"][slots], fields["before"][slots], fields["after"][slots] = episode, order - first, last - order

    def _remove(self, slots: IntArray) -> None:
        super()._remove(slots)
        left = self._store.occupied()
        if len(left):
            self._note_episodes(left, self._store.fields["episode"][left])

    def _read_drawn(self, slots: IntArray) -> Items:
        items = super()._read_drawn(slots)
        assert isinstance(items, Table)
        rows = np.flatnonzero(self._rng.random(len(slots)) < self._share)
        if not len(rows):
            return items
        reached: Any = self._store.read(self._slots_of_goals(slots[rows]))
        return self._with_goals(items, rows, reached.columns["next_obs"][ACHIEVED].values())

    def _slots_of_goals(self, slots: IntArray) -> IntArray:
        """Return the slot of a transition of the same episode for each of `slots`, by the strategy."""
        positions = self._store.positions_of(slots)
        after = self._store.fields["after"][slots].astype(np.int64)
        if self._strategy == "final":
            offsets = after
        else:
            before = self._store.fields["before"][slots] if self._strategy == "episode" else np.zeros_like(after)
            offsets = self._rng.integers(-np.minimum(before, positions), after + 1)  # older ones were overwritten
        chosen: IntArray = self._store.slots_at(positions + offsets)
        return chosen

    def _with_goals(self, items: Table, rows: IntArray, goals: np.ndarray) -> Table:
        """Return `items`, which nobody else holds, with other `goals` in these `rows`."""
        if self.goals is None:
            raise RuntimeError(
                "the buffer 'her' has no function for the reward of another goal: set its attribute goals to "
                "GoalFunctions(env)"
            )
        columns = items.columns
        achieved = columns["next_obs"][ACHIEVED].values()[rows]
        changed: dict[str, Node] = {
            key: {**columns[key], DESIRED: _with_values(columns[key][DESIRED], rows, goals)}
            for key in ("obs", "next_obs")
        }
        changed["reward"] = _with_values(columns["reward"], rows, self.goals.reward(achieved, goals))
        terminated = self.goals.terminated(achieved, goals)
        if terminated is not None:
            if "terminated" in columns:
                changed["terminated"] = _with_values(columns["terminated"], rows, terminated)
            cut_off = columns["truncated"].values()[rows] if "truncated" in columns else np.zeros_like(terminated)
            changed["done"] = _with_values(columns["done"], rows, terminated | cut_off)
        return items.with_columns(**changed)


def _has_goals(node: Node) -> bool:
    """Return whether a node is a dict of arrays with the entries of an env with goals."""
    is_dict = isinstance(node, dict) and node.keys() >= GOAL_KEYS
    has_arrays = is_dict and type(node[ACHIEVED]) is type(node[DESIRED]) is Column
    return has_arrays and all(column.kind is not Kind.OBJECT and not column.steps for column in columns_of(node))


def _ends(items: Table) -> BoolArray:
    """Return whether an episode ends with each of the items, or the next one does not continue it, bool [n]."""
    ends = done_flags(items)
    obs, next_obs = items.columns["obs"], items.columns["next_obs"]
    for key in (ACHIEVED, DESIRED):
        shown, following = next_obs[key].values()[:-1], obs[key].values()[1:]
        ends[:-1] |= (shown != following).reshape(len(shown), -1).any(axis=1)
    return ends


def _with_values(column: Column, rows: IntArray, values: np.ndarray) -> Column:
    """Return a column with other values in these `rows`, written into its array."""
    data = column.values()
    data[rows] = values.reshape(data[rows].shape)
    return Column(column.kind, data, None, column.steps)
