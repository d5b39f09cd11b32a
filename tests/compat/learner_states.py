"""Learner states and batches made of formulas, for policies of this package and of DI-engine alike.

A case is the config of a policy and the kind of its batches. Nothing here imports `ding`: `record_learning.py` runs the
cases with DI-engine, the tests run them here, with the same states and batches.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

STEPS = 3


@dataclass(frozen=True)
class Case:
    """The type and config of a policy, and the kind of its batches.

    Attributes:
        config: settings by their dotted paths, such as `learn.batch_size`.
        batch: a key of `BATCHES`.
        sizes: arguments of the batch.
        here: settings with another meaning here, see Differences, by which this package takes the same steps.
    """

    policy: str
    batch: str
    config: dict[str, Any] = field(default_factory=dict)
    sizes: dict[str, Any] = field(default_factory=dict)
    here: dict[str, Any] = field(default_factory=dict)


_CARTPOLE = {"model.obs_shape": 4, "model.action_shape": 2}
_PENDULUM = {"model.obs_shape": 3, "model.action_shape": 1}
_NARROW = {"model.actor_head_hidden_size": 128, "model.critic_head_hidden_size": 128}
_PPO_SIZES = {
    "model.encoder_hidden_size_list": [64, 64, 128],
    "model.actor_head_hidden_size": 128,
    "model.critic_head_hidden_size": 128,
}
_N3 = {"nstep": 3, "discount_factor": 0.97}
_FREQ2 = {"learn.target_update_freq": 2}
_WEIGHTED = {"priority": True, "priority_IS_weight": True}

CASES = {
    "dqn": Case("dqn", "values", {**_CARTPOLE, **_N3, **_FREQ2, **_WEIGHTED}, {"nstep": 3}),
    "c51": Case("c51", "values", {**_CARTPOLE, **_N3, **_FREQ2}, {"nstep": 3}),
    "qrdqn": Case("qrdqn", "values", {**_CARTPOLE, **_N3, **_FREQ2, "model.num_quantiles": 64}, {"nstep": 3}),
    "iqn": Case("iqn", "values", {**_CARTPOLE, **_N3, **_FREQ2, "model.num_quantiles": 32}, {"nstep": 3}),
    "fqf": Case(
        "fqf",
        "values",
        {
            **_CARTPOLE,
            **_N3,
            **_FREQ2,
            "model.num_quantiles": 32,
            "model.quantile_embedding_size": 64,
            "learn.learning_rate_fraction": 1e-4,
            "learn.learning_rate_quantile": 1e-3,
            "learn.ent_coef": 0.01,
        },
        {"nstep": 3},
    ),
    "rainbow": Case("rainbow", "values", {**_CARTPOLE, **_N3, **_FREQ2}, {"nstep": 3}),
    "mdqn": Case("mdqn", "values", {**_CARTPOLE}),
    "sql": Case("sql", "values", {**_CARTPOLE, **_N3, **_FREQ2, "learn.alpha": 0.12}, {"nstep": 3}),
    "sqn": Case("sqn", "values", {**_CARTPOLE, "model.encoder_hidden_size_list": [64, 64]}),
    "bdq": Case(
        "bdq",
        "values",
        {"model.obs_shape": 3, "model.num_branches": 1, "model.action_bins_per_branch": 11, **_N3, **_FREQ2},
        {"obs": 3, "actions": 11, "nstep": 3},
    ),
    "r2d2": Case(
        "r2d2",
        "recurrent",
        {
            **_CARTPOLE,
            "model.encoder_hidden_size_list": [128, 128, 64],
            "priority": True,
            "priority_IS_weight": True,
            "nstep": 2,
            "burnin_step": 2,
            "learn_unroll_len": 8,
            "learn.batch_size": 6,
            "learn.learning_rate": 1e-3,
            "collect.n_sample": 6,
            "collect.unroll_len": 10,
            "collect.env_num": 2,
            "eval.env_num": 2,
        },
        {"length": 10, "nstep": 2},
    ),
    "ppo": Case("ppo", "advantages", {**_CARTPOLE, **_PPO_SIZES, "action_space": "discrete"}),
    "ppo_cont": Case(
        "ppo",
        "advantages",
        {
            **_PENDULUM,
            "model.encoder_hidden_size_list": [64, 64],
            "model.action_space": "continuous",
            "model.actor_head_layer_num": 0,
            "model.critic_head_layer_num": 0,
            "model.sigma_type": "independent",
            "model.activation": "tanh",
            "model.bound_type": "tanh",
            "action_space": "continuous",
            "learn.epoch_per_collect": 1,
        },
        {"obs": 3, "actions": 0},
    ),
    "ppo_pg": Case("ppo_pg", "returns", {**_CARTPOLE}),
    "ppo_off": Case("ppo_offpolicy", "advantages", {**_CARTPOLE, **_PPO_SIZES, "action_space": "discrete"}),
    "ppg": Case("ppg_offpolicy", "two_buffers", {**_CARTPOLE, **_PPO_SIZES, "learn.aux_freq": 5}),
    "a2c": Case("a2c", "advantages", {**_CARTPOLE}),
    "a2c_cont": Case(
        "a2c",
        "advantages",
        {**_PENDULUM, "action_space": "continuous", "model.action_space": "continuous"},
        {"obs": 3, "actions": 0},
    ),
    "pg": Case("pg", "returns", {**_CARTPOLE}),
    "pg_cont": Case(
        "pg",
        "returns",
        {**_PENDULUM, "action_space": "continuous", "model.action_space": "continuous"},
        {"obs": 3, "actions": 0, "size": 1},
    ),
    "impala": Case(
        "impala",
        "sequences",
        {**_CARTPOLE, "model.encoder_hidden_size_list": [64, 64], "unroll_len": 8, "collect.unroll_len": 8},
        {"length": 8},
    ),
    "acer": Case(
        "acer",
        "sequences",
        {
            **_CARTPOLE,
            "model.encoder_hidden_size_list": [64, 64],
            "learn.unroll_len": 8,
            "collect.unroll_len": 8,
            "learn.trust_region_value": 0.001,
        },
        {"length": 8},
        {"learn.trust_region_value": 0.001 * 8 * 6},  # for each of the 8 steps of 6 sequences, not for their mean
    ),
    "ddpg": Case(
        "ddpg",
        "values",
        {**_PENDULUM, "model.twin_critic": False, "model.action_space": "regression", "learn.actor_update_freq": 2},
        {"obs": 3, "actions": 0},
    ),
    "td3": Case("td3", "values", {**_PENDULUM, "model.action_space": "regression"}, {"obs": 3, "actions": 0}),
    "d4pg": Case(
        "d4pg",
        "values",
        {
            **_PENDULUM,
            "nstep": 3,
            "model.action_space": "regression",
            "model.v_min": -100,
            "model.v_max": 100,
            "model.n_atom": 51,
        },
        {"obs": 3, "actions": 0, "nstep": 3},
    ),
    "sac": Case("sac", "values", {**_PENDULUM, **_NARROW}, {"obs": 3, "actions": 0}),
    "sac_noauto": Case("sac", "values", {**_PENDULUM, **_NARROW, "learn.auto_alpha": False}, {"obs": 3, "actions": 0}),
    "discrete_sac": Case(
        "discrete_sac",
        "values",
        {
            **_CARTPOLE,
            "model.actor_head_hidden_size": 64,
            "model.critic_head_hidden_size": 64,
            "learn.auto_alpha": False,
        },
        {"logit": True},
    ),
    "cql": Case(
        "cql",
        "values",
        {**_PENDULUM, **_NARROW, "learn.with_lagrange": False},
        {"obs": 3, "actions": 0},
    ),
    "discrete_cql": Case("discrete_cql", "values", {**_CARTPOLE, **_FREQ2, "model.num_quantiles": 64}),
    "td3_bc": Case(
        "td3_bc",
        "values",
        {**_PENDULUM, **_NARROW, "model.action_space": "regression", "learn.noise_range": {"min": 0.0, "max": 0.0}},
        {"obs": 3, "actions": 0, "size": 1},
    ),
    "iql": Case("iql", "values", {**_PENDULUM, "learn.beta": 0.05}, {"obs": 3, "actions": 0}),
    "bc": Case("bc", "values", {**_CARTPOLE, "model.encoder_hidden_size_list": [64, 64, 128], "continuous": False}),
    "dqfd": Case("dqfd", "demonstrations", {**_CARTPOLE, **_N3, **_FREQ2}, {"nstep": 3}),
}


def wave(shape: Any, phase: float) -> Tensor:
    """Returns sin(phase + 1.3 i) for the flat index i, rounded from float64 to float32."""
    count = int(torch.Size(shape).numel())
    values = torch.sin(phase + 1.3 * torch.arange(count, dtype=torch.float64))
    return values.float().reshape(tuple(shape))


def make_state(layout: dict[str, Any]) -> dict[str, Any]:
    """Returns a learner state with the names, shapes and orders of `layout`.

    Its `model` has the shape of each entry, or the position of the entry that is the same tensor. `parameters` of an
    optimizer are such positions, too; None is a temperature.
    """
    shapes = list(layout["model"].values())
    state: dict[str, Any] = {"model": _weights(layout["model"], 0.0)}
    if layout["has_target"]:
        state["target_model"] = _weights(layout["model"], 0.5)
    for position, (key, optimizer) in enumerate(layout["optimizers"].items()):
        own = [[1] if index is None else shapes[index] for index in optimizer["parameters"]]
        state[key] = {
            "state": {i: _moments(optimizer["moments"], shape, position + i) for i, shape in enumerate(own)},
            "param_groups": [{**optimizer["group"], "params": list(range(len(own)))}],
        }
    return state


def _weights(layout: dict[str, Any], phase: float) -> dict[str, Tensor]:
    weights: dict[str, Tensor] = {}
    for position, (name, shape) in enumerate(layout.items()):
        if isinstance(shape, int):
            weights[name] = list(weights.values())[shape]
        elif name.endswith("sigma_pi"):  # a constant of FQF
            weights[name] = (torch.pi * torch.arange(1, shape[-1] + 1, dtype=torch.float32)).view(*shape)
        else:
            weights[name] = wave(shape, phase + position) / shape[-1] ** 0.5
    return weights


def _moments(names: list[str], shape: list[int], position: int) -> dict[str, Tensor]:
    """Returns what an optimizer knows of a parameter: averages of gradients and of their squares."""
    gradient = 0.01 * wave(shape, 0.1 * position)
    values = {"step": torch.tensor(5.0), "exp_avg": gradient, "momentum_buffer": gradient}
    values |= dict.fromkeys(("exp_avg_sq", "square_avg"), gradient.square() + 1e-4)
    return {name: values[name].clone() for name in names}


def values(
    step: int,
    obs: int = 4,
    actions: int = 2,
    nstep: int = 1,
    logit: bool = False,
    size: int = 12,
) -> list[dict[str, Any]]:
    """Samples of off-policy methods; no `actions` means real-valued ones."""
    samples = []
    for i in range(size):
        phase = 10.0 * step + 0.7 * i
        action = torch.tensor([i % actions]) if actions else 0.9 * wave([1], phase)
        sample = {
            "obs": wave([obs], phase),
            "next_obs": wave([obs], phase + 0.3),
            "action": action,
            "reward": wave([nstep], phase + 0.6),
            "done": i % 5 == 4,
            "collect_iter": 0,
            "IS": 0.5 + 0.04 * i,
        }
        if nstep > 1:
            sample["value_gamma"] = 0.97**nstep
        if logit:
            sample["logit"] = wave([actions], phase + 0.9)
        samples.append(sample)
    return samples


def demonstrations(step: int, **sizes: Any) -> list[dict[str, Any]]:
    """Samples of DQfD; every third one is an expert's."""
    return [
        {**sample, "next_obs_1": wave([4], step + 0.2 * i), "done_1": i % 6 == 5, "is_expert": i % 3 == 0}
        for i, sample in enumerate(values(step, **sizes))
    ]


