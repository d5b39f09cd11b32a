"""IQN: Q-learning of quantile functions at random fractions."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from ding.policy.dqn import DQNPolicy, Head, TDError
from ding.policy.settings import positive
from ding.rl_utils.distributional import iqn_nstep_td_data, iqn_nstep_td_error
from ding.utils.config_helper import NO_DEFAULT, Setting, Settings, one_of
from ding.utils.registry_factory import POLICY_REGISTRY


@POLICY_REGISTRY.register("iqn")
class IQNPolicy(DQNPolicy):
    """IQN (https://arxiv.org/abs/1806.06923), with the double-Q choice of the next action.

    `priority` is the quantile regression loss of each sample. When acting, the output of an env has values `q` [T, N]
    at its own fractions `quantiles` [T].

    Example:
        >>> import torch
        >>> cfg = IQNPolicy.default_config()
        >>> cfg.model.obs_shape, cfg.model.action_shape = 4, 2
        >>> policy = IQNPolicy(cfg, enable_field=["collect"])
        >>> output = policy.collect_mode.forward({0: torch.zeros(4), 3: torch.zeros(4)}, eps=0.1)
        >>> output[3]["q"].shape, output[3]["quantiles"].shape
        (torch.Size([32, 2]), torch.Size([32]))
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "iqn",
            "model.num_quantiles": NO_DEFAULT,
            "model.quantile_embedding_size": NO_DEFAULT,
            "learn.kappa": Setting(1.0, positive, "Threshold of the Huber loss, beyond which it is linear."),
            "learn.criterion": Setting(rule=one_of("mse")),
        },
        DQNPolicy.settings,
    )

    def default_model(self) -> tuple[str, list[str]]:
        return "iqn", ["ding.model.template.q_learning"]

    def _head_error(self, head: Head) -> TDError:
        """Regress quantiles at random fractions: the error is summed over them, averaged over target quantiles."""
        reward, done, weight = head.outcome
        actions, fractions = (head.action, head.next_action), head.output["quantiles"]
        data = iqn_nstep_td_data(*head.values("q"), *actions, reward, done, fractions, weight)
        loss, error = iqn_nstep_td_error(
            data, self._gamma, self._nstep, self._cfg.learn.kappa, head.batch.get("value_gamma")
        )
        return loss, error, {}

    def _forward_batch(self, model: Any, obs: Any, obs_key: str | None = None, **kwargs: Any) -> dict[str, Any]:
        output = super()._forward_batch(model, obs, obs_key, **kwargs)
        q, quantiles = output["q"], output["quantiles"]
        if isinstance(q, Tensor):
            rows: Any = _rows_of_envs(q, quantiles)
        else:
            rows = zip(*[_rows_of_envs(*head) for head in zip(q, quantiles, strict=True)], strict=True)
        return {**output, **dict(zip(("q", "quantiles"), rows, strict=True))}


def _rows_of_envs(q: Tensor, quantiles: Tensor) -> tuple[Tensor, Tensor]:
    """Return `q` [T, E, N] and `quantiles` [T * E, 1] with the envs as the first axis."""
    return q.transpose(0, 1), quantiles.view(q.shape[:2]).T
