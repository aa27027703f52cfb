"""Makes the discipline that a topology names."""

from collections.abc import Callable, Mapping
from math import inf

from engines.costs.linear import prefill_s
from engines.engine_request import EngineRequest
from engines.scheduling.disciplines.discipline import Discipline
from engines.scheduling.disciplines.doubling_budget import DoublingBudget
from engines.scheduling.disciplines.fcfs import FirstCome
from engines.scheduling.disciplines.mlfq import SkipJoin
from engines.scheduling.disciplines.profile import Costs, Lengths, Profiles, quickest_step_s
from engines.scheduling.disciplines.ranked import Ranked, RankOrder
from engines.scheduling.disciplines.round_robin import RoundRobinDiscipline
from engines.scheduling.disciplines.sjf import ShortestJob
from engines.scheduling.disciplines.slo import InTurns
from engines.scheduling.disciplines.static import StaticBatches
from engines.scheduling.disciplines.waits import Waits
from mesh.topology.schema import Scheduling

STARVATION = 50.0  # times the mean execution time of a service: the threshold where the topology gives none


def make_discipline(
    scheduling: Scheduling,
    costs: Mapping[str, Costs],
    batch: int,
    most_rows: Callable[[str, int], int],
    *,
    starvation_s: float | None = None,
    strict_phases: bool = False,
    usual: Mapping[str, Lengths] | None = None,
) -> Discipline:
    """Make the discipline of an engine. ``costs`` of the services that are here now; ``batch``: how many requests an
    iteration computes at most.

    ``most_rows``: see `StaticBatches`. ``usual``: see `Profiles`. The rest is as in `EngineSpec`.
    """
    if scheduling in (Scheduling.SLO, Scheduling.CONTINUOUS):
        return InTurns(costs)
    if scheduling.is_static:
        return StaticBatches(batch, most_rows, pads=scheduling is Scheduling.PADDED)
    if scheduling is Scheduling.ROUND_ROBIN:
        return RoundRobinDiscipline(costs)
    profiles = Profiles(costs, usual)

    def threshold_s(service: str) -> float:
        if scheduling is Scheduling.FCFS:
            return inf  # nobody can pass
        return STARVATION * profiles[service].mean_s if starvation_s is None else starvation_s

    order = _order(scheduling, costs, profiles)
    return Ranked(order, profiles, Waits(threshold_s), batch, is_strict=strict_phases)


def _order(scheduling: Scheduling, costs: Mapping[str, Costs], profiles: Profiles) -> RankOrder:
    match scheduling:
        case Scheduling.DB:
            return DoublingBudget(profiles)
        case Scheduling.SJF:
            return ShortestJob(profiles)
        case Scheduling.MLFQ:
            return SkipJoin(lambda request: _prompt_s(costs, request), lambda: quickest_step_s(costs))
        case _:
            return FirstCome()


def _prompt_s(costs: Mapping[str, Costs], request: EngineRequest) -> float:
    cost = costs[request.spec.service].step_cost().prefill
    return prefill_s(cost, request.num_uncomputed, request.num_computed)
