from random import Random

import pytest
from msgspec.structs import replace

from engines.scheduling.demand import highest_with, peaks_of
from mesh.wire.control import PrefillMode, PrefillOrder, Role
from mesh.wire.status import DecodeCost, Demand, PendingPrefill, PrefillCost
from router.policies.capabilities import RecallsRequests
from router.policies.packing import Packing, PackingParameters
from router.policies.parts.bins import Knobs, all_levels, decode_levels, is_empty
from router.policies.policy import Dispatch, Reject, Wait
from router.view.engine_view import RequestView, engine_view
from router.view.engine_work import Reservation
from tests.router.cluster import D0, D1, M0, M1, P0, P1, SERVICE, make_request, make_status, make_view
from tests.seeds import each_seed

M2 = "multiplex-2"
COST = DecodeCost(0.010, 0.001, 0.00001)  # 10 ms, and 1 ms a request, and 10 ms for 1000 tokens of context
TPOT = 0.1
FULL = Demand(10, 1000, 1000, TPOT, ((100, 1500),))


def engine(id_, demand=None, *, reservations=(), num_blocks=1000, cost=COST, **numbers):
    """That decodes what ``demand`` says."""
    num_running = demand.num_requests if demand else 0
    decoding = {"min_slack_s": 5.0, "min_tpot_slo_s": TPOT} if num_running else {}
    numbers = {"num_running": num_running, "num_blocks": num_blocks, **decoding, **numbers}
    status = make_status(id_, **numbers)
    [service] = status.services
    service = replace(service, demand=demand, decode_cost=cost, num_running=num_running)
    return engine_view(id_, replace(status, services=[service]), 0.0, reservations)


def request(num_tokens=100, answer_tokens=200, **fields):
    made = make_request(num_tokens, **fields)
    return replace(made, answer_tokens=answer_tokens)


def decide(what, *engines, **parameters):
    return Packing(PackingParameters(**parameters)).decide(what, make_view(*engines), 0.0)


def where(decision):
    assert isinstance(decision, Dispatch), decision
    return decision.prefill_engine, decision.decode_engine


def light(share):
    return replace(FULL, num_requests=round(10 * share), prompt_tokens=round(1000 * share))


# --- best fit ---------------------------------------------------------------------------------------------------------


def test_the_fullest_engine_that_fits_takes_it():
    decision = decide(request(), engine(M0, light(0.2)), engine(M1, light(0.8)), engine(M2))
    assert where(decision) == (M1, M1)
    assert (decision.rule, decision.prefill) == ("best fit", PrefillMode.FIRST)


def test_load_is_the_length_of_batch_size_and_weighted_context():
    few_long = Demand(2, 900, 1000, TPOT, ((10, 10),))
    many_short = Demand(50, 850, 1000, TPOT, ((10, 10),))
    assert where(decide(request(), engine(M0, few_long), engine(M1, many_short)))[0] == M0
    assert where(decide(request(), engine(M0, few_long), engine(M1, replace(many_short, num_requests=500))))[0] == M0
    found = decide(request(), engine(M0, replace(few_long, prompt_tokens=3, answer_tokens=8)))
    assert found.numbers["capacity_norm"] == pytest.approx((2**2 + 7**2) ** 0.5)


def test_an_empty_engine_is_opened_only_when_no_other_fits_and_then_takes_anything():
    full = replace(FULL, num_requests=88)
    decision = decide(request(), engine(M0, full), engine(M1))
    assert (where(decision)[0], decision.rule) == (M1, "an empty engine")
    hopeless = request(num_tokens=900, deadline=0.1)
    assert where(decide(hopeless, engine(M0)))[0] == M0


def test_equals_go_by_id():
    assert where(decide(request(), engine(M0, FULL), engine(M1, FULL)))[0] == M0, "views come in the order of ids"


# --- constraints ------------------------------------------------------------------------------------------------------


def limit_b(num_requests, theta=1.0):
    return theta * (TPOT - COST.fixed_s - COST.per_request_s * num_requests) / COST.per_context_token_s


@pytest.mark.parametrize(("gamma", "theta"), [(0.5, 1.0), (0.0, 1.0), (1.0, 0.5)])
def test_constraint_b_holds_to_the_token(gamma, theta):
    """Eleven requests, then: what they hold on average, up to the context of a step that takes as long as promised."""
    limit = int(limit_b(11, theta))
    rest = limit - 100 - int(gamma * (1000 + 200))
    fits, too_much = (engine(M0, replace(FULL, prompt_tokens=rest + more), num_blocks=10_000) for more in (0, 1))
    knobs = {"gamma": gamma, "theta": theta, "prompts": False}
    assert where(decide(request(), fits, **knobs))[0] == M0
    assert decide(request(), too_much, **knobs) == Wait("no engine fits, by constraint b")


