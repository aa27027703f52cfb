"""The directory of a mesh: what each process listens on, and what its peers connect to.

On one host these are IPC sockets, known from the topology alone. On several hosts they are TCP ports: those of a host
count up from its base port, in the topology's order. Where a host is, its table in the topology says, or whoever places
hosts: it may come up later than others, and come back elsewhere.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from mesh.addresses import runtime_dir, seats, supervisor_id
from mesh.topology.schema import GatewaySpec, HostSpec, Topology
from mesh.wire.hosts import HostPlace


@dataclass(frozen=True, slots=True)
class Endpoints:
    """ZeroMQ addresses of one process."""

    inbox: str
    broadcast: str


class Directory(Mapping[str, Endpoints]):
    """What to connect to, by process; whoever is on a host that is nowhere yet is left out. See `moved`.

    Make it with `directory`.
    """

    def __init__(self, members: Mapping[str, tuple[str, ...]], places: Iterable[HostPlace]) -> None:
        """``members``: the processes of each host, in the order in which ports are counted."""
        self._members = members
        self._hosts = {process: host for host, processes in members.items() for process in processes}
        self._places: dict[str, HostPlace] = {}
        self._endpoints: Mapping[str, Endpoints] = {}
        self._listening: Mapping[str, Endpoints] = {}
        self.moved(places)

    @classmethod
    def fixed(cls, endpoints: Mapping[str, Endpoints]) -> "Directory":
        """Make a directory of processes whose hosts never move."""
        found = cls({}, ())
        found._endpoints = found._listening = endpoints
        return found

    def __repr__(self) -> str:
        return f"<Directory of {len(self)} processes {[*self._places.values()]}>"

    def __getitem__(self, process: str) -> Endpoints:
        return self._endpoints[process]

    def __iter__(self) -> Iterator[str]:
        return iter(self._endpoints)

    def __len__(self) -> int:
        return len(self._endpoints)

    def listening(self, process: str) -> Endpoints:
        """What the process itself binds. Raise `KeyError` if its host is nowhere yet."""
        return self._listening[process]

    def supervisor_of(self, process: str) -> str | None:
        """Return whose word counts on where hosts are; None: hosts do not move, or it is nobody of the mesh."""
        host = self._hosts.get(process)
        return None if host is None else supervisor_id(host)

    def places(self) -> list[HostPlace]:
        return list(self._places.values())

    def place(self, host: str) -> HostPlace | None:
        return self._places.get(host)

    def away(self) -> list[str]:
        """Return the hosts that are nowhere."""
        here = {name for name, place in self._places.items() if not place.is_away}
        return [host for host in self._members if host not in here]

    def moved(self, places: Iterable[HostPlace]) -> list[str]:
        """Take what is newer than what is known, and answer the processes that are elsewhere, or nowhere, now."""
        found, listening = dict(self._endpoints), dict(self._listening)
        for place in places:
            known = self._places.get(place.name)
            if place.name not in self._members or (known is not None and place.incarnation <= known.incarnation):
                continue
            self._places[place.name] = place
            for index, process in enumerate(self._members[place.name]):
                port = place.base_port + 2 * index
                found[process] = _tcp(place.address, port)
                listening[process] = _tcp(place.bind, port)
                if place.is_away:
                    del found[process], listening[process]
        before, members = self._endpoints, dict.fromkeys([*found, *self._endpoints])
        changed = [one for one in members if found.get(one) != before.get(one)]
        self._endpoints, self._listening = found, listening
        return changed


def directory(topology: Topology, places: Iterable[HostPlace] | None = None) -> Directory:
    """Make the directory of a topology. ``places``: where hosts are; None: where the topology says."""
    if len(topology.hosts) == 1 and topology.cluster is None:
        folder, names = runtime_dir(topology), [name for names in _members(topology).values() for name in names]
        return Directory.fixed(
            {name: Endpoints(f"ipc://{folder}/{name}.inbox", f"ipc://{folder}/{name}.status") for name in names}
        )
    known = places if places is not None else [place_of(host) for host in topology.hosts if host.address]
    return Directory(_members(topology), known)


def place_of(host: HostSpec) -> HostPlace:
    """As the topology says."""
    return HostPlace(host.name, host.address, host.base_port, host.bind or host.address)


def num_ports(topology: Topology, host: str) -> int:
    """That the processes of a host take, from its base port on."""
    return 2 * len(_members(topology)[host])


def _members(topology: Topology) -> dict[str, tuple[str, ...]]:
    """The processes of each host. The supervisor's ports come first."""
    members: dict[str, list[str]] = {host.name: [supervisor_id(host.name)] for host in topology.hosts}
    for spec in topology.processes:
        members[spec.host] += seats(spec.id) if isinstance(spec, GatewaySpec) else (spec.id,)
    return {host: tuple(processes) for host, processes in members.items()}


def _tcp(address: str, port: int) -> Endpoints:
    return Endpoints(f"tcp://{address}:{port}", f"tcp://{address}:{port + 1}")
