"""Names of settings in Stable-Baselines3, CleanRL, Tianshou and TorchRL, and the config keys with their meaning."""

from __future__ import annotations

from collections.abc import Container

# The targets of one name; of them, a config has those that its classes read.
_RATE = ("policy.learn.learning_rate",)
_ACTOR_RATE = ("policy.learn.learning_rate_actor", "policy.learn.learning_rate_policy", *_RATE)
_CRITIC_RATE = ("policy.learn.learning_rate_critic", "policy.learn.learning_rate_q", *_RATE)
_GAMMA = ("policy.discount_factor", "policy.learn.discount_factor", "policy.collect.discount_factor")
_WIDTHS = (
    "policy.model.encoder_hidden_size_list",
    "policy.model.actor_head_hidden_size",
    "policy.model.critic_head_hidden_size",
)
_CAPACITY = ("policy.other.replay_buffer.replay_buffer_size",)
_COLLECTED = ("policy.collect.n_sample", "policy.n_sample", "policy.collect.n_episode", "policy.n_episode")
_NSTEP = ("policy.nstep", "policy.learn.nstep", "policy.collect.nstep")
_BATCH = ("policy.learn.batch_size", "policy.batch_size")
_UPDATES = ("policy.learn.update_per_collect", "policy.learn.epoch_per_collect")
_EPOCHS = ("policy.learn.epoch_per_collect", "policy.learn.update_per_collect")
_ENTROPY = ("policy.learn.entropy_weight", "policy.learn.alpha")
_CLIPPING = ("policy.learn.grad_clip_value", "policy.learn.clip_value", "policy.learn.grad_norm")
_PRIORITY = ("policy.priority",)

