"""Finds the deployment that commands about a running mesh mean when none is named."""

from collections.abc import Iterator
from pathlib import Path

from mesh.errors import UserError

SERVED = "served.toml"  # in the runtime folder of a mesh that `mesh serve` started
DEFAULT_TOPOLOGY = Path("deploy/topology.toml")


def running_topology(named: str = "") -> Path:
    """Return the file that is named, else the one of `mesh serve` if that runs, else the default one.

    Where the default one runs, too, it is meant. Raise `UserError` if several meshes of `mesh serve` run.
    """
    if named:
        return Path(named)
    running = dict(_running())
    served = [folder / SERVED for folder, topology in running.items() if topology == str(folder / SERVED)]
    if not served or str(DEFAULT_TOPOLOGY.absolute()) in running.values():
        return DEFAULT_TOPOLOGY
    if len(served) > 1:
        raise UserError(f"several meshes run; name the topology of one: {', '.join(map(str, sorted(served)))}")
    return served[0]


def _running() -> Iterator[tuple[Path, str]]:
    """The runtime folders of meshes that run on this machine, and their topologies."""
    from mesh.addresses import runtime_root

    locks = list(runtime_root().glob("*/supervisor-*.lock"))
    if locks:
        from mesh.supervisor.lock import holder

        for lock in locks:
            if found := holder(lock.parent, lock.stem.removeprefix("supervisor-")):
                yield lock.parent, found.topology
