"""FQF: Q-learning of quantile functions with learned fractions."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

import torch
from torch import Tensor

from ding.policy.dqn import DQNPolicy, TDError, head_actions, renew_noise, split_heads, to_numbers
from ding.policy.settings import positive
from ding.rl_utils.distributional import fqf_calculate_fraction_loss, fqf_nstep_td_data, fqf_nstep_td_error
from ding.torch_utils.data_helper import to_device
from ding.torch_utils.optimizer_helper import Adam, RMSprop
from ding.utils.config_helper import NO_DEFAULT, Setting, Settings, number, one_of
from ding.utils.registry_factory import POLICY_REGISTRY

# Name of the module that proposes fractions.
_PROPOSAL = "quantiles_proposal"
# Parts of the model whose gradient norms are logged.
_PARTS = (_PROPOSAL, "Q", "fqf_fc", "encoder")


@POLICY_REGISTRY.register("fqf")
class FQFPolicy(DQNPolicy):
    """FQF (https://arxiv.org/abs/1911.02140), with the double-Q choice of the next action.

    Each iteration takes two steps: RMSprop on the network that proposes fractions, Adam on the rest. `priority` is the
    quantile regression loss of each sample.

    Example:
        >>> cfg = FQFPolicy.default_config()
        >>> cfg.model.obs_shape, cfg.model.action_shape = 4, 2
        >>> policy = FQFPolicy(cfg, enable_field=["collect"])
        >>> policy.collect_mode.forward({0: torch.zeros(4)}, eps=0.1)[0]["quantiles"].shape
        torch.Size([33])
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "fqf",
            "model.num_quantiles": NO_DEFAULT,
            "model.quantile_embedding_size": NO_DEFAULT,
            "learn.learning_rate_fraction": Setting(2.5e-9, positive, "Learning rate of the proposed fractions."),
            "learn.learning_rate_quantile": Setting(5e-5, positive, "Learning rate of all other parameters."),
            "learn.kappa": Setting(1.0, positive, "Divisor of the quantile regression loss."),
            "learn.ent_coef": Setting(0, number(), "Weight of the fractions' entropy in their loss."),
            "learn.criterion": Setting(rule=one_of("mse")),
            "learn.lr_scheduler": Setting(rule=one_of(None)),
        },
        DQNPolicy.settings,
    )

    def default_model(self) -> tuple[str, list[str]]:
        return "fqf", ["ding.model.template.q_learning"]

    def _monitor_vars_learn(self) -> list[str]:
        norms = [f"total_norm_{part}" for part in _PARTS]
        return ["cur_lr_fraction_loss", "cur_lr_quantile_loss", "logit", "fraction_loss", "quantile_loss", *norms]

    def _init_optimizers(self) -> None:
        learn = self._cfg.learn
        clipping = {"grad_clip_type": learn.get("grad_clip_type"), "clip_value": learn.get("grad_clip_value")}
        named = [(name.split("."), parameter) for name, parameter in self._model.named_parameters()]
        rest = [(path, parameter) for path, parameter in named if _PROPOSAL not in path]
        self._fraction_loss_optimizer = RMSprop(
            [parameter for path, parameter in named if _PROPOSAL in path],
            lr=learn.learning_rate_fraction,
            alpha=0.95,
            eps=1e-5,
            **clipping,
        )
        self._quantile_loss_optimizer = Adam(
            [parameter for _, parameter in rest],
            lr=learn.learning_rate_quantile,
            eps=1e-2 / learn.batch_size,
            **clipping,
        )
        # DI-engine's optimizer has the parameters part by part: values, embedding of the fractions, encoder.
        by_part = [[parameter for path, parameter in rest if part in path] for part in ("Q", "fqf_fc", "encoder")]
        if sum(map(len, by_part)) == len(rest):
            self._quantile_loss_optimizer.accept_order(itertools.chain(*by_part))

    def _forward_learn(self, data: list[dict[str, Any]]) -> dict[str, Any]:
        """Take one step of the fractions and one of the quantiles; `priority` is the error of each sample."""
        batch = self._prepare(data)
        self._mode_of(self._model, self._target_net).set(True)
        if self._cfg.noisy_net:
            renew_noise(self._model)
            renew_noise(self._target_net)
        networks = self._forward_networks(batch)
        quantile_loss, error, logged = self._td_error(batch, *networks)
        fraction_loss, hats = self._fraction_loss(networks[0], batch["action"])
        # No parameter is in both losses: the embedding is detached for the proposal, the fractions for the values.
        self._backward_and_step(fraction_loss, self._fraction_loss_optimizer)
        self._backward_and_step(quantile_loss, self._quantile_loss_optimizer)
        self._target_model.update(self._learn_model)
        norms = {f"total_norm_{part}": self._total_norm(part) for part in _PARTS}
        logged = {"logit": logged["q_value"], "fraction_loss": fraction_loss, "quantile_loss": quantile_loss, **norms}
        _, values, priority = to_numbers(quantile_loss, logged, error)
        return {
            "cur_lr_fraction_loss": self._fraction_loss_optimizer.param_groups[0]["lr"],
            "cur_lr_quantile_loss": self._quantile_loss_optimizer.param_groups[0]["lr"],
            **values,
            "priority": priority,
            "[histogram]action_distribution": to_device(batch["action"], "cpu"),
            "[histogram]quantiles_hats": hats[0].cpu(),
        }

    def _fraction_loss(self, output: dict[str, Any], action: Any) -> tuple[Tensor, Tensor]:
        """Return the fraction loss, averaged over the heads, and the midpoints [B, T] of the first head."""
        is_single = isinstance(output["logit"], Tensor)
        heads = [output] if is_single else split_heads(output)
        actions = head_actions([action] if is_single else action)
        losses = [
            fqf_calculate_fraction_loss(head["q_tau_i"], head["q"], head["quantiles"], chosen)
            - self._cfg.learn.ent_coef * head["entropies"].mean()
            for head, chosen in zip(heads, actions, strict=True)
        ]
        return torch.stack(losses).mean(), heads[0]["quantiles_hats"]

    def _head_error(
        self,
        batch: dict[str, Any],
        output: dict[str, Any],
        next_output: dict[str, Any],
        action: Tensor,
        next_action: Tensor,
    ) -> TDError:
        """Regress quantiles at proposed fractions: the error is summed over them, averaged over target quantiles."""
        outcome = batch["reward"], batch["done"], output["quantiles_hats"], batch["weight"]
        data = fqf_nstep_td_data(output["q"], next_output["q"], action, next_action, *outcome)
        value_gamma = batch.get("value_gamma")
        loss, error = fqf_nstep_td_error(data, self._gamma, self._nstep, self._cfg.learn.kappa, value_gamma)
        return loss, error, {}

    def _total_norm(self, part: str) -> Tensor:
        """Return the 2-norm of the gradients of one part of the model, 0 if there are none."""
        norms = [
            parameter.grad.norm()
            for name, parameter in self._model.named_parameters()
            if part in name.split(".") and parameter.grad is not None
        ]
        return torch.stack(norms).norm() if norms else torch.zeros((), device=self._device)

    def _learn_parts(self) -> dict[str, Any]:
        return {
            "model": self._learn_model,
            "target_model": self._target_model,
            "optimizer_fraction_loss": self._fraction_loss_optimizer,
            "optimizer_quantile_loss": self._quantile_loss_optimizer,
        }
