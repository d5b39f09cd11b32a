"""Deterministic envs, env managers and policies for the worker tests: what comes out can be told in advance."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from easydict import EasyDict

from ding.envs.env_manager.block import BlockStep, DictBlocks
from ding.utils.batch_methods import adapts_batch


class Timestep(NamedTuple):
    obs: Any
    reward: Any
    done: Any
    info: Any


class CountingEnv:
    """Observations are [env id, episode, step]; an episode of env i has `lengths[i]` steps of reward 1.

    Args:
        reuse: write every observation and reward into the same arrays, as envs with own buffers do.
        mark: `(env_id, episode, step) -> dict`, merged into the info of that step.
    """

    def __init__(
        self,
        env_id: int,
        length: int,
        reuse: bool = False,
        mark: Callable[[int, int, int], dict[str, Any]] | None = None,
    ) -> None:
        self.env_id, self.length, self.reuse, self.mark = env_id, length, reuse, mark
        self.episode, self.count = -1, 0
        self.actions: list[Any] = []
        self.obs, self.reward = np.zeros(3, np.float32), np.zeros(1, np.float32)

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        if not self.reuse:
            self.obs, self.reward = np.zeros(3, np.float32), np.zeros(1, np.float32)
        self.obs[:] = self.env_id, self.episode, self.count
        self.reward[:] = 1.0
        return self.obs, self.reward

    def reset(self) -> np.ndarray:
        self.episode, self.count = self.episode + 1, 0
        return self.arrays()[0]

    def step(self, action: Any) -> Timestep:
        self.actions.append(action)
        self.count += 1
        obs, reward = self.arrays()
        done = self.count >= self.length
        info: dict[str, Any] = {"eval_episode_return": float(self.count)} if done else {}
        if self.mark is not None:
            info.update(self.mark(self.env_id, self.episode, self.count))
        return Timestep(obs, reward, done, info)


class FakeManager:
    """An env manager over `CountingEnv`s: resets an env after its episode, and tells what was asked of it.

    Args:
        lengths: length of the episodes of each env.
        episode_num: episodes an env may play.
        after_step: called with the timesteps of a round before they are returned.
    """

    def __init__(
        self,
        lengths: list[int],
        episode_num: float = float("inf"),
        after_step: Callable[[dict[int, Timestep]], dict[int, Timestep]] | None = None,
        **env_kwargs: Any,
    ) -> None:
        self.envs = [CountingEnv(i, length, **env_kwargs) for i, length in enumerate(lengths)]
        self.env_num = len(lengths)
        self.closed = True
        self.calls: list[Any] = []
        self._episode_num = episode_num
        self.after_step = after_step
        self.obs: dict[int, Any] = {}
        self.played = dict.fromkeys(range(self.env_num), 0)

    @property
    def ready_obs(self) -> dict[int, Any]:
        return dict(self.obs)

    @property
    def ready_imgs(self) -> dict[int, Any]:
        return {i: np.full((2, 4, 3), env.count, np.uint8) for i, env in enumerate(self.envs) if i in self.obs}

    @property
    def done(self) -> bool:
        return not self.obs

    def launch(self) -> None:
        assert self.closed, "launched twice"
        self.closed = False
        self.calls.append("launch")
        self.obs = {i: env.reset() for i, env in enumerate(self.envs)}

    def reset(self, reset_param: dict[int, Any] | None = None) -> None:
        self.calls.append(("reset", reset_param))
        for i in range(self.env_num) if reset_param is None else reset_param:
            self.obs[i] = self.envs[i].reset()

    def step(self, actions: dict[int, Any]) -> dict[int, Timestep]:
        timesteps = {i: self.envs[i].step(action) for i, action in actions.items()}
        for i, timestep in timesteps.items():
            if timestep.done:  # the env's next reset may write into the arrays of its last step
                timesteps[i] = timestep._replace(obs=timestep.obs.copy(), reward=timestep.reward.copy())
        copies = timesteps
        if self.after_step is not None:
            copies = self.after_step(timesteps)
        for i, timestep in timesteps.items():
            if not timestep.done:
                self.obs[i] = timestep.obs
                continue
            self.played[i] += 1
            if self.played[i] < self._episode_num:
                self.obs[i] = self.envs[i].reset()
            else:
                self.obs.pop(i, None)
        return copies

    def enable_save_figure(self, env_id: int, path: str) -> None:
        self.calls.append(("figure", env_id, path))

    def close(self) -> None:
        self.calls.append("close")
        self.closed = True


class CountedManager(DictBlocks, FakeManager):
    """Tells which episode each env is in, as the managers of this package do."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.resets = [0] * self.env_num
        self.touched = np.zeros(self.env_num, np.int64)

    @property
    def episodes(self) -> np.ndarray:
        return np.array([self.played[i] + self.resets[i] for i in range(self.env_num)], np.int64)

    def reset(self, reset_param: dict[int, Any] | None = None) -> None:
        self.check_free()
        for i in range(self.env_num) if reset_param is None else reset_param:
            self.resets[i] += 1
        super().reset(reset_param)

    def step(self, actions: dict[int, Any]) -> dict[int, Timestep]:
        self.check_free()
        self.touched[list(actions)] += 1
        return super().step(actions)

    def act(self, actions: Any, env_ids: list[int]) -> BlockStep:
        return self.block_of(super().step(dict(zip(env_ids, actions, strict=True))), env_ids)


