"""Chunks that fit the slack of decodes: one iteration's arithmetic."""

from collections.abc import Callable, Sequence
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from engines.costs.learning import LearntCost
from engines.costs.step_cost import StepCost
from engines.engine_request import EngineRequest
from engines.memory.block_pool import BlockPool
from engines.memory.pages import PagePool
from engines.scheduling.queue import ServiceQueue
from engines.scheduling.service import Service
from engines.scheduling.slack import LONGEST_GAP, SlackBudget, Tightest, in_one_iteration, tightest, tightest_foreseen
from engines.scheduling.steady import steady_batch
from mesh.wire.control import PrefillMode
from mesh.wire.requests import Epoch, RequestSpec, Sampling
from mesh.wire.status import DecodeCost, PrefillCost
from mesh.wire.transfers import KVShape
from tests.engines.conftest import MakeSequence

SPEC = RequestSpec("r", "gateway", "tiny", [1] * 6000, Sampling(max_tokens=4, seed=1), 10.0, 0.1)
STEP_S = 0.04  # every promise is 0.1 s a token
FIXED_S = 0.005  # that the first chunk adds


MakeService = Callable[[list[EngineRequest]], Service]


@pytest.fixture
def make_service() -> MakeService:
    """With these running, in a pool of their own. A step takes ``STEP_S``, whoever is in it."""

    def make(running: list[EngineRequest]) -> Service:
        queue = ServiceQueue("tiny", BlockPool(PagePool(1000), 4))
        for request in running:
            request.blocks = queue.pool.allocate(queue.pool.blocks_for(len(request.tokens)))
            request.num_computed = len(request.tokens) - 1
        queue.running = running
        cost = LearntCost(StepCost(PrefillCost(0.0, 0.001), DecodeCost(STEP_S, 0.0)))
        return Service(queue, KVShape(1, 1, 1, 4, "float32"), None, frozenset({0}), 4096, cost)

    return make


def decoding(
    make_sequence: MakeSequence, id_: str, num_generated: int, first_token_at: float, **spec: object
) -> EngineRequest:
    request = make_sequence(id_, 4, **spec)
    for _ in range(num_generated):
        request.append(7, None, first_token_at)
    return request


def iteration_s(chunks: Sequence[tuple[int, int]]) -> float:
    attended = sum(new * (before + new / 2) for new, before in chunks)
    return STEP_S + FIXED_S * bool(chunks) + 0.001 * sum(new for new, _ in chunks) + 1e-6 * attended


def budget(slack: Tightest, margin: float = 1.0, min_chunk_tokens: int = 32) -> SlackBudget:
    return SlackBudget(iteration_s, dict.fromkeys(PrefillMode, slack.part(margin)), min_chunk_tokens)


def test_the_tightest_decode_is_the_one_with_the_least_slack(make_sequence: MakeSequence):
    early = decoding(make_sequence, "early", 3, 0.0, max_tokens=100)
    tight = decoding(make_sequence, "tight", 2, 0.0, max_tokens=100)
    found = tightest([early, tight], 0.1, STEP_S)
    assert found.slack_s == pytest.approx(2 * 0.1 - 0.1 - STEP_S)
    assert found.recovers_at == pytest.approx(0.1)


def test_a_late_decode_recovers_by_what_each_step_gains(make_sequence: MakeSequence):
    late = decoding(make_sequence, "late", 2, 0.0, max_tokens=100)
    now = 0.28  # late by 0.12, and each step of 0.04 gains 0.06
    found = tightest([late], now, STEP_S)
    assert (found.slack_s, found.recovers_at) == (pytest.approx(-0.12), pytest.approx(now + 2 * STEP_S))


def test_a_decode_that_cannot_keep_its_promise_holds_nobody_back(make_sequence: MakeSequence):
    lost = decoding(make_sequence, "lost", 2, 0.0, max_tokens=4)  # gains 0.06 before its last token, too little
    assert tightest([lost], 0.28, STEP_S) == Tightest(inf, -inf)
    kept = decoding(make_sequence, "kept", 2, 0.0, max_tokens=5)
    assert tightest([lost, kept], 0.28, STEP_S).slack_s == pytest.approx(-0.12)


