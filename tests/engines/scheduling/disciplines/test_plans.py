"""What the local scheduler makes of a turn: a phase, in the order of a rank, while memory and limits last."""

from engines.engine_request import EngineRequest
from engines.memory.block_pool import BlockPool
from engines.memory.pages import PagePool
from engines.scheduling.disciplines.discipline import IterationPhase, Ranking
from engines.scheduling.queue import ServiceQueue
from engines.scheduling.scheduler import Limits, LocalScheduler, StepPlan
from engines.scheduling.slack import IterationTime
from mesh.wire.control import PrefillMode, Role
from tests.engines.conftest import MakeSequence


class NothingForeseen:
    def prefill_s(self, request: EngineRequest) -> float:
        raise AssertionError("a discipline ranks by itself")

    def decodes(self) -> list[EngineRequest]:
        raise AssertionError("no slack is asked for")

    def decode_round_s(self) -> float:
        raise AssertionError("no slack is asked for")

    def growth_elsewhere(self) -> int:
        return 0

    def iteration_s(self) -> IterationTime:
        raise AssertionError("no slack is asked for")


def by_name(request: EngineRequest) -> tuple[float, ...]:
    return (float(ord(request.id)),)


def plan(
    queue: ServiceQueue, phase: IterationPhase, role: Role = Role.MULTIPLEX, most: int = 8, chunk_tokens: int = 16
) -> StepPlan:
    ranking = Ranking(by_name, iter(sorted(queue.prompts(), key=by_name)))
    return LocalScheduler(Limits(most, chunk_tokens), NothingForeseen()).plan(queue, role, 0.0, phase, ranking)


def taken(plan: StepPlan) -> list[tuple[str, int]]:
    return [(share.request.id, share.num_tokens) for share in plan.shares]


def decoding(queue: ServiceQueue, request: EngineRequest) -> EngineRequest:
    """Its prompt of 8 tokens is computed, in two full blocks; the next token needs a third."""
    request.blocks = queue.pool.allocate(2)
    request.num_computed = 8
    request.tokens.append(7)
    queue.running.append(request)
    return request


def queue_of(num_blocks: int, *waiting: EngineRequest) -> ServiceQueue:
    return ServiceQueue("tiny", BlockPool(PagePool(num_blocks), 4), waiting=list(waiting))


def test_prompts_enter_by_rank_up_to_the_tokens_of_a_step(make_sequence: MakeSequence):
    work = queue_of(64, make_sequence("c", 9, first=100), make_sequence("a", 6), make_sequence("b", 6, first=50))
    assert taken(plan(work, IterationPhase.PREFILL)) == [("a", 6), ("b", 6), ("c", 4)]


def test_prompts_that_have_begun_have_no_precedence(make_sequence: MakeSequence):
    work = queue_of(64, make_sequence("b", 40))
    assert taken(plan(work, IterationPhase.PREFILL)) == [("b", 16)]
    work.waiting.append(make_sequence("a", 10, first=90))
    assert taken(plan(work, IterationPhase.PREFILL)) == [("a", 10), ("b", 6)]


def test_modes_of_prefills_and_decodes_make_no_difference(make_sequence: MakeSequence):
    work = queue_of(64, make_sequence("a", 6, mode=PrefillMode.SLACK), make_sequence("b", 6, mode=PrefillMode.FIRST))
    decoding(work, make_sequence("d", 8, first=70))
    assert taken(plan(work, IterationPhase.PREFILL)) == [("a", 6), ("b", 6)]
    assert taken(plan(work, IterationPhase.DECODE)) == [("d", 1)]


def test_nobody_who_waits_passes_one_that_waits_for_memory_but_begun_ones_go_on(make_sequence: MakeSequence):
    work = queue_of(8, make_sequence("d", 24))
    plan(work, IterationPhase.PREFILL, chunk_tokens=4)
    work.waiting += [make_sequence("b", 4, first=80), make_sequence("a", 20, first=40)]
    assert taken(plan(work, IterationPhase.PREFILL)) == [("d", 16)]
    assert [request.id for request in work.waiting] == ["b", "a"]


def test_no_more_than_may_hold_blocks(make_sequence: MakeSequence):
    work = queue_of(64, *(make_sequence(name, 4, first=20 * index) for index, name in enumerate("abc")))
    assert taken(plan(work, IterationPhase.PREFILL, most=2)) == [("a", 4), ("b", 4)]


def test_a_prefill_engine_computes_one_prompt_at_a_time(make_sequence: MakeSequence):
    work = queue_of(64, make_sequence("b", 4), make_sequence("a", 4, first=40))
    assert taken(plan(work, IterationPhase.PREFILL, Role.PREFILL)) == [("a", 4)]


def test_decodes_enter_by_rank_and_the_last_of_them_loses_its_blocks(make_sequence: MakeSequence):
    work = queue_of(7)
    for index, name in enumerate("cab"):
        decoding(work, make_sequence(name, 8, arrived_at=float(index), first=40 * index))
    planned = plan(work, IterationPhase.DECODE)
    assert taken(planned) == [("a", 1), ("b", 1)]
    assert [request.id for request in planned.preempted] == ["c"]
    assert [request.id for request in work.waiting] == ["c"]
