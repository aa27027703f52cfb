"""Offers Prometheus the placement daemon's last status, as a gateway heard it. The daemon has no HTTP."""

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from mesh.clock import Clock
from mesh.wire.placement import Decision, PlacementStatus, PoolStatus
from router.history.marks import MarkKeeper

Families = Iterable[GaugeMetricFamily | CounterMetricFamily]


class PlacementHealth(Collector):
    """Nothing is told before a daemon was heard."""

    def __init__(self, marks: MarkKeeper, clock: Clock) -> None:
        self._marks = marks
        self._clock = clock

    def collect(self) -> Families:
        status = self._marks.heard
        if status is None:
            return
        silence_s = self._clock.now() - self._marks.heard_at
        yield _gauge("silence_seconds", "Since the daemon was heard", silence_s)
        yield _gauge("plan", "Number of the newest plan that engines know of", status.plan)
        yield _gauge("error", "1: something went wrong, and nothing has gone right since", status.error is not None)
        yield from self._of_decisions(status)
        if status.pools:
            yield _of_pools(status.pools)
        if status.memory is not None:
            yield _gauge("interval_seconds", "Length of the running interval", status.memory.interval_s)
        if status.decision is not None:
            yield from self._of_last(status.decision)

    def _of_decisions(self, status: PlacementStatus) -> Families:
        decisions = CounterMetricFamily(
            "meshserve_placement_decisions", "Ends of intervals, by what was decided", labels=("verdict",)
        )
        for verdict, number in status.decisions_total.items():
            decisions.add_metric((verdict,), number)
        yield decisions
        changes = CounterMetricFamily("meshserve_placement_changes", "Plans, by what came of them", labels=("outcome",))
        changes.add_metric(("done",), status.changes_total)
        changes.add_metric(("given up",), status.changes_failed_total)
        yield changes

    def _of_last(self, decision: Decision) -> Families:
        yield _gauge("search_seconds", "How long the last search took", decision.search_s)
        attainment = GaugeMetricFamily(
            "meshserve_placement_attainment",
            "In the last interval: achieved, predicted of the plan in force, predicted of the one that was found",
            labels=("service", "kind"),
        )
        rate = GaugeMetricFamily(
            "meshserve_placement_rate", "Requests a second that the last search was for", labels=("service",)
        )
        dispersion = GaugeMetricFamily(
            "meshserve_placement_dispersion",
            "Variance of the number of requests in some seconds over its mean, that the last search was for",
            labels=("service",),
        )
        for one in decision.services:
            rate.add_metric((one.name,), one.rate)
            dispersion.add_metric((one.name,), one.dispersion)
            for kind in ("achieved", "predicted", "proposed"):
                value: float | None = getattr(one, kind)
                if value is not None:
                    attainment.add_metric((one.name, kind), value)
        latency = GaugeMetricFamily(
            "meshserve_placement_normalized_latency", "Mean in the last interval, of all services", labels=("kind",)
        )
        for kind in ("achieved", "predicted", "proposed"):
            forecast = getattr(decision, kind)
            if forecast is not None:
                latency.add_metric((kind,), forecast.normalized_latency)
        yield from (rate, dispersion, attainment, latency)


def _of_pools(pools: Iterable[PoolStatus]) -> GaugeMetricFamily:
    engines = GaugeMetricFamily(
        "meshserve_pool_engines",
        "Of a pool that is scaled: engines that its load needs, those that are wanted, and its bounds",
        labels=("pool", "kind"),
    )
    for pool in pools:
        told = {"needed": pool.need, "wanted": pool.num_wanted, "least": pool.least, "most": pool.most}
        for kind, value in told.items():
            engines.add_metric((pool.name, kind), value)
    return engines


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"meshserve_placement_{name}", text, value)
