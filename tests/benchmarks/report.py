"""How a benchmark reports: one JSON line a measure, and an exit status that says whether the goals were met."""

from __future__ import annotations

import json
from typing import Any


class Report:
    """Prints a line for each measure: ours, the peer's or floor's figure, their ratio, the goal for the ratio."""

    def __init__(self) -> None:
        self._met = True

    def line(
        self,
        what: str,
        unit: str,
        ours: float | None,
        against: str,
        theirs: float | None,
        *,
        at_most: float | None = None,
        at_least: float | None = None,
    ) -> None:
        """One measure. A figure is None where a package for it is not installed; then the goal counts as missed."""
        ratio = None if ours is None or theirs is None else ours / theirs
        met = ratio is not None and (at_most is None or ratio <= at_most) and (at_least is None or ratio >= at_least)
        self._met = self._met and met
        goal = f"<= {at_most}" if at_most is not None else f">= {at_least}"
        values: dict[str, Any] = {
            "what": what, "unit": unit, "ours": _short(ours), against: _short(theirs), "ratio": _short(ratio),
            "goal": goal, "met": met,
        }  # fmt: skip
        print(json.dumps(values), flush=True)

    def exit_status(self) -> int:
        """0 when every goal was met."""
        return 0 if self._met else 1


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
