"""A small algorithm library on the package: it plans one step ahead with a learned model of the rewards.

It brings its own model, policy, buffer, collector, evaluator and entry, and reads config keys of its own; the rest,
such as the learner, the env managers and the merging of configs, it takes from the package.
"""

import copy
import os
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from easydict import EasyDict
from tensorboardX import SummaryWriter
from torch import nn

from ding.config import compile_config
from ding.envs import create_env_manager, get_vec_env_setting
from ding.model import FCEncoder, model_wrap
from ding.policy import Policy, create_policy
from ding.rl_utils import get_epsilon_greedy_fn
from ding.torch_utils import MLP, to_device, to_item, to_ndarray, to_tensor
from ding.utils import (
    BUFFER_REGISTRY,
    MODEL_REGISTRY,
    POLICY_REGISTRY,
    SERIAL_COLLECTOR_REGISTRY,
    EasyTimer,
    allreduce,
    build_logger,
    get_rank,
    get_world_size,
    import_module,
    set_pkg_seed,
)
from ding.worker import BaseLearner
from ding.worker.collector.base_serial_collector import ISerialCollector
from ding.worker.collector.base_serial_evaluator import ISerialEvaluator, VectorEvalMonitor

HERE = "tests.compat.search_library"


class Segment(NamedTuple):
    """Consecutive steps of one episode."""

    obs: list[np.ndarray]  # T arrays [D] float32
    action: list[int]
    reward: list[float]
    visits: list[np.ndarray]  # T arrays [N] float32


@MODEL_REGISTRY.register("reward_net")
class RewardNet(nn.Module):
    """Maps observations [B, D] to the rewards [B, N] and the log-probabilities [B, N] of all actions."""

    def __init__(self, observation_shape: int, action_space_size: int, hidden_size: int = 16) -> None:
        super().__init__()
        self.encoder = FCEncoder(observation_shape, [hidden_size, hidden_size], activation=nn.ReLU())
        self.reward = MLP(hidden_size, hidden_size, action_space_size, 2, activation=nn.ReLU())
        self.prior = nn.Linear(hidden_size, action_space_size)

    def forward(self, obs: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = self.encoder(obs)
        return {"reward": self.reward(hidden), "logit": self.prior(hidden).log_softmax(-1)}


@POLICY_REGISTRY.register("one_step_search")
class SearchPolicy(Policy):
    """Weighs the predicted reward of each legal action against its prior; learns from segments."""

    config = dict(
        type="one_step_search",
        model=dict(hidden_size=16),
        cuda=False,
        multi_gpu=False,
        on_policy=False,
        device="cpu",
        batch_size=8,
        update_per_collect=2,
        learning_rate=0.01,
        grad_clip_value=10,
        n_episode=2,
        eval_freq=4,
        segment_length=4,
        replay_buffer_size=200,
        temperature=dict(start=1.0, end=0.25, decay=100),
        random_collect_episode_num=0,
    )

    def default_model(self) -> tuple[str, list[str]]:
        return "reward_net", [HERE]

    def _init_learn(self) -> None:
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=self._cfg.learning_rate)
        self._target_model = model_wrap(
            copy.deepcopy(self._model), wrapper_name="target", update_type="assign", update_kwargs={"freq": 2}
        )
        self._learn_model = self._model

    def _forward_learn(self, data: tuple[dict[str, np.ndarray], np.ndarray]) -> dict[str, Any]:
        self._learn_model.train()
        self._target_model.train()
        batch, weight = data
        batch = to_device(to_tensor(batch), self._cfg.device)
        output = self._learn_model(batch["obs"])
        with torch.no_grad():
            target = self._target_model.forward(batch["obs"])["reward"].mean()
        predicted = output["reward"].gather(1, batch["action"].unsqueeze(1)).squeeze(1)
        errors = (predicted - batch["reward"]).pow(2)
        policy_loss = -(batch["visits"] * output["logit"]).sum(-1)
        loss = (torch.as_tensor(weight) * (errors + policy_loss)).mean()
        self._optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self._learn_model.parameters(), self._cfg.grad_clip_value)
        if self._cfg.multi_gpu:
            self.sync_gradients(self._learn_model)
        self._optimizer.step()
        self._target_model.update(self._learn_model.state_dict())
        info = {"cur_lr": self._optimizer.param_groups[0]["lr"], "weighted_total_loss": loss, "target_reward": target}
        return {**to_item(info), "grad_norm": norm.item(), "value_priority": errors.detach().numpy()}

    def _monitor_vars_learn(self) -> list[str]:
        return ["cur_lr", "weighted_total_loss", "target_reward", "grad_norm"]

    def _init_collect(self) -> None:
        self._collect_model = self._model
        self._temperature = 1.0

    def _forward_collect(self, data, action_mask=None, temperature=1.0, epsilon=0.0, ready_env_id=None):
        self._collect_model.eval()
        self._temperature = temperature
        return self._search(self._collect_model, data, action_mask, ready_env_id, temperature, epsilon)

    def _init_eval(self) -> None:
        self._eval_model = self._model

    def _forward_eval(self, data, action_mask=None, ready_env_id=None):
        self._eval_model.eval()
        return self._search(self._eval_model, data, action_mask, ready_env_id)

    @torch.no_grad()
    def _search(self, model, data, action_mask, ready_env_id, temperature=None, epsilon=0.0):
        output = model(data)
        result = {}
        for row, env_id in enumerate(ready_env_id):
            score = output["reward"][row] + output["logit"][row]
            score[torch.as_tensor(action_mask[row]) == 0] = -float("inf")
            visits = (score / (temperature or 1.0)).softmax(-1).numpy()
            if temperature is None:
                action = int(visits.argmax())
            elif np.random.rand() < epsilon:
                action = int(np.random.choice(np.nonzero(action_mask[row])[0]))
            else:
                action = int(np.random.choice(len(visits), p=visits / visits.sum()))
            result[env_id] = {"action": action, "visit_count_distributions": visits}
        return result

    def _process_transition(self, obs, policy_output, timestep):
        raise AssertionError("the collector of this library makes segments")

    def _get_train_sample(self, transitions):
        raise AssertionError("the collector of this library makes segments")

    def _state_dict_learn(self) -> dict[str, Any]:
        return {
            "model": self._learn_model.state_dict(),
            "target_model": self._target_model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
        }

    def _load_state_dict_learn(self, state_dict: dict[str, Any]) -> None:
        self._learn_model.load_state_dict(state_dict["model"])
        self._target_model.load_state_dict(state_dict["target_model"])
        self._optimizer.load_state_dict(state_dict["optimizer"])


