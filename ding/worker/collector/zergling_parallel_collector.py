"""The parallel collector with one policy in many envs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ding.utils.batch_methods import adapts_batch
from ding.utils.registry_factory import PARALLEL_COLLECTOR_REGISTRY
from ding.worker.collector.actor import SoloActor, env_actions
from ding.worker.collector.env_round import Batch, PolicyOutput
from ding.worker.collector.task_collector import TaskCollector


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