def test_steps_longer_than_the_promise_leave_no_slack_for_good(make_sequence: MakeSequence):
    ahead = decoding(make_sequence, "ahead", 5, 0.0, max_tokens=100)
    assert tightest([ahead], 0.1, 0.2) == Tightest(pytest.approx(0.2), inf)


@given(st.floats(-0.1, 0.5), st.floats(0.1, 1), st.integers(0, 5000), st.integers(1, 2000))
def test_a_chunk_is_the_largest_that_fits(slack_s: float, margin: float, before: int, at_most: int):
    request = EngineRequest.of(SPEC, Epoch(1), 0.0, frozenset(), 10_000)
    request.num_computed = before
    size = budget(Tightest(slack_s), margin, 1).chunk_tokens(request, at_most, 0.0)
    assert 0 <= size <= min(at_most, request.num_uncomputed)
    longest_s = STEP_S + margin * slack_s
    assert size == 0 or iteration_s([(size, before)]) <= longest_s
    assert size == min(at_most, request.num_uncomputed) or iteration_s([(size + 1, before)]) > longest_s


def test_what_is_spent_is_gone(make_sequence: MakeSequence):
    room = budget(Tightest(0.155, 0.0))
    first, second = make_sequence("a", 100), make_sequence("b", 100)
    assert room.chunk_tokens(first, 1000, 0.0) == 100
    room.spend(100, 0)
    size = room.chunk_tokens(second, 1000, 0.0)
    assert iteration_s([(100, 0), (size, 0)]) <= STEP_S + 0.155 < iteration_s([(100, 0), (size + 1, 0)])


def test_a_chunk_too_small_to_be_worth_it_waits(make_sequence: MakeSequence):
    room = budget(Tightest(0.03, 0.0))
    assert room.chunk_tokens(make_sequence("long", 100), 1000, 0.0) == 0
    assert room.chunk_tokens(make_sequence("short", 20), 1000, 0.0) == 20


def test_a_prefill_that_is_late_gives_way_for_ten_promises_and_then_gets_the_least_chunk(make_sequence: MakeSequence):
    prefill = make_sequence("p", 100)  # due at 10.0
    assert budget(Tightest(-0.1, 99.9)).chunk_tokens(prefill, 1000, 1.0) == 0
    assert budget(Tightest(-0.1, 100.1)).chunk_tokens(prefill, 1000, 1.0) == 32
    assert budget(Tightest(0.0, inf)).chunk_tokens(prefill, 1000, 1.0) == 32
    assert budget(Tightest(0.0, 0.0)).chunk_tokens(prefill, 1000, 10.1) == 0
    assert budget(Tightest(0.0, 0.0)).chunk_tokens(prefill, 1000, 100.1) == 32
    assert budget(Tightest(0.0, inf)).chunk_tokens(prefill, 8, 1.0) == 8


def test_what_has_begun_its_answer_gives_way_for_one_promise(make_sequence: MakeSequence):
    fresh, preempted = make_sequence("f", 100), make_sequence("p", 100)
    preempted.tokens.append(7)
    assert (fresh.gives_way_until, preempted.gives_way_until) == (100.0, 10.0)


def test_without_decodes_there_is_room_for_all(make_sequence: MakeSequence):
    assert budget(Tightest()).chunk_tokens(make_sequence("p", 100), 64, 0.0) == 64


def status_of(service: Service, now: float) -> tuple[float, float]:
    decodes = service.decodes(now)
    return decodes.paid_until, decodes.tpot_slo_s


@pytest.mark.parametrize("promise_s", [1e-300, 1e-9, 0.5 * STEP_S, STEP_S])
def test_a_promise_that_no_step_can_keep_closes_an_engine_to_nobody(
    make_sequence: MakeSequence, make_service: MakeService, promise_s: float
):
    honest = decoding(make_sequence, "honest", 3, 0.0, max_tokens=100)
    hostile = decoding(make_sequence, "hostile", 3, 0.0, max_tokens=100, slo_tpot_s=promise_s)
    alone, together = make_service([honest]), make_service([honest, hostile])
    assert together.decodes(0.2).num_requests == 2
    assert status_of(together, 0.2) == status_of(alone, 0.2) == (pytest.approx(0.3), 0.1)
    assert (honest.is_hopeless, hostile.is_hopeless) == (False, True)
    assert status_of(make_service([hostile]), 0.2) == (inf, inf)


