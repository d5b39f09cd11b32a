"""Base of serial collectors and evaluators: their env manager, their logs, and how they close."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import torch

from ding.envs.env_manager.block import StackedFormat
from ding.utils.pytorch_ddp_dist_helper import allreduce_data, get_rank, get_world_size
from ding.worker.collector.actor import StateActor
from ding.worker.worker_log import WorkerLog


class SerialWorker:
    """The owner of an env manager and logs; `close` closes both. A half-built worker closes quietly."""

    _end_flag = True
    _env: Any = None
    _env_num = 0
    _policy: Any = None
    _log: WorkerLog | None = None
    _actor: Any = None
    _rank = 0
    _world_size = 1

    def _open(self, cfg: Any, tb_logger: Any, exp_name: str, instance_name: str) -> None:
        """Keep the config and the rank, and open the logs; only rank 0 writes to TensorBoard."""
        self._cfg = cfg
        self._exp_name = exp_name
        self._instance_name = instance_name
        self._rank, self._world_size = get_rank(), get_world_size()
        self._log = WorkerLog(exp_name, instance_name, tb_logger, is_monitor=self._rank == 0)
        self._logger = self._log.text
        self._tb_logger = self._log.tb
        self._end_flag = False

    def _replace_env(self, env: Any, launch: bool = True) -> None:
        """Take over `env`, launch it, and close the env manager it replaces.

        Raises:
            TypeError: `env` returns stacked batches, as the managers for middleware do, instead of `{env_id: item}`.
        """
        if isinstance(env, StackedFormat):
            raise TypeError(
                f"{type(self).__name__} needs an env manager that returns observations and timesteps by env; "
                f"{type(env).__name__} stacks them: set env_manager.type to 'base' or 'subprocess', without '_v2'"
            )
        if launch:
            env.launch()
        if self._env is not None and self._env is not env:
            self._env.close()
        self._env = env
        self._env_num = env.env_num
        self._end_flag = False

    @property
    def _states(self) -> list[Any] | None:
        """The latent states by env of a policy that is passed its own (Dreamer's contract); None for other policies."""
        states = self._actor.states if isinstance(self._actor, StateActor) else {}
        return [states.get(env_id) for env_id in range(self._env_num)] if states else None

    @property
    def _resets(self) -> np.ndarray:
        """A bool for each env: whether its next step begins an episode; an argument of such a policy."""
        ended = self._actor.ended if isinstance(self._actor, StateActor) else ()
        return np.array([env_id in ended for env_id in range(self._env_num)])

    def _acting_policies(self) -> list[Any]:
        """Return the policies that act, one for each player."""
        return [self._policy]

    def _checked_policy(self, policy: Any) -> Any:
        """Check the policy, and return it in the form in which it is kept."""
        return policy

    def _reset_policies(self) -> None:
        for policy in self._acting_policies():
            policy.reset()

    def _sum_over_ranks(self, *values: float) -> list[float]:
        """Return each value summed over all ranks, in one reduction; all ranks must call this together."""
        if self._world_size == 1:
            return [float(value) for value in values]
        total: list[float] = allreduce_data(torch.tensor(values, dtype=torch.float64), "sum").tolist()
        return total

    def close(self) -> None:
        """Close the env manager; flush the TensorBoard writer, and close it unless it was passed in.

        Further calls do nothing.
        """
        if self._end_flag:
            return
        self._end_flag = True
        if self._env is not None:
            self._env.close()
        if self._log is not None:
            self._log.close()

    def __del__(self) -> None:
        # At interpreter exit the attributes may be gone already, and there is no caller to raise an error to.
        with contextlib.suppress(Exception):
            self.close()