def test_constraint_b_leaves_the_time_that_prompts_will_take():
    """11 prompts of 100 ms and 1200 tokens of answers: 10 ms of each step, or 1008 tokens."""
    limit = int(limit_b(11) - 11 * 11 * 0.1 / 1200 / COST.per_context_token_s)
    numbers = decide(request(), engine(M0, FULL), theta=1.0).numbers
    assert numbers["b_limit"] == pytest.approx(limit, abs=1)
    assert decide(request(), engine(M0, FULL), theta=1.0, prompts=False).numbers["b_limit"] == limit_b(11)
    handed_over = decide(request(), engine(P0), engine(D0, FULL), theta=1.0).numbers
    assert handed_over["b_limit"] == limit_b(11), "other engines compute them"


def test_who_would_be_refused_uses_the_margin_up():
    """From half of its promise on."""
    full = engine(M0, replace(FULL, answer_tokens=4000))
    policy, view = Packing(PackingParameters(theta=0.3)), make_view(full)
    made = request(deadline=1.0)
    assert isinstance(policy.decide(made, view, 0.49), Wait)
    assert where(policy.decide(made, view, 0.51)) == (M0, M0)


def test_constraint_b_is_for_the_tightest_promise_of_all():
    busy = replace(FULL, prompt_tokens=6000, tpot_slo_s=1.0)
    relaxed = {"num_blocks": 10_000, "min_tpot_slo_s": 1.0}
    assert where(decide(replace(request(), tpot_slo_s=1.0), engine(M0, busy, **relaxed), theta=1.0))[0] == M0
    assert isinstance(decide(replace(request(), tpot_slo_s=0.08), engine(M0, busy, **relaxed), theta=1.0), Wait)


def test_a_promise_that_no_engine_could_keep_does_not_empty_the_mesh():
    impossible = replace(request(), tpot_slo_s=0.001)
    assert where(decide(impossible, engine(M0, FULL)))[0] == M0
    late = request(num_tokens=2000, deadline=0.5)
    assert where(decide(late, engine(M0, FULL)))[0] == M0


def test_constraint_c_counts_what_is_computed_before():
    in_time, late = ({"prefill_waiting_s": before, "num_waiting": 1} for before in (0.9, 0.901))
    assert where(decide(request(), engine(M0, FULL, **in_time)))[0] == M0
    assert decide(request(), engine(M0, FULL, **late)) == Wait("no engine fits, by constraint c")


def test_constraint_d_keeps_what_decodes_have_saved():
    fits, too_little = (engine(M0, FULL, min_slack_s=slack_s) for slack_s in (0.2001, 0.1999))
    assert where(decide(request(), fits, theta=0.5))[0] == M0
    assert decide(request(), too_little, theta=0.5) == Wait("no engine fits, by constraint d")


def test_prompts_may_flow_into_slack_instead():
    """No slack is saved; of each step of 10 ms, 90 are left of what is promised: 100 ms of prompt take 111."""
    decision = decide(request(), engine(M0, FULL, min_slack_s=0.0), prefill="slack")
    assert (decision.prefill, decision.order) == (PrefillMode.SLACK, PrefillOrder.DEADLINE)
    assert decision.predicted_ttft_s == pytest.approx(0.1 / 0.9)
    assert "d_used" not in decision.numbers
    late = request(deadline=0.105)
    assert isinstance(decide(late, engine(M0, FULL, min_slack_s=0.0), prefill="slack"), Wait)
    assert where(decide(late, engine(M0, FULL, min_slack_s=0.2), prefill="slack"))[0] == M0


def test_prompts_in_slack_make_no_earlier_one_late():
    """Another one is due in 0.3 s and needs 0.25."""
    busy = {"min_slack_s": 9.0, "prefills": [PendingPrefill(0.3, 0.25)], "num_waiting": 1, "prefill_waiting_s": 0.25}
    in_front, behind = request(deadline=0.29), request(deadline=0.9)
    assert decide(in_front, engine(M0, FULL, **busy), prefill="slack") == Wait("no engine fits, by constraint c")
    assert where(decide(behind, engine(M0, FULL, **busy), prefill="slack"))[0] == M0


def test_constraint_e_looks_at_every_step_to_come():
    """The new one holds 108 tokens now and 50 more when the others end."""
    fits, too_much = (engine(M0, replace(FULL, peaks=((50, 1600 - 158 + more),)), num_blocks=100) for more in (0, 1))
    assert where(decide(request(), fits))[0] == M0
    assert decide(request(), too_much) == Wait("no engine fits, by constraint e")
    after_the_end = engine(M0, replace(FULL, peaks=((250, 1500),)), num_blocks=100)
    assert isinstance(decide(request(answer_tokens=240), after_the_end), Wait)


