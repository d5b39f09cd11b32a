"""The parallel collectors: with one policy in many envs, and of one-against-one games of two policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from easydict import EasyDict

from ding.utils.batch_methods import adapts_batch
from ding.utils.config_helper import NO_DEFAULT, ConfigError, Rule, Setting, Settings
from ding.utils.registry_factory import PARALLEL_COLLECTOR_REGISTRY
from ding.worker.collector.actor import SoloActor, env_actions
from ding.worker.collector.env_round import Batch, PlayerOutputs, PolicyOutput, Steps, entries_of, entry_of
from ding.worker.collector.players import PlayerRecorder
from ding.worker.collector.statistics import episode_return, reported_return
from ding.worker.collector.task_collector import TaskCollector, trajectory_length
from ding.worker.collector.trajectory import TrajectoryRecorder


@PARALLEL_COLLECTOR_REGISTRY.register("zergling")
class ZerglingParallelCollector(TaskCollector):
    """A parallel collector that collects samples with one policy in many envs, or evaluates it in them.

    See `TaskCollector` for the data that is sent and for when new weights are loaded.

    These methods of a round may be overridden: `_policy_inference` and `_env_step`, see `BaseParallelCollector`, and
    `_process_timestep`, which sends the data. Samples are made from what `_env_step` returns.

    Args:
        cfg: a collector task's `collector_cfg`: `env`, `policy`, `collect_setting` (keyword arguments of the policy's
            forward), `eval_flag`, `policy_update_path` and `exp_name` besides the defaults; `seed` for envs that are to
            be seeded.

    Raises:
        ConfigError: a value is not allowed, or missing.
        ImportError: the package of the compressor is not installed.

    Example:
        >>> import tempfile
        >>> from easydict import EasyDict
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

    @adapts_batch("_act")
    def _policy_inference(self, obs: Any) -> Any:
        """Return the policy's actions; its other outputs go into the samples."""
        self._policy_output = self._policy.forward(obs, **self._forward_kwargs)
        env_ids = list(obs)
        return dict(zip(env_ids, env_actions(self._policy_output, env_ids), strict=True))

    def _act(self, obs: Batch) -> tuple[PolicyOutput, Sequence[Any]]:
        return SoloActor(self._policy, float_obs=True).act(obs, self._forward_kwargs)


def joint_actions(outputs: Sequence[PolicyOutput], env_ids: Sequence[int]) -> dict[int, Any]:
    """Return `{env_id: the players' actions}` from the policies' outputs: stacked, without axes of length 1.

    Actions that differ in shape or dtype, or that are no arrays, become a list with an entry for each player.

    Example:
        >>> left, right = {0: {"action": np.array([1])}}, {0: {"action": np.array([3])}}
        >>> joint_actions([left, right], [0])
        {0: array([1, 3])}
    """
    env_ids = list(env_ids)
    pairs = [list(pair) for pair in zip(*(env_actions(output, env_ids) for output in outputs), strict=True)]
    kinds = {
        (action.dtype, action.shape) if isinstance(action, np.ndarray) else None for pair in pairs for action in pair
    }
    if len(kinds) != 1 or None in kinds:
        return dict(zip(env_ids, pairs, strict=True))
    joint = np.array(pairs)  # [envs, players, *action_shape]
    joint = joint.reshape(len(env_ids), *(size for size in joint.shape[1:] if size != 1))
    return {env_id: joint[i, ...] for i, env_id in enumerate(env_ids)}


def left_return(info: Any, env_id: int) -> float:
    """Return the return of player 0 from the last info of an episode.

    The info holds an entry for each player, by index, or is shared by all players; the return in a shared info may
    again hold an entry for each player.
    """
    if not _are_of_all([info])[0]:
        return float(episode_return(entry_of(info, 0), env_id))
    value = reported_return(info, env_id)
    if isinstance(value, Mapping | list | tuple) or getattr(value, "ndim", 0) > 0:
        value = entry_of(value, 0)
    return float(episode_return({"eval_episode_return": value}, env_id))


