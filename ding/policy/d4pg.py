"""Distributed distributional deterministic policy gradients."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from ding.policy.ddpg import DDPGPolicy
from ding.policy.q_actor_critic import CriticTerms
from ding.rl_utils.adder import get_nstep_return_data
from ding.rl_utils.distributional import dist_nstep_td_data, dist_nstep_td_error
from ding.utils.batch_methods import accepts_pieces
from ding.utils.config_helper import Setting, Settings, one_of
from ding.utils.data.samples import Items
from ding.utils.registry_factory import POLICY_REGISTRY


@POLICY_REGISTRY.register("d4pg")
class D4PGPolicy(DDPGPolicy):
    """D4PG (https://arxiv.org/abs/1804.08617): DDPG with a categorical critic, n-step returns and priorities.

    The critic represents returns between `model.v_min` and `model.v_max`, and cannot tell apart states whose returns
    lie outside: choose bounds that include the returns at the start of training.
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "d4pg",
            "priority": True,
            "priority_IS_weight": True,
            "nstep": 3,
            "action_space": Setting(rule=one_of("continuous")),
            "model.v_min": -10,
            "model.v_max": 10,
            "model.n_atom": 51,
            "eval.evaluator.eval_freq": 1000,
            "other.replay_buffer.replay_buffer_size": 1000000,
        },
        DDPGPolicy.settings,
    )
    model_type: ClassVar[tuple[str, str]] = ("qac_dist", "ding.model.template.qac")
    _learn_keys = (*DDPGPolicy._learn_keys, "value_gamma")
    _uses_nstep = True

    def _monitor_vars_learn(self) -> list[str]:
        names = ["cur_lr_actor", "cur_lr_critic", "critic_loss", "actor_loss", "total_loss", "q_value"]
        return [*names, "action", "td_error"]

    # --- learn ---

    def _critic_terms(self, batch: dict[str, Any]) -> CriticTerms:
        """Return the terms; the loss is the cross-entropy of Z(s, a) to the n-step target.

        The target is the projection of r_1 + ... + gamma^n Z'(s_n, mu'(s_n)).
        """
        next_obs, model = batch["next_obs"], self._cfg.model
        with torch.no_grad():
            next_output = self._target_actor.forward(next_obs, mode="compute_actor")
            next_critic = self._target_model.forward(self._judged(next_obs, next_output), mode="compute_critic")
        critic = self._model({key: batch[key] for key in self._judged_keys}, mode="compute_critic")
        distribution = critic["distribution"]
        # The action is an input of the critic, so it returns one distribution.
        index = torch.zeros(len(distribution), dtype=torch.int64, device=distribution.device)
        reward, done, weight, value_gamma = batch["reward"], batch["done"], batch["weight"], batch.get("value_gamma")
        data = dist_nstep_td_data(distribution, next_critic["distribution"], index, index, reward, done, weight)
        loss, error = dist_nstep_td_error(
            data, self._gamma, model.v_min, model.v_max, model.n_atom, int(self._cfg.nstep), value_gamma
        )
        logged = {"q_value": critic["q_value"].mean(), "action": self._mean_action(batch)}
        return CriticTerms({"critic_loss": loss}, error.detach(), logged)

    # --- collect ---

    @accepts_pieces
    def _get_train_sample(self, transitions: Items) -> Any:
        samples = get_nstep_return_data(transitions, int(self._cfg.nstep), gamma=self._cfg.learn.discount_factor)
        return super()._get_train_sample(samples)