def test_blocks_must_be_free_for_the_prompt_now():
    assert decide(request(), engine(M0, FULL, num_free_blocks=6)) == Wait("no engine fits, by constraint e")


def test_what_never_fits_is_rejected():
    assert isinstance(decide(request(num_tokens=20_000), engine(M0)), Reject)


def test_requests_that_go_on_elsewhere_count_with_what_is_left():
    """900 of 1000 tokens are there: it ends after 100 steps more."""
    recovering = replace(request(1000, 1000), num_generated=900)
    numbers = decide(recovering, engine(M0, FULL)).numbers
    assert numbers["b_used"] == 1000 + 100 + 0.5 * 2000
    assert numbers["e_used"] == 1500 + 1008 + 100


# --- what was sent and is not counted yet -----------------------------------------------------------------------------


def test_reservations_count_as_what_they_will_be():
    sent = Reservation("r0", M0, SERVICE, 301, 0.3, 1.0, 0, 400, 0, 0.05)
    demand = engine(M0, FULL, reservations=[sent]).services[SERVICE].demand
    assert (demand.num_requests, demand.prompt_tokens, demand.answer_tokens) == (11, 1300, 1400)
    assert demand.tpot_slo_s == 0.05
    assert demand.peaks == ((100, 1500 + 309 + 100), (400, 309 + 400))
    first = engine(M0, reservations=[sent]).services[SERVICE].demand
    assert (first.num_requests, first.peaks) == (1, ((400, 709),))


def test_engines_that_expect_nothing_are_taken_as_they_are():
    """As after a switch of policies: 20 requests of 4000 tokens."""
    status = {"num_running": 20, "num_free_blocks": 750, "min_slack_s": 9.0, "min_tpot_slo_s": TPOT, "num_tokens": 4000}
    unforeseen = engine(M0, **status)
    demand = unforeseen.services[SERVICE].demand
    assert demand.prompt_tokens == 4000
    assert highest_with(demand.peaks, 10, 100) == 4110
    assert not is_empty(unforeseen)
    assert where(decide(request(), unforeseen))[0] == M0


def test_a_burst_is_packed_and_not_herded():
    """Each takes a seat as soon as it is sent: the second engine is opened when the first is full."""
    sent, rules = [], []
    for number in range(60):
        ids = (M0, M1)
        views = [engine(id_, reservations=[one for one in sent if one.engine == id_]) for id_ in ids]
        made = request(10, 900, deadline=100.0)
        decision = decide(made, *views)
        if isinstance(decision, Wait):
            break
        rules.append((decision.decode_engine, decision.rule))
        sent.append(Reservation(f"r{number}", decision.decode_engine, SERVICE, 11, 0.01, 1.0, 0, 900, 0, TPOT))
    engines = [engine_ for engine_, _ in rules]
    assert engines == sorted(engines)
    assert [rule for _, rule in rules].count("an empty engine") == 2
    assert engines.count(M0) == engines.count(M1) == 14  # 14 * (10 + 450) <= 0.9 * 7600, as equation 4 has it


# --- split by phase ---------------------------------------------------------------------------------------------------


def test_prefills_go_where_they_are_done_first_and_decodes_are_packed():
    busy = engine(P0, prefill_remaining_s=0.5)
    engines = busy, engine(P1), engine(D0, light(0.3)), engine(D1, light(0.9))
    assert where(decide(request(), *engines)) == (P1, D1)


def test_decodes_do_not_wait_for_what_others_have_saved():
    assert where(decide(request(), engine(P0), engine(D0, FULL, min_slack_s=0.0))) == (P0, D0)


def test_no_prefill_engine_in_time_is_constraint_c():
    late = {"prefill_remaining_s": 0.95}
    assert decide(request(), engine(P0, **late), engine(D0, FULL)) == Wait("no engine fits, by constraint c")
    assert where(decide(request(), engine(P0, **late), engine(M0, FULL))) == (M0, M0)


def test_prefill_engines_alone_do_everything():
    assert where(decide(request(), engine(P0, FULL), engine(P1))) == (P0, P0)


# --- whatever the mesh looks like -------------------------------------------------------------------------------------


