"""DQN learns Goofspiel from games against itself and earlier versions, with a learner and two collectors in parallel.

Run it with `python -m ding.example.goofspiel_parallel [--seed N]`, or give this file's path to `parallel_pipeline`. The
run ends when the newest player's mean return against a heuristic player reaches 0.6.
"""

from __future__ import annotations

from collections.abc import Sequence

from easydict import EasyDict

from ding.example.runner import run_on_workers

CARDS = 5


goofspiel_config = EasyDict(
    exp_name="goofspiel_parallel",
    env={
        "type": "goofspiel_duel",
        "import_names": ["ding.example.goofspiel"],
        "cards": CARDS,
        "collector_env_num": 8,
        "collector_episode_num": 30,
        "evaluator_env_num": 8,
        "evaluator_episode_num": 25,
        "n_evaluator_episode": 200,
        "stop_value": 0.6,
    },
    policy={
        "cuda": False,
        "nstep": 1,
        "discount_factor": 1.0,
        "model": {"obs_shape": 3 * CARDS + 1, "action_shape": CARDS, "encoder_hidden_size_list": [64, 64]},
        "learn": {"batch_size": 64, "learning_rate": 0.001, "target_update_freq": 100},
        "collect": {"n_sample": CARDS, "collector": {"collector_num": 2, "update_policy_second": 0.5}},
        "other": {
            "eps": {"type": "exp", "start": 0.95, "end": 0.2, "decay": 10000},
            "replay_buffer": {"replay_buffer_size": 20000},
            "commander": {
                "collector_task_space": 2,
                "eval_interval": 3,
                "league": {"naive_sp_player": {"one_phase_step": 500, "strong_win_rate": 0.7}},
            },
        },
    },
)
goofspiel_create_config = EasyDict(
    env={"type": "goofspiel_duel", "import_names": ["ding.example.goofspiel"]},
    env_manager={"type": "base"},
    policy={"type": "dqn"},
    collector={"type": "marine"},
    commander={"type": "one_vs_one"},
    comm_learner={"type": "flask_fs"},
    comm_collector={"type": "flask_fs"},
)
goofspiel_system_config = EasyDict(coordinator={}, communication_mode="auto", learner_gpu_num=1)
main_config, create_config, system_config = goofspiel_config, goofspiel_create_config, goofspiel_system_config


def main(argv: Sequence[str] | None = None) -> int:
    """Train, and return the exit status; see `run`."""
    return run_on_workers(main_config, create_config, system_config, argv)


if __name__ == "__main__":
    raise SystemExit(main())
