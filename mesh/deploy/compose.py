"""A Compose file: one container for each host, on one machine and in a network of their own."""

from collections.abc import Iterator
from pathlib import Path

from mesh.deploy.addresses import give_addresses
from mesh.deploy.containers import (
    ACCESS,
    ACCESS_FILE,
    CERT_FILE,
    CONFIG,
    CURVE,
    CURVE_FILE,
    ENVIRONMENT,
    READY_FILE,
    RUNTIME,
    STATE,
    TLS,
    TLS_KEY_FILE,
    USER_ID,
    Document,
    contained,
    disk_keys,
    needs_curve_key,
    profile_files,
    server_keys,
    topology_file,
)
from mesh.deploy.deployment import Deployment, RenderedFile, RenderError, Rendering, RenderSettings
from mesh.deploy.host_pools import HostPool, ProcessSpec, host_pools
from mesh.deploy.names import dns_name, name_faults
from mesh.deploy.serialised import Object, to_toml, to_yaml
from mesh.topology.schema import GatewaySpec, HostSpec, Topology

FILE = "compose.yaml"
KILL_S = 20  # for killing what did not drain, and for leaving


def render(deployment: Deployment, settings: RenderSettings) -> Rendering:
    """Raise `UserError` for what containers of one machine cannot have."""
    topology, pools = deployment.topology, host_pools(deployment.topology)
    texts = {Path(topology_file(topology)).name: to_toml(_document(deployment, pools)), **profile_files(deployment)}
    secrets = {Path(target).name: str(file) for target, file in _secret_files(topology)}
    services: Object = {}
    for pool in pools:
        for host, processes in zip(pool.hosts, pool.processes, strict=True):
            service = _service(topology, pool, host, processes, settings)
            service["configs"] = [{"source": name, "target": f"{CONFIG}/{name}"} for name in texts]
            services[dns_name(host.name)] = service
    content: Object = {
        "name": dns_name(topology.name),
        "services": services,
        "volumes": {_volume(host): {} for host in topology.hosts},
        "configs": {name: {"content": text.replace("$", "$$")} for name, text in texts.items()},
    }
    if secrets:
        content["secrets"] = {name: {"file": file} for name, file in secrets.items()}
    return Rendering((RenderedFile(FILE, to_yaml([content])),), tuple(_notes(secrets)))


def _document(deployment: Deployment, pools: tuple[HostPool, ...]) -> Document:
    topology, faults = deployment.topology, list[str]()
    document = contained(deployment, faults)
    faults += name_faults(topology, [pool.name for pool in pools])
    faults += [f"hosts.{pool.name}.labels: there is one machine; leave them out" for pool in pools if pool.labels]
    taken: dict[int, GatewaySpec] = {}
    for gateway in topology.gateways:
        if other := taken.get(gateway.port):
            faults.append(f"gateways: {other.id} and {gateway.id} have port {gateway.port} of one machine; change one")
        taken[gateway.port] = gateway
    if faults:
        raise RenderError(topology, faults)
    give_addresses(document, pools, lambda pool, index: f"{dns_name(pool.name)}{_suffix(pool, index)}")
    if needs_curve_key(topology):
        document["mesh"]["curve_key"] = f"{CURVE}/{CURVE_FILE}"
    return document


def _suffix(pool: HostPool, index: str) -> str:
    return f"-{index}" if len(pool.hosts) > 1 else ""


def _service(
    topology: Topology, pool: HostPool, host: HostSpec, processes: tuple[ProcessSpec, ...], settings: RenderSettings
) -> Object:
    gateways = [spec for spec in processes if isinstance(spec, GatewaySpec)]
    command = ["up", topology_file(topology), "--host", host.name, "--ready-file", READY_FILE]
    service: Object = {
        "image": settings.image,
        "command": command,
        "user": f"{USER_ID}:{USER_ID}",
        "environment": dict(ENVIRONMENT),
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "restart": "unless-stopped",
        "stop_grace_period": f"{round(2 * topology.timing.drain_s + KILL_S)}s",
        "tmpfs": [f"{RUNTIME}:uid={USER_ID},gid={USER_ID},mode=0700", "/tmp"],
        "volumes": [f"{_volume(host)}:{STATE}"],
        "healthcheck": {"test": ["CMD", "test", "-e", READY_FILE], "interval": "10s", "start_period": "20m"},
    }
    if gateways:
        service["environment"] |= {name: f"${{{name}:?set it to the servers' key}}" for name in server_keys(topology)}
        service["ports"] = [f"{gateway.port}:{gateway.port}" for gateway in gateways]
    if pool.has_engines:
        service["environment"] |= {
            name: f"${{{name}:?set it to the key of KV on disk}}" for name in disk_keys(topology)
        }
    if pool.memory_bytes is not None:
        service |= {"mem_limit": pool.memory_bytes, "shm_size": pool.memory_bytes // 2}
    if pool.gpus:
        device = {"driver": "nvidia", "count": pool.gpus, "capabilities": ["gpu"]}
        service["deploy"] = {"resources": {"reservations": {"devices": [device]}}}
    if secrets := [_mounted(target) for target, _ in _secret_files(topology)]:
        service["secrets"] = secrets
    return service


def _secret_files(topology: Topology) -> Iterator[tuple[str, Path]]:
    """Paths in containers, and files of this machine."""
    if needs_curve_key(topology):
        yield f"{CURVE}/{CURVE_FILE}", topology.curve_key or topology.path.parent / CURVE_FILE
    if topology.access is not None and topology.access.keys is not None:
        yield f"{ACCESS}/{ACCESS_FILE}", topology.access.keys
    certified = [gateway for gateway in topology.gateways if gateway.tls_cert is not None]
    for gateway in certified[:1]:
        if gateway.tls_cert is not None and gateway.tls_key is not None:
            yield f"{TLS}/{CERT_FILE}", gateway.tls_cert
            yield f"{TLS}/{TLS_KEY_FILE}", gateway.tls_key


def _mounted(target: str) -> Object:
    return {"source": Path(target).name, "target": target}


def _volume(host: HostSpec) -> str:
    return f"state-{dns_name(host.name)}"


def _notes(secrets: dict[str, str]) -> Iterator[str]:
    """Compose mounts files as they are: it changes no owner."""
    for file in secrets.values():
        yield f"{file}: containers read it as user {USER_ID}; run `chown {USER_ID} {file}`"
