"""The local scheduler's rules, one by one."""

import pytest

from engines.engine_request import EngineRequest
from engines.memory.block_pool import BlockPool
from engines.memory.pages import PagePool
from engines.scheduling.queue import ServiceQueue
from engines.scheduling.scheduler import Limits, LocalScheduler, StepPlan
from engines.scheduling.slack import IterationTime
from mesh.wire.control import PrefillMode, PrefillOrder, Role
from tests.engines.conftest import MakeSequence


class OneSecondAToken:
    """Forecasts for prompts: nothing decodes."""

    def prefill_s(self, request: EngineRequest) -> float:
        return float(request.num_uncomputed)

    def decodes(self) -> list[EngineRequest]:
        return []

    def decode_round_s(self) -> float:
        return 0.0

    def iteration_s(self) -> IterationTime:
        return lambda chunks: float(sum(num_tokens for num_tokens, _ in chunks))

    def growth_elsewhere(self) -> int:
        return 0


def scheduler(max_running: int = 8, chunk_tokens: int = 16) -> LocalScheduler:
    return LocalScheduler(Limits(max_running, chunk_tokens), OneSecondAToken())


def queue(num_blocks: int = 16, *waiting: EngineRequest) -> ServiceQueue:
    return ServiceQueue("tiny", BlockPool(PagePool(num_blocks), 4), waiting=list(waiting))


def compute(plan: StepPlan, queue: ServiceQueue, token: int = 7, now: float = 0.0) -> None:
    """What the core does with the results of an iteration."""
    for share in plan.shares:
        request = share.request
        request.num_computed += share.num_tokens
        request.publish_full_blocks(queue.pool)
        if request.num_uncomputed == 0:
            request.append(token, None, now)


def taken(plan: StepPlan) -> list[tuple[str, int]]:
    return [(share.request.id, share.num_tokens) for share in plan.shares]


def test_shortest_prompt_goes_first_and_a_prefill_engine_runs_one_at_a_time(make_sequence: MakeSequence):
    work = queue(16, make_sequence("long", 12), make_sequence("short", 3, first=90))
    assert taken(scheduler().plan(work, Role.PREFILL, 0.0)) == [("short", 3)]


def test_other_engines_fill_the_budget_with_several_prompts(make_sequence: MakeSequence):
    work = queue(16, make_sequence("a", 12), make_sequence("b", 3, first=90))
    assert taken(scheduler().plan(work, Role.MULTIPLEX, 0.0)) == [("b", 3), ("a", 12)]


def test_a_long_prompt_is_computed_in_chunks(make_sequence: MakeSequence):
    work = queue(16, make_sequence("a", 40))
    rules = scheduler(chunk_tokens=16)
    sizes = []
    while not work.running or not work.running[0].is_decoding:
        plan = rules.plan(work, Role.PREFILL, 0.0)
        sizes.append(plan.shares[0].num_tokens)
        compute(plan, work)
    assert sizes == [16, 16, 8]


def test_decodes_share_an_iteration_with_a_prefill(make_sequence: MakeSequence):
    work = queue(16, make_sequence("a", 4))
    rules = scheduler()
    compute(rules.plan(work, Role.MULTIPLEX, 0.0), work)
    work.waiting.append(make_sequence("b", 6, first=50))
    assert taken(rules.plan(work, Role.MULTIPLEX, 0.0)) == [("a", 1), ("b", 6)]


def test_priority_comes_before_length_and_a_starved_prompt_before_a_short_one(make_sequence: MakeSequence):
    work = queue(64, make_sequence("short", 2), make_sequence("urgent", 12, priority=1))
    assert taken(scheduler().plan(work, Role.PREFILL, 0.0))[0][0] == "urgent"
    work = queue(64, make_sequence("short", 2, arrived_at=11.0), make_sequence("starved", 12, arrived_at=0.0))
    assert taken(scheduler().plan(work, Role.PREFILL, 11.0))[0][0] == "starved"


def test_a_prompt_that_does_not_fit_waits_and_holds_nothing(make_sequence: MakeSequence):
    work = queue(2, make_sequence("big", 12))
    assert taken(scheduler().plan(work, Role.MULTIPLEX, 0.0)) == []
    assert work.pool.num_free == 2


