"""Q-learning of value distributions: C51, Rainbow, QR-DQN, IQN, FQF, and discrete CQL for data sets.

C51 and Rainbow learn probabilities of fixed values, the others values at fractions, the quantiles.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ding.policy.dqn import DQNPolicy, HeadInputs, TDError, renew_noise
from ding.policy.training_step import Learned
from ding.rl_utils.distributional import (
    dist_nstep_td_data,
    dist_nstep_td_error,
    fqf_calculate_fraction_loss,
    fqf_nstep_td_data,
    fqf_nstep_td_error,
    iqn_nstep_td_data,
    iqn_nstep_td_error,
    qrdqn_nstep_td_data,
    qrdqn_nstep_td_error,
)
from ding.rl_utils.returns import weighted_mean
from ding.torch_utils.data_helper import to_device
from ding.torch_utils.optimizer_helper import Adam, RMSprop
from ding.utils.config_helper import NO_DEFAULT, Setting, Settings, number, positive
from ding.utils.registry_factory import POLICY_REGISTRY


@POLICY_REGISTRY.register("c51")
class C51Policy(DQNPolicy):
    """C51 (https://arxiv.org/abs/1707.06887), with the double-Q choice of the next action.

    `priority` is the cross-entropy of each sample.

    Example:
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
        },
        DQNPolicy.settings,
        without=["learn.criterion"],
    )

    def default_model(self) -> tuple[str, list[str]]:
        return "c51dqn", ["ding.model.template.q_learning"]

    def _head_error(self, head: HeadInputs) -> TDError:
        """Return the cross-entropy to the distribution of r + gamma (1 - done) z', with z' of the next action."""
        model, batch = self._cfg.model, head.batch
        dist, next_dist = head.output["distribution"], head.next_output["distribution"]
        data = dist_nstep_td_data(
            dist, next_dist, head.action, head.next_action, batch["reward"], batch["done"], batch["weight"]
        )
        loss, error = dist_nstep_td_error(
            data, self._gamma, model.v_min, model.v_max, model.n_atom, self._nstep, batch.get("value_gamma")
        )
        return loss, error, {}


@POLICY_REGISTRY.register("rainbow")
class RainbowDQNPolicy(C51Policy):
    """Rainbow (https://arxiv.org/abs/1710.02298): C51 with noisy networks, n-step returns and priorities.

    The noise of the networks is resampled in each iteration, and that of the online network once more for choosing the
    next action. Collecting uses the current noise, evaluation none.

    Example:
        >>> cfg = RainbowDQNPolicy.default_config()
        >>> cfg.model.obs_shape, cfg.model.action_shape = 4, 2
        >>> policy = RainbowDQNPolicy(cfg, enable_field=["collect"])
        >>> policy.collect_mode.forward({0: torch.zeros(4)}, eps=0.0)[0]["action"].shape
        torch.Size([1])
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "rainbow",
            "priority": True,
            "priority_IS_weight": True,
            "discount_factor": 0.99,
            "nstep": 3,
            "noisy_net": True,
            "learn.update_per_collect": 1,
            "learn.batch_size": 32,
            "other.eps.start": 0.05,
            "other.eps.end": 0.05,
            "other.eps.decay": 100000,
            "other.replay_buffer.replay_buffer_size": 100000,
            "other.replay_buffer.alpha": Setting(0.6, doc="Exponent of the priorities."),
            "other.replay_buffer.beta": Setting(0.4, doc="Initial exponent of the importance weights."),
            "other.replay_buffer.anneal_step": Setting(100000, doc="Number of draws until `beta` is 1."),
        },
        C51Policy.settings,
    )

    def default_model(self) -> tuple[str, list[str]]:
        return "rainbowdqn", ["ding.model.template.q_learning"]

    def _forward_networks(self, batch: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], Any]:
        # The noise for the gradient is sampled last: it must not change until backward.
        with torch.no_grad():
            next_action = self._learn_model.forward(batch["next_obs"])["action"]
            next_output = self._target_model.forward(batch["next_obs"])
        if self._cfg.noisy_net and self._model.training:
            renew_noise(self._model)
        return self._model(batch["obs"]), next_output, next_action


@POLICY_REGISTRY.register("qrdqn")
class QRDQNPolicy(DQNPolicy):
    """QR-DQN (https://arxiv.org/abs/1710.10044), with the double-Q choice of the next action.

    `priority` is the quantile regression loss of each sample.

    Example:
        >>> cfg = QRDQNPolicy.default_config()
        >>> cfg.model.obs_shape, cfg.model.action_shape = 4, 2
        >>> policy = QRDQNPolicy(cfg, enable_field=["collect"])
        >>> policy.collect_mode.forward({0: torch.zeros(4)}, eps=0.1)[0]["q"].shape
        torch.Size([2, 32])
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "qrdqn",
            "model.num_quantiles": NO_DEFAULT,
        },
        DQNPolicy.settings,
        without=["learn.criterion"],
    )

    def default_model(self) -> tuple[str, list[str]]:
        return "qrdqn", ["ding.model.template.q_learning"]

    def _head_error(self, head: HeadInputs) -> TDError:
        """Regress quantiles at fixed fractions: the error is summed over them, averaged over target quantiles."""
        batch, q, next_q, fractions = head.batch, head.output["q"], head.next_output["q"], head.output["tau"]
        data = qrdqn_nstep_td_data(
            q, next_q, head.action, head.next_action, batch["reward"], batch["done"], fractions, batch["weight"]
        )
        loss, error = qrdqn_nstep_td_error(data, self._gamma, self._nstep, batch.get("value_gamma"))
        return loss, error, {}


