"""One policy serves a trace on a live mesh; the simulator is asked what becomes of the same requests."""

import resource
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from random import Random

from bench.fidelity.predicting import Profiles, Records, simulate, simulated_latencies
from bench.live.agreement import Latency
from bench.live.contention import Watch
from bench.live.http_load import Answer
from bench.live.mesh import LiveMesh
from bench.live.overheads import Overheads
from bench.live.serving import OK, latency_of
from bench.papers.tropical.live.fleets import Fleet
from bench.papers.tropical.live.workload import sendings_of
from mesh.topology.schema import PolicySpec, Topology
from simulation.capacity import Trial
from simulation.command.policy_names import label
from simulation.engines.physics import Physics
from simulation.loads.trace_request import TraceRequest

Placement = tuple[str, str, str]  # rule, prefill engine, decode engine


@dataclass(frozen=True, slots=True)
class Contender:
    policy: PolicySpec
    fleet: Fleet

    @property
    def name(self) -> str:
        return label(self.policy)


@dataclass(frozen=True, slots=True)
class Seen:
    """What became of requests, by their place in the trace: those that were served have latencies."""

    latencies: Mapping[int, Latency]
    placements: Mapping[int, Placement]


@dataclass(frozen=True, slots=True)
class Load:
    """Cores used: by the mesh, by what sends requests, by everything else. ``late_s``: requests were sent so late."""

    num_cores: int
    mesh: float
    client: float
    others: float
    late_s: float


@dataclass(frozen=True, slots=True)
class Run:
    """``requests`` arrive when they were really sent."""

    contender: str
    policy: str
    rate: float
    requests: Sequence[TraceRequest]
    measured: Seen
    simulated: Seen
    load: Load


@dataclass(frozen=True, slots=True)
class Model:
    """All that the simulator is given."""

    topology: Topology
    profiles: Profiles
    physics: Physics
    overheads: Overheads

    def predict(self, policy: PolicySpec, trace: Sequence[TraceRequest]) -> Seen:
        records = simulate(replace(self.topology, policy=policy), self.profiles, trace, self.physics)
        latencies = simulated_latencies(records, self.overheads)
        return Seen({_number(name): latency for name, latency in latencies.items()}, _placements(records))


def serve_and_predict(
    mesh: LiveMesh,
    pids: Sequence[int],
    model: Model,
    contender: Contender,
    rate: float,
    trace: Sequence[TraceRequest],
    random: Random,
    on_answer: Callable[[], None],
) -> Run:
    """Raise `UserError` if the mesh does not take the policy."""
    mesh.use(contender.policy)
    began_s, client_began_s = time.perf_counter(), _children_s()
    with Watch(pids) as watch:
        answers = mesh.answers(sendings_of(trace, random), on_answer)
    client = (_children_s() - client_began_s) / (time.perf_counter() - began_s)
    late_s = max(answer.sent_s - request.at_s for answer, request in zip(answers, trace, strict=True))
    used = watch.contention
    sent_s = accumulate((answer.sent_s for answer in answers), max)
    sent = [replace(request, at_s=at_s) for request, at_s in zip(trace, sent_s, strict=True)]
    return Run(
        contender.name,
        contender.policy.name,
        rate,
        sent,
        _seen(sent, answers),
        model.predict(contender.policy, sent),
        Load(used.num_cores, used.ours, client, max(0.0, used.others - client), late_s),
    )


def _children_s() -> float:
    """CPU seconds of child processes that have ended: of clients."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _seen(trace: Sequence[TraceRequest], answers: Sequence[Answer]) -> Seen:
    served = [answer for answer in answers if answer.status == OK]
    return Seen(
        {answer.number: latency_of(answer, trace[answer.number].num_output) for answer in served},
        {a.number: (a.headers["rule"], a.headers["prefill"], a.headers["decode"]) for a in served},
    )


def _placements(records: Records) -> dict[int, Placement]:
    return {
        _number(name): (record.rule, record.prefill_engine, record.decode_engine)
        for name, record in records.items()
        if record.rule is not None and record.prefill_engine is not None and record.decode_engine is not None
    }


def _number(name: str) -> int:
    return int(name.removeprefix("r"))


# --- what runs come to ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Attained:
    """Fractions of all requests, also of those that were refused, that kept TTFT's, TPOT's, both SLOs."""

    ttft: float
    tpot: float
    both: float


def attained(outcomes: Iterable[tuple[Sequence[TraceRequest], Seen]]) -> Attained:
    """By all requests of several traces together."""
    met = [
        _met(request, seen.latencies.get(number)) for trace, seen in outcomes for number, request in enumerate(trace)
    ]
    return Attained(
        statistics.fmean(ttft for ttft, _ in met),
        statistics.fmean(tpot for _, tpot in met),
        statistics.fmean(ttft and tpot for ttft, tpot in met),
    )


def attainments(runs: Iterable[Run], side: Callable[[Run], Seen]) -> Attained:
    return attained((run.requests, side(run)) for run in runs)


def _met(request: TraceRequest, latency: Latency | None) -> tuple[bool, bool]:
    """TTFT's and TPOT's SLO."""
    assert request.slo_ttft_s is not None
    assert request.slo_tpot_s is not None
    if latency is None:
        return False, False
    return latency.ttft_s <= request.slo_ttft_s, latency.tpot_s is None or latency.tpot_s <= request.slo_tpot_s


def trials(runs: Sequence[Run], side: Callable[[Run], Seen]) -> list[Trial]:
    """By rate; requests of all runs at a rate count alike."""
    rates = sorted({run.rate for run in runs})
    return [Trial(rate, attainments([run for run in runs if run.rate == rate], side).both) for rate in rates]


def same_placements(runs: Iterable[Run]) -> float:
    """The fraction of requests whose rule and engines were predicted, refusals included."""
    same = [
        run.measured.placements.get(number) == run.simulated.placements.get(number)
        for run in runs
        for number in range(len(run.requests))
    ]
    return statistics.fmean(map(float, same))
