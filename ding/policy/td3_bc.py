"""TD3 with behaviour cloning, for data sets."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor
from torch.nn import functional as F

from ding.policy.q_actor_critic import q_values
from ding.policy.settings import positive
from ding.policy.td3 import TD3Policy
from ding.utils.config_helper import Setting, Settings
from ding.utils.registry_factory import POLICY_REGISTRY


@POLICY_REGISTRY.register("td3_bc")
class TD3BCPolicy(TD3Policy):
    """TD3+BC (https://arxiv.org/abs/2106.06860): TD3 with a behaviour cloning term for the actor.

    As in DI-engine, the norms of the gradients of actor and critic are clipped at 1.

    Train it with `serial_pipeline_offline`; the paper normalizes observations (`collect.normalize_states` of the data
    set).
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "td3_bc",
            "model.action_space": "regression",
            "model.actor_head_hidden_size": 256,
            "model.critic_head_hidden_size": 256,
            "learn.alpha": Setting(2.5, positive, "Weight of the values relative to the behaviour cloning term."),
            "eval.evaluator.eval_freq": 5000,
            "other.replay_buffer.replay_buffer_size": 1000000,
        },
        TD3Policy.settings,
    )
    _max_grad_norm: ClassVar[float] = 1.0

    def _actor_loss(self, batch: dict[str, Any]) -> Tensor:
        """Return the mean of (mu(s) - a)^2 - lambda Q_1(s, mu(s)), with lambda = alpha / mean |Q_1|."""
        obs, action = batch["obs"], batch["action"]
        output = self._model(obs, mode="compute_actor")
        q = q_values(self._model(self._judged(obs, output), mode="compute_critic"))[0]
        weight: Tensor = self._cfg.learn.alpha / q.detach().abs().mean()
        return F.mse_loss(output["action"].reshape(action.shape), action) - weight * q.mean()
