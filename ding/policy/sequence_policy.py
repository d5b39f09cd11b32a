"""Actor-critic methods that learn from sequences, IMPALA and ACER, and the batches of sequences."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ding.model.wrapper.model_wrappers import mask_logits
from ding.policy.actor_critic import StochasticPolicy
from ding.policy.base_policy import BatchPolicy
from ding.policy.common_utils import check_not_empty, importance_weight
from ding.policy.settings import COMPATIBLE
from ding.policy.training_step import Learned
from ding.rl_utils.adder import append_null_steps, get_train_sample
from ding.rl_utils.returns import bootstrap_mask
from ding.rl_utils.vtrace import (
    acer_policy_error,
    acer_trust_region_update,
    acer_value_error,
    compute_q_retraces,
    vtrace_losses,
    vtrace_targets,
)
from ding.torch_utils.optimizer_helper import Adam, RMSprop
from ding.utils.batch_methods import accepts_fragments
from ding.utils.config_helper import NO_DEFAULT, Setting, Settings, anything, boolean, integer, number, one_of, positive
from ding.utils.data.collate_fn import collate_steps
from ding.utils.data.nested import leaves, map_leaves
from ding.utils.data.samples import END_FLAGS, Items, node_items, table_of
from ding.utils.registry_factory import POLICY_REGISTRY


def collate_sequences(data: Sequence[dict[str, Any]], keys: Collection[str]) -> dict[str, Any]:
    """Collate B sequences of L steps (dicts of lists, or a table) into tensors [L, B, ...] by key.

    - Items of shape (1,) are [L, B], except observations (not the members of dicts), logits and real-valued actions:
      [L, B, 1].
    - `done`, and `terminated` and `truncated` if any sequence has them, are bool. A sequence without them
      is terminated where it is `done`.
    - `null` is bool, and false if a sequence does not have it.
    - `weight` is the importance weight [B] (`priority_IS`, or `IS`) if `keys` contains it; otherwise the
      sequences' own [L, B], otherwise None.
    - `prev_state` is a tuple of the B recurrent states before the first steps, if the sequences have any.

    Raises:
        ConfigError: importance weights are requested, but the sequences have none.
        ValueError: there are no sequences.
    """
    check_not_empty(data)
    table = table_of(data)
    if table is None:
        data = _with_flags(data)
        state = [sample["prev_state"][0] for sample in data] if "prev_state" in data[0] else None
    else:
        node = table.columns.get("prev_state")
        if node is None:
            state = None
        else:  # only the states of the first steps are needed
            state = node_items(node[0]) if isinstance(node, list) else [states[0] for states in node_items(node)]
    batch = collate_steps(data, keys)
    for flag in ("done", *END_FLAGS):
        if flag in batch:
            batch[flag] = batch[flag].bool()
    for key in ("obs", "next_obs"):
        obs = batch.get(key)
        if isinstance(obs, Tensor) and obs.dim() == 2 and np.shape(data[0][key][0]) == (1,):
            batch[key] = obs.unsqueeze(-1)
    if "logit" in batch:
        batch["logit"] = map_leaves(_as_vectors, batch["logit"])
    if "action" in batch and batch["action"].is_floating_point():
        batch["action"] = _as_vectors(batch["action"])
    null: Tensor | None = batch.get("null")
    batch["null"] = torch.zeros_like(batch["done"]) if null is None else null.bool()
    batch["weight"] = importance_weight(batch).reshape(-1) if "IS" in keys else batch.get("weight")
    if state is not None:
        batch["prev_state"] = tuple(state)
    return batch


def _as_vectors(steps: Tensor) -> Tensor:
    return steps.unsqueeze(-1) if steps.dim() == 2 else steps


def _with_flags(data: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Return the sequences with the same set of flags in each."""
    partly = [flag for flag in (*END_FLAGS, "null") if 0 < sum(flag in sample for sample in data) < len(data)]
    if not partly:
        return data
    filled = []
    for sample in data:
        nothing = [False] * len(sample["done"])
        steps = zip(sample["done"], sample.get("truncated", nothing), strict=True)
        meaning = {"terminated": [bool(done and not cut) for done, cut in steps], "truncated": nothing, "null": nothing}
        filled.append({**{flag: meaning[flag] for flag in partly}, **sample})
    return filled


