"""An expert for a serial run; the policy in training also learns from its samples."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from easydict import EasyDict

from ding.config.config import compile_config
from ding.entry.application_entry import load_state
from ding.entry.model_shapes import complete_model
from ding.entry.pipeline import read_pair, with_command_mode
from ding.entry.run_state import gather_states, restore_states
from ding.entry.serial_entry import ReplayRounds
from ding.entry.workers import SerialRun, build_collector_env, check_fits_env, closing, rank_seed
from ding.policy.base_policy import create_policy
from ding.utils.data.samples import Column, Kind, map_node, replaced, table_of, with_columns
from ding.utils.default_helper import derive_seed
from ding.utils.object_state import generator_state, set_generator_state
from ding.utils.pytorch_ddp_dist_helper import get_rank
from ding.worker.collector.sample_serial_collector import SampleSerialCollector
from ding.worker.replay_buffer.base_buffer import create_buffer

Label = Callable[[list[Any]], list[Any]]


class Expert:
    """An expert, which collects with the policy of another config into a buffer of its own.

    The expert acts, without epsilon-greedy exploration; the policy in training makes the samples, so that they have the
    same keys as its own. The expert's weights are read from the checkpoint `policy.collect.model_path` of its config
    or, if that is missing, of the config in training; a trained `model` needs no checkpoint.

    Args:
        input_cfg: the path of the expert's config file, or its pair of configs, which is not modified.
        env_setting: `[env_fn, collector env configs, ...]` instead of the env of its config.
        label: a function that is applied to its samples.
        whole_episodes: whether to make samples only at the end of an episode, so that n-step samples are complete.
        seed: the seed of `rng`.
        strict_config: whether keys that nothing reads raise an error instead of logging a warning.

    Attributes:
        rng: the random generator for draws from both buffers.
    """

    env: Any
    collector: Any
    buffer: Any
    _policy: Any

    def __init__(
        self,
        input_cfg: Any,
        env_setting: Sequence[Any] | None,
        model: torch.nn.Module | None,
        label: Label,
        whole_episodes: bool = False,
        seed: int = 0,
        strict_config: bool = False,
    ) -> None:
        self._pair = read_pair(input_cfg, env_setting)
        self._env_setting = env_setting
        self._model = model
        self._label = label
        self._whole_episodes = whole_episodes
        self._strict_config = strict_config
        self.rng = np.random.default_rng(seed)

    def build(self, stack: ExitStack, run: SerialRun, buffer_size: int | None = None) -> None:
        """Build the workers, which `stack` closes, and add the expert to the state of the run.

        Args:
            buffer_size: the capacity of the buffer; None for the capacity in the config in training.

        Raises:
            ConfigError: the expert has no weights, or does not fit the env.
            FileNotFoundError: the checkpoint does not exist.
        """
        main, create = self._pair
        complete_model(main, create, self._env_setting, self._model)
        env_fn = None if self._env_setting is None else self._env_setting[0]
        seed = derive_seed(rank_seed(run.cfg.seed, get_rank()), 4)
        compiled = compile_config(
            main,
            seed=run.cfg.seed,
            env=env_fn,
            auto=True,
            create_cfg=with_command_mode(create),
            save_cfg=False,
            strict_config=self._strict_config,
        )
        env = self.env = build_collector_env(stack, compiled, self._env_setting, seed)
        run.states.enable(env)
        policy: Any = create_policy(compiled.policy, model=self._model, enable_field=["collect", "command"])
        self._policy = policy
        path = compiled.policy.collect.get("model_path") or run.cfg.policy.collect.get("model_path")
        load_state(policy.collect_mode, None, path, self._model)
        settings = policy.command_mode.get_setting_collect({"envstep": 0, "learner_step": 0, "learner_train_iter": 0})
        self._settings = {**settings, "eps": 0.0} if "eps" in settings else settings
        names = {"exp_name": run.cfg.exp_name, "instance_name": "expert_collector"}
        mode, logger = self._mode(run, policy), run.writer
        self.collector = closing(
            stack, SampleSerialCollector(SampleSerialCollector.default_config(), env, mode, logger, **names)
        )
        check_fits_env(policy, env, self._model)
        section = copy.deepcopy(run.cfg.policy.other.replay_buffer)
        if buffer_size is not None:
            section.replay_buffer_size = buffer_size
        self.buffer = closing(
            stack, create_buffer(section, tb_logger=logger, exp_name=run.cfg.exp_name, instance_name="expert_buffer")
        )
        run.further_parts["expert"] = self

    def _parts(self) -> dict[str, Any]:
        return {"policy": self._policy, "env": self.env, "collector": self.collector, "buffer": self.buffer}

    def state_dict(self) -> dict[str, Any]:
        """Return the states of `rng` and of all workers, which may share memory with them."""
        states, reasons = gather_states(self._parts())
        return {"parts": states, "reasons": reasons, "rng": generator_state(self.rng)}

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        """Restore a state, and return the reasons why that is not exact, if any."""
        set_generator_state(self.rng, state["rng"])
        return [*state["reasons"], *restore_states(self._parts(), state["parts"])]

    def _mode(self, run: SerialRun, policy: Any) -> Any:
        """Return a collect mode in which the expert acts and the policy in training makes the samples."""
        student, expert = run.policy.collect_mode, policy.collect_mode
        cfg: EasyDict = copy.deepcopy(run.cfg.policy)
        cfg.traj_len_inf = cfg.collect.traj_len_inf = self._whole_episodes

        def get_attribute(name: str) -> Any:
            return cfg if name == "cfg" else student.get_attribute(name)

        return student._replace(forward=expert.forward, reset=expert.reset, get_attribute=get_attribute)

    def collect(self, run: SerialRun, n_sample: int | None = None) -> None:
        """Push `n_sample` samples to the buffer, by default as many as the policy in training collects per round."""
        samples = self.collector.collect(n_sample, run.learner.train_iter, policy_kwargs=self._settings)
        self.buffer.push(self._label(samples), cur_collector_envstep=run.envstep)


class ExpertRounds(ReplayRounds):
    """Rounds that also draw samples of an expert."""

    def __init__(self, expert: Expert) -> None:
        super().__init__(dynamic_seed=None)
        self.expert = expert

    def expert_share(self, batch_size: int) -> int:
        """Return the number of the expert's samples in the next batch."""
        raise NotImplementedError

    def shares(self, batch_size: int) -> Sequence[tuple[Any, int]]:
        expert_size = self.expert_share(batch_size)
        shares = (self.run.buffer, batch_size - expert_size), (self.expert.buffer, expert_size)
        return [(buffer, size) for buffer, size in shares if size > 0]


def mark(samples: list[Any], key: str, value: int) -> Any:
    """Set `key` of all samples to the number `value`, in place, and return `samples`."""
    return with_columns(samples, **{key: Column(Kind.INT, np.full(len(samples), value, np.int64))})


def with_reward(samples: list[Any], value: float) -> Any:
    """Set the reward of all samples to `value`, in place and with the same shape, and return `samples`."""
    table = table_of(samples)
    if table is not None:
        rewards = map_node(lambda column: _filled(column, value), table.columns["reward"])
        return replaced(samples, table.with_columns(reward=rewards))
    for sample in samples:
        reward = sample["reward"]
        sample["reward"] = torch.full_like(reward, value) if isinstance(reward, torch.Tensor) else reward * 0 + value
    return samples


def _filled(column: Column, value: float) -> Column:
    return Column(column.kind, np.full_like(column.values(), value), None, column.steps)
