"""The serial collector that gathers a number of train samples for each of several players."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ding.utils.config_helper import Settings
from ding.utils.data.samples import part_of
from ding.utils.registry_factory import SERIAL_COLLECTOR_REGISTRY
from ding.worker.collector.base_serial_collector import LOGGED_COUNTS, LOGGED_TOTALS, SerialCollector
from ding.worker.collector.collect_limits import FIXED_ROLLOUT, SampleQuota, checked_n_sample, fragment_settings
from ding.worker.collector.players import BattleCollector
from ding.worker.collector.statistics import STATISTICS


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

    def _piece_length(self, collect_cfg: Mapping[str, Any]) -> float:
        if not any(self._policy_collect_data):
            raise ValueError(
                f"no policy of {type(self).__name__} collects data: collect_data is False for all {self._policy_num}"
            )
        self._traj_len_inf = collect_cfg.get("traj_len_inf", self._policy_cfg.get("traj_len_inf", False))
        sizes = self._default_n_sample, self._traj_len_inf, self._unroll_len, self._env_num
        length, self._fixed_rollout = fragment_settings(self._cfg, self._policy_cfg, *sizes)
        return length

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
        self._begin(train_iter)
        n_sample = checked_n_sample(n_sample, self._default_n_sample, self._env_num, self._fixed_rollout)
        self._rollout.run(SampleQuota(list(self._recorders.values()), n_sample), policy_kwargs or {})
        data, infos, steps = self._take()
        self._count(steps, sum(map(len, data)))
        self._output_log(train_iter)
        for player, recorder in self._recorders.items():
            if self._are_on_policy[player]:
                recorder.clear()  # fragments of this version must not be finished by the next one
        return [part_of(samples, 0, n_sample) for samples in data] if drop_extra else data, infos

    def _log_keys(self) -> Sequence[str]:
        rewards = [f"{name}_{which}" for which in STATISTICS for name in self._statistics.reward_names]
        return *LOGGED_COUNTS, *LOGGED_TOTALS, *rewards
