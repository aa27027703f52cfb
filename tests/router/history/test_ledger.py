import pytest

from mesh.wire.requests import FinishReason
from router.generation import Draining, Fault, Overloaded, RequestFailed, Route, TokenBatch
from router.history.ledger import Ledger
from router.history.records import Outcome
from tests.router.cluster import M0, P0, SERVICE, make_spec

PLACEMENT = Route(P0, M0, "1: idle prefill engine", predicted_ttft_s=0.4, queued_s=0.1, attempt=1)


def batch(*tokens, finish=None, cached=0):
    return TokenBatch(tokens, finish, cached, None, None)


@pytest.fixture
def ended():
    return []


@pytest.fixture
def ledger(ended):
    return Ledger(lambda record, spec: ended.append((record, spec)), origin_s=100.0)


def test_a_finished_request(ledger, ended):
    spec = make_spec(num_tokens=7, priority=3, age_s=0.5)
    ledger.arrived(spec, 110.5)
    ledger.placed("r", PLACEMENT)
    ledger.delivered("r", batch(1, cached=4), 112.0)
    ledger.delivered("r", batch(2, 3), 113.0)
    assert len(ledger) == 1
    ledger.delivered("r", batch(4, finish=FinishReason.LENGTH), 115.0)
    [(record, same)] = ended
    assert same is spec
    assert len(ledger) == 0
    assert (record.arrived_s, record.ttft_s, record.tpot_s, record.e2e_s) == (10.0, 2.0, 1.0, 5.0)
    assert (record.service, record.input_tokens, record.output_tokens, record.cached_tokens) == (SERVICE, 7, 4, 4)
    assert (record.outcome, record.reason, record.partial_tokens) == (Outcome.FINISHED, None, 0)
    assert (record.prefill_engine, record.decode_engine, record.rule) == (P0, M0, PLACEMENT.rule)
    assert (record.queued_s, record.predicted_ttft_s, record.attempts) == (0.1, 0.4, 2)
    assert (record.slo_ttft_s, record.slo_tpot_s, record.priority) == (spec.slo_ttft_s, spec.slo_tpot_s, 3)


def test_a_client_that_has_all_it_wants_was_answered(ledger, ended):
    """A stop string ends an answer before the engine does: what comes after its last token is no part of its TPOT."""
    ledger.arrived(make_spec(), 100.0)
    ledger.delivered("r", batch(1), 101.0)
    ledger.delivered("r", batch(2), 103.0)
    ledger.satisfied("r", 110.0)
    [(record, _)] = ended
    assert (record.outcome, record.output_tokens, record.tpot_s, record.e2e_s) == (Outcome.FINISHED, 2, 2.0, 10.0)


def test_a_cancelled_request_says_what_it_had_got_and_what_it_asked_for(ledger, ended):
    ledger.arrived(make_spec(max_tokens=50), 100.0)
    ledger.delivered("r", batch(1, 2, 3), 101.0)
    ledger.cancelled("r", 102.0)
    [(record, _)] = ended
    assert (record.outcome, record.output_tokens, record.partial_tokens) == (Outcome.CANCELLED, 50, 3)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Overloaded("full", 1.0), Outcome.REJECTED),
        (Draining(), Outcome.REJECTED),
        (RequestFailed("fits nowhere", Fault.CLIENT), Outcome.FAILED),
    ],
)
def test_what_was_not_answered_has_a_reason(ledger, ended, error, outcome):
    ledger.arrived(make_spec(max_tokens=50), 100.0)
    ledger.failed("r", error, 101.0)
    [(record, _)] = ended
    assert (record.outcome, record.reason, record.output_tokens) == (outcome, str(error), 50)
    assert (record.ttft_s, record.queued_s, record.prefill_engine, record.attempts) == (None, None, None, 0)


def test_a_request_ends_once(ledger):
    ledger.arrived(make_spec(), 100.0)
    with pytest.raises(KeyError, match="arrived twice"):
        ledger.arrived(make_spec(), 100.0)
    ledger.cancelled("r", 101.0)
    with pytest.raises(KeyError):
        ledger.cancelled("r", 101.0)
