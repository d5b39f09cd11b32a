"""Steps and resets of envs in processes of their own, whenever their answers come."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Any

from ding.envs.env.base_env import BaseEnvTimestep
from ding.envs.env_manager.attempts import exhausted
from ding.envs.env_manager.child_calls import ChildCalls
from ding.envs.env_manager.child_process import Answer, Limit
from ding.envs.env_manager.env_child import ABNORMAL, ENDED
from ding.envs.env_manager.env_state import EnvState
from ding.envs.env_manager.obs_slots import NOT_SHARED, SentObs
from ding.envs.env_manager.seed_book import SeedOrder
from ding.envs.env_manager.wire import pack_array, unpack_array
from ding.utils.default_helper import one_time_warning

_logger = logging.getLogger("ding")


class ChildRounds(ChildCalls):
    """What steps and resets do to the state of an env; when to wait for which is the part of subclasses.

    Each env answers its requests in order, so its state follows from the answers, whenever they are taken in.
    """

    _reset_inplace: bool
    _reset_limit: Limit
    _step_limit: Limit | None

    def _forget_children(self) -> None:
        super()._forget_children()
        self._stepping: set[int] = set()  # envs whose step is not over
        self._lost: set[int] = set()  # those of them whose timestep nobody waits for any more
        self._discarded: set[int] = set()  # those that are to be reset whatever becomes of their step
        self._held: dict[int, Any] = {}  # timesteps that are kept back until the reset that follows is over
        self._arrived: dict[int, Any] = {}  # timesteps that step() has not returned yet
        self._resets: dict[int, int] = {}  # attempts so far at the resets that are under way
        self._reset_seqs: dict[int, int] = {}  # the numbers of the present attempts
        self._retry_at: dict[int, float] = {}  # when to make the next attempt

    def _ready_ids(self) -> list[int]:
        run, busy = EnvState.RUN, self._stepping
        if self._arrived:
            busy = busy.union(self._arrived)
        return [env_id for env_id, state in self._env_states.items() if state is run and env_id not in busy]

    def _pump(self, timeout_s: float | None) -> None:
        if not self._retry_at:
            super()._pump(timeout_s)
            return
        left = max(0.0, min(self._retry_at.values()) - time.monotonic())
        super()._pump(left if timeout_s is None else min(timeout_s, left))
        self._retry_resets()

    def _take_in(self, answer: Answer) -> None:
        env_id, error = answer.env_id, answer.error
        if answer.method == "step":
            if error is None:
                self._end_step(answer)
            else:
                self._fail_step(env_id, error)
        elif answer.method == "reset":
            if self._reset_seqs.get(env_id) != answer.seq:
                return  # that attempt has failed already
            del self._reset_seqs[env_id]
            if error is None:
                self._end_reset(env_id, answer.value)
            else:
                self._fail_reset(env_id, error, answer.failed)
        elif answer.method == "make":
            if error is not None:
                self._fail_make(env_id, error)
        else:
            super()._take_in(answer)

    def _ask(self, env_ids: Iterable[int], method: str, *args: Any) -> dict[int, Any]:
        env_ids = list(env_ids)
        self._pump_while(lambda: any(env_id in self._resets for env_id in env_ids))
        return super()._ask(env_ids, method, *args)

    def _is_lost(self, env_id: int) -> bool:
        return env_id not in self._resets and super()._is_lost(env_id)

    # Steps

    def _send_step(self, env_id: int, action: Any) -> None:
        is_last = self._env_episode_count[env_id] + 1 >= self._episode_num
        self._children.send(
            env_id,
            "step",
            pack_array(action),
            self._auto_reset and not is_last,
            self._seeds.take_order(env_id),
            limit=self._step_limit,
            follow_limit=self._reset_limit,
        )
        self._stepping.add(env_id)

    def _end_step(self, answer: Answer) -> None:
        env_id = answer.env_id
        outcome, sent, fields = answer.value
        obs = self._obs(env_id, sent)
        if type(fields) is tuple:
            reward, done, info = fields
            timestep: Any = BaseEnvTimestep(obs, unpack_array(reward), done, info)
        else:
            timestep = fields._replace(obs=obs)
        if outcome == ABNORMAL:
            self._env_states[env_id] = EnvState.ERROR
        elif outcome == ENDED:
            self._env_episode_count[env_id] += 1
            if self._env_episode_count[env_id] >= self._episode_num:
                self._env_states[env_id] = EnvState.DONE
            elif answer.more:
                self._env_states[env_id] = EnvState.RESET
                self._resets[env_id] = 1
                self._reset_seqs[env_id] = answer.seq + 1
                if self._reset_inplace:
                    self._held[env_id] = timestep
                    return
            else:
                self._env_states[env_id] = EnvState.NEED_RESET
        else:
            self._ready_obs[env_id] = obs
        self._deliver(env_id, timestep)

    def _deliver(self, env_id: int, timestep: Any) -> None:
        self._stepping.discard(env_id)
        if env_id in self._lost:
            self._lost.discard(env_id)
        else:
            self._arrived[env_id] = timestep

    def _lose(self, env_ids: Iterable[int]) -> None:
        """Nobody waits for these timesteps any more; what they say of the state of their envs still counts."""
        for env_id in env_ids:
            self._arrived.pop(env_id, None)
            if env_id in self._stepping:
                self._lost.add(env_id)
                self._children.hurry(env_id, self._connect_limit)

    def _fail_step(self, env_id: int, error: Exception) -> None:
        if env_id not in self._discarded:
            self._fail(env_id, error)
        _logger.warning("env %s is reset after a step that failed: %s", env_id, error)
        self._stepping.discard(env_id)
        self._lost.discard(env_id)

    def _obs(self, env_id: int, sent: SentObs) -> Any:
        slots = self._slots[env_id]
        if sent[0] == NOT_SHARED and slots.are_shared:
            one_time_warning(
                f"observations do not have the form of the observation space {self._observation_space}, and so "
                "do not go through shared memory, which is faster: let the env return what its space says"
            )
        return slots.get(sent)

    # Resets

    def _reset_envs(self, env_ids: list[int]) -> None:
        self._discarded = set(env_ids)
        try:
            self._lose(env_ids)
            self._pump_while(lambda: any(env_id in self._lost or env_id in self._resets for env_id in env_ids))
        finally:
            self._discarded = set()
        for env_id in env_ids:
            self._env_states[env_id] = EnvState.RESET
            self._resets[env_id] = 1
            self._send_reset(env_id, self._seeds.take_order(env_id))
        self._pump_while(lambda: any(env_id in self._resets for env_id in env_ids))

    def _send_reset(self, env_id: int, order: SeedOrder | None) -> None:
        self._reset_seqs[env_id] = self._children.send(
            env_id, "reset", self._reset_param[env_id], order, limit=self._reset_limit
        )

    def _end_reset(self, env_id: int, sent: SentObs) -> None:
        del self._resets[env_id]
        self._seeds.count_reset(env_id)
        self._ready_obs[env_id] = self._obs(env_id, sent)
        self._env_states[env_id] = EnvState.RUN
        if env_id in self._held:
            self._deliver(env_id, self._held.pop(env_id))

    def _fail_reset(self, env_id: int, error: Exception, failed: str) -> None:
        attempts = self._resets[env_id]
        if failed == "seed" or attempts >= self._max_retry:
            del self._resets[env_id]
            self._env_states[env_id] = EnvState.ERROR
            self._doom = error if failed == "seed" else exhausted(env_id, "reset", attempts, error)
            if env_id in self._held:
                self._deliver(env_id, self._held.pop(env_id))
            return
        _logger.warning("attempt %s of %s to reset env %s failed: %s", attempts, self._max_retry, env_id, error)
        self._resets[env_id] = attempts + 1
        self._retry_at[env_id] = time.monotonic() + self._retry_waiting_time

    def _fail_make(self, env_id: int, error: Exception) -> None:
        self._reset_seqs.pop(env_id, None)
        self._children.kill(env_id)
        if self._resets.get(env_id, 1) == 1:
            self._fail(env_id, error)
        self._fail_reset(env_id, error, "make")

    def _retry_resets(self) -> None:
        now = time.monotonic()
        for env_id in [env_id for env_id, due in self._retry_at.items() if due <= now]:
            del self._retry_at[env_id]
            order = None
            if self._retry_type == "renew" or not self._children.is_alive(env_id):
                try:
                    self._children.restart(env_id, self._connect_limit)
                except Exception as e:
                    self._fail_reset(env_id, e, "make")
                    continue
                order = self._seeds.take_order_for_new(env_id)
            self._send_reset(env_id, order)
