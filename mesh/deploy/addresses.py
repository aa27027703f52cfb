"""Hosts that find each other by names which a cluster's DNS knows before they run."""

from collections.abc import Callable, Sequence

from mesh.deploy.containers import Document
from mesh.deploy.host_pools import HostPool
from mesh.topology.hosts import INDEX

AddressOf = Callable[[HostPool, str], str]  # of a host of the pool; the second is its number in it, or `INDEX`


def give_addresses(document: Document, pools: Sequence[HostPool], address_of: AddressOf) -> None:
    """Hosts are where these names say, and not where a machine's table or a cluster's engine says.

    A file without tables of hosts stays without: all of it runs in one container.
    """
    document.pop("cluster", None)
    if "hosts" in document:
        document["hosts"] = {pool.name: _table(pool, address_of) for pool in pools}


def _table(pool: HostPool, address_of: AddressOf) -> Document:
    table: Document = {"bind": "*", "base_port": pool.first.base_port}
    if len(pool.hosts) == 1:
        return {"address": address_of(pool, "0"), **table}
    return {"address": address_of(pool, INDEX), "count": len(pool.hosts), **table}
