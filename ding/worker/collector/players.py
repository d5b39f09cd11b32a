"""Several players in every env, each with its own policy: actor, trajectories, infos, collectors and an evaluator."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
from torch import nn

from ding.utils.config_helper import Setting, Settings, boolean
from ding.utils.data.nested import map_leaves
from ding.utils.data.samples import part_of
from ding.utils.registry_factory import SERIAL_COLLECTOR_REGISTRY, SERIAL_EVALUATOR_REGISTRY
from ding.worker.collector.actor import Actor, SoloActor
from ding.worker.collector.base_serial_collector import LOGGED_COUNTS, LOGGED_TOTALS, SerialCollector
from ding.worker.collector.collect_limits import (
    FIXED_ROLLOUT,
    EpisodeQuota,
    checked_n_episode,
    checked_n_sample,
    episode_data,
    fragment_settings,
)
from ding.worker.collector.env_round import Batch, PlayerOutputs, PolicyOutput, RoundBlock, Steps, by_env, entry_of
from ding.worker.collector.interaction_serial_evaluator import EpisodeEvaluator
from ding.worker.collector.rollout import Quota, RolloutListener
from ding.worker.collector.statistics import STATISTICS
from ding.worker.collector.trajectory import INF, TrajectoryRecorder


def check_policies(policies: Any, where: str, exactly: int | None = None) -> list[Any]:
    """Check the policies of the players, and return them as a list.

    Raises:
        AssertionError: they are not a list or tuple, fewer than two, or not exactly as many as required.
    """
    allowed = "at least 2" if exactly is None else f"exactly {exactly}"
    if not isinstance(policies, list | tuple) or hasattr(policies, "_fields"):
        raise AssertionError(f"{where} needs a list of {allowed} policies, one for each player, got {policies!r:.200}")
    if len(policies) < 2 or len(policies) != (exactly or len(policies)):
        raise AssertionError(f"{where} needs a list of {allowed} policies, one for each player, got {len(policies)}")
    return list(policies)


class BattleActor(RolloutListener):
    """The actor with one policy for each player; observations and actions hold one entry for each player.

    It is also a listener: a player whose info says `acts_next: False` rests. Its policy is not called for that env, so
    that a recurrent state stays what it is, and its action is None.

    Args:
        policies: anything with `forward` and `reset`, in the order of the players.
        float_obs: pass float32 tensors to the policies instead of the observations themselves.
        keep_integers: with `float_obs`, convert no integers except bytes.
    """

    _saved = ("_resting",)
    is_stateless = False

    def __init__(self, policies: Sequence[Any], float_obs: bool = False, keep_integers: bool = False) -> None:
        self._actors = [SoloActor(policy, float_obs, keep_integers) for policy in policies]
        self.keeps_layers = all(actor.keeps_layers for actor in self._actors)
        self._resting: list[set[int]] = [set() for _ in policies]  # for each player, the envs in which it rests

    @property
    def model(self) -> nn.Module | None:
        """The network of the first player."""
        return self._actors[0].model

    def act(self, obs: Batch, kwargs: Mapping[str, Any]) -> tuple[PlayerOutputs, list[list[Any]]]:
        """Return the outputs of the policies, and for each env the list of the players' actions."""
        outputs, actions = zip(*(self._act_of(player, obs, kwargs) for player in range(len(self._actors))), strict=True)
        return PlayerOutputs(outputs), [list(of_env) for of_env in zip(*actions, strict=True)]

    def _act_of(self, player: int, obs: Batch, kwargs: Mapping[str, Any]) -> tuple[PolicyOutput, Sequence[Any]]:
        actor, own, resting = self._actors[player], obs.of_player(player), self._resting[player]
        if resting.isdisjoint(obs.env_ids):
            return actor.act(own, kwargs)
        env_ids = [env_id for env_id in obs.env_ids if env_id not in resting]
        output, actions = actor.act(own.of_envs(env_ids), kwargs) if env_ids else ({}, [])
        by_env_id = dict(zip(env_ids, actions, strict=True))
        return output, [by_env_id.get(env_id) for env_id in obs.env_ids]

    def on_steps(self, steps: Steps) -> None:
        for player, resting in enumerate(self._resting):
            resting.difference_update(steps.env_ids)
            rows = zip(steps.env_ids, steps.infos, steps.ends.tolist(), strict=True)
            resting.update(env_id for env_id, info, ends in rows if not ends and _rests(info, player))

    def on_abnormal(self, env_id: int) -> None:
        for resting in self._resting:
            resting.discard(env_id)

    def on_restart(self, env_id: int) -> None:
        self.on_abnormal(env_id)

    def on_interrupt(self) -> None:
        for resting in self._resting:  # infos may have been missed; envs ignore the actions of players that rest
            resting.clear()

    def reset(self, env_ids: Sequence[int] | None = None) -> None:
        """Handle the end of the episodes of these envs, or of all."""
        for actor in self._actors:
            actor.reset(env_ids)