@BUFFER_REGISTRY.register("segment")
class SegmentBuffer:
    """Keeps the newest steps, in segments, and draws steps by their priority."""

    config = dict(type="segment", alpha=1.0, cfg_type="SegmentBufferDict")

    @classmethod
    def default_config(cls) -> EasyDict:
        return EasyDict(copy.deepcopy(cls.config))

    def __init__(self, cfg: EasyDict) -> None:
        self._cfg = EasyDict({**self.default_config(), **cfg})
        self._steps: list[tuple[Any, ...]] = []
        self._priority: list[float] = []

    def push_segments(self, segments: list[Segment]) -> None:
        for segment in segments:
            self._steps.extend(zip(*segment, strict=True))
            self._priority.extend([1.0] * len(segment.reward))
        del self._steps[: -self._cfg.replay_buffer_size]
        del self._priority[: -self._cfg.replay_buffer_size]

    def sample(self, batch_size: int) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
        share = np.asarray(self._priority) ** self._cfg.alpha
        share = share / share.sum()
        index = np.random.choice(len(self._steps), batch_size, p=share)
        obs, action, reward, visits = zip(*(self._steps[i] for i in index), strict=True)
        batch = {
            "obs": np.stack(obs),
            "action": np.asarray(action),
            "reward": np.asarray(reward, np.float32),
            "visits": np.stack(visits),
        }
        return batch, (1 / (len(self._steps) * share[index])).astype(np.float32), index

    def update_priority(self, index: np.ndarray, priority: np.ndarray) -> None:
        for i, value in zip(index, priority, strict=True):
            self._priority[i] = float(value) + 1e-6

    def count(self) -> int:
        return len(self._steps)


