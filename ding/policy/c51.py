"""C51: Q-learning of categorical value distributions."""

from __future__ import annotations

from typing import ClassVar

from ding.policy.dqn import DQNPolicy, Head, TDError
from ding.rl_utils.distributional import dist_nstep_td_data, dist_nstep_td_error
from ding.utils.config_helper import Setting, Settings, one_of
from ding.utils.registry_factory import POLICY_REGISTRY


@POLICY_REGISTRY.register("c51")
class C51Policy(DQNPolicy):
    """C51 (https://arxiv.org/abs/1707.06887), with the double-Q choice of the next action.

    `priority` is the cross-entropy of each sample.

    Example:
        >>> import torch
        >>> cfg = C51Policy.default_config()
        >>> cfg.model.obs_shape, cfg.model.action_shape = 4, 2
        >>> policy = C51Policy(cfg, enable_field=["collect"])
        >>> policy.collect_mode.forward({0: torch.zeros(4)}, eps=0.1)[0]["distribution"].shape
        torch.Size([2, 51])
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "c51",
            "model.v_min": -10,
            "model.v_max": 10,
            "model.n_atom": 51,
            "learn.criterion": Setting(rule=one_of("mse")),
        },
        DQNPolicy.settings,
    )

    def default_model(self) -> tuple[str, list[str]]:
        return "c51dqn", ["ding.model.template.q_learning"]

    def _head_error(self, head: Head) -> TDError:
        """Return the cross-entropy to the distribution of r + gamma (1 - done) z', with z' of the next action."""
        model = self._cfg.model
        data = dist_nstep_td_data(*head.values("distribution"), head.action, head.next_action, *head.outcome)
        loss, error = dist_nstep_td_error(
            data, self._gamma, model.v_min, model.v_max, model.n_atom, self._nstep, head.batch.get("value_gamma")
        )
        return loss, error, {}
