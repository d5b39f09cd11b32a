"""The interface and the base of serial evaluators, their factory, and the bookkeeping of evaluation episodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from numbers import Number
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from easydict import EasyDict

from ding.utils.config_helper import NO_DEFAULT, Configurable, Setting, Settings, check_section, integer, number
from ding.utils.data.nested import plain
from ding.utils.import_helper import import_module
from ding.utils.pytorch_ddp_dist_helper import broadcast_object_list
from ding.utils.registry_factory import SERIAL_EVALUATOR_REGISTRY
from ding.utils.time_helper import EasyTimer
from ding.worker.collector.base_serial_collector import SerialWorker

Result = TypeVar("Result")
SaveCheckpoint = Callable[[str], Any]

# They are not measured by an evaluation.
_NOT_IN_TENSORBOARD = ("train_iter", "each_reward")


class ISerialEvaluator(Configurable, ABC):
    """The interface of evaluators, which measure in this process how good a policy is.

    Attributes:
        last_eval: the `EvalRecord` of the newest evaluation; None before the first, or if the evaluator keeps none.
    """

    last_eval: Any = None

    def note_best(self, mean_return: float) -> None:  # noqa: B027 overriding it is optional
        """Save a best checkpoint only for a mean return above this one; the default does nothing."""

    @abstractmethod
    def reset_env(self, _env: Any = None) -> None:
        """Take over a new env manager; with None reset the present one."""
        raise NotImplementedError

    @abstractmethod
    def reset_policy(self, _policy: Any = None) -> None:
        """Take over a new policy (the eval mode); with None reset the present one."""
        raise NotImplementedError

    @abstractmethod
    def reset(self, _policy: Any = None, _env: Any = None) -> None:
        """Reset env and policy, or take over new ones, and forget the best result so far."""
        raise NotImplementedError

    @abstractmethod
    def close(self) -> None:
        """Close the envs and the logs."""
        raise NotImplementedError

    @abstractmethod
    def should_eval(self, train_iter: int) -> bool:
        """Return whether an evaluation is due at this iteration; if so, note the iteration as evaluated."""
        raise NotImplementedError

    @abstractmethod
    def eval(
        self,
        save_ckpt_fn: Callable[[str], Any] | None = None,
        train_iter: int = -1,
        envstep: int = -1,
        n_episode: int | None = None,
    ) -> Any:
        """Evaluate, save a new best checkpoint, and return whether training may stop."""
        raise NotImplementedError


def create_serial_evaluator(cfg: EasyDict, **kwargs: Any) -> ISerialEvaluator:
    """Import the modules in `cfg.import_names`, then build the evaluator registered as `cfg.type`.

    A missing `type` is written into `cfg` as `interaction`.

    Raises:
        KeyError: nothing is registered under that type.
    """
    import_module(cfg.get("import_names", []))
    if "type" not in cfg:
        cfg.type = "interaction"
    evaluator: ISerialEvaluator = SERIAL_EVALUATOR_REGISTRY.build(cfg.type, cfg=cfg, **kwargs)
    return evaluator


class SerialEvaluator(SerialWorker, ISerialEvaluator):
    """Base of the serial evaluators; a subclass measures, and decides which results are better and which good enough.

    Args:
        cfg: config, see `default_config`.
        env: the envs, or the data, of the evaluation.
        policy: the eval mode of a policy (for battles a list of them).
        tb_logger: a TensorBoard writer shared with others; without one, one is made.
        exp_name: the experiment's folder, for the logs.
        instance_name: name in the logs and tags.
    """

    settings = Settings(
        {
            "eval_freq": Setting(50, number(-1), "Number of iterations between two evaluations."),
            "patience": Setting(
                NO_DEFAULT,
                integer(1, optional=True),
                "Number of evaluations in a row without a better mean return that end the run; None for no limit.",
            ),
        }
    )
    _saved: ClassVar[tuple[str, ...]] = ("_last_eval_iter",)  # and the best result so far; without envs and policy
    _last_eval_iter: int
    _stop_value: Any

    def __init__(
        self,
        cfg: EasyDict,
        env: Any = None,
        policy: Any = None,
        tb_logger: Any = None,
        exp_name: str = "default_experiment",
        instance_name: str = "evaluator",
    ) -> None:
        check_section(cfg, type(self))
        self._is_live = False
        self._open(cfg, tb_logger, exp_name, instance_name)
        self._timer = EasyTimer(cuda=False)
        self._read_settings({**self.settings.config(), **cfg})
        self.reset(policy, env)
        self._is_live = True

    def _read_settings(self, cfg: Mapping[str, Any]) -> None:
        """Take the settings from a config that has at least the defaults."""
        self._eval_freq = cfg["eval_freq"]

    @property
    def env(self) -> Any:
        """The env manager."""
        return self._env

    @property
    def policy(self) -> Any:
        """The evaluated policy; setting it is `reset_policy`."""
        return self._policy

    @policy.setter
    def policy(self, _policy: Any) -> None:
        self.reset_policy(_policy)

    def reset_policy(self, _policy: Any = None) -> None:
        """Take over `_policy` and reset it; with None only reset the present one."""
        if _policy is not None:
            self._policy = self._checked_policy(_policy)
        self._reset_policies()

    def reset(self, _policy: Any = None, _env: Any = None) -> None:
        """Use the given policy and env, reset those that are not given, and forget the best and the last result."""
        if _env is not None or self._is_live:
            self.reset_env(_env)
        if _policy is not None or (self._is_live and self._policy is not None):
            self.reset_policy(_policy)
        self._last_eval_iter = -1
        self._end_flag = False

    def should_eval(self, train_iter: int) -> bool:
        """Return whether an evaluation is due: at iteration 0, then `eval_freq` iterations after the last."""
        if train_iter == self._last_eval_iter:
            return False
        if train_iter - self._last_eval_iter < self._eval_freq and train_iter != 0:
            return False
        self._last_eval_iter = train_iter
        return True

    def _from_rank_0(self, evaluate: Callable[[], tuple[bool, Result]]) -> tuple[bool, Result]:
        """Call `evaluate` on rank 0 alone, and return its result on all ranks, which must call this together."""
        shared: list[Any] = [None, None]
        if self._rank == 0:
            shared = list(evaluate())
        if self._world_size > 1:
            broadcast_object_list(shared, src=0)
        stop, result = shared
        return stop, result

    def _report(self, values: Mapping[str, Any], train_iter: int, envstep: int) -> None:
        """Write the single values of an evaluation as a text table and, if they are numbers, to TensorBoard."""
        values = {"train_iter": train_iter, "ckpt_name": f"iteration_{train_iter}.pth.tar", **values}
        found = plain(values)
        single = {key: value for key, value in found.items() if isinstance(value, str | int | float)}
        self._logger.info(self._logger.get_tabulate_vars_hor(single))
        numbers = {key: value for key, value in single.items() if not isinstance(value, str)}
        shown = {key: value for key, value in numbers.items() if key not in _NOT_IN_TENSORBOARD}
        assert self._log is not None
        self._log.scalars(shown, train_iter=train_iter, envstep=envstep)

    def _conclude(
        self, result: Any, is_best: bool, is_enough: bool, save_ckpt_fn: SaveCheckpoint | None, train_iter: int
    ) -> bool:
        """Save a new best checkpoint; return whether training may stop, which it may not before the first iteration."""
        if is_best and save_ckpt_fn is not None:
            save_ckpt_fn("ckpt_best.pth.tar")
        stop = is_enough and train_iter > 0
        if stop:
            assert self._log is not None
            self._logger.info(
                "the evaluation result %s has reached stop_value %s: training may stop; the evaluations are in %s/",
                result,
                self._stop_value,
                self._log.path,
            )
        return stop


class VectorEvalMonitor:
    """The bookkeeping of evaluation episodes: each env has a fixed share, so that short episodes do not weigh more.

    Env i has a quota of `n_episode // env_num` episodes, the first `n_episode % env_num` envs one more. The first
    episodes of each env count; what it plays beyond its quota is ignored.

    Args:
        env_num: number of envs.
        n_episode: number of episodes over all of them.

    Raises:
        AssertionError: fewer episodes than envs.

    Example:
        >>> monitor = VectorEvalMonitor(env_num=2, n_episode=3)
        >>> for env_id, reward in [(0, 1.0), (1, 2.0), (1, 9.0), (0, 3.0)]:
        ...     monitor.update_reward(env_id, reward)
        >>> monitor.is_finished(), monitor.get_episode_return()
        (True, [1.0, 3.0, 2.0])
    """

    def __init__(self, env_num: int, n_episode: int) -> None:
        if n_episode < env_num:
            raise AssertionError(
                f"n_episode = {n_episode} is below the number of envs, {env_num}: each env plays at least one episode; "
                "raise env.n_evaluator_episode or lower env.evaluator_env_num"
            )
        self._env_num = env_num
        self._n_episode = n_episode
        each, extra = divmod(int(n_episode), env_num)  # a deque takes no number of numpy
        self._quota = {env_id: each + (env_id < extra) for env_id in range(env_num)}
        self._reward: dict[int, deque[Any]] = {env_id: deque(maxlen=n) for env_id, n in self._quota.items()}
        self._info: dict[int, deque[Any]] = {env_id: deque(maxlen=n) for env_id, n in self._quota.items()}
        self._video: dict[int, deque[list[Any]]] = {
            env_id: deque([[] for _ in range(n)], maxlen=n) for env_id, n in self._quota.items()
        }

    def is_full(self, env_id: int) -> bool:
        """Return whether this env has played its share."""
        return len(self._reward[env_id]) >= self._quota[env_id]

    def is_finished(self) -> bool:
        """Return whether every env has played its share."""
        return all(self.is_full(env_id) for env_id in self._reward)

    def update_info(self, env_id: int, info: Any) -> None:
        """Note the info of an episode, as plain Python values; it is ignored beyond the quota."""
        if len(self._info[env_id]) < self._quota[env_id]:
            self._info[env_id].append(plain(info))

    def update_reward(self, env_id: int, reward: Any) -> None:
        """Note the return of an episode (a tensor must have one element); it is ignored beyond the quota."""
        if not self.is_full(env_id):
            self._reward[env_id].append(reward.item() if isinstance(reward, torch.Tensor) else reward)

    def update_video(self, imgs: Mapping[int, Any]) -> None:
        """Append a frame [H, W, C] to the running episode of each env in `{env_id: frame}`, up to its quota."""
        for env_id, img in imgs.items():
            if not self.is_full(env_id):
                self._video[env_id][len(self._reward[env_id])].append(img)

    def get_video(self) -> np.ndarray[Any, Any]:
        """Return clips [N, T, C, H, W] of the worst, the middle and the best episodes by return.

        N is 1 for one episode, 2 (worst, best) for two, 3 for three, else 4: worst, two in the middle, best. Shorter
        clips are padded with their last frame.

        Raises:
            ValueError: an episode has no frame.
        """
        clips = [clip for env_id in self._video for clip in self._video[env_id]]
        returns = [float(np.mean(r)) for r in self.get_episode_return()]
        order = np.argsort(returns, kind="stable")
        count = len(order)
        picks = {1: [0], 2: [0, 1], 3: [0, 1, 2]}.get(count, [0, count // 2 - 1, count // 2, count - 1])
        chosen = [clips[order[i]] for i in picks]
        if not all(chosen):
            raise ValueError("an evaluation episode has no frame; frames must be given before each step of an episode")
        length = max(len(clip) for clip in chosen)
        padded = [np.stack([*clip, *[clip[-1]] * (length - len(clip))]) for clip in chosen]
        video: np.ndarray[Any, Any] = np.stack(padded).transpose(0, 1, 4, 2, 3)
        return video

    def get_episode_return(self) -> list[Any]:
        """Return the returns of the episodes: those of env 0 first, then those of env 1, and so on."""
        return [reward for rewards in self._reward.values() for reward in rewards]

    def get_latest_reward(self, env_id: int) -> Any:
        """Return the return of this env's newest counted episode."""
        return self._reward[env_id][-1]

    def get_current_episode(self) -> int:
        """Return the number of episodes counted so far."""
        return sum(len(rewards) for rewards in self._reward.values())

    def get_episode_info(self) -> dict[str, Any] | None:
        """Return the values that the episodes reported, `{key: list}`, in the order of `get_episode_return`, or None.

        A key that only some episodes reported has a shorter list. A key whose values are all numbers also gets
        `<key>_mean`.
        """
        infos = [info for env_id in self._info for info in self._info[env_id]]
        keys = dict.fromkeys(key for info in infos for key in info)
        if not keys:
            return None
        lists: dict[str, Any] = {key: [info[key] for info in infos if key in info] for key in keys}
        means = {f"{k}_mean": float(np.mean(v)) for k, v in lists.items() if all(isinstance(x, Number) for x in v)}
        return {**lists, **means}
