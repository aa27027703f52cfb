"""The register of a mesh's hosts: where each is, and how often it has come up. Pure."""

from collections.abc import Iterable, Mapping

import msgspec

from mesh.process.incarnations import PER_HOST
from mesh.topology.schema import EngineSpec, HostSpec, Topology
from mesh.wire.hosts import HostPlace


class Registry:
    """Numbers the incarnations of hosts: they come back on machines whose clocks differ.

    Numbers begin at ``first``, a time in milliseconds, and leave room for those of the processes of an incarnation.
    """

    def __init__(self, first: int, places: Iterable[HostPlace] = ()) -> None:
        self._places = {place.name: place for place in places}
        self._last = max([first, *(place.incarnation for place in self._places.values())])

    def __repr__(self) -> str:
        return f"<Registry of {sorted(self._places)}>"

    def came_up(self, host: str, address: str, base_port: int, bind: str) -> HostPlace:
        """Take note of a new incarnation of a host, which is there now."""
        self._last += PER_HOST
        self._places[host] = HostPlace(host, address, base_port, bind, self._last)
        return self._places[host]

    def left(self, host: str) -> None:
        """Take note that a host is nowhere any more."""
        if (place := self._places.get(host)) is not None:
            self._last += PER_HOST
            self._places[host] = msgspec.structs.replace(place, incarnation=self._last, is_away=True)

    def place(self, host: str) -> HostPlace | None:
        """Return where a host is; None: nowhere."""
        place = self._places.get(host)
        return None if place is None or place.is_away else place

    def places(self) -> list[HostPlace]:
        return list(self._places.values())


def is_standby(topology: Topology, host: str) -> bool:
    """Say whether all processes of a host wait until they are wanted: then it needs no room before."""
    mine = [spec for spec in topology.processes if spec.host == host]
    return all(isinstance(spec, EngineSpec) and spec.is_standby for spec in mine)


def demand(topology: Topology, host: HostSpec) -> Mapping[str, float]:
    """What a host reserves, by Ray's names: what its table says, else what its processes use.

    An engine uses a CPU for each of its threads and a GPU for each of its devices; a gateway or placement daemon uses a
    CPU. An engine that spans others uses what those do.
    """
    mine = [spec for spec in topology.processes if spec.host == host.name]
    mine = [spec for spec in mine if not (isinstance(spec, EngineSpec) and spec.spans)]
    engines = [spec for spec in mine if isinstance(spec, EngineSpec)]
    cpus = float(sum(engine.threads for engine in engines) + len(mine) - len(engines))
    gpus = float(sum(engine.num_devices or 1 for engine in engines if engine.device.startswith("cuda")))
    wanted = {
        "CPU": cpus if host.cpus is None else host.cpus,
        "GPU": gpus if host.gpus is None else host.gpus,
        "memory": float(host.memory_bytes or 0),
    }
    return {name: amount for name, amount in wanted.items() if amount}