def test_a_cached_prefix_is_not_computed_again(make_sequence: MakeSequence):
    work = queue(16, make_sequence("first", 9))
    rules = scheduler()
    compute(rules.plan(work, Role.MULTIPLEX, 0.0), work)
    first = work.running[0]
    work.remove(first)
    first.release_blocks(work.pool)
    work.waiting.append(make_sequence("second", 9))
    assert taken(rules.plan(work, Role.MULTIPLEX, 0.0)) == [("second", 1)]
    assert work.running[0].num_cached == 8


def start_decoding(work: ServiceQueue, request: EngineRequest) -> None:
    """As if its prompt was computed and its first token sampled."""
    request.blocks = work.pool.allocate(work.pool.blocks_for(request.num_prompt))
    request.num_computed = request.num_prompt
    request.append(7, None, 0.0)
    work.running.append(request)


def test_when_blocks_run_out_the_latest_arrival_is_preempted_and_recomputed(make_sequence: MakeSequence):
    work = queue(2)
    start_decoding(work, make_sequence("old", 4, 0.0))
    start_decoding(work, make_sequence("new", 4, 1.0, first=60))
    plan = scheduler().plan(work, Role.MULTIPLEX, 0.0)
    assert taken(plan) == [("old", 1)]
    assert [request.id for request in plan.preempted] == ["new"]
    assert work.waiting[0].num_computed == 0
    work.pool.check_invariants()


def test_a_lone_sequence_that_fills_the_pool_is_outgrown(make_sequence: MakeSequence):
    work = queue(2, make_sequence("a", 8, max_tokens=100))
    rules = scheduler()
    compute(rules.plan(work, Role.MULTIPLEX, 0.0), work)
    plan = rules.plan(work, Role.MULTIPLEX, 0.0)
    assert [request.id for request in plan.outgrown] == ["a"]


@pytest.mark.parametrize("mode", [PrefillMode.CHUNKED, PrefillMode.FIRST])
def test_what_is_more_urgent_takes_the_memory_of_the_least_urgent(make_sequence: MakeSequence, mode: PrefillMode):
    """And no more of it than it needs: three blocks and one to grow into for each that runs."""
    work = queue(9)
    for number, priority in enumerate((0, -1, 5)):
        start_decoding(work, make_sequence(f"r{number}", 5, float(number), first=60 * number, priority=priority))
    urgent = make_sequence("urgent", 9, 9.0, first=200, priority=1)
    urgent.prefill_mode = mode
    work.waiting.append(urgent)
    plan = scheduler().plan(work, Role.MULTIPLEX, 0.0)
    assert [request.id for request in plan.preempted] == ["r1"]
    beside = [("r0", 1), ("r2", 1)] if mode is PrefillMode.CHUNKED else []
    assert taken(plan) == [*beside, ("urgent", 9)]
    assert [request.id for request in work.waiting] == ["r1"]
    compute(plan, work)
    assert scheduler().plan(work, Role.MULTIPLEX, 0.0).preempted == []


@pytest.mark.parametrize(("num_tokens", "priority"), [(9, 0), (30, 1)])
def test_nobody_loses_memory_to_an_equal_nor_in_vain(make_sequence: MakeSequence, num_tokens: int, priority: int):
    work = queue(6)
    start_decoding(work, make_sequence("a", 5))
    start_decoding(work, make_sequence("b", 5, first=60, priority=priority))
    work.waiting.append(make_sequence("c", num_tokens, 9.0, first=200, priority=priority))
    plan = scheduler().plan(work, Role.MULTIPLEX, 0.0)
    assert (plan.preempted, taken(plan)) == ([], [("a", 1), ("b", 1)])


def test_a_prompt_that_has_begun_gives_way_to_a_more_urgent_one(make_sequence: MakeSequence):
    work = queue(6, make_sequence("long", 20))
    rules = scheduler(chunk_tokens=4)
    compute(rules.plan(work, Role.MULTIPLEX, 0.0), work)
    work.waiting.append(make_sequence("urgent", 8, 9.0, first=200, priority=1))
    for request in (*work.waiting, *work.running):
        request.prefill_order = PrefillOrder.DEADLINE
    plan = rules.plan(work, Role.MULTIPLEX, 0.0)
    assert ([request.id for request in plan.preempted], taken(plan)) == (["long"], [("urgent", 4)])
    assert work.waiting[0].num_computed == 0


def test_blocks_that_are_being_sent_are_not_preempted(make_sequence: MakeSequence):
    work = queue(2)
    start_decoding(work, make_sequence("sent", 4, 1.0))
    work.pinned.add(work.running[0])
    start_decoding(work, make_sequence("other", 4, 0.0, first=60))
    assert [request.id for request in scheduler().plan(work, Role.MULTIPLEX, 0.0).preempted] == ["other"]


