"""The parallel collector with one policy in many envs."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import partial
from time import perf_counter, time
from typing import Any

from easydict import EasyDict

from ding.envs.env.base_env import get_vec_env_setting
from ding.envs.env_manager.base_env_manager import create_env_manager
from ding.policy.base_policy import create_policy
from ding.utils.config_helper import anything, boolean, check_config, instance_of, integer, number
from ding.utils.registry_factory import PARALLEL_COLLECTOR_REGISTRY
from ding.worker.collector.actor import env_actions
from ding.worker.collector.base_parallel_collector import BaseParallelCollector
from ding.worker.collector.policy_watch import PolicyWatch
from ding.worker.collector.rollout import Listener
from ding.worker.collector.sample_sender import SampleSender, check_compressor
from ding.worker.collector.task_episodes import TaskEpisodes
from ding.worker.collector.trajectory import INF, TrajectoryCutter


def _compressor_of_samples(value: Any) -> str | None:
    is_fit = isinstance(value, str) and value in ("lz4", "zlib", "none")
    return None if is_fit else "'lz4', 'zlib' or 'none'; 'jpeg' is for single images, not for whole samples"


_RULES = {
    "print_freq": integer(1),
    "compressor": _compressor_of_samples,
    "update_policy_second": number(0),
    "chunk_size": integer(1),
    "flush_interval_s": number(0),
    "first_policy_timeout_s": number(0),
    "eval_flag": boolean,
    "exp_name": instance_of(str),
    "seed": integer(0, optional=True),
    "collect_setting": instance_of(Mapping, optional=True),
    **dict.fromkeys(("collector_num", "env", "policy", "policy_update_path"), anything),
}


@PARALLEL_COLLECTOR_REGISTRY.register("zergling")
class ZerglingParallelCollector(BaseParallelCollector):
    """Collects samples with one policy in many envs, or evaluates it in them.

    Samples go out in chunks (see `SampleSender`), infos when episodes have ended; the info with `collector_done` is the
    last thing that is sent. New weights are taken up between two rounds; an evaluator keeps those it began with.

    What is asked in each round may be overridden: `_policy_inference` and `_env_step`, see `BaseParallelCollector`, and
    `_process_timestep`, which sends. Samples are made from what `_env_step` returns.

    Args:
        cfg: a collector task's `collector_cfg`: `env`, `policy`, `collect_setting` (keyword arguments of the policy's
            forward), `eval_flag`, `policy_update_path` and `exp_name` besides the defaults; `seed` for envs that are to
            be seeded.

    Raises:
        ConfigError: a value is not allowed, or missing.
        ImportError: the package of the compressor is not installed.

    Example:
        >>> import tempfile
        >>> from ding.policy.dqn import DQNPolicy
        >>> folder, policy = tempfile.TemporaryDirectory(), DQNPolicy.default_config()
        >>> policy.update(type="dqn", model={"obs_shape": 4, "action_shape": 2})
        >>> policy.collect.n_sample = 8
        >>> env = {"type": "gymnasium", "import_names": ["ding.envs.env.gymnasium_env"], "env_id": "CartPole-v1"}
        >>> env.update(collector_env_num=2, manager={"type": "base", "episode_num": 1})
        >>> cfg = EasyDict(env=env, policy=policy, collect_setting={"eps": 0.5}, eval_flag=False, exp_name=folder.name)
        >>> collector = ZerglingParallelCollector(EasyDict(cfg, policy_update_path="policy"))
        >>> collector.get_policy_update_info = lambda path: {**collector.policy.state_dict(), "iter": 0}
        >>> sizes, rows = [], []
        >>> collector.send_stepdata = lambda name, data: sizes.append(len(data))
        >>> collector.send_metadata = lambda metadata: rows.extend(metadata if isinstance(metadata, list) else [])
        >>> collector.start()
        >>> info = collector.get_finish_info()
        >>> info["real_episode_count"], info["step_count"] == len(rows)
        (2, True)
        >>> collector.close(), folder.cleanup()
        (None, None)
    """

    config: dict[str, Any] = {
        # Rounds between two lines about their times.
        "print_freq": 5,
        # What samples are compressed with: 'lz4', 'zlib' or 'none'.
        "compressor": "lz4",
        # Seconds between two looks for new weights.
        "update_policy_second": 3,
        # Samples are sent when there are so many, or when one has waited so many seconds.
        "chunk_size": 64,
        "flush_interval_s": 0.2,
        # Seconds to wait for the first weights.
        "first_policy_timeout_s": 120,
    }

    def __init__(self, cfg: EasyDict) -> None:
        cfg = EasyDict({**ZerglingParallelCollector.config, **self.config, **cfg})
        check_config(cfg, type(self).__name__, _RULES, required=("eval_flag", "exp_name", "env", "policy"))
        if not cfg.eval_flag:
            check_compressor(cfg.compressor)
        super().__init__(cfg)
        self._episodes = TaskEpisodes()
        self._sender: SampleSender | None = None
        self._policy_iter = 0
        self._start_s: float | None = None
        self._has_told_end = False
        self._watch = PolicyWatch(self._fetch_policy, cfg.update_policy_second)
        self._forward_kwargs = {} if cfg.eval_flag else dict(cfg.get("collect_setting") or {})
        try:
            self.env_manager = self._make_env_manager()
            self.policy = self._make_policy()
        except BaseException:
            self.close()
            raise

    def _make_env_manager(self) -> Any:
        cfg, is_eval = copy.deepcopy(self._cfg.env), self._eval_flag
        env_fn, collector_cfgs, evaluator_cfgs = get_vec_env_setting(cfg, collect=not is_eval, eval_=is_eval)
        cfgs: Any = evaluator_cfgs if is_eval else collector_cfgs
        manager = create_env_manager(cfg.manager, [partial(env_fn, cfg=c) for c in cfgs])
        seed = self._cfg.get("seed")
        if seed is not None:
            manager.seed(int(seed))
        return manager

    def _make_policy(self) -> Any:
        field = "eval" if self._eval_flag else "collect"
        return getattr(create_policy(self._cfg.policy, enable_field=[field]), f"{field}_mode")

    @property
    def policy(self) -> Any:
        """The mode of the policy that acts."""
        return self._policy

    @policy.setter
    def policy(self, _policy: Any) -> None:
        if not self._eval_flag:
            n_sample, n_episode = (_policy.get_attribute(name) for name in ("n_sample", "n_episode"))
            if n_sample is None and n_episode is None:
                raise AssertionError(
                    "the policy gives neither n_sample nor n_episode; set one of them in policy.collect"
                )
            self._traj_len = INF if n_episode is not None else n_sample
        self._policy = _policy

    @property
    def env_manager(self) -> Any:
        """The env manager; one that is set is launched, and the one before it closed."""
        return self._env_manager

    @env_manager.setter
    def env_manager(self, _env_manager: Any) -> None:
        replaced, self._env_manager = self._env_manager, _env_manager
        if replaced is not None:
            replaced.close()
        _env_manager.launch()
        self._env_num = _env_manager.env_num
        self._predefined_episode_count = self._env_num * _env_manager._episode_num

    def _fetch_policy(self) -> dict[str, Any] | None:
        return self.get_policy_update_info(self._cfg.policy_update_path)

    def _update_policy(self) -> None:
        """Wait for the first weights.

        Raises:
            TimeoutError: they have not come in time.
        """
        state = self._watch.first(self._cfg.first_policy_timeout_s)
        if state is not None:
            self._load(state)

    def _load(self, state: Mapping[str, Any]) -> None:
        state = dict(state)
        self._policy_iter = int(state.pop("iter"))
        self._policy.load_state_dict(state)
        self.debug(f"acts with the weights of iteration {self._policy_iter}")

    def _start_thread(self) -> None:
        if not self._eval_flag:
            self._watch.start()

    def _join_thread(self) -> None:
        self._watch.close()

    def _listeners(self) -> Sequence[Listener]:
        if self._eval_flag:
            return [self._episodes]
        self._sender = SampleSender(
            f"env_{self._collector_uid}",
            self.send_stepdata,
            self.send_metadata,
            self._cfg.compressor,
            self._cfg.chunk_size,
            self._cfg.flush_interval_s,
        )
        self._cutter = TrajectoryCutter(self._policy, self._env_num, self._traj_len, on_samples=self._sender.on_samples)
        self._cutter.collect_iter = self._policy_iter
        return [self._cutter, self._episodes]

    def _play(self) -> None:
        self._start_s = perf_counter()
        super()._play()
        if not (self._has_told_end or self._stopping.is_set()):  # there was nothing to play
            self._tell()

    def _policy_inference(self, obs: Any) -> Any:
        """The policy's actions; what else it returned goes into the samples."""
        self._policy_output = self._policy.forward(obs, **self._forward_kwargs)
        return env_actions(self._policy_output)

    def _env_step(self, actions: Any) -> Any:
        return self._env_manager.step(actions)

    def _process_timestep(self, timestep: Any) -> None:
        """Send what is due after a round."""
        sender = self._sender
        if sender is not None and (sender.is_due() or self._env_manager.done):
            samples, _ = self._cutter.take()
            sender.send(samples, {"get_data_time": time(), "policy_iter": self._policy_iter, **self._progress()})
        if self._episodes.take_news():
            self._tell()

    def _tell(self) -> None:
        self._has_told_end = bool(self._env_manager.done)
        info = {"get_info_time": time(), "collector_done": self._has_told_end, **self._progress()}
        self.send_metadata(info)

    def _progress(self) -> dict[str, Any]:
        return {
            "eval_flag": self._eval_flag,
            "cur_episode": self._episodes.count,
            "cur_sample": self._sent,
            "cur_step": self._episodes.steps,
        }

    @property
    def _sent(self) -> int:
        return 0 if self._sender is None else self._sender.sent

    def _iter_after_hook(self) -> None:
        super()._iter_after_hook()
        state = self._watch.take()
        if state is not None:
            self._load(state)
            self._cutter.collect_iter = self._policy_iter

    def _reset_policy(self, env_ids: Sequence[int] | None) -> None:
        self._policy.reset(env_ids)

    def get_finish_info(self) -> dict[str, Any]:
        """What was played, in numbers; zeros where nothing was."""
        duration = 0.0 if self._start_s is None else perf_counter() - self._start_s
        info = {
            "eval_flag": self._eval_flag,
            "env_num": self._env_num,
            "duration": duration,
            "train_iter": self._policy_iter,
            "collector_done": self._has_told_end,
            "predefined_episode_count": self._predefined_episode_count,
            **self._episodes.summary(duration, self._sent),
            "finish_time": time(),
        }
        if not self._eval_flag:
            info["collect_setting"] = self._cfg.get("collect_setting")
        self.info(f"finish info: {info}")
        return info

    def close(self) -> None:
        """End a running `start` after its present round, and close the envs. Bounded in time; idempotent."""
        if self._end_flag:
            return
        super().close()
        if self._env_manager is not None:
            self._env_manager.close()

    def __repr__(self) -> str:
        return f"ZerglingParallelCollector({self._collector_uid})"
