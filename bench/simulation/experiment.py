"""One run of a simulation as a value that another process can carry out."""

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from random import Random

from bench.simulation.arrivals import Arrivals, synthesize
from bench.simulation.cluster import Simulation
from bench.simulation.factory import Physics
from bench.simulation.summary import Summary, summarize
from bench.simulation.traces import TraceRequest, at_rate
from bench.simulation.workload import SloRule
from engines.profiles import EngineProfile
from mesh.errors import UserError
from mesh.topology.schema import PolicySpec, Topology
from router.records import Record, write_records


@dataclass(frozen=True, slots=True)
class TraceLoad:
    """A trace's own arrivals, at its own rate unless another one is asked for."""

    trace: Sequence[TraceRequest]

    def requests(self, rate: float | None, random: Random) -> Iterable[TraceRequest]:
        return self.trace if rate is None else at_rate(self.trace, rate)

    @property
    def span_s(self) -> float:
        return self.trace[-1].at_s

    @property
    def pool(self) -> Sequence[TraceRequest]:
        """What its requests are made of."""
        return self.trace


@dataclass(frozen=True, slots=True)
class SyntheticLoad:
    """Lengths drawn from a pool, arriving as ``arrivals`` says for ``span_s``, unless at another rate."""

    lengths: Sequence[TraceRequest]
    arrivals: Arrivals
    span_s: float
    limit: int | None = None

    @property
    def pool(self) -> Sequence[TraceRequest]:
        return self.lengths

    def requests(self, rate: float | None, random: Random) -> Iterable[TraceRequest]:
        arrivals = self.arrivals if rate is None else replace(self.arrivals, rate=rate)
        return islice(synthesize(self.lengths, arrivals, self.span_s, random), self.limit)


@dataclass(frozen=True, slots=True)
class Experiment:
    """``policy`` replaces the topology's; ``records`` is the file to write, if any."""

    topology: Topology
    profiles: Mapping[str, EngineProfile]
    service: str
    load: TraceLoad | SyntheticLoad
    policy: PolicySpec
    rate: float | None = None
    seed: int = 0
    physics: Physics = field(default_factory=Physics)
    slo: SloRule = field(default_factory=SloRule)
    records: Path | None = None
    coasts: bool = False

    def run(self, on_time: Callable[[float], None] | None = None) -> Summary:
        """``on_time`` hears when each request that has ended had arrived. A trace without requests is a `UserError`."""
        records: list[Record] = []

        def take(record: Record) -> None:
            records.append(record)
            if on_time is not None:
                on_time(record.arrived_s)

        topology = replace(self.topology, policy=self.policy)
        simulation = Simulation(
            topology, self.profiles, seed=self.seed, physics=self.physics, slo=self.slo, coasts=self.coasts
        )
        trace = self.load.requests(self.rate, Random(f"{self.seed}/trace"))
        with _rare_collections():
            simulation.run(self.service, trace, take)
        if not records:
            raise UserError("no request arrives: give a longer --duration, a higher --rate or a larger --limit")
        if self.records is not None:
            write_records(self.records, records)
        return summarize(self.policy.name, records, self.rate)


@contextmanager
def _rare_collections() -> Iterator[None]:
    """A run makes few cycles and keeps many objects: looking for the former among the latter takes a tenth of it."""
    thresholds = gc.get_threshold()
    gc.set_threshold(200_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def run_experiment(experiment: Experiment) -> Summary:
    """For a pool of processes."""
    return experiment.run()


def grid(base: Experiment, policies: Sequence[PolicySpec], rates: Sequence[float | None]) -> list[Experiment]:
    """Every policy at every rate, on the same requests."""
    return [
        replace(base, policy=policy, rate=rate, records=_records_of(base.records, policy, rate))
        for policy in policies
        for rate in rates
    ]


def _records_of(path: Path | None, policy: PolicySpec, rate: float | None) -> Path | None:
    if path is None:
        return None
    suffix = policy.name if rate is None else f"{policy.name}-{rate:g}"
    return path.with_stem(f"{path.stem}-{suffix}")
