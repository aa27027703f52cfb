"""Names that DNS, Kubernetes and systemd take, made from those of a topology."""

import re
from collections.abc import Iterable

from mesh.topology.schema import Topology

MOST_LETTERS = 52  # of a StatefulSet: its pods' labels have 63, and a revision at their end

_NOT_IN_DNS = re.compile(r"[^a-z0-9-]+")


def dns_name(name: str) -> str:
    """Make a name of small letters, digits and hyphens."""
    return _NOT_IN_DNS.sub("-", name.lower()).strip("-") or "mesh"


def pool_name(topology: Topology, pool: str) -> str:
    """Name a table of hosts, in a namespace that several meshes may share."""
    return dns_name(f"{topology.name}-{pool}")


def name_faults(topology: Topology, pools: Iterable[str]) -> list[str]:
    """Find reasons why tables of hosts cannot be told apart, or named at all."""
    faults, taken = [], dict[str, str]()
    for pool in pools:
        name = pool_name(topology, pool)
        if len(name) > MOST_LETTERS:
            problem = f"would be called {name}, and a name has {MOST_LETTERS} letters at most"
            faults.append(f"hosts.{pool}: {problem}; use a shorter one, or a shorter [mesh] name")
        if taken.setdefault(name, pool) != pool:
            faults.append(f"hosts.{pool}: would be called {name}, as hosts.{taken[name]}; rename one of them")
    return faults
