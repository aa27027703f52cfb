"""What an engine does when slices end: who stays, who gives way to whom, and what becomes of KV in host memory."""

from collections.abc import Sequence

import pytest

from engines.effects import Copied, ForgetBlocks, OffloadBlocks, RestoreBlocks
from engines.engine_request import EngineRequest
from kvtransfer.layout import block_bytes
from kvtransfer.protocol import Send
from mesh.topology.schema import Scheduling
from mesh.wire.control import Role
from mesh.wire.requests import Epoch
from tests.engines.conftest import MakeSpec
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_memory import BLOCK_SIZE, SERVICE, SHAPE

SLICE = 8
NOW = 100.0
SLOW, FAST = 10.0, 0.001  # promised seconds from token to token


class Engine:
    """One engine's slices. Requests are put where a test wants them to be."""

    def __init__(
        self,
        make_spec: MakeSpec,
        num_blocks: int = 10,
        offload_blocks: int = 40,
        max_running: int = 8,
        scheduling: Scheduling = Scheduling.SLO,
    ) -> None:
        limits = {
            "slice_tokens": SLICE,
            "max_running": max_running,
            "offload_bytes": offload_blocks * block_bytes(SHAPE),
        }
        self.core = VirtualMesh().add("e", num_blocks=num_blocks, scheduling=scheduling, **limits).core
        self.slicing = self.core._slicing
        self.service = self.core._services[SERVICE]
        self.queue, self.pool = self.service.queue, self.service.pool
        self._make_spec = make_spec

    def waiting(self, name: str, num_tokens: int, late_s: float = -0.05, **fields: object) -> EngineRequest:
        """One that came just now. It has to begin within 50 ms, unless it is too late already."""
        spec = self._make_spec(name, num_tokens, max_tokens=50, slo_ttft_s=num_tokens / 1000 - late_s, **fields)
        request = EngineRequest.of(spec, Epoch(1), NOW, frozenset(), 1024)
        self.queue.waiting.append(request)
        self.core._discipline.came(request)
        return request

    def running(self, name: str, num_blocks: int, slo_tpot_s: float = SLOW, **fields: object) -> EngineRequest:
        """One that fills its blocks with tokens, half of them generated; its slice has ended."""
        half = num_blocks * BLOCK_SIZE // 2
        fields |= {"slo_tpot_s": slo_tpot_s, "generated": [7] * half, "first_token_age_s": 1.0}
        spec = self._make_spec(name, half, max_tokens=half + 40, first=1000 * num_blocks, **fields)
        request = EngineRequest.of(spec, Epoch(1), NOW, frozenset(), 1024)
        request.blocks, request.granted = self.pool.allocate(num_blocks), len(request.tokens)
        request.num_computed = len(request.tokens) - 1
        self.queue.running.append(request)
        self.core._discipline.came(request)
        return request

    def look(self) -> list[object]:
        effects: list[object] = [*self.slicing.before_plan(self.service, NOW)]
        self.slicing.check_invariants()
        return effects

    def copied(self, effects: Sequence[object], ok: bool = True) -> list[object]:
        """The copies of KV end."""
        after: list[object] = []
        for effect in effects:
            match effect:
                case OffloadBlocks(ticket):
                    after += self.core._owned.offloaded(Copied(ticket, ok, 0.001))
                case RestoreBlocks(ticket):
                    after += self.core._owned.restored(Copied(ticket, ok, 0.001))
        self.slicing.check_invariants()
        return after


def names(requests: Sequence[EngineRequest]) -> list[str]:
    return [request.id for request in requests]


def test_with_room_one_slice_follows_the_other(make_spec: MakeSpec):
    engine = Engine(make_spec)
    over, goes_on = engine.running("over", 4), engine.running("goes on", 2)
    goes_on.granted = len(goes_on.tokens) + 1
    assert engine.look() == []
    assert (over.granted, goes_on.granted) == (len(over.tokens) + SLICE, len(goes_on.tokens) + 1)
    assert engine.core._standing.num_kept == 1


def test_a_request_that_a_transfer_reads_is_left_alone(make_spec: MakeSpec):
    engine = Engine(make_spec)
    request = engine.running("r", 4)
    engine.queue.pinned.add(request)
    assert (engine.look(), request.granted) == ([], len(request.tokens))


