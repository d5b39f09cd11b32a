"""A replay buffer that samples from a changing number of its newest items."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

from ding.utils.config_helper import NO_DEFAULT, Setting, Settings, number
from ding.utils.registry_factory import BUFFER_REGISTRY
from ding.utils.segment_tree import IntArray
from ding.worker.replay_buffer.naive_buffer import NaiveReplayBuffer

_SIZE_RULE = number(0)


def _function(value: Any) -> str | None:
    """Rule: a function of the number of env steps."""
    return None if callable(value) else "a function that takes the number of env steps and returns a number of items"


@BUFFER_REGISTRY.register("elastic")
class ElasticReplayBuffer(NaiveReplayBuffer):
    """Naive buffer that samples only from its `cfg.set_buffer_size(envstep)` newest items.

    The function is called at construction, with env step 0, and by each `update`. Older items stay stored, up to
    `replay_buffer_size`, and can be sampled again when the number grows.

    Raises:
        AttributeError: If the config has no `set_buffer_size`.

    Example:
        >>> import os, tempfile
        >>> cfg = ElasticReplayBuffer.default_config()
        >>> cfg.set_buffer_size = lambda envstep: 2 if envstep < 100 else 4
        >>> with ElasticReplayBuffer(cfg, exp_name=os.path.relpath(tempfile.mkdtemp())) as buffer:
        ...     buffer.push([{"obs": i} for i in range(4)], cur_collector_envstep=4)
        ...     newest = sorted(item["obs"] for item in buffer.sample(2, cur_learner_iter=0))
        ...     buffer.update(100)
        ...     newest, sorted(item["obs"] for item in buffer.sample(4, cur_learner_iter=0))
        ([2, 3], [0, 1, 2, 3])
    """

    settings = Settings(
        {
            "type": "elastic",
            "set_buffer_size": Setting(
                NO_DEFAULT, _function, "Function from env steps to the number of the newest items to sample from."
            ),
        },
        NaiveReplayBuffer.settings,
    )

    def __init__(
        self,
        cfg: Mapping[str, Any],
        tb_logger: Any = None,
        exp_name: str = "default_experiment",
        instance_name: str = "buffer",
    ) -> None:
        if "set_buffer_size" not in cfg:
            raise AttributeError(
                f"{type(self).__name__} needs set_buffer_size in its config: {_function(None)}, "
                "the newest items to sample from"
            )
        super().__init__(cfg, tb_logger, exp_name, instance_name)
        self._set_buffer_size = self._cfg.set_buffer_size
        self._current_buffer_size = self._size_at(0)

    def _size_at(self, envstep: float) -> float:
        size = self._set_buffer_size(envstep)
        allowed = _SIZE_RULE(size)
        if allowed is not None:
            raise ValueError(f"set_buffer_size({envstep}) = {size!r} is not allowed; it must be {allowed}")
        return float(size)

    def update(self, envstep: float) -> None:  # type: ignore[override]  # the documented signature
        """Sample from `set_buffer_size(envstep)` items after this call.

        Args:
            envstep: Number of env steps so far.

        Raises:
            TypeError: If `envstep` is not a number.
            ValueError: If the function does not return a number >= 0.
        """
        if not isinstance(envstep, Real):
            raise TypeError(f"envstep = {envstep!r} is not allowed; it must be the number of env steps so far")
        size = self._size_at(envstep)
        with self._lock:
            self._current_buffer_size = size

    def _drawable_count(self) -> int:
        return int(min(self._store.valid_count, self._current_buffer_size))

    def _draw(self, size: int, sample_range: slice | None, replace: bool) -> IntArray:
        if sample_range is not None:
            raise AssertionError(
                f"sample_range = {sample_range} is not allowed: an elastic buffer chooses its range; leave it out"
            )
        return super()._draw(size, slice(-self._drawable_count(), None), replace)

    def _state(self, is_copied: bool) -> dict[str, Any]:
        with self._lock:
            return {**super()._state(is_copied), "current_buffer_size": self._current_buffer_size}

    def _restore(self, state: dict[str, Any]) -> None:
        super()._restore(state)
        self._current_buffer_size = state.get("current_buffer_size", self._current_buffer_size)