def _rows_of(batch: Any, count: int) -> list[Any]:
    if isinstance(batch, dict):
        columns = {key: _rows_of(value, count) for key, value in batch.items()}
        return [{key: column[i] for key, column in columns.items()} for i in range(count)]
    return [batch[i] for i in range(count)]


class ScriptedPolicy:
    """A collect and eval mode whose k-th forward gives every env the action k, and that logs what is asked of it.

    Args:
        n_sample: default number of samples.
        batched: `forward` adapts `act`, as that of the library's own policies does.
        sample: `get_train_sample`.
        attributes: further attributes of the config.
    """

    def __init__(
        self,
        n_sample: int | None = 8,
        on_policy: bool = False,
        unroll_len: int = 1,
        batched: bool = True,
        sample: Callable[[list[dict]], Any] | None = None,
        **cfg: Any,
    ) -> None:
        self.attributes = {
            "cfg": EasyDict({"type": "scripted_command", "traj_len_inf": False, **cfg}),
            "n_sample": n_sample,
            "n_episode": None,
            "unroll_len": unroll_len,
            "on_policy": on_policy,
        }
        if not batched:
            self.forward = partial(self.forward)
        self.sample = sample
        self.seen: list[dict[int, Any]] = []
        self.kwargs: list[dict[str, Any]] = []
        self.resets: list[Any] = []
        self.fragments: list[list[dict]] = []

    @adapts_batch("act")
    def forward(self, obs: dict[int, Any], **kwargs: Any) -> dict[int, Any]:
        actions = self._actions(obs, kwargs)
        return {env_id: {"action": action} for env_id, action in zip(obs, actions.split(1), strict=True)}

    def act(self, obs: Any, env_ids: list[int], **kwargs: Any) -> dict[str, Any]:
        return {"action": self._actions(dict(zip(env_ids, _rows_of(obs, len(env_ids)), strict=True)), kwargs)}

    def _actions(self, obs: dict[int, Any], kwargs: dict[str, Any]) -> torch.Tensor:
        self.kwargs.append(kwargs)
        self.seen.append({env_id: np.array(o.tolist()) if hasattr(o, "tolist") else o for env_id, o in obs.items()})
        return torch.full((len(obs),), len(self.seen))

    def process_transition(self, obs: Any, output: Any, timestep: Any) -> dict[str, Any]:
        return {
            "obs": obs,
            "next_obs": timestep.obs,
            "action": output["action"],
            "reward": timestep.reward,
            "done": timestep.done,
        }

    def get_train_sample(self, transitions: list[dict]) -> Any:
        self.fragments.append(list(transitions))
        return self.sample(transitions) if self.sample is not None else transitions

    def reset(self, env_ids: Any = None) -> None:
        self.resets.append(env_ids)

    def get_attribute(self, name: str) -> Any:
        return self.attributes[name]


class FakeWriter:
    """A TensorBoard writer that remembers."""

    def __init__(self) -> None:
        self.scalars: list[tuple[str, float, int]] = []
        self.videos: list[tuple[str, tuple[int, ...], int, int]] = []
        self.flushed = 0
        self.closed = 0

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self.scalars.append((tag, value, step))

    def add_video(self, tag: str, video: np.ndarray, step: int, fps: int) -> None:
        self.videos.append((tag, video.shape, step, fps))

    def flush(self) -> None:
        self.flushed += 1

    def close(self) -> None:
        self.closed += 1
