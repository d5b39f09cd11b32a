"""A Ray for the tests of a module."""

from ding.worker.transport.ray.cluster import RayCluster
from ding.worker.transport.ray.ray_settings import ray_section

PATIENCE_S = 120.0


def started(**section):
    """A small Ray of the tests' own, started."""
    cluster = RayCluster(ray_section({"object_store_memory": 150 * 2**20, **section}), num_cpus=8)
    cluster.start()
    return cluster
