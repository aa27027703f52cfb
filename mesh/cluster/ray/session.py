"""Connections to a Ray cluster, and clusters of this machine alone."""

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mesh.addresses import runtime_dir
from mesh.errors import CommandError, UserError
from mesh.process.process import make_runtime_dir
from mesh.topology.schema import Topology

AUTO, LOCAL = "auto", "local"
NUM_LOCAL_NODES = 3
STORE_BYTES = 80 * 2**20  # of each local node: the mesh puts next to nothing there
REPORT_S = 10.0


def namespace_of(topology: Topology) -> str:
    """Return the Ray namespace of a mesh: meshes of other names have actors of the same names."""
    return f"meshserve-{topology.name}"


def import_ray() -> Any:
    """Return the library. Raise `UserError` if it is not installed."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # hosts without GPUs leave the variables alone
    try:
        import ray
    except ImportError:
        raise UserError('Ray is not installed; `pip install "meshserve[ray]"` adds it') from None
    return ray


def connect(topology: Topology) -> Any:
    """Connect this process to the cluster of a topology, and return the library. Raise `CommandError`."""
    ray = import_ray()
    if ray.is_initialized():
        return ray
    assert topology.cluster is not None
    address = topology.cluster.address
    if address == LOCAL:
        address = _kept_address(topology)
    try:
        ray.init(address=address, namespace=namespace_of(topology), log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise CommandError(f"{topology.path}: no Ray cluster answers at {address!r}: {reason}") from None
    return ray


def find_keeper(topology: Topology) -> Any | None:
    """The actor that keeps the hosts of a mesh; None: there is none."""
    from mesh.cluster.ray.keeper import NAME

    ray = connect(topology)
    try:
        return ray.get_actor(NAME)
    except ValueError:
        return None


def find_report(topology: Topology) -> Any | None:
    """What the keeper knows of its hosts; None: the mesh does not run."""
    keeper = find_keeper(topology)
    return None if keeper is None else import_ray().get(keeper.report.remote(), timeout=REPORT_S)


@contextmanager
def local_cluster(topology: Topology) -> Iterator[None]:
    """A Ray cluster of this machine: a head that nobody computes on, and some nodes that share the processors."""
    import_ray()
    from ray.cluster_utils import Cluster

    file = _address_file(topology, make=True)
    cores = os.cpu_count() or 1
    head = {"num_cpus": 0, "object_store_memory": STORE_BYTES, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(NUM_LOCAL_NODES):
            cluster.add_node(num_cpus=max(2, cores), object_store_memory=STORE_BYTES)
        file.write_text(cluster.address)
        yield
    finally:
        with suppress(OSError):
            file.unlink()
        _shut_down(cluster)


def _shut_down(cluster: Any) -> None:
    ray = import_ray()
    ray.shutdown()
    for node in [*cluster.worker_nodes]:
        cluster.remove_node(node, allow_graceful=False)
    if cluster.head_node is not None:
        cluster.remove_node(cluster.head_node, allow_graceful=False)
    time.sleep(0)  # let the reaper of the nodes see it


def _kept_address(topology: Topology) -> str:
    """Of the cluster that `mesh up` has started on this machine."""
    try:
        return _address_file(topology).read_text()
    except OSError:
        raise CommandError(f"mesh {topology.name!r} is not running; start it with `mesh up {topology.path}`") from None


def _address_file(topology: Topology, *, make: bool = False) -> Path:
    return (make_runtime_dir(topology) if make else runtime_dir(topology)) / "ray.address"
