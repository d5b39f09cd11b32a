"""What a learner hook is, and the one mechanism for "every n iterations"."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from ding.utils.config_helper import ConfigError, integer

Position = Literal["before_run", "after_run", "before_iter", "after_iter"]
_PER_ITERATION = ("before_iter", "after_iter")


class Hook(ABC):
    """A callable with a name and a priority; a lower priority is called earlier.

    Keyword arguments beyond the two are accepted and ignored, so that a subclass may leave out `ext_args`.

    Raises:
        AssertionError: the priority is negative.
    """

    def __init__(self, name: str, priority: float, **kwargs: Any) -> None:
        if not priority >= 0:
            raise AssertionError(f"hook {name!r}: priority = {priority!r} is not allowed; it must be a number >= 0")
        self._name = name
        self._priority = priority

    @property
    def name(self) -> str:
        """The name, by which a learner finds the hook; several hooks may share one."""
        return self._name

    @property
    def priority(self) -> float:
        """The rank among the hooks of one position; lower is earlier."""
        return self._priority

    @abstractmethod
    def __call__(self, engine: Any) -> Any:
        """Act on `engine`, the learner that calls."""
        raise NotImplementedError


class LearnerHook(Hook):
    """A hook that a learner calls at `position`.

    `before_run` and `after_run` surround a whole training; `before_iter` is called once per `train`, `after_iter` once
    per dict of results that the policy returned, before the iteration counter moves.

    Raises:
        AssertionError: an unknown position.

    Example:
        >>> class CountHook(LearnerHook):
        ...     calls = 0
        ...     def __call__(self, engine):
        ...         self.calls += 1
        >>> hook = CountHook("count", 50, position="after_iter")
        >>> hook.position
        'after_iter'
    """

    positions: ClassVar[list[str]] = ["before_run", "after_run", "before_iter", "after_iter"]

    def __init__(self, *args: Any, position: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if position not in self.positions:
            allowed = ", ".join(self.positions)
            raise AssertionError(
                f"hook {self._name!r}: position = {position!r} is not allowed; it must be one of {allowed}"
            )
        self._position = position

    @property
    def position(self) -> str:
        """Where in the training the hook is called."""
        return self._position


class PeriodicHook(LearnerHook):
    """A hook that acts in every `ext_args['freq']`-th iteration (default 1), the first of them iteration 0.

    A subclass writes `act`, and `observe` for what it needs in every iteration. At `before_run` and `after_run`, which
    come once, the hook always acts.

    Raises:
        ConfigError: `freq` is not an integer >= 1.
    """

    def __init__(self, *args: Any, ext_args: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        freq = 1 if ext_args is None else ext_args.get("freq", 1)
        allowed = integer(minimum=1)(freq)
        if allowed is not None:
            raise ConfigError(
                f"hook {self._name!r}: freq = {freq!r} is not allowed; it must be {allowed}, the number of iterations "
                "from one call to the next. To switch the hook off, leave it out of the config."
            )
        self._freq = int(freq)

    def __call__(self, engine: Any) -> None:
        """Observe, and act when it is due."""
        self.observe(engine)
        if engine.train_iter % self._freq == 0 or self._position not in _PER_ITERATION:
            self.act(engine)

    def observe(self, engine: Any) -> None:  # noqa: B027 - optional for subclasses
        """Called at every call, before `act`."""

    @abstractmethod
    def act(self, engine: Any) -> None:
        """Called when the hook is due."""
        raise NotImplementedError
