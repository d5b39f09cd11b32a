"""The serial evaluator that lets several policies play against each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ding.utils.registry_factory import SERIAL_EVALUATOR_REGISTRY
from ding.worker.collector.interaction_serial_evaluator import EpisodeEvaluator
from ding.worker.collector.players import BattleActor, check_policies


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
            self._play(recorder, BattleActor(self._policy, float_obs=True, keep_integers=True), train_iter, envstep)
            return self._judge(save_ckpt_fn, train_iter), recorder.infos

        return self._from_rank_0(evaluate)


# The name in earlier releases.
OnevOneEvaluator = BattleInteractionSerialEvaluator
