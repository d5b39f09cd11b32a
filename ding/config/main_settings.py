"""Keys of a main config that compilation, entries and data sets read; classes have tables of their own."""

from __future__ import annotations

from typing import Any

from ding.utils.config_helper import NO_DEFAULT, Setting, Settings, boolean, count, integer, number


def _folder_name(value: Any) -> str | None:
    """Apply the rule for a non-empty str."""
    return None if isinstance(value, str) and value else "a folder name; leave it out for the default"


def _count(minimum: int, doc: str, default: Any = NO_DEFAULT) -> Setting:
    rule = count(minimum)
    return Setting(default, lambda value: None if value is None else rule(value), doc)


def _read(doc: str, default: Any = NO_DEFAULT) -> Setting:
    return Setting(default, None, doc)


MAIN_SETTINGS = Settings(
    {
        "exp_name": Setting(NO_DEFAULT, _folder_name, "Folder of the run; `default_experiment` by default."),
        "seed": _read("Set by compilation to the argument `seed` of the entry."),
        "reward_model": _read("Settings of a reward model of your own."),
        "world_model": _read("Settings of a world model of your own."),
        "logger": _read("Sinks of metrics."),
        "run_state": _read("When to save states that a run can resume from; False for never."),
        "run_state.every_iter": Setting(0, integer(0), "Number of iterations between two states; 0 for never."),
        "run_state.every_s": Setting(300, number(0), "Seconds between two states; 0 for never."),
        "run_state.keep": Setting(2, integer(1), "Number of states to keep."),
        "run_state.trust_pickle": Setting(
            False, boolean, "Whether envs may be stored as pickles, which run code when they are loaded."
        ),
        "env.manager": _read("Settings of the env manager.", {}),
        "env.env_id": _read("Id of the env, for envs and managers that make it by one."),
        "env.stop_value": _read("Mean return of an evaluation that ends the run.", int(1e10)),
        "env.n_evaluator_episode": _count(1, "Number of episodes of an evaluation.", 4),
        "env.collector_env_num": _count(1, "Number of envs that collect."),
        "env.evaluator_env_num": _count(1, "Number of envs that evaluate."),
        "env.collector_episode_num": _read("Number of episodes of each env in a collector's task."),
        "env.evaluator_episode_num": _read("Number of episodes of each env in an evaluator's task."),
        "env.replay_path": _read("Folder for videos of evaluations."),
        "env.norm_obs": _read("Normalize observations by the mean and deviation of the data set."),
        "env.eval_opponent": _read("Opponent of a battle evaluation."),
        "policy.load_path": _read("Checkpoint of a trained policy."),
        "policy.random_collect_size": _count(0, "Number of samples that a random policy collects before training."),
        "policy.transition_with_policy_data": _read("Whether samples hold the output of the policy at collection."),
        "policy.batch_size": _count(1, "Number of samples in a batch."),
        "policy.unroll_len": _read("Number of steps in a sample; overrides that of `policy.collect`."),
        "policy.n_sample": _count(1, "Number of samples of one collection."),
        "policy.n_episode": _count(1, "Number of episodes of one collection."),
        "policy.traj_len_inf": _read("Whether a trajectory is cut only at the end of its episode."),
        "policy.model": _read("Arguments of the model, and its `type`.", {}),
        "policy.model.obs_shape": _read("Shape of an observation; by default that of the env."),
        "policy.model.action_shape": _read("Number of actions, or shape of real-valued ones; by default the env's."),
        "policy.learn.learner": _read("Settings of the learner.", {}),
        "policy.learn.batch_size": _count(1, "Number of samples in a batch."),
        "policy.learn.update_per_collect": _count(0, "Number of batches to train on after each collection."),
        "policy.learn.train_epoch": _read("Number of passes over a data set."),
        "policy.learn.resume_training": _read("Whether to resume from the newest state or the checkpoint to load."),
        "policy.collect.collector": _read("Settings of the collector.", {}),
        "policy.collect.n_sample": _count(1, "Number of samples of one collection."),
        "policy.collect.n_episode": _count(1, "Number of episodes of one collection."),
        "policy.collect.unroll_len": _read("Number of steps in a sample."),
        "policy.collect.traj_len_inf": _read("Whether a trajectory is cut only at the end of its episode."),
        "policy.collect.env_num": _read("Number of envs that collect, for policies that keep a state of each."),
        "policy.collect.data_type": _read("Format of a data set."),
        "policy.collect.data_path": _read("File of a data set."),
        "policy.collect.save_path": _read("File for collected demonstrations."),
        "policy.collect.trusted": _read("Whether a pickled data set, which can run code, may be read."),
        "policy.collect.normalize_states": _read("Whether observations of a data set are normalized."),
        "policy.collect.download": _read("Whether a data set may be downloaded."),
        "policy.collect.model_path": _read("Checkpoint of the expert that collects demonstrations."),
        "policy.command": _read("Kept for compatibility: no key in it has an effect."),
        "policy.eval.evaluator": _read("Settings of the evaluator.", {}),
        "policy.eval.env_num": _read("Number of envs that evaluate, for policies that keep a state of each."),
        "policy.other.replay_buffer": _read("Settings of the replay buffer, or of each of several.", {}),
        "policy.other.commander": _read("Settings of the commander."),
        "policy.other.eps": _read("Schedule of epsilon."),
        "policy.other.eps.collect": _read("A constant epsilon for collecting demonstrations."),
    }
)
