"""Settings that several policies have, and the check of a policy's settings; unknown keys are left to the user."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ding.torch_utils.optimizer_helper import CLIP_TYPES, lr_schedule_rule
from ding.utils.config_helper import ConfigError, Setting, boolean, integer, number, one_of, positive, value_at

_MISSING = object()


def learning_rate(value: Any) -> str | None:
    """Return None if `value` is a real number above 0, else what is expected."""
    if callable(value) or isinstance(value, str):
        return "a number above 0; a schedule goes to lr_scheduler, which multiplies it"
    return positive(value)


def gpu(value: Any) -> str | None:
    """Return None if `value` is a bool or the name of a GPU such as 'cuda:1', else what is expected."""
    is_gpu = isinstance(value, bool) or (isinstance(value, str) and re.fullmatch(r"cuda:\d+", value) is not None)
    return None if is_gpu else "True, False or the name of a GPU, such as 'cuda:1'"


def one_number(value: Any) -> str | None:
    """Return None unless `value` has several numbers, as for multi-discrete actions; else what is expected."""
    return "a number: this policy has one action a step" if isinstance(value, Sequence) and len(value) > 1 else None


# The meaning of keys that configs for DI-engine have, and that nothing depends on.
COMPATIBLE = "Accepted for compatibility."

# Rules and meanings of keys that several policies have, by the end of their path.
GLOSSARY = {
    "type": Setting(doc="Registered name of the policy."),
    "priority_IS_weight": Setting(rule=boolean, doc="Correct the sampling by importance weights; needs `priority`."),
    "discount_factor": Setting(rule=number(0, 1), doc="Discount factor gamma."),
    "nstep": Setting(rule=integer(1), doc="Number of steps of the n-step return."),
    "batch_size": Setting(rule=integer(1), doc="Number of samples in a batch."),
    "n_sample": Setting(rule=integer(1, optional=True), doc="Number of samples of one collection."),
    "n_episode": Setting(rule=integer(1, optional=True), doc="Number of episodes of one collection."),
    "unroll_len": Setting(doc="Number of steps in a sample."),
    "random_collect_size": Setting(rule=integer(0), doc="Number of samples collected before training begins."),
    "transition_with_policy_data": Setting(doc="Store the output of the policy at collection in samples."),
    "action_space": Setting(doc="Kind of actions; by default the env's if `model.action_shape` is left out, too."),
    # models
    "model.action_shape": Setting(rule=one_number, doc="Number of actions."),
    "model.action_space": Setting(doc="What the actor returns."),
    "actor_head_hidden_size": Setting(doc="Width of the actor's head."),
    "actor_head_layer_num": Setting(doc="Number of layers of the actor's head."),
    "critic_head_hidden_size": Setting(doc="Width of the critic's head."),
    "critic_head_layer_num": Setting(doc="Number of layers of the critic's head."),
    "num_quantiles": Setting(rule=integer(1), doc="Number of quantiles."),
    "quantile_embedding_size": Setting(rule=integer(1), doc="Width of the embedding of quantile fractions."),
    "v_min": Setting(rule=number(), doc="Smallest atom of the value distribution."),
    "v_max": Setting(rule=number(), doc="Largest atom of the value distribution."),
    "n_atom": Setting(rule=integer(2), doc="Number of atoms of the value distribution."),
    # learning
    "update_per_collect": Setting(rule=integer(1), doc="Number of batches to train on after each collection."),
    "epoch_per_collect": Setting(rule=integer(1), doc="Number of passes over the samples of a collection."),
    "learning_rate": Setting(rule=learning_rate, doc="Learning rate."),
    "learning_rate_actor": Setting(rule=learning_rate, doc="Learning rate of the actor."),
    "learning_rate_policy": Setting(rule=learning_rate, doc="Learning rate of the actor."),
    "learning_rate_critic": Setting(rule=learning_rate, doc="Learning rate of the critic."),
    "learning_rate_q": Setting(rule=learning_rate, doc="Learning rate of the critic."),
    "learning_rate_alpha": Setting(rule=learning_rate, doc="Learning rate of the temperature."),
    "weight_decay": Setting(rule=number(0), doc="Weight decay of the optimizer."),
    "lr_scheduler": Setting(
        rule=lr_schedule_rule,
        doc="Schedule of the learning rates: `'linear'`, a function of the remaining progress, the `type` of a "
        "scheduler of torch with its arguments, or the keys below.",
    ),
    "lr_scheduler.epoch_num": Setting(
        rule=integer(1), doc="Number of training steps (on policy: of collections) of a linear decay."
    ),
    "lr_scheduler.min_lr_lambda": Setting(rule=number(0, 1), doc="Final factor of the learning rate."),
    "grad_norm": Setting(rule=positive, doc="Maximum norm of the gradients; larger ones are scaled down."),
    "grad_clip_type": Setting(rule=one_of(*CLIP_TYPES), doc="How gradients are clipped; None for no clipping."),
    "grad_clip_value": Setting(rule=number(0, optional=True), doc="Threshold of the gradient clipping."),
    "clip_value": Setting(doc="Threshold of the gradient clipping."),
    "ignore_done": Setting(rule=boolean, doc="Bootstrap from terminal states too."),
    "target_theta": Setting(rule=number(0, 1), doc="Rate of the soft target update per iteration."),
    "target_update_freq": Setting(
        rule=integer(1, optional=True),
        doc="Iterations between two copies to the target network; None for soft updates.",
    ),
    "value_weight": Setting(rule=number(0), doc="Weight of the critic's loss."),
    "entropy_weight": Setting(rule=number(), doc="Weight of the entropy in the loss."),
    "adv_norm": Setting(rule=boolean, doc="Normalize the advantages of each batch."),
    "value_norm": Setting(rule=boolean, doc="Normalize the critic's targets by running statistics of the returns."),
    "ppo_param_init": Setting(rule=boolean, doc="Initialize layers with orthogonal weights."),
    "clip_ratio": Setting(rule=positive, doc="Clip range of the probability ratio (epsilon of PPO)."),
    "target_kl": Setting(
        rule=lambda value: None if value is None else positive(value),
        doc="Divergence from the policy that collected; 1.5 times as much ends the epochs on a collection.",
    ),
    "init_w": Setting(rule=number(0), doc="Start the actor's last layer uniform in [-init_w, init_w]."),
    "min_q_weight": Setting(rule=number(0), doc="Weight of the conservative term."),
    # collection, evaluation, replay
    "collect": Setting(doc="Settings of collection."),
    "gae_lambda": Setting(rule=number(0, 1), doc="Lambda of generalized advantage estimation."),
    "env_num": Setting(rule=integer(1, optional=True), doc="Number of envs, each with a recurrent state; required."),
    "collector.type": Setting(doc="Registered name of the collector."),
    "collector.get_train_sample": Setting(doc="Make train samples in the collector."),
    "collector.collect_print_freq": Setting(doc="Number of collections between two reports in the log."),
    "eval": Setting(doc="Settings of evaluation."),
    "evaluator.eval_freq": Setting(doc="Number of iterations between two evaluations."),
    "replay_buffer_size": Setting(doc="Capacity of the replay buffer, in samples."),
    "eps.type": Setting(doc="How epsilon falls over env steps."),
    "eps.start": Setting(doc="Initial epsilon."),
    "eps.end": Setting(doc="Final epsilon."),
    "eps.decay": Setting(doc="Env steps over which epsilon falls (the time constant, with 'exp')."),
}


def check_settings(cfg: Mapping[str, Any], where: str, settings: Mapping[str, Setting]) -> None:
    """Check the keys of `settings` (dotted where nested) that are present in `cfg`.

    Raises:
        ConfigError: a value violates its rule.
    """
    for path, (_, rule, _) in settings.items():
        value = _MISSING if rule is None else value_at(cfg, path, _MISSING)
        if rule is None or value is _MISSING:
            continue
        allowed = rule(value)
        if allowed is not None:
            raise ConfigError(f"{where}: {path} = {value!r} is not allowed; it must be {allowed}")