def test_the_last_blocks_go_to_the_one_with_the_least_slack(make_spec: MakeSpec):
    engine = Engine(make_spec)
    calm, hasty = engine.running("calm", 4), engine.running("hasty", 4, slo_tpot_s=0.5)
    (effect,) = engine.look()
    assert isinstance(effect, OffloadBlocks)
    assert effect.blocks == calm.blocks
    assert (names(engine.queue.running), names(engine.queue.offloading)) == (["hasty"], ["calm"])
    assert hasty.granted == len(hasty.tokens) + SLICE


def test_what_the_calmest_gives_back_is_room_for_the_others(make_spec: MakeSpec):
    engine = Engine(make_spec, num_blocks=9)
    engine.running("hasty", 4, slo_tpot_s=0.5)
    engine.running("calm", 4)
    engine.look()
    assert (names(engine.queue.running), names(engine.queue.offloading)) == (["hasty"], ["calm"])


def test_what_is_granted_of_blocks_on_their_way_to_the_host_is_waited_for(make_spec: MakeSpec):
    """A copy may take longer than a step: nobody is preempted for its blocks."""
    engine = Engine(make_spec)
    engine.running("calm", 4)
    hasty, within = engine.running("hasty", 4, slo_tpot_s=0.5), engine.running("within its slice", 2)
    within.granted = len(within.tokens) + 2
    for request in (hasty, within):
        request.num_computed += 1
        request.append(7, None, NOW)
    effects = engine.look()
    assert names(engine.queue.offloading) == ["calm"]
    scheduler = engine.slicing._schedulers[SERVICE]
    waits = scheduler.plan(engine.queue, Role.MULTIPLEX, NOW)
    assert (waits.shares, waits.preempted, waits.starved) == ([], [], [])
    engine.copied(effects)
    goes_on = scheduler.plan(engine.queue, Role.MULTIPLEX, NOW)
    assert [share.request for share in goes_on.shares] == [hasty, within]


def test_importance_comes_before_slack(make_spec: MakeSpec):
    engine = Engine(make_spec)
    engine.running("hasty", 4, slo_tpot_s=0.5)
    engine.running("important", 4, priority=1)
    engine.look()
    assert names(engine.queue.running) == ["important"]


