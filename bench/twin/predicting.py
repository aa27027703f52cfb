"""What a profile predicts of a load, and how far that is from what was measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean, median

from bench.load.results.outcome import Outcome
from bench.simulated import make_fleet, make_simulation, serve
from engines.costs.profiles import EngineProfile
from mesh.topology.schema import EngineSpec, PolicySpec, ServiceSpec, Slo, Topology
from mesh.wire.control import Role
from router.history.records import Record
from router.servers.backend_rules import OPENAI
from simulation.capacity import FoundCapacity, find_capacity
from simulation.engines.physics import Physics
from simulation.loads.trace_request import TraceRequest

SERVICE = "model"
LATENCY_S = 1e-6  # of a message: what a request's way takes is in the profile
NUM_REQUESTS = 400  # of a simulated trial
PRECISION = 0.05


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of prompts and of answers, evenly between two each."""

    inputs: tuple[int, int]
    outputs: tuple[int, int]

    def requests(self, rate: float, number: int, seed: int) -> list[TraceRequest]:
        """Draw Poisson arrivals, ``rate`` a second. Equal seeds give the same requests in the same pattern."""
        random, at_s, found = Random(seed), 0.0, []
        for _ in range(number):
            found.append(TraceRequest(at_s, random.randint(*self.inputs), random.randint(*self.outputs)))
            at_s += random.expovariate(rate)
        return found

    @property
    def means(self) -> tuple[float, float]:
        return sum(self.inputs) / 2, sum(self.outputs) / 2


@dataclass(frozen=True, slots=True)
class Means:
    """Mean latencies in seconds, and the share of requests that met both promises."""

    ttft_s: float
    tpot_s: float
    attainment: float


def predict(profile: EngineProfile, promise: Slo, requests: Sequence[TraceRequest]) -> Means:
    """Let these requests arrive at the twin."""
    topology = _topology(promise)
    simulation = make_simulation(topology, profile, 0, physics=Physics(latency_s=LATENCY_S), coasts=True)
    return _means_of_records(serve(simulation, SERVICE, requests), promise)


def predicted_capacity(profile: EngineProfile, promise: Slo, lengths: Lengths, first_rate: float) -> FoundCapacity:
    """The highest rate of Poisson arrivals at which the promise's share of requests is served in time."""

    def attainment_at(rate: float) -> float:
        return predict(profile, promise, lengths.requests(rate, NUM_REQUESTS, seed=0)).attainment

    return find_capacity(attainment_at, promise.attainment, first_rate, PRECISION)


def requests_of(outcomes: Sequence[Outcome]) -> list[TraceRequest]:
    """The requests of a measured run as they were sent."""
    done = sorted((one for one in outcomes if one.output_tokens), key=lambda one: one.sent_s)
    first_s = done[0].sent_s
    return [TraceRequest(one.sent_s - first_s, one.input_tokens, one.output_tokens) for one in done]


def measured_means(outcomes: Sequence[Outcome], promise: Slo) -> Means:
    """TTFT counts from when a request was sent: the generator's own lag is no matter of the server."""
    ttfts, tpots, num_good = [], [], 0
    for one in outcomes:
        if one.first_s is None or one.last_s is None or one.failure is not None:
            continue
        ttft_s, num_later = one.first_s - one.sent_s, one.output_tokens - 1
        tpot_s = (one.last_s - one.first_s) / num_later if num_later else 0.0
        ttfts.append(ttft_s)
        tpots.append(tpot_s)
        num_good += ttft_s <= promise.ttft_s and tpot_s <= promise.tpot_s
    return Means(fmean(ttfts), fmean(tpots), num_good / len(outcomes))


def _means_of_records(records: Sequence[Record], promise: Slo) -> Means:
    seen = [(record.ttft_s, record.tpot_s or 0.0) for record in records if record.ttft_s is not None]
    num_good = sum(ttft_s <= promise.ttft_s and tpot_s <= promise.tpot_s for ttft_s, tpot_s in seen)
    return Means(fmean(ttft for ttft, _ in seen), fmean(tpot for _, tpot in seen), num_good / len(records))


def median_error(pairs: Mapping[str, tuple[Means, Means]]) -> float:
    """The median of the relative errors of mean TTFTs and TPOTs, of (measured, predicted) of several loads."""
    errors = []
    for measured, predicted in pairs.values():
        errors += [abs(predicted.ttft_s / measured.ttft_s - 1), abs(predicted.tpot_s / measured.tpot_s - 1)]
    return median(errors)


def _topology(promise: Slo) -> Topology:
    engine = EngineSpec(SERVICE, Role.MULTIPLEX, (SERVICE,), backend=OPENAI)
    return make_fleet("twin", ServiceSpec(SERVICE, "", promise), [engine], PolicySpec("round_robin"))
