"""Hosts that are alike, those of one table of the topology, and what each of them needs."""

from collections.abc import Mapping
from dataclasses import dataclass

from mesh.topology.schema import EngineSpec, GatewaySpec, HostSpec, PlacementSpec, Topology

ProcessSpec = EngineSpec | GatewaySpec | PlacementSpec


@dataclass(frozen=True, slots=True)
class HostPool:
    """The hosts of one table. ``processes``: what each of them runs, in the order of ``hosts``."""

    name: str
    hosts: tuple[HostSpec, ...]
    processes: tuple[tuple[ProcessSpec, ...], ...]

    @property
    def first(self) -> HostSpec:
        return self.hosts[0]

    @property
    def gateways(self) -> tuple[GatewaySpec, ...]:
        """Gateways of the first host: all hosts have the like, see `faults_of`."""
        return _gateways(self.processes[0])

    @property
    def has_engines(self) -> bool:
        return any(isinstance(spec, EngineSpec) for specs in self.processes for spec in specs)

    @property
    def cpus(self) -> float:
        """CPUs that its table says, or else what the busiest host computes with."""
        return self.first.cpus or float(max(sum(map(_threads, specs)) for specs in self.processes))

    @property
    def gpus(self) -> int:
        """GPUs that its table says, or else as many devices as the engines of one host name."""
        return round(self.first.gpus) if self.first.gpus else max(map(_num_gpus, self.processes))

    @property
    def memory_bytes(self) -> int | None:
        return self.first.memory_bytes

    @property
    def labels(self) -> Mapping[str, str]:
        return self.first.labels


def host_pools(topology: Topology) -> tuple[HostPool, ...]:
    """All tables of hosts, in the order of the file."""
    tables: dict[str, list[HostSpec]] = {}
    for host in topology.hosts:
        tables.setdefault(host.pool or host.name, []).append(host)
    return tuple(
        HostPool(name, tuple(hosts), tuple(_processes(topology, host) for host in hosts))
        for name, hosts in tables.items()
    )


def faults_of(pool: HostPool) -> list[str]:
    """Find reasons why its hosts are not alike enough to be made from one template."""
    if len({tuple((gateway.port, gateway.scheme) for gateway in _gateways(specs)) for specs in pool.processes}) == 1:
        return []
    num_gateways = sum(len(_gateways(specs)) for specs in pool.processes)
    problem = f"{num_gateways} gateways on {len(pool.hosts)} hosts, which must be alike"
    return [f"hosts.{pool.name}: {problem}; give gateways a table of hosts of their own, or one for each host"]


def _processes(topology: Topology, host: HostSpec) -> tuple[ProcessSpec, ...]:
    return tuple(spec for spec in topology.processes if spec.host == host.name)


def _gateways(specs: tuple[ProcessSpec, ...]) -> tuple[GatewaySpec, ...]:
    return tuple(spec for spec in specs if isinstance(spec, GatewaySpec))


def _threads(spec: ProcessSpec) -> int:
    match spec:
        case EngineSpec():
            return spec.threads
        case GatewaySpec():
            return 1
        case PlacementSpec():
            return spec.workers


def _num_gpus(specs: tuple[ProcessSpec, ...]) -> int:
    """Engines that name one device share it. Those that span others compute on the devices of those."""
    devices: dict[str, int] = {}
    for spec in specs:
        if isinstance(spec, EngineSpec) and spec.device.startswith("cuda") and not spec.spans:
            device = "cuda:0" if spec.device == "cuda" else spec.device
            devices[device] = max(devices.get(device, 1), spec.num_devices or 1)
    return sum(devices.values())