def test_where_memory_is_short_the_next_slice_is_shorter(make_spec: MakeSpec):
    engine = Engine(make_spec, offload_blocks=3)
    engine.pool.allocate(5)
    request = engine.running("r", 4)
    assert (engine.look(), request.granted) == ([], len(request.tokens) + SLICE // 2)


def test_of_several_that_end_only_the_most_urgent_one_stays_with_a_shorter_slice(make_spec: MakeSpec):
    engine = Engine(make_spec, num_blocks=9)
    hasty, calm = engine.running("hasty", 4, slo_tpot_s=0.5), engine.running("calm", 4)
    engine.look()
    assert (hasty.granted, names(engine.queue.offloading)) == (len(hasty.tokens) + SLICE, [calm.id])


def test_one_that_waits_is_admitted_with_what_others_were_granted_and_do_not_hold(make_spec: MakeSpec):
    engine = Engine(make_spec)
    request, waits = engine.running("r", 4), engine.waiting("w", 3 * BLOCK_SIZE)
    request.granted = len(request.tokens) + SLICE
    engine.pool.allocate(1)  # five blocks are free, of which two are granted; four are wanted
    plan = engine.slicing._schedulers[SERVICE].plan(engine.queue, Role.MULTIPLEX, NOW)
    assert waits in [share.request for share in plan.shares]
    assert (request.granted, waits.granted) == (len(request.tokens) + SLICE // 2, len(waits.tokens) + 1)


def test_nobody_gives_back_what_would_not_be_enough(make_spec: MakeSpec):
    engine = Engine(make_spec)
    request, waits = engine.running("r", 4), engine.waiting("w", 3 * BLOCK_SIZE)
    request.granted = len(request.tokens) + SLICE
    engine.pool.allocate(3)  # three blocks are free, of which two are granted; four are wanted
    plan = engine.slicing._schedulers[SERVICE].plan(engine.queue, Role.MULTIPLEX, NOW)
    assert waits not in [share.request for share in plan.shares]
    assert request.granted == len(request.tokens) + SLICE


def test_without_room_anywhere_it_goes_on_without_a_grant(make_spec: MakeSpec):
    engine = Engine(make_spec, offload_blocks=3)
    engine.pool.allocate(6)
    request = engine.running("r", 4)
    assert (engine.look(), request.granted, names(engine.queue.running)) == ([], len(request.tokens), ["r"])


def test_one_with_much_slack_gives_way_to_one_that_has_to_begin(make_spec: MakeSpec):
    engine = Engine(make_spec)
    engine.running("calm", 6)
    engine.waiting("new", 16)
    (effect,) = engine.look()
    assert isinstance(effect, OffloadBlocks)


@pytest.mark.parametrize(
    ("num_tokens", "fields"),
    [
        (16, {"late_s": 0.01}),  # in vain
        (16, {"priority": -1}),
        (8, {}),  # fits beside it
    ],
)
def test_it_gives_way_to_nobody_else(make_spec: MakeSpec, num_tokens: int, fields: dict[str, float]):
    engine = Engine(make_spec, num_blocks=12)
    calm = engine.running("calm", 6)
    engine.waiting("new", num_tokens, **fields)
    assert (engine.look(), calm.granted) == ([], len(calm.tokens) + SLICE)


def test_one_that_has_no_place_waits_for_one_though_it_would_fit(make_spec: MakeSpec):
    engine = Engine(make_spec, num_blocks=12, max_running=1)
    engine.running("calm", 6)
    engine.waiting("new", 8)
    (effect,) = engine.look()
    assert isinstance(effect, OffloadBlocks)


def away(engine: Engine) -> EngineRequest:
    """One whose KV is in host memory, as another one took its blocks."""
    request = engine.running("away", 4)
    other = engine.running("other", 5, slo_tpot_s=FAST, age_s=50.0)
    assert engine.copied(engine.look()) == []
    assert names(engine.queue.offloaded) == ["away"]
    assert (request.blocks, request.is_decoding) == ([], True)
    engine.queue.running.remove(other)
    engine.core._discipline.ended(other)
    other.release_blocks(engine.pool)
    return request


def test_an_offloaded_request_goes_on_as_soon_as_there_is_room_for_its_slice(make_spec: MakeSpec):
    engine = Engine(make_spec)
    request = away(engine)
    in_the_way = engine.pool.allocate(5)
    assert (engine.look(), engine.queue.is_claimed) == ([], True)
    engine.pool.release(in_the_way[:1])
    (effect,) = engine.look()
    assert isinstance(effect, RestoreBlocks)
    assert (effect.blocks, effect.first, engine.queue.is_claimed) == (request.blocks, 0, False)
    assert (names(engine.queue.restoring), request.granted) == (["away"], len(request.tokens) + SLICE)
    assert (engine.slicing.copies(request), engine.slicing.is_idle) == (True, False)
    assert engine.copied([effect]) == [ForgetBlocks(effect.ticket, SERVICE)]
    assert names(engine.queue.running) == ["away"]
    assert (engine.slicing.copies(request), engine.slicing.is_idle) == (False, True)


def test_an_offloaded_request_waits_for_a_place(make_spec: MakeSpec):
    engine = Engine(make_spec, max_running=1)
    away(engine)
    engine.running("new", 1).granted = 1000
    assert engine.look() == []


def test_an_offloaded_request_waits_for_one_that_has_to_begin_sooner(make_spec: MakeSpec):
    engine = Engine(make_spec)
    away(engine)
    engine.waiting("new", 8)
    assert (engine.look(), names(engine.queue.offloaded)) == ([], ["away"])


@pytest.mark.parametrize("on_the_way_back", [False, True])
def test_what_could_not_be_copied_is_computed_again(make_spec: MakeSpec, on_the_way_back: bool):
    engine = Engine(make_spec)
    if on_the_way_back:
        request = away(engine)
    else:
        request = engine.running("away", 4)
        engine.running("other", 5, slo_tpot_s=FAST)
    (effect,) = engine.look()
    assert engine.copied([effect], ok=False) == [ForgetBlocks(1, SERVICE)]
    assert (names(engine.queue.waiting), request.num_computed, request.blocks) == (["away"], 0, [])
    assert engine.core._standing.num_preempted == 1


def test_what_ends_in_host_memory_is_forgotten_there(make_spec: MakeSpec):
    engine = Engine(make_spec)
    request = away(engine)
    engine.queue.remove(request)
    assert engine.slicing.ended(request) == [ForgetBlocks(1, SERVICE)]
    assert engine.slicing.ended(request) == []


def test_what_ends_while_it_is_copied_is_forgotten_behind_the_copy(
    make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
):
    engine, gave_adapters_back = Engine(make_spec), list[EngineRequest]()
    monkeypatch.setattr(engine.core._adapters, "ended", gave_adapters_back.append)
    request = engine.running("away", 4)
    engine.running("other", 5, slo_tpot_s=FAST)
    effects = engine.look()
    request.is_over = True
    assert engine.slicing.ended(request) == []
    assert gave_adapters_back == []
    assert engine.copied(effects) == [ForgetBlocks(1, SERVICE)]
    assert gave_adapters_back == [request]
    assert (engine.queue.waiting, engine.pool.num_free, engine.core._standing.num_preempted) == ([], 5, 0)


@pytest.mark.parametrize(("num_free", "granted"), [(2, 16 + SLICE), (1, 16)])
def test_one_that_comes_with_its_kv_is_granted_a_slice_or_what_it_holds(
    make_spec: MakeSpec, num_free: int, granted: int
):
    engine = Engine(make_spec)
    engine.pool.allocate(6 - num_free)
    request = engine.running("r", 4)
    engine.queue.running.remove(request)
    engine.slicing.begin(engine.service, request)
    assert request.granted == granted


@pytest.mark.parametrize("is_leaving", [False, True])
def test_one_without_room_goes_on_where_there_is_some_unless_it_leaves_already(make_spec: MakeSpec, is_leaving: bool):
    engine = Engine(make_spec, offload_blocks=0)
    other = VirtualMesh().add("other").core
    engine.slicing._peers.observe("other", other.status(NOW))
    engine.pool.allocate(5)
    request = engine.running("r", 4)
    request.transfer = "t" if is_leaving else None
    effects = engine.look()
    assert [type(effect) for effect in effects] == ([] if is_leaving else [Send])
    assert engine.core._standing.num_moved == (not is_leaving)


RANKING = (Scheduling.DB, Scheduling.FCFS, Scheduling.MLFQ, Scheduling.SJF, Scheduling.ROUND_ROBIN)


@pytest.mark.parametrize("scheduling", RANKING)
def test_a_discipline_says_who_is_kept_whatever_is_promised(make_spec: MakeSpec, scheduling: Scheduling):
    engine = Engine(make_spec, scheduling=scheduling)
    engine.running("first", 4, age_s=9.0)
    engine.running("second", 4, slo_tpot_s=0.5, age_s=1.0)
    engine.look()
    assert (names(engine.queue.running), names(engine.queue.offloading)) == (["first"], ["second"])


@pytest.mark.parametrize("scheduling", RANKING)
def test_nobody_gives_way_to_one_that_ranks_behind(make_spec: MakeSpec, scheduling: Scheduling):
    engine = Engine(make_spec, scheduling=scheduling)
    calm = engine.running("calm", 6, age_s=9.0)
    engine.waiting("new", 16)
    assert (engine.look(), calm.granted) == ([], len(calm.tokens) + SLICE)


def test_one_that_ranks_before_it_has_its_memory_however_late_that_is(make_spec: MakeSpec):
    engine = Engine(make_spec, scheduling=Scheduling.FCFS)
    engine.running("second", 6)
    engine.waiting("first", 16, late_s=0.01, age_s=9.0)
    assert [type(effect) for effect in engine.look()] == [OffloadBlocks]
    assert names(engine.queue.offloading) == ["second"]


def test_an_offloaded_request_has_its_turn_by_rank_and_nobody_passes_it(make_spec: MakeSpec):
    engine = Engine(make_spec, scheduling=Scheduling.FCFS)
    request = away(engine)
    first = engine.waiting("first", 20, age_s=99.0)
    assert (engine.look(), engine.queue.is_claimed) == ([], False)
    engine.queue.waiting.remove(first)
    engine.core._discipline.ended(first)
    behind, in_the_way = engine.waiting("behind", 4), engine.pool.allocate(5)
    assert (engine.look(), engine.queue.is_claimed) == ([], True)
    engine.core.next_step(NOW)
    assert names(engine.queue.waiting) == ["behind"]
    engine.pool.release(in_the_way)
    assert [type(effect) for effect in engine.look()] == [RestoreBlocks]
    assert behind.blocks == []
    assert request in engine.queue.restoring
