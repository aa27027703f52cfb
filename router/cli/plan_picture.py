"""Plans as pictures: which engine holds what now and what it is to hold, and what is forecast of that."""

from collections.abc import Mapping, Sequence

from mesh.show.pages import Page, PageTable
from mesh.show.picture import Bars, Cells, GridCell, Panel, Picture
from mesh.topology.schema import Topology
from mesh.wire.placement import PlacementStatus
from mesh.wire.status import EngineStatus
from router.cli.standing_tables import in_words, proposal
from router.placement.change.reports import reason_of
from router.placement.dry_run import DryRun
from router.placement.search.plan import Group
from router.placement.search.score import Score

NOW, FOUND = "now", "found"
ACHIEVED, PREDICTED, WITH_PLAN = "achieved", "predicted as it is", "predicted with the plan found"
Shares = Mapping[str, Sequence[float | None]]  # percent of each service


def standing_page(topology: Topology, engines: Mapping[str, EngineStatus], daemon: PlacementStatus | None) -> Page:
    """What runs, and what the placement daemon found, if there is one."""
    decision = None if daemon is None else daemon.decision
    wanted = proposal(decision, engines)
    rows = {}
    for spec in topology.engines:
        now = _cell_of(engines.get(spec.id))
        place = wanted.get(spec.id)
        then = now if place is None else _marked(GridCell(place.services, str(place.role)), now)
        rows[spec.id] = [now, then] if wanted else [now]
    services = () if decision is None else decision.services
    shares: Shares = {
        name: [None if share is None else 100 * share for share in values]
        for name, values in (
            (ACHIEVED, [one.achieved for one in services]),
            (PREDICTED, [one.predicted for one in services]),
            (WITH_PLAN, [one.proposed for one in services]),
        )
    }
    notes = [
        in_words(engines),
        *([] if decision is None else [f"{decision.verdict}: {decision.reason}", *decision.homeless]),
    ]
    return _page(f"{topology.name}: placement", rows, [one.name for one in services], shares, notes)


def search_page(name: str, run: DryRun) -> Page:
    """A plan that a search found, beside what the engines hold."""
    found = run.found.proposal
    then = {group.id: group for group in found.plan.groups}
    rows = {}
    for group in run.present.groups:
        now = _cell_of_group(group)
        rows[group.id] = [now, _marked(_cell_of_group(then[group.id]), now)]
    services = sorted(run.present.services)
    scores = {ACHIEVED: run.achieved, PREDICTED: found.present, WITH_PLAN: found.wanted}
    shares = {name: [_share(score, service) for service in services] for name, score in scores.items()}
    notes = [f"{found.verdict}: {reason_of(found)}", *run.found.homeless.values()]
    return _page(f"{name}: placement, by a search", rows, services, shares, notes)


def _page(
    title: str, rows: Mapping[str, Sequence[GridCell]], services: Sequence[str], shares: Shares, notes: Sequence[str]
) -> Page:
    columns = [NOW, FOUND][: max(map(len, rows.values()), default=1)]
    panels: list[Panel] = [Cells("Which engine holds which services", columns, rows)]
    known = {name: values for name, values in shares.items() if any(value is not None for value in values)}
    if known:
        panels.append(Bars("Attainment of services", "requests in time, %", services, known, x_range=(0, 100)))
    holds = [[engine, *(_in_words(cell) for cell in cells)] for engine, cells in rows.items()]
    tables = [PageTable("Engines", ("engine", *columns), holds)]
    if known:
        numbers = [
            [service, *("-" if values[index] is None else f"{values[index]:.1f} %" for values in known.values())]
            for index, service in enumerate(services)
        ]
        tables.append(PageTable("Attainment", ("service", *known), numbers))
    return Page(title, "", (Picture(title, panels, num_columns=1),), tables=tables, notes=notes)


def _in_words(cell: GridCell) -> str:
    return f"{cell.words}: {', '.join(cell.names) or 'nothing'}" if cell.words else "it says nothing"


def _marked(cell: GridCell, before: GridCell) -> GridCell:
    same = set(cell.names) == set(before.names) and cell.words == before.words
    return before if same else GridCell(cell.names, cell.words, is_marked=True)


def _cell_of(status: EngineStatus | None) -> GridCell:
    if status is None:
        return GridCell(())
    return GridCell([one.name for one in status.services if not one.is_leaving], str(status.role))


def _cell_of_group(group: Group) -> GridCell:
    return GridCell(sorted(group.services), str(group.role))


def _share(score: Score, service: str) -> float | None:
    found = score.services.get(service)
    return None if found is None or not found.num_requests else 100 * found.attainment
