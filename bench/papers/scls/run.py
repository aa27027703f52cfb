"""Runs a case of SCLS's setting and says what came of it, and why."""

import logging
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
import structlog

from bench.papers.scls.setting import Case, profile
from engines.core import EngineCore
from engines.effects import Effect
from engines.scheduling.step import Step
from kvtransfer.protocol import Send
from router.history.records import Outcome, Record
from simulation.cluster import Simulation
from simulation.engines.physics import Physics
from simulation.garbage import rare_collections
from simulation.loads.workload import SloRule
from simulation.observer import CoreParts, ObservedCore
from simulation.reports.timeline import Timeline


class Result(msgspec.Struct, frozen=True):
    """``throughput``: requests over the time until the last has ended. Times in seconds.

    ``spread_s``: standard deviation of the workers' completion times. ``batch_size``: requests of a prefill, on
    average. ``pad_tokens`` are those of prompts, ``invalid_tokens`` those drawn for rows that were done, of a request.
    """

    num_requests: float
    throughput: float
    mean_s: float
    p95_s: float
    spread_s: float
    batch_size: float
    pad_tokens: float
    invalid_tokens: float
    slices: float  # of a request
    preempted: float  # of a request


@dataclass(slots=True)
class Tally:
    num_batches: int = 0
    num_members: int = 0
    pad_tokens: int = 0
    invalid_tokens: int = 0


class Watch(Timeline):
    """A timeline whose engine cores count what padding costs."""

    def __init__(self, origin_s: float) -> None:
        super().__init__(origin_s)
        self.tally = Tally()

    def core(self, parts: CoreParts) -> EngineCore:
        return _CountingCore(self.tally, parts)


class _CountingCore(ObservedCore):
    def __init__(self, tally: Tally, parts: CoreParts) -> None:
        super().__init__(parts)
        self._tally = tally
        self._num_idle = 0  # rows that draw for nobody

    def next_step(self, now: float) -> tuple[Step | None, list[Effect]]:
        step, effects = super().next_step(now)
        self._num_idle = 0
        if step is None or step.rows is None:
            return step, effects
        tally, rows = self._tally, step.rows
        if not step.prompts:
            self._num_idle = rows.num_rows - len(step.shares)
            tally.invalid_tokens += self._num_idle
        else:
            tally.num_batches += 1
            tally.num_members += rows.num_rows
            tally.pad_tokens += rows.num_rows * rows.num_tokens - step.batch().num_tokens
        return step, effects

    def pass_steps(self, num_steps: int, token: int, now: float) -> list[Send]:
        self._tally.invalid_tokens += num_steps * self._num_idle
        return super().pass_steps(num_steps, token, now)


def run_case(case: Case) -> Result:
    """For a pool of processes."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    topology, records, watch = case.topology(), list[Record](), Watch(Simulation.origin_s)
    simulation = Simulation(
        topology,
        dict.fromkeys([engine.id for engine in topology.engines], profile(case.kind)),
        seed=case.seed,
        physics=Physics(),
        slo=SloRule(),
        coasts=True,
        timeline=watch,
    )
    with rare_collections():
        simulation.run(topology.services[0].name, case.requests(), records.append)
    now = simulation.kernel.now
    preempted = sum(engine.core.status(now).preemptions_total for engine in simulation.engines.values())
    return _result(records, watch.tally, preempted)


def _result(records: list[Record], tally: Tally, preempted: int) -> Result:
    failed = [record for record in records if record.outcome is not Outcome.FINISHED]
    if failed:
        raise RuntimeError(f"{len(failed)} requests did not finish; the first: {failed[0].reason}")
    count, ends = len(records), defaultdict[str | None, float](float)
    for record in records:
        ends[record.decode_engine] = max(ends[record.decode_engine], record.arrived_s + _e2e_s(record))
    times = sorted(map(_e2e_s, records))
    return Result(
        num_requests=count,
        throughput=count / max(ends.values()),
        mean_s=statistics.fmean(times),
        p95_s=times[min(count - 1, 95 * count // 100)],
        spread_s=statistics.pstdev(ends.values()),
        batch_size=tally.num_members / tally.num_batches if tally.num_batches else 0.0,
        pad_tokens=tally.pad_tokens / count,
        invalid_tokens=tally.invalid_tokens / count,
        slices=statistics.fmean(record.attempts for record in records),
        preempted=preempted / count,
    )


def _e2e_s(record: Record) -> float:
    assert record.e2e_s is not None
    return record.e2e_s


def mean(results: Iterable[Result]) -> Result:
    """Of runs that differ by their seed."""
    columns = zip(*(msgspec.structs.astuple(result) for result in results), strict=True)
    return Result(*(statistics.fmean(column) for column in columns))
