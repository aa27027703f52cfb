"""One run of a contender under a load, and the searches that are made of runs."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf
from statistics import fmean

import msgspec

from bench.combined.contenders import EVERYBODY
from bench.combined.setting import PROMISE, Groups, Load, groups_of, make_topology
from bench.simulated import make_simulation, percentile, serve
from router.history.records import Outcome, Record
from simulation.capacity import find_capacity

PRECISION, MOST_RUNS = 0.15, 7
FIRST_RATE_OF_AN_ENGINE = 1.75  # requests a second, where searches begin


@dataclass(frozen=True, slots=True)
class Case:
    """A contender, by name, on so many engines: of all groups in proportion, or of one ``group`` alone."""

    contender: str
    num_engines: int
    load: Load
    group: str | None = None

    def groups(self) -> Groups:
        every = groups_of(EVERYBODY[self.contender].layout, self.num_engines)
        return every if self.group is None else {self.group: (every[self.group][0], self.num_engines)}


class Result(msgspec.Struct, frozen=True):
    """What came of a case. Attainments are shares of all requests, refused ones included; latencies are in seconds."""

    attainment: float
    by_service: Mapping[str, float]
    rejected: float
    ttft_p99_s: float
    tpot_p99_s: float


def run_case(case: Case) -> Result:
    contender = EVERYBODY[case.contender]
    topology, profiles = make_topology(contender.layout, case.groups(), contender.spec, contender.rescheduling)
    load = replace(case.load, services=tuple(service.name for service in topology.services))
    simulation = make_simulation(topology, profiles, load.seed, coasts=not contender.triggers)
    records = serve(simulation, load.services[0], load.requests())
    tpots = [one.tpot_s for one in records if one.tpot_s is not None] or [0.0]
    ttfts = [one.ttft_s for one in records if one.ttft_s is not None] or [0.0]
    return Result(
        attainment=fmean(one.meets_slo for one in records),
        by_service=_by_service(records),
        rejected=fmean(one.outcome is Outcome.REJECTED for one in records),
        ttft_p99_s=percentile(ttfts, 99),
        tpot_p99_s=percentile(tpots, 99),
    )


def _by_service(records: Iterable[Record]) -> dict[str, float]:
    met: dict[str, list[bool]] = defaultdict(list)
    for record in records:
        met[record.service].append(record.meets_slo)
    return {name: fmean(met[name]) for name in sorted(met)}


def capacity(case: Case) -> float:
    """Return the requests a second at which the promises are kept, of all services together, on the case's engines."""

    def attainment_at(rate: float) -> float:
        return run_case(replace(case, load=replace(case.load, rate=rate))).attainment

    return find_capacity(
        attainment_at, PROMISE, FIRST_RATE_OF_AN_ENGINE * case.num_engines, PRECISION, most_runs=MOST_RUNS
    ).rate


def fewest_engines(case: Case) -> float:
    """Return how many engines keep the promises at the case's rate: of each group those that its own services need."""
    return sum(_fewest(replace(case, group=name, num_engines=count)) for name, (_, count) in case.groups().items())


def _fewest(case: Case) -> float:
    """Of one group: a fraction between a number that is enough and one less. Infinite: four times the case's are not
    enough.
    """
    attained = {0: 0.0}

    def keeps(number: int) -> bool:
        if number not in attained:
            attained[number] = run_case(replace(case, num_engines=number)).attainment
        return attained[number] >= PROMISE

    enough = next((number for number in range(case.num_engines, 4 * case.num_engines + 1) if keeps(number)), None)
    if enough is None:
        return inf
    while keeps(enough - 1):
        enough -= 1
    return enough - (attained[enough] - PROMISE) / (attained[enough] - attained[enough - 1])