@SERIAL_COLLECTOR_REGISTRY.register("episode_segment")
class SegmentCollector(ISerialCollector):
    """Plays whole episodes and cuts them into segments."""

    config = dict(type="episode_segment", collect_print_freq=2)

    def __init__(self, env, policy, tb_logger, exp_name="default_experiment", policy_config=None) -> None:
        self._timer = EasyTimer()
        self._policy_config = policy_config
        self._rank, self._world_size = get_rank(), get_world_size()
        path = f"./{exp_name}/log/collector"
        self._logger, _ = build_logger(path=path, name="collector", need_tb=False)
        self._tb_logger = tb_logger
        self._end = False
        self.reset(policy, env)

    def reset_env(self, _env=None) -> None:
        if _env is not None:
            self._env = _env
            self._env.launch()
            self._env_num = self._env.env_num
        else:
            self._env.reset()

    def reset_policy(self, _policy=None) -> None:
        if _policy is not None:
            self._policy = _policy
            self._cfg = self._policy.get_attribute("cfg")
            self._default_n_episode = self._cfg.get("n_episode", None)
        self._policy.reset()

    def reset(self, _policy=None, _env=None) -> None:
        self.reset_env(_env)
        self.reset_policy(_policy)
        self._total_envstep = self._total_episode = 0

    @property
    def envstep(self) -> int:
        return self._total_envstep

    def close(self) -> None:
        if self._end:
            return
        self._end = True
        self._env.close()
        self._tb_logger.flush()
        self._tb_logger.close()

    def __del__(self) -> None:
        self.close()

    def collect(self, n_episode=None, train_iter=0, policy_kwargs=None) -> list[Segment]:
        n_episode = n_episode or self._default_n_episode
        assert n_episode >= self._env_num
        steps: dict[int, list[tuple[Any, ...]]] = {env_id: [] for env_id in range(self._env_num)}
        segments: list[Segment] = []
        episodes = 0
        while episodes < n_episode:
            with self._timer:
                obs = self._env.ready_obs
                env_ids = list(obs)
                stacked = to_tensor(np.stack([obs[i]["observation"] for i in env_ids]))
                mask = [obs[i]["action_mask"] for i in env_ids]
                output = self._policy.forward(stacked, mask, ready_env_id=env_ids, **(policy_kwargs or {}))
                timesteps = self._env.step({env_id: output[env_id]["action"] for env_id in env_ids})
            for env_id, timestep in timesteps.items():
                self._total_envstep += 1
                out = output[env_id]
                step = (obs[env_id]["observation"], out["action"], timestep.reward, out["visit_count_distributions"])
                steps[env_id].append(step)
                if timestep.done:
                    segments += self._cut(steps.pop(env_id))
                    steps[env_id] = []
                    self._policy.reset([env_id])
                    episodes += 1
        self._total_episode += episodes
        if self._world_size > 1:
            allreduce(torch.as_tensor(self._total_envstep))
        self._tb_logger.add_scalar("collector_iter/episode_count", self._total_episode, train_iter)
        return segments

    def _cut(self, steps: list[tuple[Any, ...]]) -> list[Segment]:
        length = self._policy_config.segment_length
        pieces = [steps[start : start + length] for start in range(0, len(steps), length)]
        return [Segment(*map(list, zip(*piece, strict=True))) for piece in pieces]


class SearchEvaluator(ISerialEvaluator):
    """Plays greedily, and saves the best checkpoint."""

    config = dict(eval_freq=4)

    def __init__(self, eval_freq, n_evaluator_episode, stop_value, env, policy, tb_logger, exp_name) -> None:
        self._eval_freq, self._default_n_episode, self._stop_value = eval_freq, n_evaluator_episode, stop_value
        self._logger, _ = build_logger(path=f"./{exp_name}/log/evaluator", name="evaluator", need_tb=False)
        self._tb_logger = tb_logger
        self.reset(policy, env)

    def reset_env(self, _env=None) -> None:
        if _env is not None:
            self._env = _env
            self._env.launch()
        else:
            self._env.reset()

    def reset_policy(self, _policy=None) -> None:
        self._policy = _policy or self._policy
        self._policy.reset()

    def reset(self, _policy=None, _env=None) -> None:
        self.reset_env(_env)
        self.reset_policy(_policy)
        self._max_episode_return, self._last_eval_iter = float("-inf"), -1

    def close(self) -> None:
        self._env.close()

    def should_eval(self, train_iter: int) -> bool:
        if train_iter == self._last_eval_iter or (train_iter - self._last_eval_iter) < self._eval_freq:
            return False
        self._last_eval_iter = train_iter
        return True

    def eval(self, save_ckpt_fn=None, train_iter=-1, envstep=-1, n_episode=None):
        monitor = VectorEvalMonitor(self._env.env_num, n_episode or self._default_n_episode)
        self._env.reset()
        self._policy.reset()
        while not monitor.is_finished():
            obs = to_ndarray(self._env.ready_obs)
            env_ids = list(obs)
            stacked = to_tensor(np.stack([obs[i]["observation"] for i in env_ids]))
            mask = [obs[i]["action_mask"] for i in env_ids]
            output = self._policy.forward(stacked, mask, ready_env_id=env_ids)
            for env_id, timestep in self._env.step({i: output[i]["action"] for i in env_ids}).items():
                if timestep.done:
                    self._policy.reset([env_id])
                    monitor.update_info(env_id, {"length": timestep.info["length"]})
                    monitor.update_reward(env_id, timestep.info["eval_episode_return"])
        mean = float(np.mean(monitor.get_episode_return()))
        self._logger.info(self._logger.get_tabulate_vars_hor({"train_iter": train_iter, "reward_mean": mean}))
        self._tb_logger.add_scalar("evaluator_step/reward_mean", mean, envstep)
        if mean > self._max_episode_return:
            self._max_episode_return = mean
            if save_ckpt_fn:
                save_ckpt_fn("ckpt_best.pth.tar")
        return mean >= self._stop_value and train_iter > 0, {"reward_mean": mean}


