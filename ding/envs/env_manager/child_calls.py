"""A manager's side of its envs' processes: starting and ending them, taking in answers, and calls to single envs."""

from __future__ import annotations

import inspect
import multiprocessing
import os
from collections.abc import Callable, Iterable
from functools import partial
from multiprocessing.util import Finalize
from typing import Any

from ding.envs.env_manager.base_env_manager import BaseEnvManager
from ding.envs.env_manager.child_group import ChildGroup
from ding.envs.env_manager.child_plan import ChildPlan, portable
from ding.envs.env_manager.child_process import Answer, Limit
from ding.envs.env_manager.env_state import EnvState
from ding.envs.env_manager.obs_slots import ObsSlots


class ChildCalls(BaseEnvManager):
    """A manager whose envs are in processes of their own.

    Exceptions of envs leave the manager closed, but for those of calls that have nothing to do with its state.
    """

    _context: str
    _shared_memory: bool
    _copy_on_get: bool
    _connect_limit: Limit

    def _forget_children(self) -> None:
        self._group: ChildGroup | None = None
        self._finalizer: Finalize | None = None
        self._slots: dict[int, ObsSlots] = {}
        # An error that is not raised before everything that came with it, such as timesteps, has been handed over.
        self._doom: Exception | None = None
        self._calls: dict[tuple[int, int], Answer | None] = {}  # the answers, by env and number, of a call under way

    @property
    def _children(self) -> ChildGroup:
        assert self._group is not None, "there are processes while the manager is open"
        return self._group

    def _create_env(self, env_id: int) -> None:
        if self._group is None:
            self._open_children()
        self._children.start(env_id, self._connect_limit)

    def _open_children(self) -> None:
        space = self._observation_space if self._shared_memory else None
        plans = {}
        for env_id, env_fn in enumerate(self._env_fn):
            self._slots[env_id] = ObsSlots.for_space(space, self._copy_on_get)
            plans[env_id] = ChildPlan(
                env_id=env_id,
                env_fn=env_fn if self._context == "fork" else portable(env_fn, env_id),
                slots=self._slots[env_id],
                replay_path=self._env_replay_path[env_id] if self._env_replay_path is not None else None,
                step_timeout=self._step_timeout,
                reset_timeout=self._reset_timeout,
                parent_pid=os.getpid(),
            )
        self._group = ChildGroup(plans, multiprocessing.get_context(self._context))
        # At exit this comes before multiprocessing ends the processes itself, which would not close the envs.
        self._finalizer = Finalize(self, self._group.close_forgotten, exitpriority=10)

    def _close_envs(self) -> list[Exception]:
        group, finalizer = self._group, self._finalizer
        self._forget_children()
        if finalizer is not None:
            finalizer.cancel()
        return [] if group is None else group.close()

    def _pump(self, timeout_s: float | None) -> None:
        """Take in the answers that have come; wait up to `timeout_s` seconds for the first. See `ChildGroup.poll`."""
        for answer in self._children.poll(timeout_s):
            self._take_in(answer)

    def _pump_while(self, is_waiting: Callable[[], bool]) -> None:
        self._check_doom()
        while is_waiting():
            self._pump(None)
            self._check_doom()

    def _check_doom(self) -> None:
        if self._doom is not None:
            doom = self._doom
            self._close_after_failure()
            raise doom

    def _take_in(self, answer: Answer) -> None:
        if (answer.env_id, answer.seq) in self._calls:
            self._calls[answer.env_id, answer.seq] = answer

    def _fail(self, env_id: int, error: Exception) -> None:
        """Close the manager, and raise the error of an env."""
        self._env_states[env_id] = EnvState.ERROR
        self._close_after_failure()
        raise error

    def _ask(self, env_ids: Iterable[int], method: str, *args: Any) -> dict[int, Any]:
        """What the method of each of these envs returns; an env that is stepping answers after that."""
        try:
            keys = [
                (env_id, self._children.send(env_id, method, *args, limit=self._connect_limit)) for env_id in env_ids
            ]
            self._calls = dict.fromkeys(keys)
            self._pump_while(lambda: None in self._calls.values())
            answers = [answer for answer in self._calls.values() if answer is not None]
        finally:
            self._calls = {}
        for answer in answers:
            if answer.error is not None:
                if self._is_lost(answer.env_id):
                    self._fail(answer.env_id, answer.error)
                raise answer.error
        return {answer.env_id: answer.value for answer in answers}

    def _is_lost(self, env_id: int) -> bool:
        """Whether the env has no process, nor will get one."""
        return not self._children.is_alive(env_id)

    def _call_env(self, env_id: int, method: str, *args: Any) -> Any:
        return self._ask([env_id], method, *args)[env_id]

    def _env_attributes(self, key: str) -> list[Any]:
        if inspect.ismethod(getattr(self._env_ref, key)):
            return [partial(self._call_env, env_id, key) for env_id in range(self._env_num)]
        return list(self._ask(range(self._env_num), "attribute", key).values())
