import pytest

from engines.scheduling.demand import FAR
from mesh.wire.control import ProcessState
from mesh.wire.status import UNPASSED, DecodeCost, Demand, PendingPrefill
from router.view import engine_work
from router.view.engine_view import FORESEEN_S, DecodeTurn, engine_view, turn_of
from router.view.engine_work import DuePrefill, Reservation
from tests.router.cluster import D0, M0, P0, SERVICE, make_engine, make_status, make_view


def test_age_brings_the_end_of_prefills_nearer_and_melts_slack():
    engine = make_engine(M0, age_s=0.3, prefill_remaining_s=0.2, prefill_waiting_s=0.4, min_slack_s=1.0, num_waiting=1)
    assert engine.backlog_s(0.0) == pytest.approx(0.3)
    assert engine.slack_s(0.0) == pytest.approx(0.7)
    assert engine.num_prefills == 2


def test_decodes_that_go_on_add_to_their_slack_what_each_step_is_promised():
    decoding = {"decode_step_s": 0.03, "min_slack_s": 1.0, "min_tpot_slo_s": 0.1}
    assert make_engine(M0, age_s=0.07, **decoding).slack_s(0.0) == pytest.approx(1.0 - 0.07 + 2 * 0.1)
    held_up = make_engine(M0, age_s=0.07, prefill_remaining_s=0.03, **decoding)
    assert held_up.slack_s(0.0) == pytest.approx(1.0 - 0.07 + 0.1)
    assert make_engine(M0, age_s=0.07, prefill_remaining_s=0.2, **decoding).slack_s(0.0) == pytest.approx(0.93)


def test_nobody_counts_on_the_steps_of_an_engine_that_is_silent_for_long():
    decoding = {"decode_step_s": 0.05, "min_slack_s": 1.0, "min_tpot_slo_s": 0.1}
    slack_s = [make_engine(M0, age_s=age_s, **decoding).slack_s(0.0) for age_s in (FORESEEN_S, FORESEEN_S + 0.6)]
    assert slack_s[1] == pytest.approx(slack_s[0] - 0.6)


def test_an_old_status_has_no_negative_backlog():
    assert make_engine(P0, age_s=9.0, prefill_remaining_s=0.2).backlog_s(0.0) == 0.0


def test_the_last_token_is_computed_even_if_all_are_cached():
    engine = make_engine(P0)
    assert engine.prefill_s(SERVICE, 512, 512) == engine.prefill_s(SERVICE, 512, 511) == pytest.approx(0.001)


def test_a_step_grows_by_a_whole_one_where_the_first_request_of_a_service_decodes():
    decoding = {"services": ("chat", "code"), "decoding": {"chat": 3}, "decode_step_s": 0.02}
    cost = DecodeCost(0.01, 0.001, 1e-6)
    engine = make_engine(M0, **decoding, decode_cost=cost)
    assert engine.joined_step_s("chat", 100) == pytest.approx(0.02 + 0.0011)
    assert engine.joined_step_s("code", 100) == pytest.approx(0.02 + 0.0111)


def test_the_steps_of_services_whose_first_request_comes_are_counted_on():
    """Where it is to decode: a prefill engine may hand over all that it has."""
    for id_, coming_s in ((M0, 0.011), (P0, 0.0)):
        coming = [Reservation("a", id_, "code", 33, 0.5), Reservation("b", id_, "code", 33, 0.5)]
        services = {"services": ("chat", "code", "third"), "decoding": {"chat": 1}, "decode_step_s": 0.02}
        engine = make_engine(id_, **services, decode_cost=DecodeCost(0.01, 0.001), reservations=coming)
        assert engine.joined_step_s("chat", 100) == pytest.approx(0.02 + 0.001 + coming_s)
        assert engine.joined_step_s("third", 100) == pytest.approx(0.02 + 0.011 + coming_s)
        assert engine.joined_step_s("code", 100) == pytest.approx(0.02 + 0.011)


def test_reservations_take_time_tokens_and_blocks():
    prefill = Reservation("a", M0, SERVICE, 33, prefill_s=0.5)
    decode_only = Reservation("b", M0, SERVICE, 16, prefill_s=None)
    engine = make_engine(M0, reservations=[prefill, decode_only], num_free_blocks=50, num_tokens=10)
    assert engine.backlog_s(0.0) == pytest.approx(0.5)
    assert engine.num_prefills == 1
    assert engine.num_tokens == 10 + 33 + 16
    assert engine.services[SERVICE].num_free_blocks == 50 - 3 - 1
    assert engine.services[SERVICE].watermark == pytest.approx(0.54)