def _rests(info: Any, player: int) -> bool:
    """Return whether the info of a step, a dict for each player, says that this player rests in the next one."""
    try:
        return not info[player].get("acts_next", True)
    except (KeyError, IndexError, TypeError, AttributeError):  # before its end an episode may have any info
        return False


class PlayerRecorder(TrajectoryRecorder):
    """A recorder of the trajectories of one player.

    An episode ends for all players at once. For one whose info tells that it was terminated or truncated, it ends
    there, and nothing that comes later in the env's episode is recorded.

    A transition goes from an observation on which the player acts to the next one on which it does, or to its end: if
    an info has `acts_next: False`, the transition is completed by the following steps, whose infos have `acted: False`
    and whose rewards are added, as in the agent-environment cycle of PettingZoo (Terry et al., 2021).

    Args:
        player: the player whose entries of observations, rewards, infos and outputs are recorded.
        args, kwargs: as for `TrajectoryRecorder`.
    """

    _saved = (*TrajectoryRecorder._saved, "_is_out")
    _saved_if_plain: ClassVar = {"_begun": "transitions of players that rest hold values that are not plain"}

    def __init__(self, player: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._player = player
        self._is_out = np.zeros(self._env_num, np.bool_)  # of an episode that goes on, by env
        # By env, the observation, the output and the reward so far of a transition that is not complete.
        self._begun: dict[int, tuple[Any, Any, Any]] = {}

    def on_round(self, steps: Steps) -> None:
        """Do nothing: the steps of a player are known once they are reported."""

    def on_rounds(self, rounds: RoundBlock) -> None:
        for steps in rounds.steps:
            self.on_steps(steps)

    def on_steps(self, steps: Steps) -> None:
        output, player = steps.output, self._player
        if isinstance(output, PlayerOutputs):
            output = output.players[player]
        else:
            output = {env_id: of_players[player] for env_id, of_players in by_env(output).items()}
        own = steps.of_player(player, output)
        was_out = self._is_out[own.ids]
        self._is_out[own.ids] = (was_out | own.ends) & ~steps.ends
        if was_out.any():
            own = own.of_rows(np.flatnonzero(~was_out))
        if not any("acted" in info or "acts_next" in info for info in own.infos):
            complete = [own]
        else:
            complete = self._complete(own)
        for part in complete:
            if part.env_ids:
                super().on_round(part)
                super().on_rounds(RoundBlock([part]))

    def _complete(self, own: Steps) -> list[Steps]:
        """Return the steps that are transitions, and those that complete the transition of an earlier step."""
        acted = np.array([bool(info.get("acted", True)) for info in own.infos])
        is_complete = np.array([bool(info.get("acts_next", True)) for info in own.infos]) | own.ends
        outputs = by_env(own.output)
        for row in np.flatnonzero(~(acted & is_complete)).tolist():
            env_id, reward = own.env_ids[row], own.rewards.rows[row]
            if acted[row]:
                self._begun[env_id] = own.obs.rows[row], outputs[env_id], reward
            elif env_id in self._begun:
                obs, output, before = self._begun[env_id]
                self._begun[env_id] = obs, output, map_leaves(operator.add, before, reward)
        has_begun = np.array([env_id in self._begun for env_id in own.env_ids])
        unused = own.ids[own.ends & ~acted & ~has_begun]
        if unused.size and self._make_samples is not None:  # an episode, also one in which the player never acted
            self._block.close(unused, self._running(unused))
            self._block.split(unused)
            self._make()
        of_earlier = own.of_rows(np.flatnonzero(~acted & is_complete & has_begun))
        begun = [self._begun.pop(env_id) for env_id in of_earlier.env_ids]
        if begun:
            of_earlier = of_earlier.begun_by(*zip(*begun, strict=True))
        return [own.of_rows(np.flatnonzero(acted & is_complete)), of_earlier]

    def _leave(self, env_id: int) -> None:
        """Forget what is known of this env's episode."""
        self._is_out[env_id] = False
        self._begun.pop(env_id, None)

    def on_abnormal(self, env_id: int) -> None:
        super().on_abnormal(env_id)
        self._leave(env_id)

    def on_restart(self, env_id: int) -> None:
        super().on_restart(env_id)
        self._leave(env_id)

    def clear(self) -> None:
        super().clear()
        self._begun.clear()


class PlayersQuota(Quota):
    """The quota that steps every ready env until each recorder is filled."""

    def __init__(self, recorders: Sequence[TrajectoryRecorder]) -> None:
        self._recorders = recorders

    def is_filled(self) -> bool:
        return all(recorder.is_filled() for recorder in self._recorders)


class PlayerInfos(RolloutListener):
    """A listener that gathers the last info of each player in each episode; it comes after the players' recorders.

    Args:
        players: the number of players.
        recorders: the recorders of the players whose trajectories are kept.
        by_episode: whether each fragment is an episode and makes one sample; then all players keep equally many.

    Attributes:
        steps: env steps that the collector has yet to count; one for all players.
    """

    _saved = ("steps",)
    _saved_if_plain: ClassVar = {
        "_infos": "infos not collected yet hold values that are not plain; their episodes are dropped"
    }

    def __init__(self, players: int, recorders: Sequence[TrajectoryRecorder], by_episode: bool = False) -> None:
        self._infos: list[list[Any]] = []  # for each episode, the infos of the players
        self._players, self._recorders, self._by_episode = players, recorders, by_episode
        self.steps = 0

    def episodes(self) -> int:
        """Return the number of finished episodes that are whole for every player and not yet taken."""
        return min([len(self._infos), *(len(recorder.fragments) for recorder in self._recorders)])

    def take(self, limit: int | None = None) -> list[list[Any]]:
        """Return the infos since the last call, a list for each player; `limit` as for the recorders."""
        taken, self._infos = self._infos[:limit], [] if limit is None else self._infos[limit:]
        return [[of_players[player] for of_players in taken] for player in range(self._players)]

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> list[str]:
        problems = super().load_state_dict(state_dict)
        if problems:
            self._keep(0)
        return problems

    def on_steps(self, steps: Steps) -> None:
        self.steps += len(steps.env_ids)
        if steps.any_ends:
            infos = [steps.infos[row] for row in np.flatnonzero(steps.ends).tolist()]
            self._infos += [[entry_of(info, player) for player in range(self._players)] for info in infos]

    def on_interrupt(self) -> None:
        if self._by_episode:  # the round that raised may have ended an episode for some of the players only
            self._keep(self.episodes())

    def _keep(self, number: int) -> None:
        del self._infos[number:]
        for recorder in self._recorders:
            recorder.keep(number)


class BattleCollector(SerialCollector):
    """Base of the collectors of battles; settings such as `n_sample` are those of policy 0 (or the first that has any).

    Observations, rewards and infos of the envs hold one entry for each player, by index; `done` may do so, too. An env
    is given the list of the players' actions. The trajectories of a policy whose attribute `collect_data` is False are
    not kept; it needs `forward` and `reset` only.
    """

    _needs_policy = False
    _exact_players: int | None = None
    _gathers_episodes = False

    def _checked_policy(self, policy: Any) -> Any:
        return check_policies(policy, type(self).__name__, self._exact_players)

    def _acting_policies(self) -> list[Any]:
        return self._policy or []

    def _check_prepared(self) -> None:
        """Raise a RuntimeError if there are no policies yet."""
        if not self._is_prepared:
            raise RuntimeError(f"{type(self).__name__} has no policies yet: give it a list of them with reset_policy")

    def _read_policy(self) -> None:
        self._players = self._policy_num = len(self._policy)
        self._policy_collect_data = [bool(getattr(policy, "collect_data", True)) for policy in self._policy]
        first = next((policy for policy in self._policy if hasattr(policy, "get_attribute")), self._policy[0])
        self._policy_cfg = first.get_attribute("cfg")
        self._unroll_len = first.get_attribute("unroll_len")
        self._are_on_policy = []
        for policy in self._policy:
            cfg = policy.get_attribute("cfg") if hasattr(policy, "get_attribute") else self._policy_cfg
            self._are_on_policy.append(bool(cfg.get("on_policy", False)))
        collect_cfg = self._policy_cfg.get("collect") or {}
        self._default_n_sample, self._default_n_episode = collect_cfg.get("n_sample"), collect_cfg.get("n_episode")
        self._traj_len, self._fixed_rollout = self._fragments()

    def _fragments(self) -> tuple[float, bool]:
        """Return the number of transitions of a fragment, and whether a collect ends all fragments."""
        return INF, False

    def _plugs(self, begins_episodes: bool) -> tuple[Actor, Sequence[RolloutListener]]:
        self._recorders = {
            player: PlayerRecorder(
                player,
                policy,
                self._env_num,
                INF if self._fixed_rollout else self._traj_len,
                fixed_rollout=self._fixed_rollout,
                share_next_obs=not self._deepcopy_obs,
                make_samples=partial(episode_data, self._cfg, policy) if self._gathers_episodes else None,
            )
            for player, policy in enumerate(self._policy)
            if self._policy_collect_data[player]
        }
        recorders = list(self._recorders.values())
        self._infos = self._counter = PlayerInfos(self._policy_num, recorders, by_episode=self._gathers_episodes)
        actor = BattleActor(self._policy, self._transform_obs)
        return actor, [*recorders, self._infos, actor]

    def _by_player(self, data: Mapping[int, list[Any]]) -> list[list[Any]]:
        """Return a list for each policy: its data, or nothing if it only acts."""
        return [data.get(player, []) for player in range(self._policy_num)]


@SERIAL_COLLECTOR_REGISTRY.register("sample_1v1")
class BattleSampleSerialCollector(BattleCollector):
    """A serial collector of `n_sample` train samples for each of two or more policies that play in the same envs.

    It differs from `SampleSerialCollector` in that observations, rewards and infos of the envs hold one entry for each
    player, and in that an env is given the list of the players' actions. A policy whose attribute `collect_data` is
    False only acts. `ding.example.goofspiel_selfplay` trains with it.

    Args:
        cfg: config, see `default_config`.
        env: an env manager that is not launched yet.
        policy: a list of the collect modes of two or more policies; may be given later, to `reset_policy`.
        tb_logger: a TensorBoard writer shared with others; without one, one is made.
        exp_name: the experiment's folder, for the logs.
        instance_name: name in the logs and tags.
    """

    settings = Settings({"fixed_rollout": FIXED_ROLLOUT}, SerialCollector.settings)

    def _fragments(self) -> tuple[float, bool]:
        if not any(self._policy_collect_data):
            raise ValueError(
                f"no policy of {type(self).__name__} collects data: collect_data is False for all {self._policy_num}"
            )
        return fragment_settings(self._cfg, self._policy_cfg, self._default_n_sample, self._unroll_len, self._env_num)

    def collect(
        self,
        n_sample: int | None = None,
        train_iter: int = 0,
        drop_extra: bool = True,
        policy_kwargs: dict[str, Any] | None = None,
    ) -> tuple[list[list[Any]], list[list[Any]]]:
        """Collect train samples until each policy has `n_sample`; a round over the ready envs is always finished.

        An exception (of an env, or of a policy) loses no sample: the next call returns those made before it.

        Args:
            n_sample: number of samples of each policy; None for that of policy 0.
            train_iter: iteration of the policies, noted in each transition as `collect_iter`.
            drop_extra: return exactly `n_sample` samples for each policy, without the few more that there may be.
            policy_kwargs: keyword arguments of the forward of every policy.

        Returns:
            `(data, infos)`, each with one list for each policy: its samples (none for a policy that only acts), and the
            env's last info of each episode that ended.

        Raises:
            RuntimeError: there are no policies yet, `n_sample` is given nowhere, or no env is ready any more.
            ValueError: `n_sample` is below 1.
        """
        self._check_prepared()
        n_sample = checked_n_sample(n_sample, self._default_n_sample, self._env_num, self._fixed_rollout)
        recorders = list(self._recorders.values())
        for recorder in recorders:
            recorder.target = n_sample
        data = self._gather(PlayersQuota(recorders), train_iter, policy_kwargs)
        for player, recorder in self._recorders.items():
            if self._are_on_policy[player]:
                recorder.clear()  # fragments of this version must not be finished by the next one
        if drop_extra:
            data = {player: part_of(samples, 0, n_sample) for player, samples in data.items()}
        return self._by_player(data), self._infos.take()

    def _log_keys(self) -> Sequence[str]:
        rewards = [f"{name}_{which}" for which in STATISTICS for name in self._statistics.reward_names]
        return *LOGGED_COUNTS, *LOGGED_TOTALS, *rewards


@SERIAL_COLLECTOR_REGISTRY.register("episode_1v1")
class BattleEpisodeSerialCollector(BattleCollector):
    """A serial collector of `n_episode` whole episodes of two policies that play against each other.

    It differs from `EpisodeSerialCollector` in that observations, rewards and infos of the envs hold one entry for each
    player, and in that an env is given the list of the two actions.

    Args:
        cfg: config, see `default_config`.
        env: an env manager that is not launched yet.
        policy: a list of the collect modes of two policies; may be given later, to `reset_policy`.
        tb_logger: a TensorBoard writer shared with others; without one, one is made.
        exp_name: the experiment's folder, for the logs.
        instance_name: name in the logs and tags.
    """

    settings = Settings(
        {"get_train_sample": Setting(False, boolean, "Whether train samples are returned instead of episodes.")},
        BattleCollector.settings,
    )
    _exact_players = 2
    _gathers_episodes = True

    _quota: EpisodeQuota

    def _plugs(self, begins_episodes: bool) -> tuple[Actor, Sequence[RolloutListener]]:
        actor, recorders = super()._plugs(begins_episodes)
        left = () if begins_episodes else self._quota.playing
        self._quota = EpisodeQuota(self._infos.episodes, left)
        return actor, [*recorders, self._quota]

    def collect(
        self, n_episode: int | None = None, train_iter: int = 0, policy_kwargs: dict[str, Any] | None = None
    ) -> tuple[list[list[Any]], list[list[Any]]]:
        """Collect episodes, and return them in the order in which they end.

        An exception loses no finished episode: the next call returns them, and the unfinished ones are played anew.

        Args:
            n_episode: number of episodes; None for that of policy 0.
            train_iter: iteration of the policies, noted in each transition as `collect_iter`.
            policy_kwargs: keyword arguments of the forward of both policies.

        Returns:
            `(data, infos)`, each a list of one list for each policy. A data list has `n_episode` lists of transitions
            or, with `get_train_sample`, the samples of all episodes; a list of infos has the env's last info of each
            episode.

        Raises:
            RuntimeError: there are no policies yet, `n_episode` is given nowhere, or no env is ready any more.
            AssertionError: `n_episode` is below the number of envs.
        """
        self._check_prepared()
        n_episode = checked_n_episode(n_episode, self._default_n_episode, self._env_num)
        self._quota.begin(n_episode, self._rollout.restart)
        episodes = self._gather(self._quota, train_iter, policy_kwargs, limit=n_episode)
        return self._by_player(episodes), self._infos.take(n_episode)


# The name in earlier releases.
Episode1v1Collector = BattleEpisodeSerialCollector


@SERIAL_EVALUATOR_REGISTRY.register("battle_interaction")
class BattleInteractionSerialEvaluator(EpisodeEvaluator):
    """A serial evaluator that lets two or more policies play in the same envs; policy 0 is judged.

    A fixed number of episodes is played in each env. Observations and infos of the envs hold one entry for each player,
    by index, and an env is given the list of the players' actions. The evaluator owns its env manager: it launches it
    (on rank 0, which alone evaluates), and closes it in `close`.

    Args:
        cfg: config, see `default_config`.
        env: an env manager that is not launched yet.
        policy: a list of the eval modes of the players' policies, or of anything with `forward` and `reset`; may be
            given later, to `reset_policy`.
        tb_logger: a TensorBoard writer shared with others; without one, one is made.
        exp_name: the experiment's folder, for the logs.
        instance_name: name in the logs and tags.

    Example:
        >>> from ding.envs import BaseEnvManager
        >>> from ding.example.goofspiel import GoofspielEnv
        >>> class LowestCard:
        ...     def forward(self, obs):
        ...         return {env_id: {"action": view["action_mask"].argmax()} for env_id, view in obs.items()}
        ...     def reset(self, env_ids=None):
        ...         pass
        >>> cfg, envs = BattleInteractionSerialEvaluator.default_config(), BaseEnvManager([lambda: GoofspielEnv({})])
        >>> evaluator = BattleInteractionSerialEvaluator(cfg, envs, [LowestCard(), LowestCard()])
        >>> evaluator.eval(n_episode=1)[1][0]
        [{'eval_episode_return': 0.0, 'result': 'draws'}]
        >>> evaluator.close()
    """

    _needs_policy = False

    def _checked_policy(self, policy: Any) -> Any:
        return check_policies(policy, type(self).__name__)

    def _acting_policies(self) -> list[Any]:
        return self._policy or []

    def eval(
        self,
        save_ckpt_fn: Callable[[str], Any] | None = None,
        train_iter: int = -1,
        envstep: int = -1,
        n_episode: int | None = None,
    ) -> tuple[bool, list[list[dict[str, Any]]]]:
        """Play the episodes; on several ranks rank 0 plays and broadcasts the result, so all must call this together.

        Args:
            save_ckpt_fn: called with `ckpt_best.pth.tar` when the mean return of policy 0 is the best so far.
            train_iter: iteration of the policies.
            envstep: env steps of the training so far.
            n_episode: number of episodes; None for that of the config.

        Returns:
            `(stop, infos)`: whether the mean return of policy 0 has reached `stop_value` (never before the first
            iteration), and a list for each policy: the text and numbers in the last info of each counted episode, in
            the order in which they ended.

        Raises:
            AssertionError: no number of episodes is given, or it is below the number of envs.
            RuntimeError: there are no policies yet.
        """

        def evaluate() -> tuple[bool, list[list[dict[str, Any]]]]:
            if self._policy is None:
                raise RuntimeError(
                    f"{type(self).__name__} has no policies yet: give it a list of them with reset_policy"
                )
            recorder = self._recorder(n_episode, len(self._policy))
            actor = BattleActor(self._policy, float_obs=True, keep_integers=True)
            self._play(recorder, actor, train_iter, envstep, listeners=[actor])
            return self._judge(save_ckpt_fn, train_iter), recorder.infos

        return self._from_rank_0(evaluate)


# The name in earlier releases.
OnevOneEvaluator = BattleInteractionSerialEvaluator
