"""Units of systemd: one for each host, which runs on a machine that the topology names."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from mesh.deploy.containers import disk_keys, server_keys
from mesh.deploy.deployment import Deployment, RenderedFile, RenderError, Rendering, RenderSettings
from mesh.deploy.names import dns_name
from mesh.errors import EXIT_CONFIGURATION
from mesh.topology.schema import HostSpec, Topology

CONFIG = "/etc/meshserve"
USER = "meshserve"
KILL_S = 20  # for killing what did not drain, and for leaving
Sections = Mapping[str, Mapping[str, object]]

HARDENING: Mapping[str, object] = {
    "NoNewPrivileges": "yes",
    "PrivateTmp": "yes",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "ProtectControlGroups": "yes",
    "ProtectKernelLogs": "yes",
    "ProtectKernelModules": "yes",
    "ProtectKernelTunables": "yes",
    "ProtectClock": "yes",
    "ProtectHostname": "yes",
    "RestrictAddressFamilies": "AF_UNIX AF_INET AF_INET6 AF_NETLINK",
    "RestrictNamespaces": "yes",
    "RestrictRealtime": "yes",
    "RestrictSUIDSGID": "yes",
    "LockPersonality": "yes",
    "SystemCallArchitectures": "native",
    "CapabilityBoundingSet": "",
    "UMask": "0077",
}


def render(deployment: Deployment, settings: RenderSettings) -> Rendering:
    """Raise `UserError` for a topology whose hosts are placed by something else."""
    topology = deployment.topology
    if topology.cluster is not None:
        problem = f"{topology.cluster.on} says where hosts are, and units are of machines that the file names"
        raise RenderError(topology, [f"cluster: {problem}; give each host an address instead"])
    units = [_unit_file(topology, host, settings) for host in topology.hosts]
    files = (
        RenderedFile(f"etc/meshserve/{topology.name}.toml", deployment.text),
        RenderedFile("usr/lib/sysusers.d/meshserve.conf", f"u {USER} - MeshServe /var/lib/{USER}\n"),
        *units,
    )
    return Rendering(files, tuple(_notes(topology)))


def unit_name(topology: Topology, host: HostSpec) -> str:
    return f"meshserve-{dns_name(topology.name)}-{dns_name(host.name)}.service"


def _unit_file(topology: Topology, host: HostSpec, settings: RenderSettings) -> RenderedFile:
    return RenderedFile(f"etc/systemd/system/{unit_name(topology, host)}", _text(_unit(topology, host, settings)))


def _unit(topology: Topology, host: HostSpec, settings: RenderSettings) -> Sections:
    """SIGTERM goes to the supervisor alone, which drains what it runs. Its successor adopts what outlives it."""
    file = f"{CONFIG}/{topology.name}.toml"
    return {
        "Unit": {
            "Description": f"MeshServe {topology.name}, host {host.name}",
            "After": "network-online.target",
            "Wants": "network-online.target",
            "StartLimitIntervalSec": 0,
        },
        "Service": {
            "Type": "exec",
            "User": USER,
            "ExecStart": f"{settings.command} up {file} --host {host.name}",
            "Environment": f"MESHSERVE_RUNTIME_DIR=/run/{USER} MESHSERVE_CACHE=/var/cache/{USER} HOME=/var/lib/{USER}",
            "RuntimeDirectory": USER,
            "RuntimeDirectoryMode": "0700",
            "RuntimeDirectoryPreserve": "yes",
            "StateDirectory": USER,
            "CacheDirectory": USER,
            "KillMode": "process",
            "TimeoutStopSec": round(2 * topology.timing.drain_s + KILL_S),
            "Restart": "on-failure",
            "RestartSec": 5,
            "RestartPreventExitStatus": EXIT_CONFIGURATION,
            "LimitNOFILE": 65536,
            "OOMPolicy": "continue",
            **HARDENING,
        },
        "Install": {"WantedBy": "multi-user.target"},
    }


def _text(sections: Sections) -> str:
    return "\n".join(_section(name, settings) for name, settings in sections.items())


def _section(name: str, settings: Mapping[str, object]) -> str:
    return "\n".join([f"[{name}]", *(f"{key}={value}" for key, value in settings.items())]) + "\n"


def _notes(topology: Topology) -> Iterator[str]:
    for host in topology.hosts:
        where = host.address if len(topology.hosts) > 1 else "this machine"
        yield f"{unit_name(topology, host)} is for {where}"
    for key, path in _secrets(topology):
        yield f"{key}: {path.name} must be {USER}'s on each machine, with mode 0600, where {CONFIG} has it"
    for name in server_keys(topology):
        units = ", ".join(sorted({unit_name(topology, host) for host in _hosts_of_gateways(topology)}))
        yield f"{name}: a key of servers; give it to {units} by `systemctl edit`, Environment={name}=KEY"

    for name in disk_keys(topology):
        units = ", ".join(sorted({unit_name(topology, host) for host in _hosts_of_engines(topology)}))
        yield f"{name}: the key of KV blocks on disks; give it to {units} by `systemctl edit`, Environment={name}=KEY"


def _hosts_of_gateways(topology: Topology) -> Iterator[HostSpec]:
    names = {gateway.host for gateway in topology.gateways}
    yield from (host for host in topology.hosts if host.name in names)


def _hosts_of_engines(topology: Topology) -> Iterator[HostSpec]:
    names = {engine.host for engine in topology.own_engines}
    yield from (host for host in topology.hosts if host.name in names)


def _secrets(topology: Topology) -> Sequence[tuple[str, Path]]:
    access = topology.access.keys if topology.access is not None else None
    disk = None if topology.kv_tiers is None else topology.kv_tiers.disk_key_file
    given = [("mesh.curve_key", topology.curve_key), ("access.keys", access), ("kv_tiers.disk_key_file", disk)]
    given += [(f"engines.{name}.api_key_file", server.api_key_file) for name, server in topology.servers.items()]
    return [(key, path) for key, path in given if path is not None]
