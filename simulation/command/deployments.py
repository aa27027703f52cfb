"""The deployment that a simulation runs: a topology's file, or a stand-in for servers that only a profile describes."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path

from engines.costs.advice import LatencyPromise
from engines.costs.named_profiles import load_profile
from engines.costs.profiles import ServerTraits
from mesh.errors import UserError
from mesh.topology.parse import load
from mesh.topology.schema import Topology
from simulation.engines.servers import MANY
from simulation.loads.trace_request import TraceRequest

TOPOLOGY = ".toml"
POOL = "servers"
STAND_IN = """
[engines.{pool}]
backend = "simulated"
profile = {profile}
scheduling = "continuous"
chunk_tokens = {traits.chunk_tokens}
max_running = {traits.max_running}
max_waiting = {most}
block_size = {traits.block_size}
prefix_caching = {caching}

[gateways.gateway]
max_waiting = {most}
max_requests = {most}
"""
SERVICE = """
[services.{name}]
model = "as-profiled"
ttft_ms = {ttft_ms}
tpot_ms = {tpot_ms}
"""


@dataclass(frozen=True, slots=True)
class DeploymentSource:
    """``text`` stands in for the file of ``path``, if there is one."""

    path: Path
    text: str | None = None

    def topology(self, counts: Mapping[str, int] | None = None) -> Topology:
        """The same with so many engines in these pools. Raise `UserError`."""
        return load(self.path, self.text, counts=counts)

    def named(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Name the only pool in the place of ``""``. Raise `UserError` if there are several."""
        if "" not in counts:
            return dict(counts)
        pools = {engine.pool or engine.id for engine in self.topology().engines}
        if len(pools) > 1:
            raise UserError(f"--engines: {self.path} has several tables; write it like {min(pools)}=2")
        return {pool or pools.copy().pop(): count for pool, count in counts.items()}


@dataclass(frozen=True, slots=True)
class PromisedS:
    """What all services promise, in seconds; None: what their requests were promised when they were recorded."""

    ttft_s: float | None = None
    tpot_s: float | None = None


def is_topology(path: Path) -> bool:
    return path.suffix == TOPOLOGY


def stand_in(
    path: Path, named: Mapping[str, str], requests: Sequence[TraceRequest], promised: PromisedS
) -> DeploymentSource:
    """Return servers such as a profile is of, for the services that a recording asks for. Raise `UserError`."""
    if set(named) != {""}:
        raise UserError(f"{path}: which servers are to serve it? Name what `mesh profile` wrote with --profile FILE")
    profile = load_profile(named[""])
    traits = profile.server or ServerTraits()
    tables = [
        SERVICE.format(name=json.dumps(name), ttft_ms=f"{1e3 * one.ttft_s:g}", tpot_ms=f"{1e3 * one.tpot_s:g}")
        for name, one in promises_of(path, requests, promised).items()
    ]
    engines = STAND_IN.format(
        pool=POOL,
        profile=json.dumps(named[""] if not is_topology(Path(named[""])) else str(Path(named[""]).absolute())),
        traits=traits,
        caching=str(traits.prefix_caching).lower(),
        most=MANY,
    )
    return DeploymentSource(path, "".join([*tables, engines]))


def promised_now(requests: Iterable[TraceRequest], promised: PromisedS) -> list[TraceRequest]:
    """Return them with what is promised now in the place of what was."""
    return [
        replace(
            request,
            slo_ttft_s=request.slo_ttft_s if promised.ttft_s is None else None,
            slo_tpot_s=request.slo_tpot_s if promised.tpot_s is None else None,
            then=tuple(promised_now(request.then, promised)),
        )
        for request in requests
    ]


def promises_of(path: Path, requests: Sequence[TraceRequest], promised: PromisedS) -> dict[str, LatencyPromise]:
    """Return what each service of a recording promises, by name. Raise `UserError` if nothing says so."""
    by_service: dict[str, list[TraceRequest]] = {}
    for request in requests:
        by_service.setdefault(request.service or "model", []).append(request)
    return {name: _promise(path, by_service[name], promised) for name in sorted(by_service)}


def _promise(path: Path, own: Sequence[TraceRequest], promised: PromisedS) -> LatencyPromise:
    ttft_s = promised.ttft_s or _usual([request.slo_ttft_s for request in own])
    tpot_s = promised.tpot_s or _usual([request.slo_tpot_s for request in own])
    if ttft_s is None or tpot_s is None:
        raise UserError(f"{path}: says no promises, so what is to be kept? Give --ttft and --tpot, in seconds")
    return LatencyPromise(ttft_s, tpot_s)


def _usual(promises: Sequence[float | None]) -> float | None:
    known = sorted(one for one in promises if one is not None and isfinite(one))
    return known[len(known) // 2] if known else None
