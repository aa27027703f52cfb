"""A search for what a running mesh was heard to do, without changing anything."""

import asyncio
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field

from mesh.cli.cluster import visitor
from mesh.errors import CommandError
from mesh.topology.schema import PlacementSpec, Topology
from mesh.wire.status import EngineStatus, GatewayStatus
from router.placement.change.obstacles import Obstacles
from router.placement.observe.bursts import window_s
from router.placement.observe.conduct import Conduct
from router.placement.observe.device_ways import DeviceWays
from router.placement.observe.interval import Threshold
from router.placement.observe.running_mesh import present_plan, waiting
from router.placement.observe.service_monitor import Observed, ServiceMonitor
from router.placement.observe.traffic import Traffic
from router.placement.search.evaluators import load_evaluators
from router.placement.search.plan import Plan
from router.placement.search.question import Answer, answer, make_question, time_is_over
from router.placement.search.score import Score


@dataclass(frozen=True, slots=True)
class HeardMesh:
    engines: Mapping[str, EngineStatus]
    observed: Observed
    waiting: Mapping[str, int] = field(default_factory=dict)  # requests of each service


@dataclass(frozen=True, slots=True)
class DryRun:
    """A search without a daemon. ``found`` is predicted for the ``traffic``; ``achieved`` is what was."""

    present: Plan
    found: Answer
    traffic: Traffic
    achieved: Score


async def listen(topology: Topology, seconds: float) -> HeardMesh:
    """Listen to all statuses."""
    started_s = time.monotonic()
    windows_s = window_s(seconds, topology.timing.heartbeat_s)
    monitor, engines = ServiceMonitor(started_s, windows_s), dict[str, EngineStatus]()
    async with visitor(topology) as sockets:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                async for sender, status in sockets.broadcasts():
                    if isinstance(status, EngineStatus):
                        engines[sender.process] = status
                    elif isinstance(status, GatewayStatus):
                        monitor.observe(sender, status, time.monotonic())
    there = waiting(monitor.present(), engines.values())
    return HeardMesh(engines, monitor.observed(time.monotonic()), there)


def dry_run(topology: Topology, heard: HeardMesh, *, improve_s: float, num_workers: int) -> DryRun:
    """Raise `CommandError` if there is nothing to search for. Local search takes ``improve_s``."""
    present = present_plan(heard.engines)
    if not present.services:
        raise CommandError("no engine was heard that is ready to serve; look with `mesh status`")
    slos = {service.name: service.slo for service in topology.services}
    obstacles = Obstacles.of(heard.engines)
    known = heard.engines.values()
    spec = topology.placement or PlacementSpec()  # without a daemon, as one would without further settings
    question = make_question(
        0,
        present,
        known,
        heard.observed,
        slos,
        Conduct.of(topology),
        threshold=Threshold.of(spec),
        max_services=spec.max_services,
        obstacles=obstacles,
        waiting=heard.waiting,
        ways=DeviceWays.of(topology),
    )
    if not any(service.rate for service in question.asked.services.values()):
        silence = f"nobody asked for anything in {heard.observed.span_s:.0f} s"
        raise CommandError(f"{silence}; `mesh plan search --listen SECONDS` listens longer")
    with closing(load_evaluators(num_workers)) as evaluators:
        found = answer(question, evaluators, time_is_over(improve_s))
    return DryRun(present, found, question.asked, question.achieved(heard.observed))
