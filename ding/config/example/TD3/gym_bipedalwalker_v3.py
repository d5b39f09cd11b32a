"""TD3 on BipedalWalker-v3, where the reward -100 of a fall counts as -10."""

from easydict import EasyDict

cfg = EasyDict(
    exp_name="BipedalWalker-v3-TD3",
    env={
        "env_id": "BipedalWalker-v3",
        "act_scale": True,
        "rew_clip": True,
        "collector_env_num": 8,
        "evaluator_env_num": 5,
        "n_evaluator_episode": 5,
    },
    policy={
        "random_collect_size": 10000,
        "model": {
            "obs_shape": 24,
            "action_shape": 4,
            "twin_critic": True,
            "action_space": "regression",
            "actor_head_hidden_size": 400,
            "critic_head_hidden_size": 400,
        },
        "learn": {
            "update_per_collect": 64,
            "batch_size": 256,
            "learning_rate_actor": 3e-4,
            "learning_rate_critic": 3e-4,
        },
        "collect": {"n_sample": 64},
        "other": {"replay_buffer": {"replay_buffer_size": 300000}},
    },
)
