"""Names and labels of the objects of one mesh."""

from typing import Any

from mesh import __version__
from mesh.deploy.host_pools import HostPool
from mesh.deploy.names import dns_name, pool_name
from mesh.deploy.serialised import Object
from mesh.topology.schema import Topology

GATEWAY_LABEL = "meshserve-gateway"  # of pods that clients may be sent to


def manifest(api: str, kind: str, topology: Topology, name: str, **rest: Any) -> Object:
    """An object with the labels of its mesh. ``rest`` follows its metadata."""
    metadata = {"name": name, "labels": {**mesh_labels(topology), "app.kubernetes.io/version": __version__}}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **rest}


def mesh_name(topology: Topology) -> str:
    return dns_name(topology.name)


def mesh_labels(topology: Topology) -> dict[str, str]:
    """Return the labels by which the pods of a mesh are known."""
    return {"app.kubernetes.io/name": "meshserve", "app.kubernetes.io/instance": mesh_name(topology)}


def pool_labels(topology: Topology, pool: HostPool) -> dict[str, str]:
    """Return the labels by which the pods of one table of hosts are known."""
    return {**mesh_labels(topology), "app.kubernetes.io/component": dns_name(pool.name)}


def gateway_labels(topology: Topology) -> dict[str, str]:
    return {**mesh_labels(topology), GATEWAY_LABEL: "true"}


def pod_labels(topology: Topology, pool: HostPool) -> dict[str, str]:
    """Return all labels of a pod, with that of gateways where there are any."""
    return pool_labels(topology, pool) | ({GATEWAY_LABEL: "true"} if pool.gateways else {})


def host_address(topology: Topology, pool: HostPool, index: str) -> str:
    """The DNS name of a pod, from the same namespace, as its headless Service gives it."""
    name = pool_name(topology, pool.name)
    return f"{name}-{index}.{name}"


def config_name(topology: Topology) -> str:
    return f"{mesh_name(topology)}-topology"


def curve_secret(topology: Topology) -> str:
    return f"{mesh_name(topology)}-curve-key"


def server_secret(topology: Topology) -> str:
    return f"{mesh_name(topology)}-server-keys"


def access_secret(topology: Topology) -> str:
    return f"{mesh_name(topology)}-access-keys"


def tls_secret(topology: Topology) -> str:
    return f"{mesh_name(topology)}-tls"
