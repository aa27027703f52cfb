"""One run of a simulation as a value that another process can carry out."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from random import Random

from mesh.errors import UserError
from mesh.topology.schema import PolicySpec, Topology
from router.history.records import Record
from router.placement.effects import Note
from simulation.cluster import Simulation
from simulation.command.outputs import Outputs
from simulation.command.policy_names import label
from simulation.engines.physics import Physics
from simulation.engines.shared_profiles import Profile
from simulation.faults.faults import Fault
from simulation.garbage import rare_collections
from simulation.loads.arrival_processes import Arrivals, synthesize
from simulation.loads.mix import Mix
from simulation.loads.trace_request import TraceRequest
from simulation.loads.traces import at_rate
from simulation.loads.workload import SloRule
from simulation.placement.daemon import Search
from simulation.quiet import quiet_engines
from simulation.reports.steadiness import Judgement, Stay, judge, judge_trace
from simulation.reports.summary import Summary, summarize
from simulation.reports.timeline import Timeline

Chooses = Callable[[PolicySpec, float | None], bool]


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
        """Return the pool that its requests are made of."""
        return self.trace

    def judge(self, records: Sequence[Record]) -> Judgement:
        """Judge a run of it by its records, in order of arrival."""
        return judge_trace([_stay(record) for record in records])


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

    def judge(self, records: Sequence[Record]) -> Judgement:
        return judge([_stay(record) for record in records])

    def requests(self, rate: float | None, random: Random) -> Iterable[TraceRequest]:
        arrivals = self.arrivals if rate is None else replace(self.arrivals, rate=rate)
        return islice(synthesize(self.lengths, arrivals, self.span_s, random), self.limit)


def _stay(record: Record) -> Stay:
    return Stay(record.arrived_s, record.arrived_s + (record.e2e_s or 0.0))


@dataclass(frozen=True, slots=True)
class Experiment:
    """One run of a simulation. ``policy`` replaces the topology's. ``service`` is that of requests that name none,
    unless there is a ``mix``.

    A topology's placement daemon runs if there is a ``search`` for it.
    """

    topology: Topology
    profiles: Mapping[str, Profile]
    service: str
    load: TraceLoad | SyntheticLoad
    policy: PolicySpec
    rate: float | None = None
    seed: int = 0
    physics: Physics = field(default_factory=Physics)
    slo: SloRule = field(default_factory=SloRule)
    outputs: Outputs | None = None
    mix: Mix | None = None
    faults: Sequence[Fault] = ()
    search: Search | None = None
    is_judged: bool = False  # is it said whether the run was steady, and is its warm-up left out?
    engines: str = ""  # numbers of engines, where they are not those of the topology's file

    @property
    def name(self) -> str:
        """What tables and plots call it."""
        return f"{label(self.policy)}, {self.engines}" if self.engines else label(self.policy)

    def run(self, on_time: Callable[[float], None] | None = None) -> Summary:
        """Run it. ``on_time`` hears when each request that has ended had arrived. A trace without requests is a
        `UserError`.
        """
        records: list[Record] = []
        notes: list[str] = []

        def hear(now: float, note: Note) -> None:
            notes.append(f"{now - Simulation.origin_s:.1f} s: {note.line}")

        def take(record: Record) -> None:
            records.append(record)
            if on_time is not None:
                on_time(record.arrived_s)

        timeline = Timeline(Simulation.origin_s) if self.outputs is not None and self.outputs.has_timeline else None
        self._simulate(take, hear, timeline)
        if not records:
            raise UserError("no request arrives: give a longer --duration, a higher --rate or a larger --limit")
        judge = self.load.judge if self.is_judged else None
        summary = replace(summarize(self.name, records, self.rate, judge), notes=tuple(notes))
        if self.outputs is not None:
            self.outputs.write(records, timeline, f"{summary.policy}, {summary.rate:.2f} requests a second")
        return summary

    def records(self) -> list[Record]:
        """Run it, and return what became of each request, in the order in which they ended."""
        records: list[Record] = []
        self._simulate(records.append, None, None)
        return records

    def _simulate(
        self,
        take: Callable[[Record], None],
        hear: Callable[[float, Note], None] | None,
        timeline: Timeline | None,
    ) -> None:
        simulation = Simulation(
            replace(self.topology, policy=self.policy),
            self.profiles,
            seed=self.seed,
            physics=self.physics,
            slo=self.slo,
            faults=self.faults,
            coasts=self.topology.rescheduling is None,  # with it, engines look for moves after each step
            timeline=timeline,
            search=self.search,
            on_note=hear,
        )
        with rare_collections(), quiet_engines():
            simulation.run(self.service, self._requests(), take)

    def _requests(self) -> Iterable[TraceRequest]:
        requests = self.load.requests(self.rate, Random(f"{self.seed}/trace"))
        return requests if self.mix is None else self.mix.assign(requests, Random(f"{self.seed}/services"))


def run_experiment(experiment: Experiment) -> Summary:
    """Run one experiment, in a pool of processes."""
    return experiment.run()


def grid(
    deployments: Sequence[Experiment],
    policies: Sequence[PolicySpec],
    rates: Sequence[float | None],
    has_timeline: Chooses,
) -> list[Experiment]:
    """Every policy in every deployment at every rate, on the same requests. ``has_timeline`` says of which runs there
    is to be one.
    """
    is_alone = len(deployments) == len(policies) == len(rates) == 1
    runs = [
        replace(deployment, policy=policy, rate=rate)
        for policy in policies
        for deployment in deployments
        for rate in rates
    ]
    return [replace(run, outputs=_outputs(run, is_alone, has_timeline)) for run in runs]


def _outputs(run: Experiment, is_alone: bool, has_timeline: Chooses) -> Outputs | None:
    if run.outputs is None:
        return None
    name = run.name.replace(", ", "-") if run.rate is None else f"{run.name.replace(', ', '-')}-{run.rate:g}"
    return replace(run.outputs, run="" if is_alone else name, has_timeline=has_timeline(run.policy, run.rate))
