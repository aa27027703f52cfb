"""Makes the requests that plans are scored by, and estimates them before anything is simulated."""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from engines.costs.linear import prefill_s, requests_s, serving_s
from engines.costs.profiles import EngineProfile
from mesh.topology.schema import Slo
from router.placement.observe.requirements import Catalogue
from router.placement.observe.traffic import Traffic
from router.placement.search.score import ServiceScore
from simulation.loads.trace_request import TraceRequest

MOST_DEVICES = 10**6  # of a group: more than there are
TYPICAL_BATCH = 16  # decodes that share an iteration, where the work of a request is estimated


@dataclass(frozen=True, slots=True)
class SimulatedRequests:
    """A service's requests: ``alone_s`` is the execution time of each on an idle engine, ``mean_s`` their mean.

    Those that are ``waiting`` were there before: they are served with the others and judged by nobody.
    """

    requests: tuple[TraceRequest, ...]
    alone_s: tuple[float, ...]
    slo: Slo
    promise: float
    waiting: tuple[TraceRequest, ...] = ()

    @property
    def mean_s(self) -> float:
        return sum(self.alone_s) / len(self.alone_s)


def asked_of(
    catalogue: Catalogue, traffic: Traffic, slos: Mapping[str, Slo], seed: int
) -> dict[str, SimulatedRequests]:
    """Return what each service of the catalogue is asked for."""
    return {name: _asked(name, catalogue, traffic, slos[name], seed) for name in catalogue.services}


def _asked(service: str, catalogue: Catalogue, traffic: Traffic, slo: Slo, seed: int) -> SimulatedRequests:
    """Execution times are those on the smallest group that can hold the service."""
    least = catalogue.least_devices(service, MOST_DEVICES)
    found = traffic.services.get(service)
    if found is None or least is None:
        return SimulatedRequests((), (), slo, slo.attainment)
    cost = catalogue.profile(service, least)
    arrivals = found.arrivals(traffic.span_s, Random(f"{seed}/{service}"))
    requests = tuple(
        TraceRequest(at_s, num_input, num_output, service=service) for at_s, num_input, num_output in arrivals
    )
    waiting = tuple(
        TraceRequest(at_s, num_input, num_output, service=service)
        for at_s, num_input, num_output in found.waiting(Random(f"{seed}/{service}/waiting"))
    )
    return SimulatedRequests(
        requests, tuple(_alone_s(cost, request) for request in requests), slo, slo.attainment, waiting
    )


def _alone_s(cost: EngineProfile, request: TraceRequest) -> float:
    return serving_s(cost.prefill, cost.decode, 1, request.num_input, request.num_output - 1)


def demand(service: str, asked: SimulatedRequests, catalogue: Catalogue, span_s: float) -> float:
    """Return how many devices the service keeps busy, roughly: decodes in batches, prompts one by one."""
    least = catalogue.least_devices(service, MOST_DEVICES)
    if not asked.requests or least is None:
        return 0.0
    cost = catalogue.profile(service, least)
    decode_s = requests_s(cost.decode, TYPICAL_BATCH) / TYPICAL_BATCH
    busy_s = sum(prefill_s(cost.prefill, one.num_input) + decode_s * (one.num_output - 1) for one in asked.requests)
    return least * busy_s / span_s


def ideal(service: str, asked: SimulatedRequests, catalogue: Catalogue, slo_factor: float | None) -> ServiceScore:
    """Prefills and decodes alone, each on groups of the size that is fastest for them: no plan is better.

    ``slo_factor``: a request's SLO is so many times its execution time; None: it is the service's TTFT and TPOT.
    """
    if not asked.requests:
        return ServiceScore(0, 0, 0.0, asked.promise)
    costs = [footprint.profile for footprint in catalogue.footprints[service].values()]
    num_late, total_s = 0, 0.0
    for request, alone_s in zip(asked.requests, asked.alone_s, strict=True):
        ttft_s = min(prefill_s(cost.prefill, request.num_input) for cost in costs)
        decodes_s = min(_alone_s(cost, request) - prefill_s(cost.prefill, request.num_input) for cost in costs)
        total_s += ttft_s + decodes_s
        if slo_factor is not None:
            num_late += ttft_s + decodes_s > slo_factor * alone_s
        else:
            num_late += ttft_s > asked.slo.ttft_s or decodes_s > asked.slo.tpot_s * (request.num_output - 1)
    return ServiceScore(len(asked.requests), num_late, total_s / asked.mean_s, asked.promise)
