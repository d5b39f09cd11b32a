"""The base classes of learner hooks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from ding.utils.config_helper import ConfigError, integer

Position = Literal["before_run", "after_run", "before_iter", "after_iter"]
_PER_ITERATION = ("before_iter", "after_iter")


class Hook(ABC):
    """A callable with a name and a priority; a lower priority runs earlier.

    Other keyword arguments are ignored, so that a subclass need not declare `ext_args`.

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
        """The name by which a learner finds the hook; need not be unique."""
        return self._name

    @property
    def priority(self) -> float:
        """The priority among the hooks of a position; lower runs earlier."""
        return self._priority

    @abstractmethod
    def __call__(self, engine: Any) -> Any:
        """Act on `engine`, the learner."""
        raise NotImplementedError


class LearnerHook(Hook):
    """A hook that a learner calls at `position`.

    `before_run` and `after_run` surround a training. `before_iter` hooks run once per `train`; `after_iter` hooks run
    once per dict that the policy returns, before the iteration counter is incremented.

    Raises:
        AssertionError: the position is unknown.

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
        """The position at which the learner calls the hook."""
        return self._position


class PeriodicHook(LearnerHook):
    """A hook that acts every `ext_args['freq']` iterations (default 1), beginning with iteration 0.

    A subclass defines `act`, and `observe` if it needs every iteration. At `before_run` and `after_run` the hook always
    acts.

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
        """Call `observe`, and `act` if due."""
        self.observe(engine)
        if engine.train_iter % self._freq == 0 or self._position not in _PER_ITERATION:
            self.act(engine)

    def observe(self, engine: Any) -> None:  # noqa: B027 - optional for subclasses
        """Called in every iteration, before `act`."""

    @abstractmethod
    def act(self, engine: Any) -> None:
        """Called every `freq` iterations."""
        raise NotImplementedError