def test_decodes_wait_for_a_prompt_that_goes_first_chunk_by_chunk(make_sequence: MakeSequence):
    work = queue(32)
    start_decoding(work, make_sequence("decoding", 4))
    work.waiting.append(make_sequence("first", 24, first=50, mode=PrefillMode.FIRST))
    rules = scheduler(chunk_tokens=16)
    taken_each_time = []
    for _ in range(3):
        plan = rules.plan(work, Role.MULTIPLEX, 0.0)
        taken_each_time.append(taken(plan))
        compute(plan, work)
    assert taken_each_time == [[("first", 16)], [("first", 8)], [("decoding", 1), ("first", 1)]]


def test_several_prompts_that_go_first_share_an_iteration(make_sequence: MakeSequence):
    work = queue(32)
    start_decoding(work, make_sequence("decoding", 4))
    work.waiting += [make_sequence("a", 6, first=50, mode=PrefillMode.FIRST)]
    work.waiting += [make_sequence("b", 20, first=90, mode=PrefillMode.FIRST)]
    assert taken(scheduler().plan(work, Role.MULTIPLEX, 0.0)) == [("a", 6), ("b", 10)]


def test_decodes_go_on_while_a_prompt_that_goes_first_does_not_fit(make_sequence: MakeSequence):
    work = queue(3)
    start_decoding(work, make_sequence("decoding", 4))
    work.waiting.append(make_sequence("first", 12, first=50, mode=PrefillMode.FIRST))
    assert taken(scheduler().plan(work, Role.MULTIPLEX, 0.0)) == [("decoding", 1)]


def test_prompts_of_other_modes_keep_their_turn(make_sequence: MakeSequence):
    work = queue(32)
    start_decoding(work, make_sequence("decoding", 4))
    work.waiting += [make_sequence("chunked", 6, first=50), make_sequence("first", 7, first=90, mode=PrefillMode.FIRST)]
    rules = scheduler()
    plan = rules.plan(work, Role.MULTIPLEX, 0.0)
    assert taken(plan) == [("decoding", 1), ("chunked", 6)]
    compute(plan, work)
    assert taken(rules.plan(work, Role.MULTIPLEX, 0.0)) == [("first", 7)]


def test_on_a_prefill_engine_no_prompt_makes_decodes_wait(make_sequence: MakeSequence):
    work = queue(32)
    start_decoding(work, make_sequence("recovered", 4))
    work.waiting += [make_sequence("a", 6, first=50, mode=PrefillMode.FIRST)]
    work.waiting += [make_sequence("b", 7, first=90, mode=PrefillMode.FIRST)]
    assert taken(scheduler().plan(work, Role.PREFILL, 0.0)) == [("recovered", 1), ("a", 6)]


@pytest.mark.parametrize(
    ("order", "taken_first"),
    [(PrefillOrder.URGENCY, "late"), (PrefillOrder.LENGTH, "short"), (PrefillOrder.ARRIVAL, "early")],
)
def test_prompts_wait_in_the_order_that_their_policy_asks_for(
    make_sequence: MakeSequence, order: PrefillOrder, taken_first: str
):
    early = make_sequence("early", 12, 0.0, slo_ttft_s=100.0)
    late = make_sequence("late", 6, 1.0, slo_ttft_s=0.5)
    short = make_sequence("short", 3, 2.0, slo_ttft_s=100.0)
    for request in (early, late, short):
        request.prefill_order = order
    assert taken(scheduler().plan(queue(64, short, late, early), Role.PREFILL, 3.0))[0][0] == taken_first


@pytest.mark.parametrize("order", [PrefillOrder.URGENCY, PrefillOrder.DEADLINE])
def test_a_promise_tighter_than_its_services_that_is_broken_passes_nobody(
    make_sequence: MakeSequence, order: PrefillOrder
):
    honest = make_sequence("honest", 4, slo_ttft_s=20.0)
    hostile = [make_sequence(f"hostile {number}", 8, arrived_at=1.0, slo_ttft_s=1e-3) for number in range(3)]
    for request in (honest, *hostile):
        request.service_ttft_s = 20.0
        request.prefill_order = order
    assert scheduler().most_urgent([*hostile, honest], 2.0) is honest