class SequenceEnds(NamedTuple):
    """Where the trajectories of B sequences of L steps end; masks are float32 [L, B].

    Attributes:
        is_valid: 1 up to the end of the episode, 0 for padding.
        goes_on: 1 if the trajectory continues with the next step.
        bootstraps: 1 if the next value is used for bootstrapping; see `ding.rl_utils.bootstrap_mask`.
    """

    is_valid: Tensor
    goes_on: Tensor
    bootstraps: Tensor


def sequence_ends(batch: Mapping[str, Any]) -> SequenceEnds:
    """Return the ends of collated sequences, each of which is one trajectory up to its first `done`."""
    done: Tensor = batch["done"]
    is_valid = (done.long().cumsum(0) - done.long() == 0) & ~batch["null"]
    terminated, truncated = (batch[flag].flatten() if flag in batch else None for flag in END_FLAGS)
    bootstraps = bootstrap_mask(done.flatten(), terminated, truncated).view_as(done)
    goes_on = torch.zeros_like(is_valid)
    goes_on[:-1] = is_valid[1:]
    return SequenceEnds(is_valid.float(), goes_on.float(), bootstraps.float())


def with_last_observation(batch: Mapping[str, Any], ends: SequenceEnds) -> Any:
    """Return the observations [L + 1, B, ...] of the valid steps and the one that follows the last of them."""
    last = ends.is_valid.sum(0).long() - 1  # [B]
    rows = torch.arange(len(last), device=last.device)

    def extended(obs: Tensor, next_obs: Tensor) -> Tensor:
        result = torch.cat([obs, next_obs[-1:]])
        result[last + 1, rows] = next_obs[last, rows]
        return result

    return map_leaves(extended, batch["obs"], batch["next_obs"])


def forward_steps(forward: Callable[..., Any], observations: Any, **kwargs: Any) -> Any:
    """Return what a model returns for observations [L, B, ...], all at once; its tensors are [L, B, ...], too."""
    shape = next(leaves(observations)).shape[:2]
    output = forward(map_leaves(lambda tensor: tensor.flatten(0, 1), observations), **kwargs)
    return map_leaves(lambda tensor: tensor.view(*shape, *tensor.shape[1:]), output)


