"""Writes what ``mesh plan`` prints: which engines hold what, and what the placement daemon makes of it."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from mesh.rules import PlacementMode
from mesh.topology.schema import Topology
from mesh.wire.control import EnginePlace
from mesh.wire.placement import Decision, Forecast, PlacementStatus, ServiceForecast
from mesh.wire.status import EngineStatus
from router.placement.change.changeover import announced, is_in_force
from router.placement.change.replacement import Verdict

PLAIN_WIDTH = 120
BURSTS = 1.5  # dispersion above which services are said to be asked in bursts; 1: Poisson arrivals


def summary(
    topology: Topology, engines: Mapping[str, EngineStatus], daemon: PlacementStatus | None
) -> dict[str, object]:
    """Return the summary that programs read."""
    return {
        "mesh": topology.name,
        "plan": newest_plan(engines),
        "engines": [_engine(spec.id, engines.get(spec.id)) for spec in topology.engines],
        "daemon": msgspec.to_builtins(daemon),
    }


def newest_plan(engines: Mapping[str, EngineStatus]) -> int:
    """Return the newest plan's number; 0: none was announced."""
    return max((status.place.number for status in engines.values() if status.place is not None), default=0)


def print_standing(topology: Topology, engines: Mapping[str, EngineStatus], daemon: PlacementStatus | None) -> None:
    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False)
    console.print(_engines(topology, engines, None if daemon is None else daemon.decision))
    if daemon is not None and daemon.decision is not None:
        if daemon.decision.services:
            console.print(_services(daemon.decision, daemon.made))
        for line in _decision_lines(daemon.decision, daemon):
            console.print(line, markup=False)
    for line in (*_daemon_lines(topology, daemon), in_words(engines)):
        console.print(line, markup=False)


# --- engines ----------------------------------------------------------------------------------------------------------


def _engine(name: str, status: EngineStatus | None) -> dict[str, Any]:
    if status is None:
        return {"id": name, "role": None, "services": [], "loading": [], "leaving": [], "planned": None}
    return {
        "id": name,
        "role": str(status.role),
        "services": [one.name for one in status.services if not one.is_leaving],
        "loading": list(status.loading),
        "leaving": [one.name for one in status.services if one.is_leaving],
        "planned": msgspec.to_builtins(status.place),
    }


def _engines(topology: Topology, engines: Mapping[str, EngineStatus], decision: Decision | None) -> Table:
    proposed = proposal(decision, engines)
    table = Table("engine", "role", "services", "on their way", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    if proposed:
        table.add_column("found")
    for spec in topology.engines:
        row = _engine(spec.id, engines.get(spec.id))
        moving = [f"+{name}" for name in row["loading"]] + [f"-{name}" for name in row["leaving"]]
        services = "it says nothing" if row["role"] is None else ", ".join(row["services"]) or "none"
        cells = [row["id"], row["role"] or "-", services, ", ".join(moving) or "-"]
        table.add_row(*cells, *([_change(row, proposed.get(spec.id))] if proposed else []))
    return table


def _change(row: Mapping[str, Any], place: EnginePlace | None) -> str:
    if place is None or (row["role"] == place.role and row["services"] == list(place.services)):
        return "as it is"
    return f"{place.role}: {', '.join(place.services) or 'none'}"


def proposal(decision: Decision | None, engines: Mapping[str, EngineStatus]) -> Mapping[str, EnginePlace]:
    """Return what the daemon found last, if that is better than what the engines hold, and something else."""
    if decision is None or decision.verdict == Verdict.KEEP or is_in_force(decision.places, engines):
        return {}
    return decision.places


def in_words(engines: Mapping[str, EngineStatus]) -> str:
    """Say whether the newest plan is carried out."""
    number, known = newest_plan(engines), announced(engines)
    if not number:
        return "no plan was made since the engines started"
    if not known:
        return f"plan {number} was not made known to all engines: nothing of it was done"
    missing = [name for name, place in known.items() if not is_in_force({name: place}, engines)]
    if missing:
        return f"plan {number} is not carried out on {', '.join(missing)}; `mesh plan resume` finishes it"
    return f"plan {number} is carried out"


# --- the daemon -------------------------------------------------------------------------------------------------------


def _services(decision: Decision, made: Decision | None) -> Table:
    headings = ("req/s", "prompt", "answer", "in time", "predicted", "found")
    title = f"services in interval {decision.interval}, {decision.interval_s:.0f} s"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("service")
    for heading in (*headings, *(["plan made for"] if made is not None else [])):
        table.add_column(heading, justify="right")
    before = {} if made is None else {one.name: one for one in made.services}
    for one in decision.services:
        attainments = (one.achieved, one.predicted, one.proposed)
        cells = (f"{one.rate:.2f}", _length(one.num_input), _length(one.num_output), *map(_share, attainments))
        table.add_row(one.name, *cells, *([_made_for(before.get(one.name))] if made is not None else []))
    return table


def _made_for(before: ServiceForecast | None) -> str:
    return "-" if before is None else f"{before.rate:.2f}/s, {_share(before.proposed)}"


def _length(moments: tuple[float, float]) -> str:
    return f"{moments[0]:.0f} +- {moments[1]:.0f}"


def _share(attainment: float | None) -> str:
    return "-" if attainment is None else f"{attainment:.1%}"


def _decision_lines(decision: Decision, daemon: PlacementStatus) -> Sequence[str]:
    told = {"achieved": decision.achieved, "predicted": decision.predicted, "found": decision.proposed}
    scores = [f"{name} {_forecast(score)}" for name, score in told.items() if score is not None]
    return [
        *in_bursts({one.name: one.dispersion for one in decision.services}),
        *([f"attainment and normalised latency: {'; '.join(scores)}"] if scores else []),
        f"{_ago(daemon.decision_age_s)}: {decision.verdict}: {decision.reason}",
        *decision.homeless,
    ]


def in_bursts(dispersions: Mapping[str, float]) -> Sequence[str]:
    """One line, of the services whose requests do not come by Poisson."""
    bursts = [f"{name} {dispersion:.1f}" for name, dispersion in dispersions.items() if dispersion > BURSTS]
    told = "in bursts (variance of the number of requests in some seconds over its mean; Poisson has 1)"
    return [f"{told}: {', '.join(bursts)}"] if bursts else []


def _forecast(score: Forecast) -> str:
    return f"{score.attainment:.1%}, {score.normalized_latency:.2f}"


def _daemon_lines(topology: Topology, daemon: PlacementStatus | None) -> Sequence[str]:
    if topology.placement is None:
        return []
    if daemon is None:
        return ["the placement daemon says nothing; `mesh status` tells whether it runs"]
    lines = [] if daemon.error is None else [daemon.error]
    changes = "changes nothing: `mesh plan apply` does" if daemon.mode == PlacementMode.SHADOW else "applies plans"
    return [*lines, f"{topology.placement.id}: {daemon.mode}, {changes}; {daemon.doing}; {_next(daemon)}"]


def _next(daemon: PlacementStatus) -> str:
    return f"next decision in {daemon.next_decision_s:.0f} s" if daemon.next_decision_s else "the next decision is due"


def _ago(seconds: float) -> str:
    return f"{seconds:.0f} s ago" if seconds < 120 else f"{seconds / 60:.0f} min ago"