def advantages(step: int, obs: int = 4, actions: int = 2, size: int = 12) -> list[dict[str, Any]]:
    """Samples of actor-critic methods, of one trajectory that ends."""
    samples = []
    for i in range(size):
        phase = 10.0 * step + 0.7 * i
        if actions:
            action, logit = torch.tensor([i % actions]), wave([actions], phase + 0.9)
        else:
            action = wave([1], phase + 1.1)
            logit = {"mu": 0.5 * wave([1], phase + 0.9), "sigma": 1 + 0.2 * wave([1], phase + 1.2)}
        samples.append(
            {
                "obs": wave([obs], phase),
                "next_obs": wave([obs], phase + 0.7),
                "action": action,
                "logit": logit,
                "value": wave([1], phase + 0.2),
                "adv": wave([1], phase + 0.4),
                "reward": wave([1], phase + 0.6),
                "done": i == size - 1,
                "traj_flag": i == size - 1,
                "collect_iter": 0,
            }
        )
    return samples


def returns(step: int, **sizes: Any) -> list[dict[str, Any]]:
    """Samples of methods without a critic."""
    samples = advantages(step, **sizes)
    return [{**sample, "return": wave([1], step + 0.3 * i)} for i, sample in enumerate(samples)]


def two_buffers(step: int, **sizes: Any) -> dict[str, list[dict[str, Any]]]:
    """Samples of PPG."""
    return {"policy": advantages(step, **sizes), "value": advantages(step + 1, **sizes)}