@POLICY_REGISTRY.register("iqn")
class IQNPolicy(DQNPolicy):
    """IQN (https://arxiv.org/abs/1806.06923), with the double-Q choice of the next action.

    `priority` is the quantile regression loss of each sample. When acting, the output of an env has values `q` [T, N]
    at its own fractions `quantiles` [T].

    Example:
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
        },
        DQNPolicy.settings,
        without=["learn.criterion"],
    )

    def default_model(self) -> tuple[str, list[str]]:
        return "iqn", ["ding.model.template.q_learning"]

    def _head_error(self, head: HeadInputs) -> TDError:
        """Regress quantiles at random fractions: the error is summed over them, averaged over target quantiles."""
        batch, q, next_q, fractions = head.batch, head.output["q"], head.next_output["q"], head.output["quantiles"]
        data = iqn_nstep_td_data(
            q, next_q, head.action, head.next_action, batch["reward"], batch["done"], fractions, batch["weight"]
        )
        loss, error = iqn_nstep_td_error(
            data, self._gamma, self._nstep, self._cfg.learn.kappa, batch.get("value_gamma")
        )
        return loss, error, {}

    def _forward_batch(self, model: Any, obs: Any, obs_key: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Forward, and return `q` [T, E, N] and `quantiles` [T * E, 1] of each head with the envs as the first axis."""
        output = super()._forward_batch(model, obs, obs_key, **kwargs)
        q, quantiles = output["q"], output["quantiles"]
        if isinstance(q, Tensor):
            return {**output, "q": q.transpose(0, 1), "quantiles": quantiles.view(q.shape[:2]).T}
        fractions = [
            fractions_of_head.view(head.shape[:2]).T for head, fractions_of_head in zip(q, quantiles, strict=True)
        ]
        return {**output, "q": [head.transpose(0, 1) for head in q], "quantiles": fractions}


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
        },
        DQNPolicy.settings,
        without=["learn.criterion", "learn.learning_rate"],
    )

    _optimizer_names: ClassVar[Mapping[str, tuple[str, str]]] = {
        "_fraction_loss_optimizer": ("optimizer_fraction_loss", "cur_lr_fraction_loss"),
        "_quantile_loss_optimizer": ("optimizer_quantile_loss", "cur_lr_quantile_loss"),
    }

    def default_model(self) -> tuple[str, list[str]]:
        return "fqf", ["ding.model.template.q_learning"]

    def _monitor_vars_learn(self) -> list[str]:
        norms = [f"total_norm_{part}" for part in _PARTS]
        return ["cur_lr_fraction_loss", "cur_lr_quantile_loss", "logit", "fraction_loss", "quantile_loss", *norms]

    def _init_optimizers(self) -> None:
        learn = self._cfg.learn
        kind, limit = learn.get("grad_clip_type"), learn.get("grad_clip_value")
        named = [(name.split("."), parameter) for name, parameter in self._model.named_parameters()]
        rest = [(path, parameter) for path, parameter in named if _PROPOSAL not in path]
        self._fraction_loss_optimizer = RMSprop(
            [parameter for path, parameter in named if _PROPOSAL in path],
            lr=learn.learning_rate_fraction,
            alpha=0.95,
            eps=1e-5,
            grad_clip_type=kind,
            clip_value=limit,
        )
        self._quantile_loss_optimizer = Adam(
            [parameter for _, parameter in rest],
            lr=learn.learning_rate_quantile,
            eps=1e-2 / learn.batch_size,
            grad_clip_type=kind,
            clip_value=limit,
        )
        # DI-engine's optimizer has the parameters part by part: values, embedding of the fractions, encoder.
        by_part = [[parameter for path, parameter in rest if part in path] for part in ("Q", "fqf_fc", "encoder")]
        if sum(map(len, by_part)) == len(rest):
            self._quantile_loss_optimizer.accept_order(itertools.chain.from_iterable(by_part))

    def _update(self, batch: dict[str, Any]) -> Learned:
        """Take one step of the fractions and one of the quantiles; `priority` is the error of each sample."""
        if self._cfg.noisy_net:
            renew_noise(self._model)
            renew_noise(self._target_net)
        heads = self._heads(batch)
        quantile_loss, error, logged = self._td_error(heads)
        losses = []
        for head in heads:
            output, action = head.output, head.action.reshape(-1)
            loss = fqf_calculate_fraction_loss(output["q_tau_i"], output["q"], output["quantiles"], action)
            losses.append(loss - self._cfg.learn.ent_coef * output["entropies"].mean())
        fraction_loss = torch.stack(losses).mean()
        # No parameter is in both losses: the embedding is detached for the proposal, the fractions for the values.
        self._backward_and_step(fraction_loss, self._fraction_loss_optimizer)
        self._backward_and_step(quantile_loss, self._quantile_loss_optimizer)
        values = {"logit": logged["q_value"], "fraction_loss": fraction_loss, "quantile_loss": quantile_loss}
        histograms = {
            "[histogram]action_distribution": to_device(batch["action"], "cpu"),
            "[histogram]quantiles_hats": heads[0].output["quantiles_hats"][0].cpu(),
        }
        for part in _PARTS:
            norms = [
                parameter.grad.norm()
                for name, parameter in self._model.named_parameters()
                if part in name.split(".") and parameter.grad is not None
            ]
            total = torch.stack(norms).norm() if norms else torch.zeros((), device=self._device)
            values[f"total_norm_{part}"] = total
        return Learned(values, error, histograms)

    def _head_error(self, head: HeadInputs) -> TDError:
        """Regress quantiles at proposed fractions: the error is summed over them, averaged over target quantiles."""
        batch, q, next_q, fractions = head.batch, head.output["q"], head.next_output["q"], head.output["quantiles_hats"]
        data = fqf_nstep_td_data(
            q, next_q, head.action, head.next_action, batch["reward"], batch["done"], fractions, batch["weight"]
        )
        loss, error = fqf_nstep_td_error(
            data, self._gamma, self._nstep, self._cfg.learn.kappa, batch.get("value_gamma")
        )
        return loss, error, {}


@POLICY_REGISTRY.register("discrete_cql")
class DiscreteCQLPolicy(QRDQNPolicy):
    """CQL(H) (https://arxiv.org/abs/2006.04779) on QR-DQN, with a penalty on actions outside the data set.

    Train it with `serial_pipeline_offline`. The loss is that of QR-DQN plus `min_q_weight` times the mean of
    log sum_a exp q(s, a) - q(s, a of the data). `priority` is the quantile regression loss only.
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "discrete_cql",
            "learn.update_per_collect": 1,
            "learn.min_q_weight": 1.0,
        },
        QRDQNPolicy.settings,
    )

    _target_value_name: ClassVar[str] = "q_target"

    def _monitor_vars_learn(self) -> list[str]:
        return ["cur_lr", "total_loss", "q_target", "q_value"]

    def _head_error(self, head: HeadInputs) -> TDError:
        loss, error, logged = super()._head_error(head)
        q = head.output["logit"]
        gap = q.logsumexp(-1) - q.gather(-1, head.action.reshape(-1, 1)).squeeze(-1)
        return loss + self._cfg.learn.min_q_weight * weighted_mean(gap, head.batch["weight"]), error, logged