def length_set_once(policy: Any) -> float:
    """Return the `trajectory_length` of a policy.

    Raises:
        AssertionError: it gives both n_sample and n_episode, or neither.
    """
    n_sample, n_episode = (policy.get_attribute(name) for name in ("n_sample", "n_episode"))
    if n_sample is not None and n_episode is not None:
        raise AssertionError(
            f"the policy gives n_sample = {n_sample} and n_episode = {n_episode}; only one of them may be set in "
            "policy.collect"
        )
    return trajectory_length(policy)


def result_of(value: float) -> str:
    """Return the result that a return stands for: `wins`, `draws` or `losses`."""
    if value == 0:
        return "draws"
    return "wins" if value > 0 else "losses"


class SharedInfoRecorder(PlayerRecorder):
    """A `PlayerRecorder` for envs whose info may be shared by all players, instead of holding an entry for each."""

    def on_steps(self, steps: Steps) -> None:
        are_of_all = _are_of_all(steps.infos)
        if any(are_of_all):
            infos = zip(steps.infos, are_of_all, strict=True)
            steps = steps.with_infos([{self._player: info} if is_of_all else info for info, is_of_all in infos])
        super().on_steps(steps)


def _are_of_all(infos: Sequence[Any]) -> list[bool]:
    """Return for each info whether it is shared by all players."""
    return [isinstance(info, Mapping) and 0 not in info for info in infos]


def _list_of(*types: type) -> Rule:
    allowed = "a list with, for each policy, " + " or ".join(
        "None" if kind is type(None) else f"a {kind.__name__}" for kind in types
    )

    def rule(value: Any) -> str | None:
        is_fit = isinstance(value, list | tuple) and all(isinstance(entry, types) for entry in value)
        return None if is_fit else allowed

    return rule