def train_search(input_cfg, seed=0, model=None, model_path=None, max_train_iter=int(1e10), max_env_step=int(1e10)):
    """Train a search policy; returns it with its learner, collector and buffer."""
    cfg, create_cfg = input_cfg
    import_module(create_cfg.policy.import_names)
    cfg = compile_config(cfg, seed=seed, env=None, auto=True, create_cfg=create_cfg, save_cfg=True)
    env_fn, collector_env_cfg, evaluator_env_cfg = get_vec_env_setting(cfg.env)
    collector_env = create_env_manager(cfg.env.manager, [partial(env_fn, cfg=c) for c in collector_env_cfg])
    evaluator_env = create_env_manager(cfg.env.manager, [partial(env_fn, cfg=c) for c in evaluator_env_cfg])
    collector_env.seed(cfg.seed)
    evaluator_env.seed(cfg.seed, dynamic_seed=False)
    set_pkg_seed(cfg.seed, use_cuda=cfg.policy.cuda)
    cfg.policy.learn.learner.hook.save_ckpt_after_iter = cfg.policy.eval_freq

    policy = create_policy(cfg.policy, model=model, enable_field=["learn", "collect", "eval"])
    if model_path is not None:
        policy.learn_mode.load_state_dict(torch.load(model_path, map_location=cfg.policy.device))
    tb_logger = SummaryWriter(os.path.join(f"./{cfg.exp_name}/log/", "serial")) if get_rank() == 0 else None
    learner = BaseLearner(cfg.policy.learn.learner, policy.learn_mode, tb_logger, exp_name=cfg.exp_name)
    buffer = SegmentBuffer(cfg.policy)
    collector = SegmentCollector(collector_env, policy.collect_mode, tb_logger, cfg.exp_name, cfg.policy)
    evaluator = SearchEvaluator(
        cfg.policy.eval_freq,
        cfg.env.n_evaluator_episode,
        cfg.env.stop_value,
        evaluator_env,
        policy.eval_mode,
        tb_logger,
        cfg.exp_name,
    )
    schedule = cfg.policy.temperature
    temperature = get_epsilon_greedy_fn(schedule.start, schedule.end, schedule.decay, type_="linear")
    learner.call_hook("before_run")
    while learner.train_iter < max_train_iter and collector.envstep < max_env_step:
        if evaluator.should_eval(learner.train_iter):
            stop, _ = evaluator.eval(learner.save_checkpoint, learner.train_iter, collector.envstep)
            if stop:
                break
        kwargs = {"temperature": temperature(collector.envstep), "epsilon": 0.1}
        buffer.push_segments(collector.collect(train_iter=learner.train_iter, policy_kwargs=kwargs))
        for _ in range(cfg.policy.update_per_collect):
            batch, weight, index = buffer.sample(cfg.policy.batch_size)
            log_vars = learner.train((batch, weight), collector.envstep)
            buffer.update_priority(index, log_vars[0]["value_priority"])
    learner.call_hook("after_run")
    evaluator.close()
    return policy, learner, collector, buffer
