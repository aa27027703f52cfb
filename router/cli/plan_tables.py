"""Writes what ``mesh plan search`` prints."""

import json
import sys
from collections.abc import Sequence

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from router.cli.standing_tables import in_bursts
from router.placement.change.reports import reason_of
from router.placement.dry_run import DryRun
from router.placement.search.plan import Group, Plan
from router.placement.search.score import Score

PLAIN_WIDTH = 120


def print_json(run: DryRun) -> None:
    def plan(what: Plan) -> dict[str, object]:
        return {"number": what.number, "engines": [msgspec.to_builtins(group) for group in what.groups]}

    def score(what: Score) -> dict[str, object]:
        services = {
            name: {"attainment": one.attainment, "late": one.num_late, "requests": one.num_requests}
            for name, one in what.services.items()
        }
        return {"attainment": what.attainment, "normalized_latency": what.normalized_latency, "services": services}

    proposal = run.found.proposal
    found = {
        "present": plan(run.present),
        "traffic": msgspec.to_builtins(run.traffic),
        "achieved": score(run.achieved),
        "predicted": score(proposal.present),
        "wanted": plan(proposal.plan),
        "predicted_wanted": score(proposal.wanted),
        "verdict": proposal.verdict,
        "homeless": dict(run.found.homeless),
    }
    sys.stdout.write(f"{json.dumps(found, indent=2)}\n")


def print_tables(run: DryRun) -> None:
    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False)
    proposal = run.found.proposal
    before, after = proposal.present, proposal.wanted
    console.print(_services(run))
    console.print(_engines(run.present, proposal.plan))
    console.print(
        f"predicted: attainment {before.attainment:.1%} -> {after.attainment:.1%}, "
        f"normalised latency {before.normalized_latency:.2f} -> {after.normalized_latency:.2f}; "
        f"achieved: {run.achieved.attainment:.1%}, {run.achieved.normalized_latency:.2f}"
    )
    bursts = {name: run.traffic.dispersion(name) for name in sorted(run.traffic.services)}
    for line in (*in_bursts(bursts), f"{proposal.verdict}: {reason_of(proposal)}", *run.found.homeless.values()):
        console.print(line, markup=False)


def _services(run: DryRun) -> Table:
    table = _table(f"services, {run.traffic.span_s:.0f} s")
    headings = ("service", "requests/s", "prompt", "answer", "in time", "predicted", "with the plan found")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "service" else "right")
    scores = (run.achieved, run.found.proposal.present, run.found.proposal.wanted)
    for name in sorted(run.present.services):
        asked = run.traffic.services.get(name)
        lengths = () if asked is None else (asked.num_input, asked.num_output)
        told = [f"{one.mean:.0f} +- {one.deviation:.0f}" for one in lengths] or ["-", "-"]
        table.add_row(name, f"{run.traffic.rate(name):.2f}", *told, *(_attainment(score, name) for score in scores))
    return table


def _attainment(score: Score, service: str) -> str:
    found = score.services.get(service)
    return "-" if found is None or not found.num_requests else f"{found.attainment:.1%}"


def _engines(present: Plan, wanted: Plan) -> Table:
    changed = "nothing would change" if present.groups == wanted.groups else "what would change"
    plan = f"plan {present.number}" if present.number else "what engines hold"
    table = _table(f"{plan}, and {changed}")
    for heading in ("engine", "now", "then"):
        table.add_column(heading)
    then = {group.id: group for group in wanted.groups}
    for group in present.groups:
        other = then[group.id]
        table.add_row(group.id, _in_words(group), "as it is" if other == group else _in_words(other))
    return table


def _table(title: str) -> Table:
    """A title wider than the table is not broken."""
    text = Text(title, no_wrap=True, overflow="ignore")
    return Table(title=text, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))


def _in_words(group: Group) -> str:
    services: Sequence[str] = group.services or ("nothing",)
    return f"{group.role}: {', '.join(services)}"
