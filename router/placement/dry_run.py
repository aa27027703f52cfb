"""A search for what a running mesh was heard to do, without changing anything."""

import asyncio
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from random import Random

from engines.costs import serving_s
from mesh.cli.cluster import visitor
from mesh.errors import CommandError
from mesh.messages import EngineStatus, GatewayStatus
from mesh.topology.schema import Topology
from router.placement.catalogue import Catalogue
from router.placement.evaluators import load_evaluators
from router.placement.greedy import Scored
from router.placement.live import catalogue_of, cluster_of, present_plan
from router.placement.monitor import Observed, ServiceMonitor
from router.placement.score import Score
from router.placement.search import Found, search
from router.placement.traffic import ServiceTraffic, Traffic

DRAWN_S = 60.0  # of traffic that plans are scored on
LENGTH_DEVIATIONS = 4.0  # above the mean: the longest request that a place must have room for


@dataclass(frozen=True, slots=True)
class Heard:
    engines: Mapping[str, EngineStatus]
    observed: Observed


@dataclass(frozen=True, slots=True)
class DryRun:
    """``present`` and ``found`` are predicted for the ``traffic``; ``achieved`` is what was."""

    present: Scored
    found: Found
    traffic: Traffic
    achieved: Score


async def listen(topology: Topology, seconds: float) -> Heard:
    """To all statuses."""
    started_s = time.monotonic()
    monitor, engines = ServiceMonitor(started_s), dict[str, EngineStatus]()
    async with visitor(topology) as sockets:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                async for sender, status in sockets.broadcasts():
                    if isinstance(status, EngineStatus):
                        engines[sender.process] = status
                    elif isinstance(status, GatewayStatus):
                        monitor.observe(sender, status)
    return Heard(engines, monitor.observed(time.monotonic()))


def dry_run(topology: Topology, heard: Heard, *, improve_s: float, num_workers: int) -> DryRun:
    """Raise `CommandError` if there is nothing to search for. Local search takes ``improve_s``."""
    present, asked = present_plan(heard.engines), heard.observed.traffic()
    served = sorted(present.services)
    if not served:
        raise CommandError("no engine was heard that is ready to serve; look with `mesh status`")
    if not any(asked.rate(name) for name in served):
        silence = f"nobody asked for anything in {heard.observed.span_s:.0f} s"
        raise CommandError(f"{silence}; `mesh plan --search --listen SECONDS` listens longer")
    most = max(2, *(len(group.services) for group in present.groups))
    catalogue = catalogue_of(heard.engines.values(), {name: _longest(asked, name) for name in served}, most)
    traffic = Traffic(DRAWN_S, asked.services).drawn_anew(0)
    slos = {service.name: service.slo for service in topology.services}
    with closing(load_evaluators(num_workers)) as evaluators:
        evaluator = evaluators.evaluator(catalogue, traffic, slos)
        until = time.monotonic() + improve_s

        def is_over(_: int) -> bool:
            return time.monotonic() >= until

        found = search(cluster_of(present), catalogue, traffic, evaluator, Random(0), is_over, present)
        [score] = evaluator.exact([present])
    promises = {name: slos[name].attainment for name in served}
    achieved = heard.observed.score({name: _alone_s(catalogue, asked, name) for name in served}, promises)
    return DryRun(Scored(present, score), found, asked, achieved)


def _longest(asked: Traffic, service: str) -> int:
    traffic = asked.services.get(service)
    if traffic is None:
        return 1
    both = (traffic.num_input, traffic.num_output)
    return round(sum(moments.mean + LENGTH_DEVIATIONS * moments.deviation for moments in both)) + 1


def _alone_s(catalogue: Catalogue, asked: Traffic, service: str) -> float:
    """The execution time of a mean request."""
    by_size = catalogue.footprints[service]
    cost = by_size[min(by_size)].profile
    traffic: ServiceTraffic | None = asked.services.get(service)
    num_input, num_output = (1.0, 1.0) if traffic is None else (traffic.num_input.mean, traffic.num_output.mean)
    return serving_s(cost.prefill, cost.decode, 1, round(num_input) or 1, max(0, round(num_output) - 1))
