"""Aladdin's constraints, each at its edge: context, prompts, what decodes have saved, and memory."""

from math import inf

import pytest
from msgspec.structs import replace

from mesh.wire.status import DecodeCost, Demand
from router.policies.parts.bins import (
    Knobs,
    Level,
    answer_of,
    broken,
    capacity_norm,
    checked,
    context_level,
    finish_level,
    is_empty,
    memory_level,
    most_context,
    prefill_level,
    saved_level,
)
from router.view.engine_view import EngineView, RequestView, engine_view
from tests.router.cluster import M0, SERVICE, make_request, make_status

COST = DecodeCost(0.010, 0.001, 0.00001)  # 10 ms, and 1 ms a request, and 10 ms for 1000 tokens of context
KNOBS = Knobs(gamma=0.5, theta=1.0)
TPOT = 0.1


def engine(demand: Demand | None = None, **numbers: object) -> EngineView:
    status = make_status(M0, decode_cost=COST, demand=demand, **numbers)
    return engine_view(M0, status, 0.0, ())


def request(num_tokens: int = 100, answer_tokens: int = 200, **fields: object) -> RequestView:
    return replace(make_request(num_tokens, **fields), answer_tokens=answer_tokens)


def test_a_level_holds_up_to_its_limit():
    assert Level(2.0, 2.0).holds
    assert not Level(2.1, 2.0).holds


def test_the_first_level_that_does_not_hold_is_named_and_no_later_one_is_worked_out():
    def levels():
        yield "b", Level(1, 2)
        yield "c", Level(3, 2)
        raise AssertionError("nobody asks for more")

    assert checked(levels()) == ("c", [("b", Level(1, 2)), ("c", Level(3, 2))])
    assert broken(iter([("b", Level(1, 2))])) is None


def test_an_engine_is_empty_without_requests_and_demand():
    assert is_empty(engine())
    assert not is_empty(engine(num_running=1))
    assert not is_empty(engine(Demand(1, 10, 10, TPOT, ((10, 20),))))


def test_an_answer_has_one_more_token_at_least():
    assert answer_of(request(answer_tokens=200)) == 200
    assert answer_of(replace(request(answer_tokens=5), num_generated=9)) == 10


def test_the_norm_is_of_batch_size_and_weighted_context():
    assert capacity_norm(Demand(3, 2, 4), gamma=0.5) == 5.0


@pytest.mark.parametrize(
    ("step_s", "tokens"), [(0.0109, -1.0), (0.011, 0.0), (0.021, 1000.0)], ids=["too short", "just", "roomy"]
)
def test_the_context_that_a_step_has_time_for(step_s: float, tokens: float):
    assert most_context(engine().services[SERVICE], 1, step_s) == pytest.approx(tokens, abs=1e-6)


def test_without_a_cost_of_context_there_is_time_for_any():
    pool = replace(engine().services[SERVICE], decode_cost=DecodeCost(0.01, 0.001))
    assert most_context(pool, 1, 0.02) == inf


def test_the_tightest_promise_bounds_the_context():
    alone = context_level(request(), engine(), KNOBS, prefills=False)
    assert alone == Level(100 + 0.5 * 200, pytest.approx(8900.0))
    strict = engine(Demand(1, 50, 20, 0.05, ((20, 70),)))
    assert context_level(request(), strict, KNOBS, prefills=False) == Level(150 + 0.5 * 220, pytest.approx(3800.0))


def test_a_promise_that_an_empty_engine_could_not_keep_bounds_nothing():
    assert context_level(replace(request(), tpot_slo_s=0.001), engine(), KNOBS, prefills=False).limit == inf


@pytest.mark.parametrize(("now", "holds"), [(0.0, True), (0.89, True), (0.91, False)])
def test_a_prompt_must_be_computed_by_its_deadline(now: float, holds: bool):
    """100 tokens take 0.1 s."""
    assert prefill_level(request(deadline=1.0), engine(), now).holds == holds


def test_a_deadline_that_nobody_could_keep_is_no_limit():
    assert prefill_level(request(num_tokens=2000, deadline=1.0), engine(num_blocks=1000), 0.0).limit == inf


def test_who_is_late_and_waits_all_the_same_goes_where_no_prompt_is():
    """Else it would wait until some engine is empty."""
    waits = replace(request(deadline=1.0), may_be_late=True)
    assert prefill_level(waits, engine(), 0.5).limit == 0.5
    decodes, prefills = engine(num_running=1), engine(prefill_waiting_s=0.1, num_waiting=1)
    for level in (prefill_level(waits, decodes, 5.0), finish_level(waits, decodes, KNOBS, 5.0)):
        assert level.holds
    for level in (prefill_level(waits, prefills, 5.0), finish_level(waits, prefills, KNOBS, 5.0)):
        assert not level.holds


@pytest.mark.parametrize(("slack_s", "theta", "holds"), [(0.5, 1.0, True), (0.15, 1.0, True), (0.15, 0.5, False)])
def test_prompts_take_no_more_than_decodes_have_saved(slack_s: float, theta: float, holds: bool):
    busy = engine(num_running=1, min_slack_s=slack_s, min_tpot_slo_s=TPOT)
    assert saved_level(request(), busy, Knobs(0.5, theta), 0.0).holds == holds


def test_where_nothing_decodes_nothing_limits_prompts():
    assert saved_level(request(num_tokens=1500), engine(), KNOBS, 0.0).limit == inf


@pytest.mark.parametrize(("num_free", "level"), [(6, Level(101, 96)), (7, Level(304, 1600))])
def test_memory_is_for_the_prompt_now_and_for_the_answer_later(num_free: int, level: Level):
    found = memory_level(request(), engine(Demand(), num_free_blocks=num_free))
    assert found.limit == level.limit
    assert found.used == pytest.approx(level.used, abs=16)


def test_a_place_is_needed_as_memory_is():
    taken, free = (replace(engine(Demand()), max_running=most) for most in (2, 3))
    two = replace(taken.services[SERVICE], num_requests=2)
    taken, free = (replace(one, services={SERVICE: two}) for one in (taken, free))
    assert (memory_level(request(), taken), memory_level(request(), free).holds) == (Level(3, 2), True)


def test_a_prompt_stands_in_no_line_of_a_discipline_unless_it_is_late():
    """There it would be passed for as long as others come, but not for ever."""
    waits, line = replace(request(num_tokens=100, deadline=1.0), may_be_late=True), engine(line_s=9.0)
    for level in (prefill_level(waits, line, 0.5), finish_level(waits, line, KNOBS, 0.5)):
        assert not level.holds
    for level in (prefill_level(waits, line, 5.0), finish_level(waits, line, KNOBS, 5.0)):
        assert level.holds
    assert prefill_level(waits, engine(line_s=0.55), 0.5).holds
