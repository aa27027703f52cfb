"""Scores placement plans by the project's simulator: the evaluator of `router.placement`."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import TypeVar

from mesh.topology.schema import EngineSpec, GatewaySpec, PolicySpec, Scheduling, ServiceSpec, Slo, Topology
from mesh.topology.timing import Timing
from mesh.wire.control import Role
from router.history.records import Outcome, Record
from router.placement.observe.conduct import Conduct
from router.placement.observe.requirements import Catalogue
from router.placement.observe.traffic import Traffic
from router.placement.search.cells import WHAT_WEIGHTS_LEAVE, Cell, cells, islands
from router.placement.search.plan import Plan
from router.placement.search.score import Score, ServiceScore
from simulation.cluster import Simulation
from simulation.engines.direct import DirectEngines
from simulation.engines.physics import Physics
from simulation.engines.shared_profiles import Profile, SharedProfile
from simulation.garbage import leaving_nothing_behind, rare_collections
from simulation.loads.trace_request import TraceRequest
from simulation.loads.workload import SloRule
from simulation.placement.evaluator_requests import SimulatedRequests, asked_of, demand, ideal
from simulation.quiet import quiet_engines

MANY = 10**6  # requests that may wait: plans are judged by latency, not by what they refuse
LEAST_BLOCK, LAST_BLOCK = 16, 1 / 50  # tokens; of a mean request at most, which makes half of one a hundredth
TIMING = Timing(heartbeat_s=5.0, lease_s=60.0, reply_s=60.0)  # nobody dies here, and statuses follow changes anyway
FEWEST_REQUESTS = Conduct(PolicySpec("join_shortest_queue"), Scheduling.DB)  # SeaLLM's


@dataclass(frozen=True, slots=True)
class Setting:
    """What a worker process needs. ``slo_factor``: a request's SLO is so many times its execution time (SeaLLM: 5).

    Without it, it is the TTFT and the TPOT that its service promises.
    """

    catalogue: Catalogue
    asked: Mapping[str, SimulatedRequests]
    slo_factor: float | None
    conduct: Conduct
    seed: int


@dataclass(frozen=True, slots=True)
class _Verdict:
    """Of the requests of one service that came to a cell."""

    num_requests: int
    num_late: int
    normalized_latency: float


Verdicts = Mapping[str, _Verdict]
Value = TypeVar("Value")
NOTHING = _Verdict(0, 0, 0.0)


class Simulated:
    """Scores of plans for a traffic. Cells are simulated once each, by ``pool`` if there is one.

    A plan is scored as the sum of its `cells`, each by itself, so what a plan shares with those before it costs
    nothing. `exact` simulates engines that share services together. ``conduct``: how engines and gateways serve.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        traffic: Traffic,
        slos: Mapping[str, Slo],
        *,
        slo_factor: float | None = None,
        pool: Executor | None = None,
        num_workers: int = 1,
        seed: int = 0,
        conduct: Conduct = FEWEST_REQUESTS,
    ) -> None:
        asked = asked_of(catalogue, traffic, slos, seed)
        self._setting = Setting(catalogue, asked, slo_factor, conduct, seed)
        self._demand = {name: demand(name, asked[name], catalogue, traffic.span_s) for name in asked}
        self._pool = pool
        self._num_workers = num_workers
        self._known: dict[Cell, Verdicts] = {}

    def __repr__(self) -> str:
        return f"<Simulated {len(self._known)} cells>"

    @property
    def num_simulated(self) -> int:
        """The number of cells that were simulated."""
        return len(self._known)

    def __call__(self, plans: Sequence[Plan]) -> list[Score]:
        return self._score([cells(plan, self._demand) for plan in plans])

    def exact(self, plans: Sequence[Plan]) -> list[Score]:
        return self._score([islands(plan) for plan in plans])

    def ideal(self) -> Score:
        setting = self._setting
        catalogue, factor = setting.catalogue, setting.slo_factor
        return Score({name: ideal(name, asked, catalogue, factor) for name, asked in setting.asked.items()})

    def _score(self, parts: Sequence[Mapping[Cell, int]]) -> list[Score]:
        self._simulate(list(dict.fromkeys(cell for part in parts for cell in part)))
        return [self._sum(part) for part in parts]

    def _simulate(self, wanted: Sequence[Cell]) -> None:
        new = [cell for cell in wanted if cell not in self._known]
        if not new:
            return
        if self._pool is None or len(new) == 1:
            found = [simulate(self._setting, cell) for cell in new]
        else:
            size = max(1, len(new) // (4 * self._num_workers))
            found = list(self._pool.map(simulate, repeat(self._setting), new, chunksize=size))
        self._known.update(zip(new, found, strict=True))

    def _sum(self, part: Mapping[Cell, int]) -> Score:
        """Cells that get every n-th request stand for their part of all: what they saw counts in proportion."""
        seen: dict[str, list[tuple[_Verdict, int]]] = {name: [] for name in self._setting.asked}
        for cell, num in part.items():
            for service, verdict in self._known[cell].items():
                seen[service].append((verdict, num))
        return Score({name: _service_score(self._setting.asked[name], those) for name, those in seen.items()})


class LocalSimulators:
    """Makes evaluators that work where they are asked. ``slo_factor``: see `Setting`."""

    def __init__(self, slo_factor: float | None = None) -> None:
        self._slo_factor = slo_factor

    def evaluator(self, catalogue: Catalogue, traffic: Traffic, slos: Mapping[str, Slo], conduct: Conduct) -> Simulated:
        return Simulated(catalogue, traffic, slos, slo_factor=self._slo_factor, conduct=conduct)

    def close(self) -> None:
        """Nothing is left."""


class Simulators:
    """Makes evaluators that share worker processes, until `close`: the entry point of `meshserve.evaluators`.

    One worker is this process: another one would begin with a second of imports, and this one wait for it.
    """

    def __init__(self, num_workers: int) -> None:
        self._num_workers = num_workers
        self._pool = None if num_workers == 1 else ProcessPoolExecutor(num_workers, mp_context=get_context("spawn"))

    def __enter__(self) -> "Simulators":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def evaluator(
        self,
        catalogue: Catalogue,
        traffic: Traffic,
        slos: Mapping[str, Slo],
        conduct: Conduct,
    ) -> Simulated:
        """Make an evaluator of plans of a mesh that serves so."""
        return Simulated(catalogue, traffic, slos, pool=self._pool, num_workers=self._num_workers, conduct=conduct)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def _service_score(asked: SimulatedRequests, seen: Sequence[tuple[_Verdict, int]]) -> ServiceScore:
    num_requests, num_seen = len(asked.requests), sum(num * verdict.num_requests for verdict, num in seen)
    if not num_seen:
        return ServiceScore(num_requests, 0 if seen else num_requests, 0.0, asked.promise)
    late = sum(num * verdict.num_late for verdict, num in seen) / num_seen
    latency = sum(num * verdict.normalized_latency for verdict, num in seen) / num_seen
    return ServiceScore(num_requests, late * num_requests, latency * num_requests, asked.promise)


# --- one cell ---------------------------------------------------------------------------------------------------------


def simulate(setting: Setting, cell: Cell) -> Verdicts:
    """Return what becomes of the requests that come to a cell: of a share of 1/n, every n-th."""
    trace, alone_s = _trace(setting, cell)
    if not trace:
        return {service: NOTHING for service, _ in cell.shares}
    with leaving_nothing_behind(), rare_collections(), quiet_engines():
        records = _run(setting, cell, trace)
    return _verdicts(setting, cell, records, alone_s)


def _run(setting: Setting, cell: Cell, trace: Sequence[TraceRequest]) -> list[Record]:
    (topology, profiles), conduct = _topology(setting, cell), setting.conduct
    if conduct.is_by_fewest_requests and all(engine.role is Role.MULTIPLEX for engine in topology.engines):
        return DirectEngines(topology, profiles, seed=setting.seed, physics=Physics()).run(trace)
    coasts = conduct.rescheduling is None
    simulation = Simulation(topology, profiles, seed=setting.seed, physics=Physics(), slo=SloRule(), coasts=coasts)
    records: list[Record] = []
    simulation.run(topology.services[0].name, trace, records.append)
    return records


def _trace(setting: Setting, cell: Cell) -> tuple[list[TraceRequest], list[float | None]]:
    """In order of arrival, each with its execution time; those that wait already come first, and have none."""
    waiting, chosen = list[TraceRequest](), list[tuple[float, str, TraceRequest, float]]()
    for service, share in cell.shares:
        asked = setting.asked[service]
        waiting += _shared(asked.waiting, share)
        pairs = _shared(list(zip(asked.requests, asked.alone_s, strict=True)), share)
        chosen += [(request.at_s, service, request, alone_s) for request, alone_s in pairs]
    chosen.sort(key=lambda one: one[:2])
    alone_s = [None] * len(waiting) + [alone_s for *_, alone_s in chosen]
    return [*waiting, *(request for _, _, request, _ in chosen)], alone_s


def _shared(values: Sequence[Value], share: Fraction) -> list[Value]:
    return [
        value for index, value in enumerate(values) if index * share.numerator % share.denominator < share.numerator
    ]


def _topology(setting: Setting, cell: Cell) -> tuple[Topology, dict[str, Profile]]:
    engines, profiles, conduct = [], dict[str, Profile](), setting.conduct
    for number, (num_devices, services, role, kv_bytes) in enumerate(cell.engines):
        spec = EngineSpec(
            f"engine-{number:03}",
            role,
            services,
            block_size=_block_size([setting.asked[name] for name in services]),
            max_running=conduct.max_running,
            max_waiting=MANY,
            chunk_tokens=conduct.chunk_tokens,
            slice_tokens=conduct.slice_tokens,
            scheduling=conduct.scheduling,
            prefix_caching=conduct.prefix_caching,
        )
        engines.append(spec)
        profile = SharedProfile.of({name: setting.catalogue.profile(name, num_devices) for name in services})
        if kv_bytes != WHAT_WEIGHTS_LEAVE:
            profile = replace(profile, kv_memory_bytes=kv_bytes)
        profiles[spec.id] = profile
    gateway = GatewaySpec("gateway", max_requests=MANY, max_waiting=MANY)
    named = tuple(_service(name, setting.asked[name]) for name, _ in cell.shares)
    return (
        Topology(
            "plan",
            Path("plan"),
            named,
            tuple(engines),
            (gateway,),
            policy=conduct.policy,
            rescheduling=conduct.rescheduling,
            timing=TIMING,
        ),
        profiles,
    )


def _block_size(services: Sequence[SimulatedRequests]) -> int:
    """Tokens: as many as make a request's last block, half empty, too little to matter. Each block costs time."""
    means = [fmean(one.num_input + one.num_output for one in asked.requests) for asked in services if asked.requests]
    size = LEAST_BLOCK
    while 2 * size <= LAST_BLOCK * min(means, default=0.0):
        size *= 2
    return size


def _service(name: str, asked: SimulatedRequests) -> ServiceSpec:
    """Those that plan know what lengths are usual."""
    num = max(1, len(asked.requests))
    prompt, answer = (sum(getattr(one, which) for one in asked.requests) for which in ("num_input", "num_output"))
    usual_prompt, usual_answer = max(1, round(prompt / num)), max(1, round(answer / num))
    return ServiceSpec(name, "model", asked.slo, usual_prompt=usual_prompt, usual_answer=usual_answer)


def _verdicts(setting: Setting, cell: Cell, records: Sequence[Record], alone_s: Sequence[float | None]) -> Verdicts:
    num, late, latency = Counter[str](), Counter[str](), defaultdict[str, float](float)
    for record in records:
        own_s, service = alone_s[int(record.id[1:])], record.service
        if own_s is None:
            continue
        num[service] += 1
        late[service] += not _is_in_time(record, own_s, setting.slo_factor)
        if record.outcome is Outcome.FINISHED and record.e2e_s is not None:
            latency[service] += record.e2e_s / setting.asked[service].mean_s
    return {service: _Verdict(num[service], late[service], latency[service]) for service, _ in cell.shares}


def _is_in_time(record: Record, alone_s: float, slo_factor: float | None) -> bool:
    if slo_factor is None:
        return record.meets_slo
    return record.outcome is Outcome.FINISHED and record.e2e_s is not None and record.e2e_s <= slo_factor * alone_s
