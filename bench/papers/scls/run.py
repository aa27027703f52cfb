"""Runs a case of SCLS's setting and says what came of it, and why."""

import statistics
from collections import defaultdict

import msgspec

from bench.papers.runs import make_simulation, percentile, serve
from bench.papers.scls.setting import SERVICE, Case
from engines.core import EngineCore
from engines.effects import Effect
from engines.scheduling.step import Step
from kvtransfer.protocol import Send
from mesh.wire.status import EngineStatus
from router.history.records import Outcome, Record
from simulation.cluster import Simulation
from simulation.observer import CoreParts, ObservedCore
from simulation.reports.timeline import Timeline


class Result(msgspec.Struct, frozen=True):
    """``throughput``: requests over the time until the last has ended. Times in seconds.

    ``spread_s``: standard deviation of the workers' completion times. ``batch_size``: requests of a prefill, and
    ``running``: requests at a time on an engine, both on average. ``attained``: of both promises. The rest is of a
    request: ``pad_tokens`` are those of prompts, ``invalid_tokens`` those sampled for rows that were done.
    """

    num_requests: int
    throughput: float
    mean_s: float
    p95_s: float
    p99_s: float
    ttft_p99_s: float
    tpot_p99_s: float
    attained: float
    spread_s: float
    batch_size: float
    running: float
    pad_tokens: float
    invalid_tokens: float
    slices: float
    preempted: float
    kept: float
    moved: float
    offloaded: float


class Watch(Timeline):
    """A timeline whose engine cores count what padding costs, and how many requests they run for how long."""

    def __init__(self, origin_s: float) -> None:
        super().__init__(origin_s)
        self.num_batches = self.num_members = self.pad_tokens = self.invalid_tokens = 0
        self.running_s = self.computing_s = 0.0

    def core(self, parts: CoreParts) -> EngineCore:
        return _WatchedCore(self, parts)


class _WatchedCore(ObservedCore):
    def __init__(self, watch: Watch, parts: CoreParts) -> None:
        super().__init__(parts)
        self._watch = watch
        self._since, self._num_running = 0.0, 0
        self._num_idle = 0  # rows that sample for nobody

    def next_step(self, now: float) -> tuple[Step | None, list[Effect]]:
        if self._num_running:
            self._watch.computing_s += now - self._since
            self._watch.running_s += self._num_running * (now - self._since)
        step, effects = super().next_step(now)
        running = sum(len(service.queue.running) for service in self._services.values())
        self._since, self._num_running = now, 0 if step is None else running
        self._num_idle = self._count_rows(step)
        return step, effects

    def _count_rows(self, step: Step | None) -> int:
        """Count what a batch pads, and return the rows that sample for nobody."""
        if step is None or step.rows is None:
            return 0
        watch, rows = self._watch, step.rows
        if not step.prompts:
            num_idle = rows.num_rows - len(step.shares)
            watch.invalid_tokens += num_idle
            return num_idle
        watch.num_batches += 1
        watch.num_members += rows.num_rows
        watch.pad_tokens += rows.num_rows * rows.num_tokens - step.batch().num_tokens
        return 0

    def pass_steps(self, num_steps: int, token: int, now: float) -> list[Send]:
        self._watch.invalid_tokens += num_steps * self._num_idle
        return super().pass_steps(num_steps, token, now)


def run_case(case: Case) -> Result:
    """Raise RuntimeError if a request does not finish."""
    watch = Watch(Simulation.origin_s)
    simulation = make_simulation(case.topology(), case.profile(), case.seed, coasts=True, timeline=watch)
    records = serve(simulation, SERVICE, case.requests())
    if failed := [record for record in records if record.outcome is not Outcome.FINISHED]:
        raise RuntimeError(f"{len(failed)} requests did not finish; the first: {failed[0].reason}")
    return _result(
        records, watch, [engine.core.status(simulation.kernel.now) for engine in simulation.engines.values()]
    )


def _result(records: list[Record], watch: Watch, statuses: list[EngineStatus]) -> Result:
    count, ends = len(records), defaultdict[str | None, float](float)
    for record in records:
        ends[record.decode_engine] = max(ends[record.decode_engine], record.arrived_s + _e2e_s(record))
    times = list(map(_e2e_s, records))
    return Result(
        num_requests=count,
        throughput=count / max(ends.values()),
        mean_s=statistics.fmean(times),
        p95_s=percentile(times, 95),
        p99_s=percentile(times, 99),
        ttft_p99_s=percentile((record.ttft_s or 0.0 for record in records), 99),
        tpot_p99_s=percentile((record.tpot_s or 0.0 for record in records), 99),
        attained=sum(record.meets_slo for record in records) / count,
        spread_s=statistics.pstdev(ends.values()),
        batch_size=watch.num_members / max(1, watch.num_batches),
        running=watch.running_s / watch.computing_s,
        pad_tokens=watch.pad_tokens / count,
        invalid_tokens=watch.invalid_tokens / count,
        slices=statistics.fmean(record.attempts for record in records),
        preempted=sum(status.preemptions_total for status in statuses) / count,
        kept=sum(status.slices_kept_total for status in statuses) / count,
        moved=sum(status.slices_moved_total for status in statuses) / count,
        offloaded=sum(status.slices_offloaded_total for status in statuses) / count,
    )


def _e2e_s(record: Record) -> float:
    assert record.e2e_s is not None
    return record.e2e_s
