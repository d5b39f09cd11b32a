"""Measured configs by policy and envs: data files for `ding train`, found by `train`, listed by `ding list recipes`.

A recipe defines `envs` (patterns of env ids), `env_steps` (the budget of its measured curves), `main_config` and
`create_config`. See `ding.entry.recipes`.
"""
