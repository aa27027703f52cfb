"""Summaries as pictures: how policies compare over rates, and what requests saw at one rate."""

from collections.abc import Callable, Sequence
from math import nan

from mesh.show.picture import Curves, Limit, Look, Panel, Picture, Series
from simulation.reports.summary import STEPS, Distribution, Summary
from simulation.reports.tables import by_policy

FAR_LATE = 5  # times a promise, from which on a plain axis would squeeze all that is in time
LEAST_RATIO = 0.05  # where its logarithm begins
ARRIVALS = "arrivals"

Choose = Callable[[Summary], Distribution | None]


def picture_of(summaries: Sequence[Summary], attainment: float, slo_s: tuple[float | None, float | None]) -> Picture:
    """The one picture of a command: of several rates how policies compare, of one how it went over time.

    ``slo_s``: promised TTFT and TPOT; None if requests' promises differ.
    """
    if len({summary.level for summary in summaries}) > 1:
        return rates_picture(summaries, attainment)
    seen = distributions_picture(summaries, *slo_s) if any(slo_s) else ratios_picture(summaries, attainment)
    over_time = over_time_picture(summaries, attainment)
    return Picture(seen.title, (*seen.panels[:2], *over_time.panels[:2]))


def rates_picture(summaries: Sequence[Summary], attainment: float) -> Picture:
    """SLO attainment and goodput against rate, or against clients of closed loops, one line a policy."""
    runs = by_policy(summaries)
    is_closed, has_turns = summaries[0].num_clients is not None, summaries[0].conversations_per_s is not None
    rates = {policy: [run.level for run in of] for policy, of in runs.items()}
    met = [
        Series(policy, rates[policy], [100 * run.attainment for run in of], look=Look.MARKED)
        for policy, of in runs.items()
    ]
    good = [Series(policy, rates[policy], [run.goodput for run in of], look=Look.MARKED) for policy, of in runs.items()]
    highest = max(summary.rate for summary in summaries)
    best = [] if is_closed or has_turns else [Series("all of them", [0, highest], [0, highest], look=Look.GUIDE)]
    arrivals = "conversations a second" if has_turns else "arrivals, requests a second"
    x_label = "clients of a closed loop" if is_closed else arrivals
    goal = Limit(100 * attainment, f"promised: {attainment:.0%}", is_upright=False)
    return Picture(
        f"Attainment and goodput against {'clients' if is_closed else 'rate'}",
        (
            Curves("SLO attainment", x_label, "requests in time, %", met, (goal,), y_range=(0, 100)),
            Curves("Goodput", x_label, "requests in time, a second", [*good, *best]),
        ),
    )


def distributions_picture(summaries: Sequence[Summary], slo_ttft_s: float | None, slo_tpot_s: float | None) -> Picture:
    """Cumulative distributions of TTFT, TPOT and queueing at one rate, one line a policy."""
    return Picture(
        f"Latencies at {summaries[0].rate:.2f} requests a second",
        (
            _cdf("TTFT", summaries, lambda run: run.ttft, slo_ttft_s),
            _cdf("TPOT", summaries, lambda run: run.tpot, slo_tpot_s),
            _cdf("Queueing at the gateway", summaries, lambda run: run.queued, None),
        ),
        num_columns=3,
    )


def ratios_picture(summaries: Sequence[Summary], attainment: float) -> Picture:
    """Cumulative distributions of TTFT and TPOT over what each request was promised, one line a policy."""
    panels = [_ratios(name, summaries, choose, attainment) for name, choose in _RATIOS.items()]
    return Picture(f"Latencies over promises at {summaries[0].rate:.2f} requests a second", panels)


def over_time_picture(summaries: Sequence[Summary], attainment: float) -> Picture:
    """Queueing, attainment and arrivals by the time of arrival at one rate, one line a policy."""
    goal = Limit(100 * attainment, f"promised: {attainment:.0%}", is_upright=False)
    x_label = "time of arrival, s"
    moments = summaries[0].moments
    came = Series(ARRIVALS, [one.at_s for one in moments], [one.arrivals for one in moments], look=Look.GUIDE)
    lost = [
        Series(run.policy, [one.at_s for one in run.moments], [one.lost for one in run.moments], look=Look.DOTTED)
        for run in summaries
        if any(one.lost for one in run.moments)
    ]
    return Picture(
        f"Over time, at {summaries[0].rate:.2f} requests a second",
        (
            Curves("Queueing at the gateway", x_label, "s; median, and up to P90", [_queued(run) for run in summaries]),
            Curves(
                "SLO attainment",
                x_label,
                "requests in time, %",
                [_met(run) for run in summaries],
                (goal,),
                y_range=(0, 100),
            ),
            Curves("Arrivals (dashed), and lost ones (dotted)", x_label, "requests a second", [came, *lost]),
        ),
        num_columns=1,
    )


def _queued(run: Summary) -> Series:
    low, high = ([_or_nan(getattr(one, key)) for one in run.moments] for key in ("queued_p50_s", "queued_p90_s"))
    return Series(run.policy, [one.at_s for one in run.moments], low, low, high)


def _met(run: Summary) -> Series:
    return Series(run.policy, [one.at_s for one in run.moments], [100 * _or_nan(one.attainment) for one in run.moments])


def _or_nan(value: float | None) -> float:
    return nan if value is None else value


def _ratios(name: str, summaries: Sequence[Summary], choose: Choose, attainment: float) -> Panel:
    """All requests count, lost ones too: a curve ends where nothing else came."""
    curves = []
    for run in summaries:
        if (found := choose(run)) is not None:
            share = found.num_values / run.num_requests
            curves.append(Series(run.policy, found.quantiles, [share * percent for percent in _PERCENTS]))
    right = _right(summaries, choose, 1.0)
    is_far = right > FAR_LATE
    limits = (Limit(1.0, "promise"), Limit(100 * attainment, f"promised: {attainment:.0%}", is_upright=False))
    return Curves(
        f"{name} over its SLO",
        f"{name} / SLO",
        "all requests, lost ones too, %",
        curves,
        limits,
        x_range=(LEAST_RATIO if is_far else 0, right),
        y_range=(0, 100),
        is_log_x=is_far,
    )


def _cdf(name: str, summaries: Sequence[Summary], choose: Choose, slo_s: float | None) -> Panel:
    found = {run.policy: choose(run) for run in summaries}
    curves = [
        Series(policy, [1e3 * value for value in one.quantiles], _PERCENTS) for policy, one in found.items() if one
    ]
    limits = () if slo_s is None else (Limit(1e3 * slo_s, f"promise: {1e3 * slo_s:g} ms"),)
    right = 1e3 * _right(summaries, choose, slo_s or 1e-3)
    return Curves(name, "ms", "requests, %", curves, limits, x_range=(0, right), y_range=(0, 100))


_PERCENTS = [100 * step / STEPS for step in range(STEPS + 1)]
_RATIOS: dict[str, Choose] = {"TTFT": lambda run: run.ttft_ratio, "TPOT": lambda run: run.tpot_ratio}


def _right(summaries: Sequence[Summary], choose: Choose, least: float) -> float:
    """Where a cumulative distribution is cut off: beyond lie the last few outliers."""
    seen = [distribution.percentile(99) for distribution in map(choose, summaries) if distribution is not None]
    return 1.05 * max([*seen, least])
