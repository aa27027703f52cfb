"""Reads ``[cluster]`` and ``[hosts]``, and spreads processes over the hosts of one table."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from mesh.topology import keys
from mesh.topology.reading import named_tables, read_table, require
from mesh.topology.report import Report
from mesh.topology.schema import LOCAL_HOST, ClusterSpec, HostSpec

ADDRESS = "what its peers connect to, such as 10.0.0.5"
SEVERAL = "hosts of one table have different addresses; write {index} where they differ, or let [cluster] place them"
INDEX = "{index}"  # in an address: the host's number in its table
PLACED = "is for [cluster], which places hosts; add it, or leave this out"


def read_cluster(document: Mapping[str, Any], report: Report) -> ClusterSpec | None:
    """Read the table of a cluster. None without such a table: hosts are where their own tables say."""
    if "cluster" not in document:
        return None
    fields = read_table(document["cluster"], ("cluster",), keys.CLUSTER, report)
    require(document["cluster"], "on", ("cluster",), "ray, slurm or kubernetes, which then holds the hosts", report)
    return ClusterSpec(**fields) if "on" in fields else None


def read_hosts(document: Mapping[str, Any], cluster: ClusterSpec | None, report: Report) -> tuple[HostSpec, ...]:
    hosts: list[HostSpec] = []
    for name, table in named_tables(document, "hosts", report).items():
        where = ("hosts", name)
        fields = read_table(table, where, keys.HOST, report)
        num = fields.pop("count", 1)
        if cluster is None:
            _check_placed_by_hand(table, where, num, report)
        elif "address" in fields:
            report.add((*where, "address"), f"{cluster.on} says where it is; leave it out, or [cluster]")
        address = fields.pop("address", "")
        for index, host in enumerate(names_of(name, num)):
            hosts.append(HostSpec(name=host, address=address.replace(INDEX, str(index)), pool=name, **fields))
    local = "" if cluster is not None else "127.0.0.1"
    return tuple(hosts) or (HostSpec(LOCAL_HOST, local),)


def _check_placed_by_hand(table: Any, where: tuple[str, ...], num: int, report: Report) -> None:
    require(table, "address", where, ADDRESS, report)
    if num > 1 and isinstance(table, dict) and INDEX not in str(table.get("address", INDEX)):
        report.add((*where, "count"), SEVERAL)
    for key in ("cpus", "gpus", "memory", "labels"):
        if isinstance(table, dict) and key in table:
            report.add((*where, key), PLACED)


def names_of(name: str, num: int) -> list[str]:
    """Return the names of the members of a table with ``count``."""
    return [name] if num == 1 else [f"{name}-{index}" for index in range(num)]


class Spread:
    """Gives the processes that name a table of hosts one of its hosts each, in turns."""

    def __init__(self, hosts: Sequence[HostSpec]) -> None:
        self._members: dict[str, list[str]] = {}
        for host in hosts:
            self._members.setdefault(host.pool or host.name, []).append(host.name)
        self._default = (hosts[0].pool or hosts[0].name) if len(self._members) == 1 else LOCAL_HOST

    def over(self, wanted: str | None) -> Iterator[str]:
        """Hosts for the processes of one table. With one table of hosts, there is no need to name it."""
        name = self._default if wanted is None else wanted
        members = self._members.get(name, [name])
        return (members[index % len(members)] for index in count())
