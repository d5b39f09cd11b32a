"""DI-engine's CartPole examples: their settings, and the env steps that DI-engine 0.5.3 took to their stop value.

All use CartPole with at most 200 steps an episode, 8 collector envs, 5 evaluator envs (R2D2: 8), and a stop value of
195. `TASKS` has what each example sets beyond that: `policy`, and where it matters `replay_buffer` and `collector` of
the create config.
"""

from __future__ import annotations

import copy
from typing import Any

MAX_ENV_STEP = 150_000
ON_POLICY = ("a2c", "ppo", "pg")

_EPS = {"type": "exp", "start": 0.95, "end": 0.1, "decay": 10000}
_WIDE = {"encoder_hidden_size_list": [128, 128, 64]}
_PPO_MODEL = {
    "action_space": "discrete",
    "encoder_hidden_size_list": [64, 64, 128],
    "critic_head_hidden_size": 128,
    "actor_head_hidden_size": 128,
}
_GAE = {"discount_factor": 0.9, "gae_lambda": 0.95}


def _other(size: int, eps: dict[str, Any] | None = None, **buffer: Any) -> dict[str, Any]:
    buffer = {"replay_buffer": {"replay_buffer_size": size, **buffer}}
    return buffer if eps is None else {"eps": eps, **buffer}


def _one_step_q(update_per_collect: int | None, eval_freq: int, **policy: Any) -> dict[str, Any]:
    """Q-learning with a dueling network, on 8 samples a collection."""
    learn = {"batch_size": 64, "learning_rate": 0.001, **policy.pop("learn", {})}
    if update_per_collect is not None:
        learn["update_per_collect"] = update_per_collect
    return {
        "model": {**_WIDE, "dueling": True},
        "nstep": 1,
        "discount_factor": 0.97,
        "learn": learn,
        "collect": {"n_sample": 8},
        "eval": {"evaluator": {"eval_freq": eval_freq}},
        "other": _other(20000, _EPS),
        **policy,
    }


def _three_step_q(eval_freq: int, model: dict[str, Any], **policy: Any) -> dict[str, Any]:
    """Distributional Q-learning with 3-step returns, on 80 samples a collection."""
    learn = {"update_per_collect": 3, "batch_size": 64, "learning_rate": 0.001, "target_update_freq": 100}
    return {
        "model": {**_WIDE, **model},
        "nstep": 3,
        "discount_factor": 0.97,
        "learn": {**learn, **policy.pop("learn", {})},
        "collect": {"n_sample": 80, "unroll_len": 1},
        "eval": {"evaluator": {"eval_freq": eval_freq}},
        "other": _other(20000, _EPS),
        **policy,
    }


TASKS: dict[str, dict[str, Any]] = {
    "dqn": {"policy": _one_step_q(5, 40), "replay_buffer": "deque"},
    "c51": {"policy": _three_step_q(40, {"v_min": -10, "v_max": 10, "n_atom": 51}, priority=True)},
    "qrdqn": {"policy": _three_step_q(100, {"num_quantiles": 64}, learn={"kappa": 1.0})},
    "iqn": {"policy": _three_step_q(40, {"num_quantiles": 32}, learn={"kappa": 1.0})},
    "rainbow": {"policy": _three_step_q(100, {}, priority=True)},
    "mdqn": {"policy": _one_step_q(5, 40, entropy_tau=0.03, m_alpha=0.9), "replay_buffer": "deque"},
    "sql": {"policy": _one_step_q(None, 50, learn={"alpha": 0.12})},
    "a2c": {
        "policy": {
            "model": _WIDE,
            "learn": {"batch_size": 40, "learning_rate": 0.001, "entropy_weight": 0.01},
            "collect": {"n_sample": 80, "gae_lambda": 0.95},
            "eval": {"evaluator": {"eval_freq": 50}},
        }
    },
    "ppo": {
        "policy": {
            "action_space": "discrete",
            "model": _PPO_MODEL,
            "learn": {
                "epoch_per_collect": 2,
                "batch_size": 64,
                "learning_rate": 0.001,
                "value_weight": 0.5,
                "entropy_weight": 0.01,
                "clip_ratio": 0.2,
            },
            "collect": {"n_sample": 256, "unroll_len": 1, **_GAE},
            "eval": {"evaluator": {"eval_freq": 100}},
        }
    },
    "pg": {
        "policy": {
            "learn": {"batch_size": 64, "learning_rate": 0.001, "entropy_weight": 0.001},
            "collect": {"n_episode": 80, "unroll_len": 1, "discount_factor": 0.9},
            "eval": {"evaluator": {"eval_freq": 100}},
        },
        "collector": "episode",
    },
    "ppo_offpolicy": {
        "policy": {
            "model": _PPO_MODEL,
            "learn": {
                "update_per_collect": 6,
                "batch_size": 64,
                "learning_rate": 0.001,
                "value_weight": 0.5,
                "entropy_weight": 0.01,
                "clip_ratio": 0.2,
            },
            "collect": {"n_sample": 128, "unroll_len": 1, **_GAE},
            "eval": {"evaluator": {"eval_freq": 40}},
            "other": _other(5000),
        }
    },
    "impala": {
        "policy": {
            "model": {"encoder_hidden_size_list": [64, 64]},
            "unroll_len": 8,
            "learn": {
                "update_per_collect": 4,
                "batch_size": 16,
                "learning_rate": 0.0005,
                "value_weight": 0.5,
                "entropy_weight": 0.0001,
                "discount_factor": 0.9,
                "lambda_": 0.95,
                "rho_clip_ratio": 1.0,
                "c_clip_ratio": 1.0,
                "rho_pg_clip_ratio": 1.0,
            },
            "collect": {"n_sample": 16, **_GAE},
            "eval": {"evaluator": {"eval_freq": 200}},
            "other": _other(1000, max_use=16),
        }
    },
    "discrete_sac": {
        "policy": {
            "random_collect_size": 0,
            "multi_agent": False,
            "model": {"twin_critic": True, "actor_head_hidden_size": 64, "critic_head_hidden_size": 64},
            "learn": {
                "update_per_collect": 2,
                "batch_size": 64,
                "learning_rate_q": 0.005,
                "learning_rate_policy": 0.005,
                "learning_rate_alpha": 0.0003,
                "ignore_done": False,
                "target_theta": 0.01,
                "discount_factor": 0.99,
                "alpha": 0.2,
                "auto_alpha": False,
            },
            "collect": {"env_num": 8, "n_sample": 256, "unroll_len": 1},
            "eval": {"env_num": 5, "evaluator": {"eval_freq": 50}},
            "other": _other(100000, {**_EPS, "decay": 50000}),
        }
    },
    "r2d2": {
        "policy": {
            "priority": False,
            "priority_IS_weight": False,
            "model": _WIDE,
            "discount_factor": 0.995,
            "nstep": 5,
            "burnin_step": 2,
            "learn_unroll_len": 40,
            "learn": {
                "update_per_collect": 5,
                "batch_size": 64,
                "learning_rate": 0.0005,
                "target_update_theta": 0.001,
            },
            "collect": {"n_sample": 32, "unroll_len": 42, "traj_len_inf": True, "env_num": 8},
            "eval": {"env_num": 8, "evaluator": {"eval_freq": 30}},
            "other": _other(100000, {**_EPS, "end": 0.05}),
        },
        "evaluators": 8,
    },
}