SYNONYMS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("lr", "learning_rate"), (*_RATE, *_ACTOR_RATE, *_CRITIC_RATE)),
    **dict.fromkeys(("actor_lr", "lr_actor", "pi_lr", "policy_lr"), _ACTOR_RATE),
    **dict.fromkeys(("critic_lr", "lr_critic", "q_lr", "vf_lr", "value_lr"), _CRITIC_RATE),
    **dict.fromkeys(("alpha_lr", "ent_lr"), ("policy.learn.learning_rate_alpha",)),
    **dict.fromkeys(("gamma", "discount", "discount_rate"), _GAMMA),
    **dict.fromkeys(("buffer_size", "buffer_capacity", "replay_size", "memory_size"), _CAPACITY),
    **dict.fromkeys(("n_steps", "num_steps"), (*_COLLECTED[:2], *_NSTEP)),
    **dict.fromkeys(("n_step", "n_step_return", "estimation_step", "n_step_return_horizon", "multi_step"), _NSTEP),
    **dict.fromkeys(("train_freq", "train_frequency", "step_per_collect", "frames_per_batch"), _COLLECTED[:2]),
    **dict.fromkeys(("rollout_length", "steps_per_epoch"), _COLLECTED[:2]),
    **dict.fromkeys(("episode_per_collect", "collection_num_episodes"), _COLLECTED[2:]),
    **dict.fromkeys(("hidden_sizes", "hidden_size", "hidden_dim", "net_arch", "num_cells"), _WIDTHS),
    **dict.fromkeys(("tau", "polyak", "soft_update_coef"), ("policy.learn.target_theta",)),
    **dict.fromkeys(
        ("target_update_interval", "target_network_frequency", "target_network_update_freq", "target_update_freq"),
        ("policy.learn.target_update_freq",),
    ),
    **dict.fromkeys(("ent_coef", "entropy_coef", "entropy_coeff", "entropy_bonus"), _ENTROPY),
    **dict.fromkeys(("vf_coef", "value_coef", "value_loss_coef", "critic_coeff"), ("policy.learn.value_weight",)),
    **dict.fromkeys(("clip_range", "clip_coef", "clip_epsilon", "eps_clip"), ("policy.learn.clip_ratio",)),
    **dict.fromkeys(("gae_lambda", "lmbda", "lam"), ("policy.collect.gae_lambda",)),
    **dict.fromkeys(("n_epochs", "num_epochs", "update_epochs", "repeat_per_collect"), _EPOCHS),
    **dict.fromkeys(("gradient_steps", "update_per_step", "utd_ratio", "num_updates"), _UPDATES),
    **dict.fromkeys(("batch_size", "minibatch_size", "mini_batch_size", "sgd_minibatch_size"), _BATCH),
    **dict.fromkeys(("max_grad_norm", "clip_grad_norm", "grad_norm", "gradient_clip"), _CLIPPING),
    **dict.fromkeys(("norm_adv", "normalize_advantage", "advantage_normalization"), ("policy.learn.adv_norm",)),
    **dict.fromkeys(
        ("learning_starts", "start_timesteps", "init_random_frames", "start_steps", "warmup_steps"),
        ("policy.random_collect_size",),
    ),
    **dict.fromkeys(
        ("exploration_fraction", "eps_decay", "epsilon_decay", "annealing_num_steps", "eps_train_decay"),
        ("policy.other.eps.decay",),
    ),
    **dict.fromkeys(
        ("exploration_initial_eps", "start_e", "eps_init", "eps_start", "epsilon_start", "eps_train"),
        ("policy.other.eps.start",),
    ),
    **dict.fromkeys(
        ("exploration_final_eps", "end_e", "eps_end", "epsilon_end", "eps_train_final"), ("policy.other.eps.end",)
    ),
    **dict.fromkeys(
        ("exploration_noise", "action_noise"), ("policy.collect.noise_sigma", "policy.collect.noise_sigma.start")
    ),
    **dict.fromkeys(("policy_noise", "target_policy_noise"), ("policy.learn.noise_sigma",)),
    **dict.fromkeys(("policy_delay", "policy_frequency", "update_actor_freq"), ("policy.learn.actor_update_freq",)),
    **dict.fromkeys(("prioritized", "prioritized_replay", "use_per"), _PRIORITY),
    **dict.fromkeys(("n_atoms", "num_atoms"), ("policy.model.n_atom",)),
    **dict.fromkeys(("num_envs", "n_envs", "num_train_envs", "training_num", "env_num"), ("env.collector_env_num",)),
    **dict.fromkeys(("test_num", "num_eval_envs", "num_test_envs"), ("env.evaluator_env_num",)),
    **dict.fromkeys(("n_eval_episodes", "eval_episodes", "episode_per_test"), ("env.n_evaluator_episode",)),
    **dict.fromkeys(("env_name",), ("env.env_id",)),
    **dict.fromkeys(("reward_threshold", "stop_reward"), ("env.stop_value",)),
    **dict.fromkeys(("device", "use_cuda"), ("policy.cuda",)),
    **dict.fromkeys(("log_interval", "log_freq"), ("policy.learn.learner.hook.log_show_after_iter",)),
    **dict.fromkeys(("save_interval", "save_freq"), ("policy.learn.learner.hook.save_ckpt_after_iter",)),
    **dict.fromkeys(("eval_interval", "evaluation_interval"), ("policy.eval.evaluator.eval_freq",)),
}

# Names whose value belongs in each of the keys that a policy reads.
ALL_ALIKE = frozenset(
    ("lr", "learning_rate", "actor_lr", "lr_actor", "critic_lr", "lr_critic", "gamma", "discount", "discount_rate")
    + ("discount_factor",)
)

# What to mind where the value of a name is in other units than that of the key.
UNITS = {
    "polyak": "which is 1 - polyak if that is the share which the target keeps",
    "exploration_fraction": "which counts env steps",
    **dict.fromkeys(("update_per_step", "utd_ratio"), "which is for a whole collection, not a step"),
}


def keys_meant_by(name: str, known: Container[str]) -> list[str]:
    """Return the `known` dotted keys with the meaning of a setting's name in other libraries, the likeliest first."""
    return list(dict.fromkeys(path for path in SYNONYMS.get(name.lower(), ()) if path in known))
