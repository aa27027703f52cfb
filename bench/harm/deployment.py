"""A topology that is written into a folder of its own, and where its processes are."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.live.ports import free_range
from mesh.sockets.curve import make_key_file
from mesh.topology.parse import load
from mesh.topology.schema import Topology

MESH_NAME = "harm"
MODEL = "tiny"  # with random weights, which are there in an instant
KEY = "mesh.key"
PORTS_OF_HOST = 10  # two of each process: a supervisor, and two gateways, which have two names each, or an engine

Tables = dict[str, Mapping[str, object]]  # of TOML, by name


@dataclass(frozen=True, slots=True)
class Deployment:
    """``folders`` are runtime folders by process, where they are not the mesh's own."""

    topology: Topology
    folders: Mapping[str, Path] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return self.topology.path

    @property
    def runtime(self) -> Path:
        return self.path.parent / "run"

    @property
    def hangs(self) -> Path:
        """Where a file with the name of an engine makes its next step hang."""
        return self.path.parent / "hangs"

    @property
    def engines(self) -> tuple[str, ...]:
        return tuple(engine.id for engine in self.topology.engines)

    @property
    def gateways(self) -> tuple[str, ...]:
        return tuple(gateway.id for gateway in self.topology.gateways)

    @property
    def ports(self) -> tuple[int, ...]:
        return tuple(gateway.port for gateway in self.topology.gateways)

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(host.name for host in self.topology.hosts)

    @property
    def supervised(self) -> tuple[str, ...]:
        """All processes but supervisors."""
        placement = self.topology.placement
        return (*self.engines, *self.gateways, *([placement.id] if placement else []))

    def folder(self, process: str) -> Path:
        """Where a process really listens."""
        return self.folders.get(process, self.runtime) / MESH_NAME


def write(folder: Path, tables: Tables, hosts: Sequence[str] = ()) -> Topology:
    """Write the topology with these tables. ``hosts`` are all this machine, by TCP with CURVE; none of them knows."""
    mesh: dict[str, object] = {"name": MESH_NAME}
    tables = {"mesh": mesh, **tables}
    if hosts:
        make_key_file(folder / KEY)
        mesh["curve_key"] = KEY
        first = free_range(PORTS_OF_HOST * len(hosts))
        for number, host in enumerate(hosts):
            tables[f"hosts.{host}"] = {"address": "127.0.0.1", "base_port": first + number * PORTS_OF_HOST}
    path = folder / "topology.toml"
    path.write_text("".join(f"[{name}]\n{_lines(table)}" for name, table in tables.items()))
    return load(path)


def _lines(table: Mapping[str, object]) -> str:
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())