def configs(policy: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The pair (main config, create config) of a task."""
    task = copy.deepcopy(TASKS[policy])
    evaluators = task.get("evaluators", 5)
    model = {"obs_shape": 4, "action_shape": 2, **task["policy"].pop("model", {})}
    main = {
        "env": {
            "env_id": "CartPole-v0",
            "collector_env_num": 8,
            "evaluator_env_num": evaluators,
            "n_evaluator_episode": evaluators,
            "stop_value": 195,
        },
        "policy": {"cuda": False, "model": model, **task["policy"]},
    }
    create = {"env": {"type": "gymnasium"}, "env_manager": {"type": "base"}, "policy": {"type": policy}}
    create.update({key: {"type": task[key]} for key in ("replay_buffer", "collector") if key in task})
    return main, create


# Env steps to the stop value in DI-engine 0.5.3, by seed; None where a run ended without it.
ORIGINAL: dict[str, dict[int, int | None]] = {
    "dqn": {5: 1080, 6: 1080, 7: 1464, 8: 1336, 9: 1080},
    "c51": {
        0: 6200,
        1: 17776,
        2: 14352,
        3: 22216,
        4: 14440,
        5: 15728,
        6: 8504,
        7: 15408,
        8: 13280,
        9: 13168,
        10: 7376,
        11: 24688,
        12: 19136,
        13: 12088,
        14: 9600,
    },
    "qrdqn": {
        0: 28912,
        1: 37600,
        2: 34616,
        3: 112664,
        4: 25856,
        5: 17656,
        6: 25944,
        7: 45920,
        8: 37496,
        9: 26448,
        10: 20488,
        11: 130136,
        12: 87224,
        13: 101664,
        14: 23328,
    },
    "iqn": {5: 22824, 6: 41496},
    "rainbow": {5: 33904, 6: 28536},
    "mdqn": {5: 1016, 6: 888, 7: 1144, 8: 1080, 9: 1144},
    "sql": {5: 1824, 6: 1960, 7: 6584, 8: 1688},
    "a2c": {5: 145920, 6: 25880},
    "ppo": {5: 13448, 6: 9024, 7: 4584, 8: 4736, 9: 8704},
    "pg": {5: 62075, 6: 120356},
    "ppo_offpolicy": {
        0: 15312,
        1: 9568,
        2: 9680,
        3: 11600,
        4: 9560,
        5: 4856,
        6: 8712,
        7: 3904,
        8: 12456,
        9: 3912,
        10: 7768,
        11: 12376,
        12: 11632,
        13: 6816,
        14: 4880,
        15: 7792,
        16: 13288,
        17: 10616,
        18: 10672,
        19: 4936,
    },
    "impala": {5: 55440, 6: 17728},
    "discrete_sac": {0: 74648, 1: 54112, 2: 60888, 5: 54056, 6: 67824},
    "r2d2": {0: 63216, 1: 125136, 2: 126568},
}