def sequences(step: int, length: int = 8, size: int = 6) -> list[dict[str, Any]]:
    """Sequences of IMPALA and ACER; every second one ends an episode with its last step."""
    result = []
    for i in range(size):
        rows = advantages(step + 2 * i, size=length)
        keys = ("obs", "next_obs", "action", "logit", "reward", "collect_iter")
        sample: dict[str, Any] = {key: [row[key] for row in rows] for key in keys}
        sample["done"] = [i % 2 == 0 and t == length - 1 for t in range(length)]
        result.append(sample)
    return result


def recurrent(step: int, length: int = 10, nstep: int = 2, size: int = 6) -> list[dict[str, Any]]:
    """Sequences of R2D2, without an end within them."""
    result = []
    for i in range(size):
        rows = values(step + 2 * i, nstep=nstep, size=length)
        keys = ("obs", "action", "reward", "value_gamma", "collect_iter")
        sample: dict[str, Any] = {key: [row[key] for row in rows] for key in keys}
        sample["done"] = [False] * length
        sample["prev_state"] = [
            {key: 0.3 * wave([1, 1, 64], step + i + t + phase) for key, phase in (("h", 0.0), ("c", 0.5))}
            for t in range(length)
        ]
        sample["IS"] = 0.5 + 0.04 * i
        result.append(sample)
    return result


