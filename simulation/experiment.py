"""One run of a simulation as a value that another process can carry out."""

from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

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
from simulation.garbage import leaving_nothing_behind, rare_collections
from simulation.loads.mix import Mix
from simulation.loads.play import LoadPlay
from simulation.loads.sources import AS_IT_SAYS, LoadLevel, LoadSource
from simulation.loads.workload import SloRule
from simulation.placement.daemon import Search
from simulation.quiet import quiet_engines
from simulation.reports.packed import PackedRecords
from simulation.reports.steadiness import Judgement, judge, judge_closed, judge_trace
from simulation.reports.summary import Summary, stays_of, summarize
from simulation.reports.timeline import Timeline

NOTHING_ARRIVES = "no request arrives: give a longer --duration, a higher --rate or a larger --limit"

Chooses = Callable[[PolicySpec, LoadLevel], bool]
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Experiment:
    """One run of a simulation. ``policy`` replaces the topology's. ``service`` is that of requests that name none,
    unless there is a ``mix``.

    A topology's placement daemon runs if there is a ``search`` for it.
    """

    topology: Topology
    profiles: Mapping[str, Profile]
    service: str
    load: LoadSource
    policy: PolicySpec
    level: LoadLevel = AS_IT_SAYS
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

    def run(self, on_share: Callable[[float], None] | None = None) -> Summary:
        """Run it. ``on_share`` hears, between 0 and 1, how much of it is over. A trace without requests is a
        `UserError`.
        """
        records = PackedRecords()
        notes: list[str] = []

        def hear(now: float, note: Note) -> None:
            notes.append(f"{now - Simulation.origin_s:.1f} s: {note.line}")

        def tell(at_s: float) -> None:
            if on_share is not None:
                on_share(self.load.share_done(at_s, len(records)))

        timeline = Timeline(Simulation.origin_s) if self.outputs is not None and self.outputs.has_timeline else None
        with nullcontext() if self.outputs is None else self.outputs.record_files() as files:

            def take(record: Record) -> None:
                records.append(record)
                if files is not None:
                    files.add(record)
                tell(record.arrived_s)

            self._simulate(take, tell, hear, timeline)
        summary = replace(self.summary(records), notes=tuple(notes))
        if self.outputs is not None and timeline is not None:
            self.outputs.draw(timeline, f"{summary.policy}, {summary.rate:.2f} requests a second")
        return summary

    def summary(self, records: Sequence[Record]) -> Summary:
        """Sum up what became of its requests. None at all are a `UserError`."""
        if not records:
            raise UserError(NOTHING_ARRIVES)
        judge = self._judge if self.is_judged else None
        asked_per_s, num_clients = self.level.rate, self.load.num_clients_at(self.level)
        requests_per_s, talks_per_s = (None, asked_per_s) if self.load.has_turns else (asked_per_s, None)
        summary = summarize(self.name, records, requests_per_s, judge, is_closed=num_clients is not None)
        return replace(summary, num_clients=num_clients, conversations_per_s=talks_per_s)

    def records(self) -> list[Record]:
        """Run it, and return what became of each request, in the order in which they ended."""
        records: list[Record] = []
        self._simulate(records.append, None, None, None)
        return records

    def _simulate(
        self,
        take: Callable[[Record], None],
        on_time: Callable[[float], None] | None,
        hear: Callable[[float, Note], None] | None,
        timeline: Timeline | None,
    ) -> None:
        with leaving_nothing_behind(), rare_collections():  # the memory of a mesh is free for reports and later runs
            self._play(take, on_time, hear, timeline)

    def _play(
        self,
        take: Callable[[Record], None],
        on_time: Callable[[float], None] | None,
        hear: Callable[[float, Note], None] | None,
        timeline: Timeline | None,
    ) -> None:
        simulation = self.simulation(self.seed, hear=hear, timeline=timeline)
        with quiet_engines():
            simulation.play(self.service, self.played(), take, on_time)

    def played(self) -> LoadPlay:
        """Return its requests, which are the same each time."""
        return self.load.play(self.level, self.seed, self.mix)

    def simulation(
        self,
        seed: int,
        begins_s: float = 0.0,
        hear: Callable[[float, Note], None] | None = None,
        timeline: Timeline | None = None,
    ) -> Simulation:
        """Return its mesh, before anything arrives. ``seed``: of all that is random in it."""
        return Simulation(
            replace(self.topology, policy=self.policy),
            self.profiles,
            seed=seed,
            physics=self.physics,
            slo=self.slo,
            faults=self.faults,
            coasts=self.topology.rescheduling is None,  # with it, engines look for moves after each step
            timeline=timeline,
            search=self.search,
            on_note=hear,
            begins_s=begins_s,
        )

    def runs(self, on_share: Callable[[float], None] | None = None) -> list[Summary]:
        """Run it, as one of several jobs."""
        return [self.run(on_share)]

    def _judge(self, records: Sequence[Record]) -> Judgement:
        """``records`` in order of arrival."""
        if self.load.num_clients_at(self.level) is not None:
            return judge_closed(array("d", map(_waited_s, records)))
        stays = stays_of(records)
        return judge(stays) if self.load.is_stationary else judge_trace(stays)


def _waited_s(record: Record) -> float:
    """Until the first token, or until it was clear that none comes."""
    return (record.e2e_s or 0.0) if record.ttft_s is None else record.ttft_s


class SimulationJob(Protocol[Found]):
    """One run, or several that follow from each other, or a part of one."""

    @property
    def name(self) -> str: ...

    def runs(self, on_share: Callable[[float], None] | None = None) -> list[Found]: ...


def run_job(job: SimulationJob[Found]) -> list[Found]:
    """Run one job, in a pool of processes."""
    return job.runs()


def grid(
    deployments: Sequence[Experiment],
    policies: Sequence[PolicySpec],
    levels: Sequence[LoadLevel],
    has_timeline: Chooses,
) -> list[Experiment]:
    """Every policy in every deployment at every level, on the same requests. ``has_timeline`` says of which runs there
    is to be one.
    """
    is_alone = len(deployments) == len(policies) == len(levels) == 1
    runs = [
        replace(deployment, policy=policy, level=level)
        for policy in policies
        for deployment in deployments
        for level in levels
    ]
    return [replace(run, outputs=_outputs(run, is_alone, has_timeline)) for run in runs]


def _outputs(run: Experiment, is_alone: bool, has_timeline: Chooses) -> Outputs | None:
    if run.outputs is None:
        return None
    name = "-".join(part for part in (run.name.replace(", ", "-"), run.level.name) if part)
    return replace(run.outputs, run="" if is_alone else name, has_timeline=has_timeline(run.policy, run.level))