def test_a_debt_beyond_repair_does_not_count_and_one_that_can_be_paid_does(
    make_sequence: MakeSequence, make_service: MakeService
):
    short = decoding(make_sequence, "short", 2, 0.0, max_tokens=4)  # wins 0.06 alone before its last token
    long = decoding(make_sequence, "long", 2, 0.0, max_tokens=40)
    assert status_of(make_service([short, long]), 0.5) == (pytest.approx(0.2), 0.1)
    assert (short.is_hopeless, long.is_hopeless) == (True, False)


def test_steps_that_repeat_leave_lost_promises_out_as_others_do(make_sequence: MakeSequence, make_service: MakeService):
    sampling = Sampling(max_tokens=200, seed=1, ignore_eos=True)
    promises = [0.1, 1e-9, 0.1, 0.5 * STEP_S, 0.2]
    for passed in range(0, 30, 7):
        booked, steady = (
            [
                decoding(make_sequence, str(index), 2, 0.0, sampling=sampling, slo_tpot_s=promise_s)
                for index, promise_s in enumerate(promises)
            ]
            for _ in range(2)
        )
        one, other = make_service(booked), make_service(steady)
        for request in booked:
            request.tokens += [7] * passed
            request.num_computed += passed
        batch = other.queue.steady = steady_batch(other.pool, steady)
        assert batch is not None
        batch.pass_steps(passed, 7)
        for now in (0.05, 0.3, 5.0, 50.0):
            assert astuple(one.decodes(now)) == pytest.approx(astuple(other.decodes(now)))


def test_a_tight_ttft_promise_that_is_broken_does_not_pass_the_others(make_sequence: MakeSequence):
    request = make_sequence("hostile", 4, slo_ttft_s=1e-3)
    assert request.starves_at == pytest.approx(1e-3)
    request.service_ttft_s = 2.0
    assert request.starves_at == 2.0
    assert request.ttft_deadline == pytest.approx(1e-3), "it is still what it is measured by"


# --- slack that is foreseen


def foreseeing(make_sequence, num_generated: int, first_token_at: float, **lengths) -> EngineRequest:
    """Promised 0.1 s a token; ``lengths``: what is expected of its answer."""
    return decoding(make_sequence, "r", num_generated, first_token_at, max_tokens=2000, **lengths)


def test_a_decode_will_save_in_each_step_that_it_is_sure_to_have(make_sequence: MakeSequence):
    request = foreseeing(make_sequence, 3, 0.0, expected=(30,), at_least=(13, 20))
    saved_s = 3 * 0.1 - 0.1 - STEP_S
    assert tightest([request], 0.1, STEP_S).slack_s == pytest.approx(saved_s)
    assert tightest_foreseen([request], 0.1, STEP_S).slack_s == pytest.approx(saved_s + 9 * (0.1 - STEP_S))


def test_one_that_has_outgrown_what_is_known_may_end_with_its_next_token(make_sequence: MakeSequence):
    request = foreseeing(make_sequence, 20, 0.0, expected=(30,), at_least=(13, 20))
    assert tightest_foreseen([request], 1.9, STEP_S).slack_s == pytest.approx(20 * 0.1 - 1.9 - STEP_S)


def test_one_that_is_expected_to_be_late_holds_nobody_up(make_sequence: MakeSequence):
    lost = foreseeing(make_sequence, 3, 0.0, expected=(10,), at_least=(5,))
    assert tightest_foreseen([lost], 5.0, STEP_S) == Tightest()
    doubtful = foreseeing(make_sequence, 3, 0.0, expected=(200,), at_least=(5,))
    found = tightest_foreseen([doubtful], 5.0, STEP_S)
    assert found.slack_s < 0
    assert found.recovers_at == pytest.approx(5.0 + 197 * STEP_S)


def test_no_iteration_takes_longer_than_the_longest_gap(make_sequence: MakeSequence):
    request = foreseeing(make_sequence, 3, 0.0, expected=(1500,), at_least=(1000,))
    foreseen = tightest_foreseen([request], 0.1, STEP_S)
    assert foreseen.slack_s > LONGEST_GAP * 0.1
    assert in_one_iteration([request], foreseen).slack_s == pytest.approx(LONGEST_GAP * 0.1)


def test_nothing_that_decodes_leaves_all_the_time_there_is():
    assert in_one_iteration([], tightest_foreseen([], 1.0, 0.0)).slack_s == inf
