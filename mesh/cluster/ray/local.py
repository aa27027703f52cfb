"""A Ray cluster of this machine alone: a head that nobody computes on, and some nodes that share the processors."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory
from typing import Any

from mesh.cluster.ray.session import address_file, import_ray
from mesh.process.runtime_folder import make_runtime_dir
from mesh.topology.schema import Topology

NUM_NODES = 3
STORE_BYTES = 80 * 2**20  # of each node: the mesh puts next to nothing there


@contextmanager
def local_cluster(topology: Topology) -> Iterator[None]:
    """Run a cluster as long as this lasts. Nodes outlive the head's process, which finds on disk what it knew."""
    import_ray()
    from ray.cluster_utils import Cluster

    make_runtime_dir(topology)
    cores = os.cpu_count() or 1
    with TemporaryDirectory(prefix="meshserve-ray-") as folder:
        settings = {"gcs_storage": "rocksdb", "gcs_storage_path": folder}
        head = {"num_cpus": 0, "object_store_memory": STORE_BYTES, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args={**head, "_system_config": settings})
        try:
            for _ in range(NUM_NODES):
                cluster.add_node(num_cpus=max(2, cores), object_store_memory=STORE_BYTES)
            address_file(topology).write_text(cluster.address)
            yield
        finally:
            with suppress(OSError):
                address_file(topology).unlink()
            _shut_down(cluster)


def _shut_down(cluster: Any) -> None:
    import_ray().shutdown()
    for node in [*cluster.worker_nodes]:
        cluster.remove_node(node, allow_graceful=False)
    if cluster.head_node is not None:
        cluster.remove_node(cluster.head_node, allow_graceful=False)
