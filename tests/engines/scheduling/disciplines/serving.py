"""A server without batches: what a discipline decides, and nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from engines.costs.step_cost import StepCost
from engines.engine_request import EngineRequest
from engines.scheduling.disciplines.doubling_budget import DoublingBudget
from engines.scheduling.disciplines.profile import Profiles
from engines.scheduling.disciplines.ranked import Ranked, RankOrder
from engines.scheduling.disciplines.waits import Waits
from mesh.wire.requests import Epoch, RequestSpec, Sampling
from mesh.wire.status import DecodeCost, PrefillCost


@dataclass(frozen=True)
class Known:
    """A profile that does not change."""

    mean_s: float
    std_s: float = 0.0

    @property
    def budget_s(self) -> float:
        return self.mean_s + self.std_s


COST = StepCost(PrefillCost(0.0, 0.001), DecodeCost(0.005, 0.001))


@dataclass(frozen=True)
class Fixed:
    """Costs that do not change."""

    cost: StepCost = COST

    def step_cost(self) -> StepCost:
        return self.cost


def ranked(order: RankOrder, services: Sequence[str], starvation_s: float = inf, *, is_strict: bool = True) -> Ranked:
    profiles = Profiles({service: Fixed() for service in services})
    return Ranked(order, profiles, Waits(lambda service: starvation_s), batch=32, is_strict=is_strict)


def doubling(profiles: dict[str, Known], starvation_s: float = inf, *, is_strict: bool = True) -> Ranked:
    return ranked(DoublingBudget(profiles), list(profiles), starvation_s, is_strict=is_strict)


def request(name: str, service: str, at: float = 0.0, priority: int = 0) -> EngineRequest:
    """It decodes: its prompt is computed."""
    spec = RequestSpec(name, "gateway", service, [1, 2], Sampling(max_tokens=10**6, seed=0), 1.0, 0.1, priority)
    request = EngineRequest.of(spec, Epoch(1), at, frozenset(), 10**6)
    request.tokens.append(3)
    request.num_computed = 2
    return request


@dataclass(frozen=True)
class Job:
    service: str
    at: int
    work: int


def serve(discipline: Ranked, jobs: Sequence[Job], *, until: int = 10**6) -> list[int]:
    """When each job is done, one unit of one job at a time: the one that ranks first."""
    here: dict[EngineRequest, int] = {}
    index_of: dict[EngineRequest, int] = {}
    left = [job.work for job in jobs]
    done = [0] * len(jobs)
    now = 0
    while any(left) and now < until:
        for index, job in enumerate(jobs):
            if job.at == now:
                newcomer = request(f"{index}", job.service, float(job.at))
                here[newcomer], index_of[newcomer] = job.work, index
                discipline.came(newcomer)
        turn = next(discipline.turns(now), None)
        now += 1
        if turn is None:
            continue
        first = min(here, key=discipline.rank(now - 1))
        assert turn.service == first.spec.service, "a turn of a service whose request does not rank first"
        left[index_of[first]] -= 1
        discipline.ran(turn.service, [first], 1.0)
        if not left[index_of[first]]:
            done[index_of[first]] = now
            discipline.ended(first)
            del here[first]
    return done
