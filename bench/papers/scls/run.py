"""Runs a case of SCLS's setting and says what came of it, and why."""

import statistics
from collections import defaultdict

import msgspec

from bench.papers.scls.setting import SERVICE, Case, profile
from bench.simulated import make_simulation, percentile, serve
from engines.core import EngineCore
from engines.effects import Effect
from engines.scheduling.batch import Rows
from engines.scheduling.step import Step
from kvtransfer.protocol import Send
from router.history.records import Outcome, Record
from simulation.cluster import Simulation
from simulation.observer import CoreParts, ObservedCore
from simulation.reports.timeline import Timeline


class Result(msgspec.Struct, frozen=True):
    """``throughput``: requests over the time until the last has ended. Times in seconds.

    ``spread_s``: standard deviation of the workers' completion times. The rest is of a request: ``pad_tokens`` are
    those of prompts, ``invalid_tokens`` those sampled for rows that were done, ``slices`` the prefills.
    """

    num_requests: int
    throughput: float
    mean_s: float
    p95_s: float
    spread_s: float
    pad_tokens: float
    invalid_tokens: float
    slices: float


class Watch(Timeline):
    """A timeline whose engine cores count what padding costs."""

    def __init__(self, origin_s: float) -> None:
        super().__init__(origin_s)
        self.pad_tokens = self.invalid_tokens = 0

    def core(self, parts: CoreParts) -> EngineCore:
        return _WatchedCore(self, parts)


class _WatchedCore(ObservedCore):
    def __init__(self, watch: Watch, parts: CoreParts) -> None:
        super().__init__(parts)
        self._watch = watch
        self._num_idle = 0  # rows that sample for nobody

    def next_step(self, now: float) -> tuple[Step | None, list[Effect]]:
        step, effects = super().next_step(now)
        self._num_idle = 0
        if step is not None and step.rows is not None:
            self._count(step, step.rows)
        return step, effects

    def _count(self, step: Step, rows: Rows) -> None:
        if step.prompts:
            self._watch.pad_tokens += rows.num_rows * rows.num_tokens - step.batch().num_tokens
        else:
            self._num_idle = rows.num_rows - len(step.shares)
            self._watch.invalid_tokens += self._num_idle

    def pass_steps(self, num_steps: int, token: int, now: float) -> list[Send]:
        self._watch.invalid_tokens += num_steps * self._num_idle
        return super().pass_steps(num_steps, token, now)


def run_case(case: Case) -> Result:
    """Raise RuntimeError if a request does not finish."""
    watch = Watch(Simulation.origin_s)
    simulation = make_simulation(case.topology(), profile(case.kind), case.seed, coasts=True, timeline=watch)
    records = serve(simulation, SERVICE, case.requests())
    if failed := [record for record in records if record.outcome is not Outcome.FINISHED]:
        raise RuntimeError(f"{len(failed)} requests did not finish; the first: {failed[0].reason}")
    return _result(records, watch)


def _result(records: list[Record], watch: Watch) -> Result:
    count, ends = len(records), defaultdict[str | None, float](float)
    for record in records:
        ends[record.decode_engine] = max(ends[record.decode_engine], record.arrived_s + _e2e_s(record))
    times = list(map(_e2e_s, records))
    return Result(
        num_requests=count,
        throughput=count / max(ends.values()),
        mean_s=statistics.fmean(times),
        p95_s=percentile(times, 95),
        spread_s=statistics.pstdev(ends.values()),
        pad_tokens=watch.pad_tokens / count,
        invalid_tokens=watch.invalid_tokens / count,
        slices=statistics.fmean(record.attempts for record in records),
    )


def _e2e_s(record: Record) -> float:
    assert record.e2e_s is not None
    return record.e2e_s