def test_reservations_of_another_service_leave_the_pool_alone():
    engine = make_engine(M0, reservations=[Reservation("a", M0, "other", 33, 0.5)])
    assert engine.services[SERVICE].num_free_blocks == 100


def test_only_ready_engines_that_have_the_service_serve_it():
    view = make_view(
        make_engine(P0, state=ProcessState.STARTING),
        make_engine(D0, services=("other",)),
        make_engine(M0),
        make_engine("multiplex-1", state=ProcessState.DRAINING),
    )
    assert [engine.id for engine in view.serving(SERVICE)] == [M0]
    assert view.without([M0]).serving(SERVICE) == ()


def test_prefills_are_put_in_order_once_and_only_if_somebody_looks(monkeypatch):
    made = []

    def make(*fields):
        made.append(fields)
        return DuePrefill(*fields)

    monkeypatch.setattr(engine_work, "DuePrefill", make)
    sent = Reservation("r", P0, SERVICE, 100, 0.2, due_at=11.0)
    held = Reservation("h", P0, SERVICE, 100, None)
    told = [PendingPrefill(2.0, 0.1), PendingPrefill(0.5, 0.3), PendingPrefill(9.0, 0.4, priority=5)]
    engine = engine_view(P0, make_status(P0, prefills=told), 10.0, [held, sent])
    assert engine.prefills
    assert made == []
    expected = [DuePrefill(-5, 19.0, 0.4), DuePrefill(0, 10.5, 0.3), DuePrefill(0, 11.0, 0.2), DuePrefill(0, 12.0, 0.1)]
    for _ in range(2):
        assert list(engine.prefills) == expected
    assert (len(made), len(engine.prefills), engine.prefills[1]) == (4, 4, expected[1])
    assert not engine_view(P0, make_status(P0), 10.0, [held]).prefills


def test_what_was_just_sent_is_expected_to_hold_memory_until_its_answer_ends():
    going_on = Reservation("a", M0, SERVICE, 33, 0.5, answer_tokens=20, num_generated=8, tpot_slo_s=0.05)
    engine = make_engine(M0, reservations=[going_on])
    # On average half of a block is not filled.
    assert engine.services[SERVICE].demand == Demand(1, 24, 20, 0.05, ((12, 33 + 8 + 12),))


def test_nobody_passes_what_was_sent_to_an_engine_that_keeps_the_order():
    sent = [Reservation("r", P0, SERVICE, 100, 0.2, due_at=11.0, priority=3)]
    engine = engine_view(P0, make_status(P0, keeps_order=True), 10.0, sent)
    assert list(engine.prefills) == [DuePrefill(-UNPASSED, 11.0, 0.2)]


def test_what_a_newcomer_waits_for_is_what_its_engine_tells_of_its_discipline():
    """Less what has passed since then, and with what was sent there since; promises say else: the whole backlog."""
    sent = [Reservation("r", M0, SERVICE, 100, 0.2)]
    told = make_engine(M0, line_s=0.5, age_s=0.1, reservations=sent, prefill_remaining_s=3.0)
    assert (told.line_s(SERVICE, 0.0), told.wait_s(SERVICE, 0.0)) == (pytest.approx(0.6), pytest.approx(0.6))
    assert told.wait_s(SERVICE, 9.0) == pytest.approx(0.2)
    by_promises = make_engine(M0, age_s=0.1, reservations=sent, prefill_remaining_s=3.0)
    assert by_promises.line_s(SERVICE, 0.0) is None
    assert by_promises.wait_s(SERVICE, 0.0) == by_promises.backlog_s(0.0)


def test_a_turn_lasts_until_the_last_answer_of_its_service_ends():
    """It is endless where others do not stand in line for it."""
    sent = [Reservation("a", M0, SERVICE, 33, 0.5, answer_tokens=20, num_generated=8, tpot_slo_s=0.05)]
    names = SERVICE, "code"
    taking_turns = make_engine(M0, services=names, line_s=0.0, decode_step_s=0.0, reservations=sent)
    assert turn_of(SERVICE, taking_turns) == DecodeTurn(0.01, 12)
    assert turn_of("code", taking_turns) == DecodeTurn(0.02, 0), "a step of each service"
    assert turn_of(SERVICE, make_engine(M0, services=names, reservations=sent)) == DecodeTurn(0.01, FAR)
    assert turn_of(SERVICE, make_engine(M0, line_s=0.0, reservations=sent)) == DecodeTurn(0.01, FAR)
