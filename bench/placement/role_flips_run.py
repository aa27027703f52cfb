"""What `bench.placement.role_flips` simulates: loads, engines, policies, and what comes of a run.

TPOT SLO: 40 ms, for which about 90 answers at a time are the most. Else an engine would take some 400, and a simulation
would be of little but decode steps.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import takewhile
from operator import attrgetter
from pathlib import Path
from random import Random

import msgspec

from engines.costs.profiles import load_profile
from mesh.topology.schema import EngineSpec, GatewaySpec, PolicySpec, ServiceSpec, Slo, Topology
from mesh.wire.control import Role
from router.history.records import Record
from simulation.cluster import Simulation
from simulation.engines.physics import Physics
from simulation.garbage import rare_collections
from simulation.loads.arrival_processes import Arrivals
from simulation.loads.trace_request import TraceRequest
from simulation.loads.workload import SloRule
from simulation.quiet import quiet_engines
from simulation.reports.timeline import Timeline

PROFILE = "a100-llama2-70b-tp4"
NUM_ENGINES = 8
TTFT_FACTOR = 5.0
TPOT_SLO_S = 0.04
PROMISE = 0.9
SETTLED_S = 60.0  # after a load has begun: from then on, flips are oscillation
STEADY_PHASES = 2  # that a load lasts which stays the same

# --- loads ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stream:
    """Requests that arrive as a Poisson process. Lengths in tokens, uniform between two bounds."""

    rate: float  # a second
    prompt: tuple[int, int]
    answer: tuple[int, int]

    def requests(self, since_s: float, span_s: float, random: Random) -> list[TraceRequest]:
        times = takewhile(lambda time: time < span_s, Arrivals(self.rate).times(random))
        return [
            TraceRequest(since_s + time, random.randint(*self.prompt), random.randint(*self.answer)) for time in times
        ]


@dataclass(frozen=True, slots=True)
class Phase:
    name: str
    streams: tuple[Stream, ...]

    def requests(self, since_s: float, span_s: float, random: Random) -> Iterable[TraceRequest]:
        return merge(*[one.requests(since_s, span_s, random) for one in self.streams], key=attrgetter("at_s"))


def reading(rate: float) -> Stream:
    return Stream(rate, (2000, 4000), (20, 60))


def writing(rate: float) -> Stream:
    return Stream(rate, (50, 150), (200, 600))


READ = Phase("long prompts", (reading(10.5),))
WRITE = Phase("long answers", (writing(30.0),))
SHIFTING = (READ, WRITE, READ)
STEADY = (
    READ,
    WRITE,
    Phase("half of both", (reading(5.25), writing(15.0))),
    Phase("a quarter of both", (reading(2.6), writing(7.5))),
)

# --- runs -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Contender:
    policy: str
    flips: bool = False
    num_prefill: int = NUM_ENGINES // 2

    @property
    def name(self) -> str:
        split = f"{self.num_prefill} + {NUM_ENGINES - self.num_prefill}"
        return f"{self.policy}, flips from {split}" if self.flips else f"{self.policy}, {split}"


CONTENDERS = (
    Contender("tropical"),
    Contender("tropical", flips=True),
    Contender("elastic"),
    Contender("elastic", flips=True),
    *(Contender("tropical", num_prefill=count) for count in (2, 3, 5)),
)


class Flip(msgspec.Struct, frozen=True):
    at_s: float
    engine: str
    role: str


class Result(msgspec.Struct, frozen=True):
    """What came of one run.

    Attainments are shares of the requests that met both SLOs: of all, and of those that arrived in each phase.
    """

    attainment: float
    by_phase: list[float]
    goodput: float  # requests a second
    flips: list[Flip]


@dataclass(frozen=True, slots=True)
class Run:
    """One simulation: what a worker process does."""

    phases: tuple[Phase, ...]
    phase_s: float
    contender: Contender
    seed: int

    @property
    def load(self) -> str:
        return ", ".join(phase.name for phase in self.phases)

    @property
    def name(self) -> str:
        return f"{self.load}: {self.contender.name}"

    @property
    def span_s(self) -> float:
        return self.phase_s * len(self.phases)

    def result(self) -> Result:
        topology, profile = make_topology(self.contender), load_profile(PROFILE)
        timeline, records = Timeline(Simulation.origin_s), list[Record]()
        simulation = Simulation(
            topology,
            dict.fromkeys([engine.id for engine in topology.engines], profile),
            seed=self.seed,
            physics=Physics(),
            slo=SloRule(TTFT_FACTOR),
            timeline=timeline,
        )
        with rare_collections(), quiet_engines():
            simulation.run("model", self._requests(), records.append)
        num_good = sum(record.meets_slo for record in records)
        return Result(
            num_good / len(records),
            [_attained(self._of_phase(number, records)) for number in range(len(self.phases))],
            num_good / self.span_s,
            flips_of(timeline),
        )

    def _requests(self) -> Iterator[TraceRequest]:
        random = Random(f"{self.seed}/load")
        for number, phase in enumerate(self.phases):
            yield from phase.requests(number * self.phase_s, self.phase_s, random)

    def _of_phase(self, number: int, records: Iterable[Record]) -> list[Record]:
        return [record for record in records if int(record.arrived_s // self.phase_s) == number]

    def late_flips_per_hour(self, flips: Iterable[Flip]) -> float:
        """Late flips an hour of the time in which requests arrive and the load has been the same for a while."""
        num_late = sum(flip.at_s % self.phase_s >= SETTLED_S for flip in flips if flip.at_s < self.span_s)
        return num_late * 3600 / ((self.phase_s - SETTLED_S) * len(self.phases))


def _attained(records: Sequence[Record]) -> float:
    return sum(record.meets_slo for record in records) / len(records)


def flips_of(timeline: Timeline) -> list[Flip]:
    """In order of time."""
    roles = set(Role)
    flips = [
        Flip(mark.at_s, engine, mark.event)
        for engine, lane in timeline.lanes.items()
        for mark in lane.marks
        if mark.event in roles
    ]
    return sorted(flips, key=attrgetter("at_s"))


def make_topology(contender: Contender) -> Topology:
    """Eight engines alike, but for their roles."""
    roles = [Role.PREFILL] * contender.num_prefill + [Role.MULTIPLEX] * (NUM_ENGINES - contender.num_prefill)
    engines = [
        EngineSpec(
            f"engine-{number}",
            role,
            ("model",),
            backend="simulated",
            profile=PROFILE,
            max_running=512,
            max_waiting=100_000,
            chunk_tokens=1024,
        )
        for number, role in enumerate(roles)
    ]
    service = ServiceSpec("model", PROFILE, Slo(1.0, TPOT_SLO_S, PROMISE))
    gateway = GatewaySpec("gateway", max_requests=1_000_000, max_waiting=1_000_000)
    policy = PolicySpec(contender.policy, {"flips": contender.flips})
    return Topology("flips", Path(), (service,), tuple(engines), (gateway,), policy=policy)


def run_result(run: Run) -> Result:
    """For a pool of processes."""
    return run.result()
