"""Secrets of a mesh: what pods mount, and what its user has to make."""

from collections.abc import Iterator
from typing import NamedTuple

from mesh.deploy.containers import ACCESS, ACCESS_FILE, CURVE, CURVE_FILE, TLS, disk_keys, has_tls, server_keys
from mesh.deploy.deployment import RenderSettings
from mesh.deploy.host_pools import HostPool
from mesh.deploy.kubernetes.naming import access_secret, curve_secret, server_secret, tls_secret
from mesh.deploy.serialised import Object
from mesh.topology.schema import Topology

READ_BY_GROUP = 0o440  # files of Secrets are root's, and the group is that of the pod


class _Mount(NamedTuple):
    volume: str
    path: str
    secret: str


def secret_mounts(topology: Topology) -> list[Object]:
    return [{"name": one.volume, "mountPath": one.path, "readOnly": True} for one in _mounts(topology)]


def secret_volumes(topology: Topology) -> list[Object]:
    return [
        {"name": one.volume, "secret": {"secretName": one.secret, "defaultMode": READ_BY_GROUP}}
        for one in _mounts(topology)
    ]


def secret_variables(topology: Topology, pool: HostPool) -> list[Object]:
    """Keys of servers, which gateways read, and of KV on disks, which engines read."""
    names = [*(server_keys(topology) if pool.gateways else []), *(disk_keys(topology) if pool.has_engines else [])]
    return [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": server_secret(topology), "key": name}}} for name in names
    ]


def secret_notes(topology: Topology, settings: RenderSettings) -> Iterator[str]:
    """Make a line for each Secret that is not among the manifests."""
    make = f"kubectl -n {settings.namespace} create secret"
    for one in _mounts(topology):
        match one.volume:
            case "curve-key" if not settings.with_secret:
                file = topology.curve_key.name if topology.curve_key is not None else CURVE_FILE
                yield f"needs the mesh's key: {make} generic {one.secret} --from-file={CURVE_FILE}={file}"
            case "access-keys" if topology.access is not None and topology.access.keys is not None:
                file = topology.access.keys.name
                yield f"needs access keys: {make} generic {one.secret} --from-file={ACCESS_FILE}={file}"
            case "tls":
                yield f"needs a certificate: {make} tls {one.secret} --cert=FILE --key=FILE"
    if names := [*server_keys(topology), *disk_keys(topology)]:
        literals = " ".join(f"--from-literal={name}=KEY" for name in names)
        whose = " and ".join(
            [*(["servers"] if server_keys(topology) else []), *(["KV on disks"] if disk_keys(topology) else [])]
        )
        yield f"needs the keys of {whose}: {make} generic {server_secret(topology)} {literals}"


def _mounts(topology: Topology) -> Iterator[_Mount]:
    if topology.curve_key is not None:
        yield _Mount("curve-key", CURVE, curve_secret(topology))
    if topology.access is not None and topology.access.keys is not None:
        yield _Mount("access-keys", ACCESS, access_secret(topology))
    if has_tls(topology):
        yield _Mount("tls", TLS, tls_secret(topology))
