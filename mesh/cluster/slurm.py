"""Hosts that Slurm holds: the nodes of a job, in their order, are the hosts of the topology, in theirs.

``srun`` starts one ``mesh up --host auto`` on each node. Slurm tells it in its environment which nodes the job has and
which of them it is on, so nobody has to be asked, and commands find the mesh in the same way.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from mesh.errors import UserError
from mesh.process.incarnations import PER_HOST
from mesh.process.ties import Ties
from mesh.topology.schema import ClusterEngine, Topology
from mesh.wire.hosts import HostPlace

AUTO = "auto"  # as a host: the one that this machine is

_BRACKETS = re.compile(r"^([^\[]*)\[([^\]]*)\](.*)$")
_NEXT_COMMA = re.compile(r",(?![^\[]*\])")


def is_on_slurm(topology: Topology) -> bool:
    return topology.cluster is not None and topology.cluster.on is ClusterEngine.SLURM


def expand_nodes(text: str) -> list[str]:
    """Names of nodes, from Slurm's short form, such as ``gpu[01-03,7],login``. Raise `ValueError` if it is none."""
    return [name for part in _NEXT_COMMA.split(text) if part for name in _expand(part)]


def places_in_job(topology: Topology, environment: Mapping[str, str]) -> list[HostPlace]:
    """Say where hosts are, by the environment of a job. Raise `UserError` outside of one, or if it is too small."""
    nodes = expand_nodes(_variable(topology, environment, "SLURM_JOB_NODELIST"))
    if len(nodes) < len(topology.hosts):
        problem = f"the job has {len(nodes)} nodes for {len(topology.hosts)} hosts"
        raise UserError(f"{topology.path}: {problem}; ask for --nodes={len(topology.hosts)}")
    incarnation = PER_HOST * (1 + int(environment.get("SLURM_RESTART_COUNT") or 0))
    return [
        HostPlace(host.name, node, host.base_port, host.bind or "*", incarnation)
        for host, node in zip(topology.hosts, nodes, strict=False)
    ]


def places_file(runtime: Path, host: str) -> Path:
    """Return the file in which the processes of a host of this machine read where hosts are."""
    return runtime / f"{host}.places"


def places_here(runtime: Path) -> list[HostPlace]:
    """Say where hosts are, as a host of this machine knows it: a later step of a job may have fewer nodes than that."""
    found = [Ties(places=file).read_places() for file in sorted(runtime.glob("*.places"))]
    return max((places for places in found if places), key=lambda places: places[0].incarnation, default=[])


def host_of_task(topology: Topology, environment: Mapping[str, str]) -> str:
    """Name the host that this task of a job is. Raise `UserError` if there are more tasks than hosts."""
    task = int(_variable(topology, environment, "SLURM_PROCID"))
    if task >= len(topology.hosts):
        problem = f"this is task {task}, and there are {len(topology.hosts)} hosts"
        raise UserError(f"{topology.path}: {problem}; use srun --ntasks={len(topology.hosts)} --ntasks-per-node=1")
    return topology.hosts[task].name


def _variable(topology: Topology, environment: Mapping[str, str], name: str) -> str:
    if not (value := environment.get(name)):
        wanted = "`mesh deploy render --to slurm` makes a script for sbatch"
        raise UserError(f"{topology.path}: its hosts are nodes of a job, and there is no {name} here; {wanted}")
    return value


def _expand(part: str) -> Iterator[str]:
    if (match := _BRACKETS.match(part)) is None:
        yield part
        return
    before, ranges, after = match.groups()
    for number in ranges.split(","):
        for middle in _count(number):
            yield from (f"{before}{middle}{rest}" for rest in (_expand(after) if after else ("",)))


def _count(numbers: str) -> Iterator[str]:
    """Numbers from one to another, with as many digits as the first one has."""
    first, dash, last = numbers.partition("-")
    if not dash:
        yield first
        return
    for number in range(int(first), int(last) + 1):
        yield f"{number:0{len(first)}}"
