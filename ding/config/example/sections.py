"""The section `env` of the examples."""

from __future__ import annotations

from typing import Any


def env_section(env_id: str, collectors: int, evaluators: int, **more: Any) -> dict[str, Any]:
    """Return the section of an env, with so many envs that collect and evaluate, each of these for one episode.

    Args:
        more: further keys.
    """
    numbers = {"collector_env_num": collectors, "evaluator_env_num": evaluators, "n_evaluator_episode": evaluators}
    return {"env_id": env_id, **numbers, **more}
