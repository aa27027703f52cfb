"""A small simulated mesh whose placement matters: five services on four A100s, two at most on each.

All serve Llama 3 8B and answer questions about long documents in a few words, so that it is the same load whoever is
asked. One service gets most of it: it needs all engines, the others one each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from bench.simulated import MANY, make_simulation
from engines.costs.presets import load_preset
from mesh.topology.schema import (
    EngineSpec,
    GatewaySpec,
    PlacementSpec,
    PolicySpec,
    Scheduling,
    ServiceSpec,
    Slo,
    Timing,
    Topology,
)
from mesh.wire.control import Role
from mesh.wire.status import CountSpread, EngineStatus, ServiceTally
from router.placement.observe.running_mesh import present_plan
from router.placement.observe.service_monitor import Observed
from router.placement.observe.traffic import Moments, ServiceTraffic
from router.placement.search.question import LEAST_JUDGED, make_question
from router.placement.search.search import search
from simulation.engines.shared_profiles import SharedProfile
from simulation.loads.trace_request import TraceRequest
from simulation.placement.daemon import ModelledSearch
from simulation.placement.evaluator import LocalSimulators

NUM_ENGINES, NUM_SERVICES = 4, 5
SERVICES = tuple(f"s{number}" for number in range(NUM_SERVICES))
DOCUMENTS = (Moments(20_000, 6000), Moments(16, 8))  # tokens of prompts and answers
BUSY_SHARE = 0.6  # of all requests; the other services share the rest evenly
SLO = Slo(10.0, 1.0)
MOST_HELD = 4  # services on an engine, while those of a new plan are beside those of the old one: weights must fit
PRESET = load_preset("a100-llama3-8b-tp1")
KV_BYTES = PRESET.kv_memory_bytes - (MOST_HELD - 1) * PRESET.weight_bytes
PROFILE = SharedProfile(dict.fromkeys(SERVICES, PRESET), KV_BYTES, 1)
TIMING = Timing(heartbeat_s=1.0, lease_s=5.0)

Held = Sequence[Sequence[str]]
ANYHOW: Held = [SERVICES[:2], SERVICES[2:4], SERVICES[4:], SERVICES[:1]]  # where a first plan is searched from


@dataclass(frozen=True, slots=True)
class Load:
    """``rate`` of all services. ``busiest`` gets `BUSY_SHARE` of it; from ``shift_at_s`` on, ``next_busiest`` does."""

    rate: float
    span_s: float
    seed: int
    busiest: str = SERVICES[0]
    shift_at_s: float | None = None
    next_busiest: str = SERVICES[1]

    def rates(self, busiest: str) -> dict[str, float]:
        rest = (1 - BUSY_SHARE) / (NUM_SERVICES - 1)
        return {name: self.rate * (BUSY_SHARE if name == busiest else rest) for name in SERVICES}

    def trace(self) -> list[TraceRequest]:
        until_s = self.span_s if self.shift_at_s is None else self.shift_at_s
        requests = [*self._drawn(self.busiest, 0.0, until_s)]
        if self.shift_at_s is not None:
            requests += self._drawn(self.next_busiest, until_s, self.span_s)
        return sorted(requests, key=lambda request: request.at_s)

    def _drawn(self, busiest: str, from_s: float, until_s: float) -> list[TraceRequest]:
        return [
            TraceRequest(from_s + at_s, num_input, num_output, service=name)
            for name, rate in self.rates(busiest).items()
            for at_s, num_input, num_output in ServiceTraffic(rate, *DOCUMENTS).arrivals(
                until_s - from_s, Random(f"{self.seed}/{name}/{from_s}")
            )
        ]


def topology(held: Held, placement: PlacementSpec | None) -> Topology:
    """Engine ``n`` begins with the n-th services."""
    engines = tuple(
        EngineSpec(
            f"engine-{number}",
            Role.MULTIPLEX,
            tuple(services),
            block_size=64,
            max_running=128,
            max_waiting=MANY,
            chunk_tokens=2048,
            scheduling=Scheduling.DB,
        )
        for number, services in enumerate(held)
    )
    return Topology(
        "placement",
        Path("placement"),
        tuple(ServiceSpec(name, "model", SLO) for name in SERVICES),
        engines,
        (GatewaySpec("gateway", max_requests=MANY, max_waiting=MANY),),
        policy=PolicySpec("join_shortest_queue"),
        timing=TIMING,
        placement=placement,
    )


def plan_for(rates: Mapping[str, float], num_batches: int, seed: int) -> Held:
    """Return what the search finds for Poisson arrivals at these rates: the services of each engine."""
    known = statuses(topology(ANYHOW, None))
    plan = present_plan(known)
    question = make_question(
        0, plan, known.values(), observed(rates), dict.fromkeys(SERVICES, SLO), seed=seed, improve_s=0.0
    )
    drawn = question.drawn(LEAST_JUDGED)
    evaluator = LocalSimulators().evaluator(question.catalogue, drawn, question.slos)
    found = search(
        question.cluster, question.catalogue, drawn, evaluator, Random(seed), lambda done: done >= num_batches, plan
    )
    return [group.services for group in found.best.plan.groups]


def searching(num_batches: int) -> ModelledSearch:
    return ModelledSearch(LocalSimulators(), num_batches)


def statuses(what: Topology) -> dict[str, EngineStatus]:
    """Return those of engines that have not done anything yet."""
    simulation = make_simulation(what, PROFILE, seed=0)
    return {name: engine.core.status(0.0) for name, engine in simulation.engines.items()}


def observed(rates: Mapping[str, float]) -> Observed:
    """Return an interval in which as much came as is to be expected, as Poisson arrivals that are known well."""
    span_s, (inputs, outputs) = 1000.0, DOCUMENTS
    tallies = {name: _tally(name, round(rate * span_s), inputs, outputs) for name, rate in rates.items()}
    return Observed(span_s, tallies, dict.fromkeys(rates, CountSpread(MANY, MANY, MANY)))


def _tally(name: str, number: int, inputs: Moments, outputs: Moments) -> ServiceTally:
    return ServiceTally(
        name,
        arrived=number,
        input_tokens=round(number * inputs.mean),
        input_squares=round(number * (inputs.mean**2 + inputs.deviation**2)),
        ended=number,
        answered=number,
        output_tokens=round(number * outputs.mean),
        output_squares=round(number * (outputs.mean**2 + outputs.deviation**2)),
    )
