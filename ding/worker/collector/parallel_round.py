"""A round of a parallel collector: actor and listeners that call the collector's own methods, and its timings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ding.torch_utils.data_helper import to_tensor
from ding.utils.autolog import LoggedModel, LoggedValue, TickTime
from ding.utils.batch_methods import batch_method
from ding.worker.collector.actor import env_actions, refuse_nan
from ding.worker.collector.batch import Batch, PolicyOutput, Steps
from ding.worker.collector.rollout import ForeignBlocks, Listener

if TYPE_CHECKING:
    from ding.worker.collector.base_parallel_collector import BaseParallelCollector


class CollectorMonitor(LoggedModel):
    """What rounds take: seconds in the policy, in the envs, timesteps, seconds in the envs for each timestep.

    `monitor.avg[name]()` is the mean over the last rounds.
    """

    policy_time = LoggedValue(float)
    env_time = LoggedValue(float)
    timestep_size = LoggedValue(float)
    norm_env_time = LoggedValue(float)

    def __init__(self, time_: TickTime, expire: float) -> None:
        super().__init__(time_, expire)
        for name in self._declared:
            self.register_attribute_value("avg", name, partial(self.mean_of, name))

    def record(self, values: Mapping[str, Any]) -> None:
        """Record the measured values of a round; other names are kept apart."""
        for name, value in values.items():
            setattr(self, name, value)

    def averages(self) -> dict[str, float]:
        """The mean of each."""
        return {name: self.mean_of(name) for name in self._declared}


class OneRound:
    """The quota of one round, with every env that is ready; it may be used again and again."""

    _is_done = True

    def is_filled(self) -> bool:
        self._is_done = not self._is_done
        return self._is_done

    def choose(self, env_ids: list[int]) -> list[int]:
        return env_ids


class CollectorActor:
    """The actor of a collector: its `_policy_inference`."""

    def __init__(self, collector: BaseParallelCollector) -> None:
        self._collector = collector

    def act(self, obs: Batch, kwargs: Mapping[str, Any]) -> tuple[PolicyOutput, Sequence[Any]]:
        collector = self._collector
        start = perf_counter()
        act = batch_method(collector._policy_inference)
        if act is not None:
            output, actions = act(obs)
            collector._log_buffer["policy_time"] = perf_counter() - start
            return output, actions
        collector._policy_output = None
        seen = obs.seen(as_float=True)
        actions = collector._policy_inference(seen)
        collector._log_buffer["policy_time"] = perf_counter() - start
        output = collector._policy_output
        if output is None:
            output = {env_id: collector._bare_output(action) for env_id, action in actions.items()}
        env_ids = obs.env_ids
        if actions.keys() == set(env_ids) and all(type(action) is np.ndarray for action in actions.values()):
            for env_id in env_ids:
                refuse_nan(actions[env_id], env_id)
            return output, [actions[env_id] for env_id in env_ids]
        return output, env_actions({env_id: {"action": action} for env_id, action in actions.items()}, env_ids)

    def reset(self, env_ids: Sequence[int] | None = None) -> None:
        self._collector._reset_policy(env_ids)


class RoundSteps(Listener, ForeignBlocks):
    """The env manager of a collector as the rollout sees it: stepped by `_env_step`. Keeps what a round brought."""

    def __init__(self, collector: BaseParallelCollector) -> None:
        super().__init__(collector._env_manager)
        self._collector = collector
        self._answers: Mapping[int, Any] = {}
        self._steps: Steps | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._collector._env_manager, name)

    def step(self, actions: Mapping[int, Any]) -> Mapping[int, Any]:
        collector = self._collector
        self._steps = None
        start = perf_counter()
        self._answers = collector._env_step(actions)
        seconds, size = perf_counter() - start, len(self._answers)
        collector._log_buffer.update(
            {"env_time": seconds, "timestep_size": size, "norm_env_time": seconds / max(1, size)}
        )
        return self._answers

    def on_steps(self, steps: Steps) -> None:
        self._steps = steps

    def take(self) -> Mapping[int, Any]:
        """The timesteps of the round as float32 tensors; normal ones are our copies."""
        return RoundTimesteps(self._answers, self._steps)


class RoundTimesteps(Mapping[int, Any]):
    """`{env_id: timestep of float32 tensors}`, made on access, as most collectors look at none.

    Args:
        returned: what the envs returned.
        steps: those of them that are normal, which have arrays of ours.
    """

    def __init__(self, returned: Mapping[int, Any], steps: Steps | None) -> None:
        self._returned, self._steps = returned, steps

    @cached_property
    def _tensors(self) -> dict[int, Any]:
        steps = self._steps
        own = {} if steps is None else dict(zip(steps.env_ids, steps.timesteps(), strict=True))
        return {env_id: to_tensor(own.get(env_id, step), torch.float32) for env_id, step in self._returned.items()}

    def __getitem__(self, env_id: int) -> Any:
        return self._tensors[env_id]

    def __iter__(self) -> Iterator[int]:
        return iter(self._returned)

    def __len__(self) -> int:
        return len(self._returned)
