"""Summaries as a page: the picture, and the figures that it shows."""

from collections.abc import Sequence

from mesh.show.pages import Page, PageTable
from simulation.reports.plots import picture_of
from simulation.reports.summary import Distribution, Summary

PERCENTILES = (50, 90, 99)
HEADS = ("policy", "req/s", "requests", "met both SLOs", "goodput, req/s", "lost")


def page_of(
    title: str, summaries: Sequence[Summary], attainment: float, slo_s: tuple[float | None, float | None]
) -> Page:
    """``slo_s``: promised TTFT and TPOT; None if requests' promises differ. ``attainment`` is promised, too."""
    cuts = dict.fromkeys(run.split.line for run in summaries if run.split is not None)
    return Page(
        title,
        f"simulated in virtual time; promised to {attainment:.0%} of the requests",
        (picture_of(summaries, attainment, slo_s),),
        facts=_facts(summaries[0]) if len(summaries) == 1 else (),
        tables=[
            _runs(summaries),
            *([_services(summaries[0])] if len(summaries) == 1 and summaries[0].services else []),
        ],
        notes=[
            *cuts,
            *(f"{run.policy}: {why}" for run in summaries for why in (run.first_failure, *run.warnings) if why),
        ],
    )


def _facts(run: Summary) -> list[tuple[str, str]]:
    return [
        (f"{run.rate:.2f}", "requests/s"),
        (f"{run.attainment:.1%}", "met both SLOs"),
        (f"{run.goodput:.2f}", "requests/s that did"),
        (f"{run.output_tokens_per_s:.0f}", "output tokens/s"),
    ]


def _runs(summaries: Sequence[Summary]) -> PageTable:
    return PageTable("Runs", _heads("policy"), [_row(run.policy, run) for run in summaries])


def _services(run: Summary) -> PageTable:
    return PageTable("Services", _heads("service"), [_row(name, part) for name, part in run.services.items()])


def _heads(first: str) -> list[str]:
    late = [f"{name} P{percent}, ms" for name in ("TTFT", "TPOT") for percent in PERCENTILES]
    return [first, *HEADS[1:], *late]


def _row(name: str, run: Summary) -> list[str]:
    lost = f"{run.num_rejected + run.num_failed}"
    cells = [f"{run.rate:.2f}", f"{run.num_requests}", f"{run.attainment:.1%}", f"{run.goodput:.2f}", lost]
    return [name, *cells, *_percentiles(run.ttft), *_percentiles(run.tpot)]


def _percentiles(found: Distribution | None) -> list[str]:
    return ["-" if found is None else f"{1e3 * found.percentile(percent):.1f}" for percent in PERCENTILES]