BATCHES = {
    function.__name__: function
    for function in (values, demonstrations, advantages, returns, two_buffers, sequences, recurrent)
}


def make_batch(case: Case, step: int) -> Any:
    """Returns the batch of a learning step."""
    return BATCHES[case.batch](step, **case.sizes)


def set_config(config: Any, settings: dict[str, Any]) -> Any:
    """Set `settings` in the default config of a policy."""
    for path, value in settings.items():
        *parents, key = path.split(".")
        section = config
        for parent in parents:
            section = section.setdefault(parent, {})
        section[key] = torch.nn.Tanh() if value == "tanh" and key == "activation" else value
    return config


class FixedNoise(TorchFunctionMode):
    """Replaces random numbers by a formula of their count, so that neither their order nor their source matters."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = getattr(function, "__name__", ""), kwargs or {}
        if name in ("rand", "randn"):
            shape = args[0] if isinstance(args[0], Sequence) else args
            return _noise(shape, name == "randn")
        if name in ("rand_like", "randn_like"):
            return _noise(args[0].shape, name == "randn_like")
        if name in ("normal_", "uniform_"):
            low, high = (*args[1:], *kwargs.values()) or (0, 1)
            scaled = _noise(args[0].shape, name == "normal_") * (high if name == "normal_" else high - low) + low
            return args[0].copy_(scaled)
        return function(*args, **kwargs)


def _noise(shape: Any, is_normal: bool) -> Tensor:
    return 1.2 * wave(shape, 0.4) if is_normal else 0.5 + 0.45 * wave(shape, 0.4)


def learn(policy: Any, case: Case) -> list[dict[str, float]]:
    """Take the learning steps; returns the numbers that each step logs, and the sum of its priorities."""
    logs = []
    for step in range(STEPS):
        batch = make_batch(case, step)
        np.random.seed(step)  # the order of the samples of a batch, which decides about the last bits
        with FixedNoise():
            output = policy.learn_mode.forward(batch)
        numbers: dict[str, float] = {}
        for one in output if isinstance(output, list) else [output]:
            for name, value in one.items():
                if name == "priority" and value is not None:
                    numbers["sum of priority"] = float(torch.as_tensor(value).double().sum())
                elif isinstance(value, float | int) or (isinstance(value, Tensor) and value.numel() == 1):
                    numbers[name] = float(value.detach() if isinstance(value, Tensor) else value)
        logs.append(numbers)
    return logs


def fingerprint(before: dict[str, Tensor], after: dict[str, Tensor]) -> dict[str, list[float]]:
    """Returns for each changed tensor the sum of its absolute changes, and of the changes times a wave."""
    result = {}
    for name, old in before.items():
        change = (after[name] - old).double()
        if change.abs().sum() > 0:
            result[name] = [float(change.abs().sum()), float((change * wave(change.shape, 0.0)).sum())]
    return result
