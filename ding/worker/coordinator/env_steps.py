"""How many env steps collector tasks have made."""

from __future__ import annotations


class EnvSteps:
    """Counts the env steps of running and finished tasks; tasks tell their own count again and again. Not thread-safe.

    Example:
        >>> steps = EnvSteps()
        >>> steps.tell("a", 10)
        >>> steps.tell("a", 25)
        >>> steps.tell("b", 5)
        >>> steps.end("a", 30)
        >>> steps.total
        35
    """

    def __init__(self) -> None:
        self._running: dict[str, int] = {}
        self._ended = 0

    @property
    def total(self) -> int:
        """Steps of all tasks so far."""
        return self._ended + sum(self._running.values())

    def count_from(self, total: int) -> None:
        """There were so many steps before, of tasks that are not known any more; fewer than there are is old news."""
        self._ended += max(0, int(total) - self.total)

    def tell(self, task_id: str, steps: int) -> None:
        """The task, which runs, has made `steps` steps; a smaller number than before is old news."""
        self._running[task_id] = max(self._running.get(task_id, 0), int(steps))

    def end(self, task_id: str, steps: int | None = None) -> None:
        """The task has ended after `steps` steps; None for as many as it told last."""
        told = self._running.pop(task_id, 0)
        self._ended += told if steps is None else int(steps)