def random_engine(random, id_):
    futures = [(random.randrange(1, 400), random.randrange(50, 900)) for _ in range(random.randrange(9))]
    tokens = sum(held for _, held in futures)
    demand = Demand(len(futures), tokens // 2, tokens, random.choice([0.02, 0.05, 0.1]), tuple(peaks_of(futures)))
    numbers = {
        "num_blocks": 500,
        "num_free_blocks": max(0, 500 - tokens // 16),
        "prefill_remaining_s": random.choice([0.0, random.uniform(0, 1)]),
    }
    if futures:
        numbers |= {"min_slack_s": random.uniform(-0.1, 2), "min_tpot_slo_s": demand.tpot_slo_s}
    return engine(id_, demand if futures else None, **numbers)


@each_seed(range(150))
def test_no_decision_breaks_a_constraint_and_nothing_that_fits_waits(seed):
    random = Random(seed)
    ids = [M0, M1, M2] if seed % 2 else [P0, D0, D1]
    engines = {id_: random_engine(random, id_) for id_ in ids}
    made = RequestView("r", SERVICE, random.randrange(10, 900), 0.0, random.uniform(0.95, 2), 0.06, answer_tokens=300)
    parameters = PackingParameters(gamma=random.random(), theta=random.uniform(0.3, 1), prompts=seed % 3 > 0)
    knobs = Knobs(parameters.gamma, parameters.theta, has_prompts=parameters.prompts)
    view = make_view(*engines.values())
    decision, again = (Packing(parameters).decide(made, view, 0.0) for _ in range(2))
    assert decision == again
    levels = {
        id_: list(decode_levels(made, one, knobs) if one.role is Role.DECODE else all_levels(made, one, knobs, 0.0))
        for id_, one in engines.items()
        if one.role is not Role.PREFILL
    }
    fitting = {id_ for id_, found in levels.items() if all(level.holds for _, level in found)}
    empty = {id_ for id_ in levels if is_empty(engines[id_])}
    if isinstance(decision, Dispatch):
        assert decision.decode_engine in fitting | empty
        assert decision.decode_engine in fitting or not fitting - empty
    else:
        is_late = P0 in engines and engines[P0].backlog_s(0.0) + made.num_tokens / 1000 > made.deadline
        assert is_late or not fitting | empty


def test_what_waits_leaves_time_to_no_other_cost():
    """Costs without a term for context limit nothing but the batch."""
    flat = DecodeCost(0.010, 0.001)
    assert where(decide(request(), engine(M0, replace(FULL, num_requests=80), cost=flat), prompts=False))[0] == M0
    assert isinstance(decide(request(), engine(M0, replace(FULL, num_requests=90), cost=flat), prompts=False), Wait)


# --- engines that are wanted ------------------------------------------------------------------------------------------


def test_what_waits_is_packed_into_engines_that_are_not_there():
    full = engine(M0, replace(FULL, num_requests=88))
    waiting = [request(10, 900, deadline=100.0, id_=f"r{number}") for number in range(32)]
    [wanted] = Packing(PackingParameters()).wanted(waiting, make_view(full), 0.0)
    assert (wanted.service, wanted.role, wanted.num_requests, wanted.num_engines) == (SERVICE, Role.MULTIPLEX, 32, 3)


def test_each_phase_says_what_it_is_short_of():
    waiting = [request(num_tokens=600, id_=f"r{number}") for number in range(4)]
    policy = Packing(PackingParameters())
    [wanted] = policy.wanted(waiting, make_view(engine(P0, prefill_remaining_s=9.0), engine(D0)), 0.0)
    assert (wanted.role, wanted.num_engines) == (Role.PREFILL, 4)
    full = engine(D0, replace(FULL, num_requests=88))
    [wanted] = policy.wanted(waiting, make_view(engine(P0), full), 0.0)
    assert (wanted.role, wanted.num_engines) == (Role.DECODE, 1)


# --- error lines ------------------------------------------------------------------------------------------------------


def test_what_has_not_begun_is_called_back_from_engines_that_have_more_than_expected():
    over = engine(M0, replace(FULL, error_requests=3, error_tokens=600))
    under = engine(M1, replace(FULL, error_requests=-3, error_tokens=-600))
    mine = [request(id_="r1"), request(id_="r2")]
    policy, view = Packing(PackingParameters()), make_view(over, under)
    recalled = policy.offers(RecallsRequests).recall({M0: mine}, view, 0.0)
    assert [one.id for one in recalled] == ["r1", "r2"]
    assert policy.decide(mine[0], view, 0.0).decode_engine == M1
    assert policy.decide(request(id_="other"), view, 0.0).decode_engine == M0
    assert not policy.offers(RecallsRequests).recall({M1: mine}, view, 0.2)


def test_prefill_engines_have_no_error_lines():
    over = engine(P0, replace(FULL, error_requests=3, error_tokens=600))
    assert (
        not Packing(PackingParameters())
        .offers(RecallsRequests)
        .recall({D0: [request()]}, make_view(over, engine(D0, FULL)), 0.0)
    )


def test_prefill_cost_of_cached_tokens_is_not_counted_twice():
    cached = request(num_tokens=900, cached={M0: 850}, deadline=0.5)
    numbers = decide(cached, engine(M0, FULL)).numbers
    assert numbers["c_used"] == pytest.approx(0.05)
    assert PrefillCost(0.0, 0.001).per_token_s == 0.001
