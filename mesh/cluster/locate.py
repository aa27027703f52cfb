"""Finds a running mesh for commands, which are of no host: its addresses and its key."""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mesh.addresses import runtime_dir
from mesh.cluster.reports import HostReport, not_running
from mesh.cluster.seen import recall
from mesh.cluster.slurm import is_on_slurm, places_here, places_in_job
from mesh.directory import Directory, directory
from mesh.errors import CommandError
from mesh.sockets.curve import CurveKey
from mesh.topology.schema import ClusterEngine, Topology

LOOK_S = 0.3


@dataclass(frozen=True, slots=True)
class Located:
    """What commands need to speak to a mesh. ``key``: None where it has none.

    ``hosts``: how they are, where a cluster's engine holds them. ``remark``: why all this may be out of date.
    """

    directory: Directory
    key: CurveKey | None
    hosts: Sequence[HostReport] = ()
    remark: str = ""


def locate(topology: Topology) -> Located:
    """Find a mesh. Raise `CommandError` if it does not run, where that can be known, or `UserError`."""
    if topology.cluster is not None and topology.cluster.on is ClusterEngine.RAY:
        return _on_ray(topology)
    key = CurveKey.load(topology.curve_key) if topology.curve_key else None
    if is_on_slurm(topology):
        places = places_here(runtime_dir(topology)) or places_in_job(topology, os.environ)
        return Located(directory(topology, places), key)
    return Located(directory(topology), key)


def _on_ray(topology: Topology) -> Located:
    from mesh.cluster.ray.session import UnreachableError, find_report

    remark = ""
    try:
        report = find_report(topology)
    except UnreachableError as error:
        if (seen := recall(topology)) is None:
            raise
        known = time.strftime("%H:%M:%S", time.localtime(seen.at))
        hosts = [host._replace(state="unknown", problem="Ray does not answer") for host in seen.report.hosts]
        report = seen.report._replace(hosts=hosts)
        remark = f"{error}; the mesh may go on without Ray, with its hosts where they were at {known}"
    if report is None:
        raise not_running(topology)
    key = CurveKey.of(report.key) if report.key else None
    if key is None and topology.curve_key is not None:
        key = CurveKey.load(topology.curve_key)
    return Located(directory(topology, report.places), key, report.hosts, remark)


async def find_room(topology: Topology, engine: str, timeout_s: float, say: Callable[[str], None]) -> None:
    """Return once the host of an engine is there, if a cluster's engine holds it. Raise `CommandError`."""
    if topology.cluster is None or topology.cluster.on is not ClusterEngine.RAY:
        return
    from mesh.cluster.ray.session import find_report, wake

    host, said, deadline = topology.engine(engine).host, "", time.monotonic() + timeout_s
    wake(topology, engine)
    while (report := find_report(topology)) is not None:
        state = next((one.state for one in report.hosts if one.host == host), "unknown")
        if state == "ready":
            return
        if state != said:
            say(f"host {host}: {state}")
        if time.monotonic() > deadline:
            raise CommandError(f"host {host} is {state} after {timeout_s:g} s; it goes on")
        said = state
        await asyncio.sleep(LOOK_S)
    raise not_running(topology)