@PARALLEL_COLLECTOR_REGISTRY.register("marine")
class MarineParallelCollector(TaskCollector):
    """A parallel collector that lets two policies play against each other, or evaluates one policy.

    See `TaskCollector` for the data that is sent and for when new weights are loaded. When collecting, observations and
    rewards of the envs hold an entry for each of the two players, by index; `info` and `done` do, too, or are shared by
    both. An env is given the players' actions stacked and without axes of length 1, as `[2, *action_shape]`. In an
    evaluation the env plays the other side: observations and rewards are those of the one policy, and so is the action.

    Samples are collected for the policies that learn; their metadata hold the `player`, the iterations of all policies
    as `policy_iter`, and that of their own as `collect_iter`. The fragments of a player hold its steps of one episode.
    A policy that does not learn plays with the weights that its path holds when the task begins.

    The return and the result of an episode are those of player 0: a positive return is a win, a negative one a loss.

    Args:
        cfg: a collector task's `collector_cfg`, as for `ZerglingParallelCollector`; `policy`, `policy_update_path` and
            `policy_update_flag` are lists with an entry for each policy: its config, where its weights are (None for a
            policy that needs none), and whether it learns (all do if there is no such list).

    Raises:
        AssertionError: there is not exactly one policy to evaluate, or not exactly two to collect with.
        ConfigError: a value is not allowed, or missing.
        ImportError: the package of the compressor is not installed.

    Example:
        >>> import tempfile
        >>> from ding.example.goofspiel_selfplay import policy_config
        >>> folder, policy = tempfile.TemporaryDirectory(), EasyDict(policy_config(cards=3), type="ppo")
        >>> env = {"type": "goofspiel", "import_names": ["ding.example.goofspiel"], "cards": 3}
        >>> env.update(collector_env_num=2, manager={"type": "base", "episode_num": 1})
        >>> cfg = EasyDict(env=env, policy=[policy, policy], eval_flag=False, exp_name=folder.name, seed=0)
        >>> cfg.update(policy_update_path=["newest", "older"], policy_update_flag=[True, False])
        >>> collector = MarineParallelCollector(cfg)
        >>> collector.get_policy_update_info = lambda path: {**collector.policy[0].state_dict(), "iter": 0}
        >>> rows = []
        >>> collector.send_stepdata = lambda name, data: None
        >>> collector.send_metadata = lambda metadata: rows.extend(metadata if isinstance(metadata, list) else [])
        >>> collector.start()
        >>> info = collector.get_finish_info()
        >>> info["step_count"], len(rows), {row["player"] for row in rows}, len(info["game_result"])
        (6, 6, {0}, 2)
        >>> collector.close(), folder.cleanup()
        (None, None)
    """

    settings = Settings(
        {
            "policy": Setting(NO_DEFAULT, _list_of(dict), "Settings of each policy; set by the commander."),
            "policy_update_path": Setting(
                NO_DEFAULT, _list_of(str, type(None)), "Path of the weights of each policy; set by the commander."
            ),
            "policy_update_flag": Setting(
                NO_DEFAULT, _list_of(bool), "Whether each policy learns; set by the commander."
            ),
        },
        TaskCollector.settings,
    )
    _return_of = staticmethod(left_return)
    _trajectory_length = staticmethod(length_set_once)

    _by_player = True

    def _check(self, cfg: EasyDict) -> None:
        super()._check(cfg)
        number = 1 if cfg.eval_flag else 2
        if len(cfg.policy) != number:
            what = "evaluates 1 policy" if cfg.eval_flag else "collects with 2 policies"
            raise AssertionError(f"{type(self).__name__} {what}, got {len(cfg.policy)} in the list 'policy'")
        self._learning = list(cfg.get("policy_update_flag", [True] * number))
        lists = {"policy_update_path": cfg.get("policy_update_path"), "policy_update_flag": self._learning}
        for key, value in lists.items():
            if value is None or len(value) != number:
                raise ConfigError(
                    f"{type(self).__name__}: {key} = {value!r} is not allowed; it must be a list with as many entries "
                    f"as there are policies, {number}"
                )

    def _trajectory_recorder(self, player: int, *args: Any, **kwargs: Any) -> TrajectoryRecorder:
        return SharedInfoRecorder(player, *args, **kwargs)

    def _bare_output(self, action: Any) -> Any:
        if self._eval_flag:
            return super()._bare_output(action)
        players = range(len(self._policy))
        return [{"action": action[p : p + 1] if getattr(action, "ndim", 0) == 1 else action[p]} for p in players]

    @adapts_batch("_act")
    def _policy_inference(self, obs: Any) -> Any:
        """Return the players' joint actions; the other outputs of their policies go into the samples."""
        views = [obs]
        if not self._eval_flag:
            views = [dict(zip(obs, entries_of(obs.values(), p), strict=True)) for p in range(len(self._policy))]
        outputs = [
            policy.forward(view, **self._forward_kwargs) for policy, view in zip(self._policy, views, strict=True)
        ]
        self._policy_output = PlayerOutputs(outputs)
        return joint_actions(outputs, list(obs))

    def _act(self, obs: Batch) -> tuple[PolicyOutput, Sequence[Any]]:
        views = [obs] if self._eval_flag else [obs.of_player(player) for player in range(len(self._policy))]
        outputs = [
            SoloActor(policy, float_obs=True).act(view, self._forward_kwargs)[0]
            for policy, view in zip(self._policy, views, strict=True)
        ]
        return PlayerOutputs(outputs), list(joint_actions(outputs, obs.env_ids).values())

    def _results(self) -> dict[str, Any]:
        """Return the returns of player 0 and the results, each with a list for each env."""
        returns = self._episodes.returns(self._env_num)
        return {"reward_raw": returns, "game_result": [[result_of(value) for value in of_env] for of_env in returns]}
