"""Ratings that are made when somebody asks for them, for the package that makes them may not be there."""

from __future__ import annotations

from typing import Any

# Arguments of `create_rating`, and where a rating has them.
_ATTRIBUTES = (("mu", "mu"), ("sigma", "sigma"), ("elo_init", "elo"))


def rating_settings(rating: Any) -> dict[str, Any] | None:
    """What to call `create_rating` with for this rating, which may be a function that makes it; None for none."""
    if rating is None:
        return None
    if callable(rating):
        return dict(getattr(rating, "keywords", {}))
    return {name: getattr(rating, attribute) for name, attribute in _ATTRIBUTES if hasattr(rating, attribute)}
