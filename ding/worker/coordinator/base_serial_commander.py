"""The commander of a serial pipeline, which gives the settings of each collection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ding.utils.config_helper import Configurable, check_section
from ding.utils.object_state import SavedAttributes


class BaseSerialCommander(SavedAttributes, Configurable):
    """The commander of a serial pipeline, which gets the settings of each collect from the policy's command mode.

    A subclass names the attributes that are its state in `_saved`, see `SavedAttributes`.

    Args:
        cfg: the commander section; no key has an effect here.
        learner, collector, evaluator, replay_buffer: the other workers; on-policy pipelines have no buffer (None).
        policy: the command mode of a policy; may also be assigned later.

    Example:
        >>> from types import SimpleNamespace
        >>> learner = SimpleNamespace(learn_info={"learner_step": 7})
        >>> policy = SimpleNamespace(get_setting_collect=lambda info: {"eps": 1 / info["envstep"]})
        >>> cfg = BaseSerialCommander.default_config()
        >>> BaseSerialCommander(cfg, learner, SimpleNamespace(envstep=4), None, None, policy).step()
        {'eps': 0.25}
    """

    def __init__(
        self,
        cfg: Mapping[str, Any],
        learner: Any,
        collector: Any,
        evaluator: Any,
        replay_buffer: Any,
        policy: Any = None,
    ) -> None:
        check_section(cfg, type(self), "the serial commander")
        self._cfg = cfg
        self._learner = learner
        self._collector = collector
        self._evaluator = evaluator
        self._replay_buffer = replay_buffer
        self._policy = policy

    def step(self) -> Any:
        """Return keyword arguments for the collecting policy's forward, by the learner's progress and the env steps.

        Raises:
            AssertionError: no policy was set.
        """
        if self._policy is None:
            raise AssertionError("the commander has no policy; pass policy.command_mode or assign commander.policy")
        return self._policy.get_setting_collect({**self._learner.learn_info, "envstep": self._collector.envstep})

    @property
    def policy(self) -> Any:
        """The command mode of a policy, or None."""
        return self._policy

    @policy.setter
    def policy(self, _policy: Any) -> None:
        self._policy = _policy
