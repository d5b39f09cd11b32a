"""The limit of the samples that a learner draws for each sample that collectors insert."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SERIAL = "serial"


def samples_per_insert(value: Any) -> str | None:
    """Config rule, see `check_config`: return None if `value` is a ratio, else what is allowed."""
    is_ratio = isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
    return None if value is None or value == SERIAL or is_ratio else f"a number above 0, None, or {SERIAL!r}"


class SampleLimiter:
    """A limit of the ratio drawn / inserted samples, as `SampleToInsertRatio` of Reverb. It is not thread-safe.

    The learner may be ahead of the ratio by less than one batch, the collectors by `tolerance` samples and a chunk. As
    in a serial run, samples that are inserted before the buffer can give its first batch do not count. Both sides never
    wait for each other: collectors go on when the learner has asked for a batch and the buffer has none.

    A collector is asked for its next chunk only if `may_ask`. From then until its answer, the chunk counts as inserted,
    with the size of the largest one so far; so the ratio holds for any number of collectors.

    Args:
        ratio: samples to draw for each inserted one; None for no limit.
        tolerance: inserted samples by which the collectors may be ahead.
        min_samples: number of inserted samples before the first batch.

    Attributes:
        inserted, drawn: the numbers of samples so far.
        asked: the tasks that were asked for a chunk and have not answered yet.

    Example:
        >>> limiter = SampleLimiter(ratio=4.0, tolerance=16)
        >>> limiter.insert(8), limiter.draw(32), limiter.may_draw
        (None, None, False)
        >>> limiter.insert(8), limiter.may_draw, limiter.may_ask
        (None, True, True)
        >>> limiter.insert(17), limiter.may_ask
        (None, False)
    """

    def __init__(self, ratio: float | None, tolerance: int, min_samples: int = 1) -> None:
        self.ratio, self.tolerance, self.min_samples = ratio, tolerance, min_samples
        self.inserted = self.drawn = 0
        self.asked: set[str] = set()
        self._chunk = 0  # samples of the largest chunk
        self._begin: int | None = None  # number of inserted samples when the first batch was drawn
        self._is_starved = False  # whether the learner has found no batch since it last drew one

    def insert(self, count: int) -> None:
        """Count the inserted samples of a chunk."""
        self.inserted += count
        self._chunk = max(self._chunk, count)

    def draw(self, count: int) -> None:
        """Count the samples of a batch; 0 if the buffer has none, although the learner may draw one."""
        if count and self._begin is None:
            self._begin = self.inserted
        self.drawn += count
        self._is_starved = not count

    @property
    def may_draw(self) -> bool:
        """Whether the learner may draw a batch."""
        return self.inserted >= self.min_samples and self._ahead >= 0

    @property
    def may_ask(self) -> bool:
        """Whether another collector may be asked for a chunk; otherwise it waits until the learner has drawn more."""
        if self.ratio is None or self._begin is None or self._is_starved:
            return True
        return self._ahead + len(self.asked) * self._chunk <= self.tolerance

    @property
    def _ahead(self) -> float:
        """Inserted samples by which the collectors are ahead of the learner."""
        if self.ratio is None or self._begin is None:
            return 0.0
        return self.inserted - self._begin - self.drawn / self.ratio

    def state_dict(self) -> dict[str, Any]:
        """Return the counts."""
        return {"inserted": self.inserted, "drawn": self.drawn, "begin": self._begin}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with the counts of a `state_dict`."""
        self.inserted, self.drawn, self._begin = state["inserted"], state["drawn"], state["begin"]


def create_limiter(policy: Mapping[str, Any], own: Mapping[str, Any]) -> SampleLimiter:
    """Return the limiter for a policy.

    The ratio of a serial run is `update_per_collect * batch_size / n_sample`, and 1 if the policy is on-policy. There
    is no limit if a policy collects whole episodes, whose number of samples is unknown.

    Args:
        policy: the section of the policy in the compiled main config.
        own: the complete section of the commander.
    """
    learn, collect = policy.get("learn", {}), policy.get("collect", {})
    batch_size, n_sample, updates = learn.get("batch_size"), collect.get("n_sample"), learn.get("update_per_collect")
    ratio = own["samples_per_insert"]
    if ratio == SERIAL:
        ratio = updates * batch_size / n_sample if updates and batch_size and n_sample else None
        if policy.get("on_policy") and n_sample:
            ratio = 1.0
    tolerance = own["insert_tolerance"]
    if tolerance is None:
        collector = collect.get("collector", {})
        chunks = 2 * own["collector_task_space"] * max(collector.get("chunk_size", 64), n_sample or 1)
        tolerance = max(chunks, round(2 * (batch_size or 1) / (ratio or 1)))
    return SampleLimiter(ratio, tolerance, own["min_samples"])
