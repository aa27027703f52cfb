"""Makes the commands that start the processes of a topology."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mesh.addresses import seats
from mesh.process.freed_memory import ENVIRONMENT
from mesh.process.ties import NO_TIES, Ties
from mesh.supervisor.digests import digest_of
from mesh.topology.schema import EngineSpec, GatewaySpec, Topology

ENGINE = "engine"
GATEWAY = "gateway"
PLACEMENT = "placement"
STOP_ORDER = (PLACEMENT, GATEWAY, ENGINE)  # gateways stop accepting, and finish what engines still run for them


@dataclass(frozen=True, slots=True)
class ChildCommand:
    """A process to keep running. ``env`` is added to the supervisor's own environment; ``argv`` ends with the name."""

    process: str
    kind: str  # one of `STOP_ORDER`
    argv: tuple[str, ...]
    is_standby: bool = False  # started when somebody asks for it
    env: Mapping[str, str] = field(default_factory=dict)
    digest: str = ""  # of all that the process depends on
    descriptors: tuple[int, ...] = ()  # that it inherits
    spans: tuple[str, ...] = ()  # processes whose devices it takes
    server: tuple[str, ...] = ()  # starts what can fork such a process; empty: it is executed

    @property
    def names(self) -> tuple[str, ...]:
        """The names under which the process may be met."""
        return seats(self.process) if self.kind == GATEWAY else (self.process,)

    def under(self, name: str) -> "ChildCommand":
        """The same under another of the names that its process may have."""
        return replace(self, process=name, argv=(*self.argv[:-1], name))


def child_commands(
    topology: Topology, host: str, text: Path | None = None, ties: Ties = NO_TIES
) -> Iterator[ChildCommand]:
    """The processes of one host. ``text``: a copy of the topology's file, which they read instead of it."""
    for spec in topology.processes:
        if spec.host != host:
            continue
        copy = () if text is None else ("--text", str(text))
        arguments = ("--topology", str(topology.path), *copy, *ties.arguments(), "--id", spec.id)
        digest = digest_of(topology, spec)
        if isinstance(spec, EngineSpec):
            argv = (spec.python or sys.executable, "-m", "engines", *arguments)
            env = _environment(spec.threads)
            if spec.most_threads > spec.threads:
                env["OMP_WAIT_POLICY"] = "passive"  # extra threads that spin would hold up whoever needs their cores
            server = () if ties != NO_TIES else _engine_server(spec)
            yield ChildCommand(
                spec.id, ENGINE, argv, spec.is_standby, env, digest, ties.descriptors, spec.spans, server
            )
        else:
            kind, module = (GATEWAY, "router") if isinstance(spec, GatewaySpec) else (PLACEMENT, "router.placement")
            argv = (sys.executable, "-m", module, *arguments)
            env = {**_environment(threads=1), **ENVIRONMENT}
            server = () if ties != NO_TIES else argv[:3]
            yield ChildCommand(spec.id, kind, argv, False, env, digest, ties.descriptors, server=server)


def _engine_server(spec: EngineSpec) -> tuple[str, ...]:
    """Return what starts the fork server of an engine, if it computes on CPUs: what a device's library begins when it
    is imported may not outlive a fork.
    """
    if spec.device != "cpu" or spec.python is not None:
        return ()
    words = (sys.executable, "-m", "engines")
    return (*words, "--with", spec.backend) if spec.backend == "torch" else words


def _environment(threads: int) -> dict[str, str]:
    """Numeric libraries read their number of threads when they load."""
    pools = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
    return {**dict.fromkeys(pools, str(threads)), "TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1"}