class SequencePolicy(BatchPolicy):
    """Base of policies that learn from sequences of steps; `_learn_keys` are what is collated of them."""

    learns_from_sequences: ClassVar[bool] = True

    def _prepare(self, data: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Collate B samples as tensors [L, B, ...]; see `collate_sequences`."""
        weights = ("IS", "priority_IS") if self._priority_IS_weight else ()
        return self._on_model(collate_sequences(data, (*self._learn_keys, *weights)))


class SequenceActorPolicy(SequencePolicy, StochasticPolicy):
    """Base of policies that act by the `logit` of `compute_actor`, and learn from sequences of `_unroll_len` steps."""

    settings: ClassVar[Settings] = Settings(
        {
            "priority": False,
            "priority_IS_weight": False,
            "transition_with_policy_data": True,
            "batch_size": NO_DEFAULT,
            "n_sample": NO_DEFAULT,
            "model.action_shape": NO_DEFAULT,
            "learn.update_per_collect": 4,
            "learn.batch_size": Setting(16, doc="Number of sequences in a batch."),
            "learn.value_weight": 0.5,
            "learn.entropy_weight": Setting(0.0001, number(0)),
            "learn.grad_clip_type": None,
            "collect.n_sample": NO_DEFAULT,
            "eval": {},
            "other.replay_buffer.replay_buffer_size": Setting(1000, doc="Capacity of the replay buffer, in sequences."),
            "other.replay_buffer.max_use": Setting(16, doc="How often a sequence may be drawn."),
        },
        StochasticPolicy.settings,
    )
    _learn_keys = ("obs", "next_obs", "action", "logit", "reward", "done", "null", "weight", *END_FLAGS)
    _collect_kwargs: ClassVar[Mapping[str, Any]] = {"mode": "compute_actor"}
    _eval_kwargs: ClassVar[Mapping[str, Any]] = {"mode": "compute_actor"}
    _output_keys: Sequence[str] = ("logit", "action")

    @accepts_fragments
    def _get_train_sample(self, transitions: Items) -> Any:
        """Return sequences of `unroll_len` steps; shorter ones are padded with null steps."""
        return get_train_sample(append_null_steps(transitions, 0), self._unroll_len) if transitions else []


_OPTIMIZERS = {"adam": Adam, "rmsprop": RMSprop}


@POLICY_REGISTRY.register("impala")
class IMPALAPolicy(SequenceActorPolicy):
    """IMPALA (https://arxiv.org/abs/1802.01561) for discrete and continuous actions.

    A sample is a sequence of `unroll_len` steps of an episode. Padding after its end is masked out of
    the loss. With `priority` the priority of a sequence is the mean distance of its values from their targets.

    Example:
        >>> cfg = IMPALAPolicy.default_config()
        >>> cfg.model.update(obs_shape=4, action_shape=2)
        >>> policy = IMPALAPolicy(cfg, enable_field=["collect"])
        >>> output = policy.collect_mode.forward({0: torch.zeros(4)})[0]
        >>> output["action"].shape, output["logit"].shape
        (torch.Size([1]), torch.Size([2]))
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "impala",
            "action_space": Setting("discrete", one_of("discrete", "continuous"), "Kind of actions."),
            "unroll_len": Setting(32, integer(2), "Number of steps of a sequence."),
            "learn.learning_rate": 0.0005,
            "learn.discount_factor": 0.99,
            "learn.lambda_": Setting(0.95, number(0, 1), "Lambda of the value targets, as in TD(lambda)."),
            "learn.rho_clip_ratio": Setting(1.0, positive, "Truncation of the importance ratio in the TD error."),
            "learn.c_clip_ratio": Setting(1.0, positive, "Truncation of the importance ratio in the trace."),
            "learn.rho_pg_clip_ratio": Setting(1.0, positive, "Truncation of the importance ratio in the policy loss."),
            "learn.clip_value": 0.5,
            "learn.optim": Setting("adam", one_of(*_OPTIMIZERS), "Optimizer."),
            "collect": {},
        },
        SequenceActorPolicy.settings,
    )

    def default_model(self) -> tuple[str, list[str]]:
        return "vac", ["ding.model.template.vac"]

    def _set_up_model(self, model: nn.Module, learns: bool) -> None:
        self._unroll_len = int(self._cfg.unroll_len)
        super()._set_up_model(model, learns)

    def _monitor_vars_learn(self) -> list[str]:
        return ["cur_lr", "total_loss", "policy_loss", "value_loss", "entropy_loss"]

    # --- learn ---

    def _init_learn(self) -> None:
        self._init_importance_weights()
        learn = self._cfg.learn
        self._optimizer = _OPTIMIZERS[learn.optim](
            self._model.parameters(),
            lr=learn.learning_rate,
            grad_clip_type=learn.grad_clip_type,
            clip_value=learn.clip_value,
        )
        self._learn_model = self._wrapped("base")

    def _update(self, batch: dict[str, Any]) -> Learned:
        """Take one step on B sequences."""
        learn = self._cfg.learn
        reward, action = batch["reward"], batch["action"]  # [T, B], [T, B] or [T, B, A]
        ends = sequence_ends(batch)

        observations = with_last_observation(batch, ends)
        output = forward_steps(self._learn_model.forward, observations, mode="compute_actor_critic")
        mask_logits(output)
        values = output["value"].reshape(-1, reward.shape[1])  # [T + 1, B], also of a network's [T + 1, B, 1]
        value, next_value = values[:-1], values[1:].detach()
        (terms,) = self._kind.terms(map_leaves(lambda logit: logit[:-1], output["logit"]), action)
        with torch.no_grad():
            (old_terms,) = self._kind.terms(batch["logit"], action)
            ratio = torch.exp(terms.log_prob - old_terms.log_prob)

        discount = learn.discount_factor * ends.bootstraps
        targets = vtrace_targets(
            ratio,
            value,
            next_value,
            reward,
            discount,
            ends.goes_on,
            lambda_=learn.lambda_,
            rho_clip_ratio=learn.rho_clip_ratio,
            c_clip_ratio=learn.c_clip_ratio,
            rho_pg_clip_ratio=learn.rho_pg_clip_ratio,
        )
        is_valid = ends.is_valid
        weight = is_valid * (is_valid.numel() / is_valid.sum())
        if batch["weight"] is not None:
            weight = weight * batch["weight"]
        loss = vtrace_losses(terms, value, targets, weight)
        total = loss.policy_loss + learn.value_weight * loss.value_loss - learn.entropy_weight * loss.entropy_loss
        self._backward_and_step(total, self._optimizer, self._model)
        distance = (value.detach() - targets.value).abs() * is_valid
        priority = distance.sum(0) / is_valid.sum(0) if self._priority else None
        return Learned({"total_loss": total, **loss._asdict()}, priority)


