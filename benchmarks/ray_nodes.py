"""A Ray cluster of several nodes, all of them this machine, whose object stores are apart."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}

import ray
from ray.cluster_utils import Cluster


@contextmanager
def cluster_of(names: Sequence[str], *, cpus: int) -> Iterator[None]:
    """Inside, this process is part of a cluster of such nodes; each name is a resource that places an actor there."""
    head, *others = ({"num_cpus": cpus, "object_store_memory": 1 << 30, "resources": {name: 100}} for name in names)
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        for node in others:
            cluster.add_node(**node)
        ray.init(address=cluster.address, namespace="yamame", log_to_driver=False, logging_level="error")
        yield
    finally:
        ray.shutdown()
        cluster.shutdown()
