"""The transport 'ray'."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any

from ding.utils.registry_factory import TRANSPORT_REGISTRY

try:
    import ray  # noqa: F401
except ImportError as e:
    raise ImportError("the transport 'ray' needs the package ray: pip install 'ding-worker[ray]'") from e

from ding.worker.transport.link import Serve
from ding.worker.transport.local_transport import LocalStation
from ding.worker.transport.ray.actors import close_shard, find_shards, shard_opener
from ding.worker.transport.ray.buffers import ShardedBufferSet
from ding.worker.transport.ray.config import actor_options, ray_section
from ding.worker.transport.ray.shard import Shard
from ding.worker.transport.ray.weights import RayPolicyStore
from ding.worker.transport.ray.worker import RayHub
from ding.worker.transport.stores import MemorySampleStore
from ding.worker.transport.transport import Launch, Transport


@TRANSPORT_REGISTRY.register("ray")
class RayTransport(Transport):
    """Tasks are calls of actors, samples are pushed to shards of the replay buffer, weights are in the object store."""

    name = "ray"
    launch = Launch.ACTOR
    needs_addresses = workers_return = has_weight_files = False

    def hub(self, cfg: Mapping[str, Any]) -> RayHub:
        return RayHub(cfg)

    def station(self, serve: Serve, cfg: Mapping[str, Any], on_lost: Callable[[], Any]) -> LocalStation:
        """A station in the process of the actor, which passes tasks to it."""
        return LocalStation(serve, close_timeout_s=cfg.get("close_timeout_s", 10.0))

    def sample_store(self, root: str) -> MemorySampleStore:
        """Not used for samples in shards."""
        return MemorySampleStore(root)

    def policy_store(self, root: str, trust_pickle: bool = False) -> RayPolicyStore:
        return RayPolicyStore(root, trust_pickle)

    def shards(self, where: Mapping[str, Any]) -> list[Shard]:
        return find_shards(where)

    def replay(self, exp_name: str, cfg: Mapping[str, Any], logger: Any) -> ShardedBufferSet:
        section = cfg.get("ray") or ray_section({})
        opener = shard_opener(f"replay:{secrets.token_hex(4)}", actor_options(section, "replay"))
        ranks = int(section["learner"].get("ranks", 1))
        return ShardedBufferSet(exp_name, logger, int(cfg["replay_shards"]), opener, close_shard, ranks)