@POLICY_REGISTRY.register("acer")
class ACERPolicy(SequenceActorPolicy):
    """ACER (https://arxiv.org/abs/1611.01224) for discrete actions.

    A sample is a sequence of `collect.unroll_len` steps of an episode. Padding after its end
    is masked out of the loss. The critic learns Retrace targets; the gradient of the actor, with respect to its
    log-probabilities, is kept near an average policy, which follows at the rate `learn.target_theta`. With
    `priority` the priority of a sequence is the mean distance of its Q values from their targets.

    Example:
        >>> cfg = ACERPolicy.default_config()
        >>> cfg.model.update(obs_shape=4, action_shape=2)
        >>> policy = ACERPolicy(cfg, enable_field=["collect"])
        >>> policy.collect_mode.forward({0: torch.zeros(4)})[0]["logit"].shape
        torch.Size([2])
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "acer",
            "learn.clip_value": None,
            "learn.value_weight": Setting(doc=COMPATIBLE),
            "learn.discount_factor": 0.9,
            "learn.lambda_": Setting(0.95, doc=COMPATIBLE),
            "learn.unroll_len": Setting(32, doc=COMPATIBLE),
            "learn.c_clip_ratio": Setting(10, positive, "Truncation of the importance ratio in the actor's loss."),
            "learn.trust_region": Setting(True, boolean, "Limit the divergence from the average policy."),
            "learn.trust_region_value": Setting(1.0, positive, "Limit of this divergence in an update."),
            "learn.learning_rate_actor": 0.0005,
            "learn.learning_rate_critic": 0.0005,
            "learn.target_theta": Setting(0.01, doc="Rate of the average policy's update per iteration."),
            "collect.unroll_len": Setting(32, integer(2), "Number of steps of a sequence."),
            "collect.discount_factor": Setting(0.9, anything, COMPATIBLE),
            "collect.gae_lambda": Setting(0.95, anything, COMPATIBLE),
            "collect.collector.type": "sample",
            "collect.collector.collect_print_freq": 1000,
            "eval.evaluator.eval_freq": 200,
        },
        SequenceActorPolicy.settings,
    )

    _optimizer_names: ClassVar[Mapping[str, tuple[str, str]]] = {
        "_optimizer_actor": ("actor_optimizer", "cur_actor_lr"),
        "_optimizer_critic": ("critic_optimizer", "cur_critic_lr"),
    }

    def default_model(self) -> tuple[str, list[str]]:
        return "acer", ["ding.model.template.vac"]

    def _monitor_vars_learn(self) -> list[str]:
        return ["actor_loss", "bc_loss", "policy_loss", "critic_loss", "entropy_loss", "kl_div"]

    # --- learn ---

    def _init_learn(self) -> None:
        self._init_importance_weights()
        learn = self._cfg.learn
        model: Any = self._model
        kind, limit = learn.grad_clip_type, learn.clip_value
        actor, critic = model.actor.parameters(), model.critic.parameters()
        self._optimizer_actor = Adam(actor, lr=learn.learning_rate_actor, grad_clip_type=kind, clip_value=limit)
        self._optimizer_critic = Adam(critic, lr=learn.learning_rate_critic, grad_clip_type=kind, clip_value=limit)
        self._init_target(theta=learn.target_theta)
        self._learn_model = self._wrapped("base")

    def _update(self, batch: dict[str, Any]) -> Learned:
        """Take one step of critic and actor on B sequences.

        The actor maximizes `policy_loss`: `actor_loss`, `bc_loss` (the bias correction) and the weighted entropy.
        """
        learn, model = self._cfg.learn, self._learn_model.forward
        ends = sequence_ends(batch)
        reward, action = batch["reward"], batch["action"].long()  # [T, B]
        obs = with_last_observation(batch, ends)
        acted_on = map_leaves(lambda tensor: tensor[:-1], obs)
        # Logarithms of probabilities, and Q values: [T + 1, B, N], except those of the others [T, B, N].
        all_log_prob = _log_probs(model, obs)
        all_q = forward_steps(model, obs, mode="compute_critic")["q_value"]
        all_q = all_q.view(all_log_prob.shape)  # values of a single action have no axis for it
        log_prob, q = all_log_prob[:-1], all_q[:-1]
        with torch.no_grad():
            average = _log_probs(self._target_model.forward, acted_on)
            all_value = (all_log_prob.exp() * all_q).sum(-1, keepdim=True)
            # After the end of a trajectory the trace is cut, and the step before bootstraps from the next value. There
            # ratios may be infinite: the observation is zeros, with another action mask than that of `logit`.
            ratio = (log_prob - batch["logit"].log_softmax(-1)).exp()
            ratio = torch.where(ends.is_valid.unsqueeze(-1) > 0, ratio, 0.0)
            retraces = compute_q_retraces(
                all_q, all_value, reward, action, ends.bootstraps, ratio, learn.discount_factor
            )[:-1]

        weight = ends.is_valid / ends.is_valid.sum()  # of each step in a mean
        if batch["weight"] is not None:
            weight = weight * batch["weight"]
        weight = weight.unsqueeze(-1)  # [T, B, 1]
        critic_loss = (acer_value_error(q, retraces, action) * weight).sum()
        actor_term, bc_term = acer_policy_error(
            q, retraces, all_value[:-1], log_prob, action, ratio, learn.c_clip_ratio
        )
        entropy = -(log_prob.exp() * log_prob).sum(-1, keepdim=True)
        objective = actor_term + bc_term + learn.entropy_weight * entropy
        (gradient,) = torch.autograd.grad(-objective.sum(), log_prob, retain_graph=True)
        if learn.trust_region:
            (gradient,) = acer_trust_region_update([gradient], log_prob, average, learn.trust_region_value)
        self._backward_and_step(critic_loss, self._optimizer_critic)
        # The gradient of this product with respect to the log-probabilities is `gradient * weight`.
        self._backward_and_step((log_prob * gradient * weight).sum(), self._optimizer_actor)
        kl_div = (average.exp() * (average - log_prob)).sum(-1, keepdim=True)
        actor_loss, bc_loss, entropy_loss, kl = (
            (term.detach() * weight).sum() for term in (actor_term, bc_term, entropy, kl_div)
        )
        values = {
            "actor_loss": actor_loss,
            "bc_loss": bc_loss,
            "policy_loss": actor_loss + bc_loss + learn.entropy_weight * entropy_loss,
            "critic_loss": critic_loss,
            "entropy_loss": entropy_loss,
            "kl_div": kl,
        }
        distance = (retraces - q.detach().gather(-1, action.unsqueeze(-1))).abs().squeeze(-1) * ends.is_valid
        return Learned(values, distance.sum(0) / ends.is_valid.sum(0) if self._priority else None)


def _log_probs(forward: Callable[..., Any], obs: Any) -> Tensor:
    """Return the log-probabilities [L, B, N] of all actions for observations [L, B, ...]."""
    output = forward_steps(forward, obs, mode="compute_actor")
    mask_logits(output)
    log_probs: Tensor = output["logit"].log_softmax(-1)
    return log_probs
