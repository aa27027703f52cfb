"""A script for sbatch: one task on each node of the job runs the host that it is."""

import shlex
from collections.abc import Iterator, Sequence
from math import ceil

from mesh.deploy.deployment import Deployment, RenderedFile, RenderError, Rendering, RenderSettings
from mesh.deploy.host_pools import HostPool, host_pools
from mesh.deploy.names import dns_name
from mesh.topology.schema import ClusterEngine, Topology

MIB = 2**20
KILL_S = 20  # for killing what did not drain, and for leaving


def render(deployment: Deployment, settings: RenderSettings) -> Rendering:
    """Raise `UserError` for a topology whose hosts no job can hold."""
    topology, pools = deployment.topology, host_pools(deployment.topology)
    if faults := list(_faults(topology, pools)):
        raise RenderError(topology, faults)
    script = "\n".join([*_directives(topology, pools, settings), "", *_commands(topology, settings), ""])
    file = RenderedFile(f"{dns_name(topology.name)}.sbatch", script, 0o755)
    return Rendering((file,), tuple(_notes(topology, pools)))


def _faults(topology: Topology, pools: Sequence[HostPool]) -> Iterator[str]:
    if topology.cluster is None or topology.cluster.on is not ClusterEngine.SLURM:
        yield 'cluster: does not say that Slurm holds the hosts; write on = "slurm", and give hosts no address'
    for pool in pools:
        if pool.labels:
            yield f"hosts.{pool.name}.labels: nodes of Slurm have features; leave it out, and use sbatch --constraint"


def _directives(topology: Topology, pools: Sequence[HostPool], settings: RenderSettings) -> Iterator[str]:
    """Nodes of a job are alike, so each has what the largest host needs. All is drained before the time is over."""
    name = dns_name(topology.name)
    options = {
        "job-name": name,
        "nodes": len(topology.hosts),
        "ntasks-per-node": 1,
        "cpus-per-task": ceil(max(pool.cpus for pool in pools)),
        "time": settings.time_limit,
        "signal": f"TERM@{ceil(2 * topology.timing.drain_s + KILL_S)}",
        "output": f"{name}-%j.log",
        "open-mode": "append",
    }
    if memory := max(pool.memory_bytes or 0 for pool in pools):
        options["mem"] = f"{ceil(memory / MIB)}M"
    if gpus := max(pool.gpus for pool in pools):
        options["gpus-per-node"] = gpus
    yield "#!/bin/bash"
    for option, value in options.items():
        yield f"#SBATCH --{option}={value}"
    yield "#SBATCH --requeue"


def _commands(topology: Topology, settings: RenderSettings) -> Iterator[str]:
    """A host that fails does not end the others: the mesh goes on without it."""
    yield "set -euo pipefail"
    yield 'export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"'
    words = ["srun", "--kill-on-bad-exit=0", "--label", settings.command, "up", str(topology.path), "--host", "auto"]
    yield f"exec {shlex.join(words)}"


def _notes(topology: Topology, pools: Sequence[HostPool]) -> Iterator[str]:
    files = [topology.path, *filter(None, (topology.curve_key, topology.access and topology.access.keys))]
    yield f"every node must see {', '.join(map(str, files))} and the same version of mesh: use a shared file system"
    if len({(pool.cpus, pool.gpus, pool.memory_bytes) for pool in pools}) > 1:
        yield "hosts need different things, and each node of the job has what the largest one needs"
