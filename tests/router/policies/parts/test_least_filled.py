"""Where requests without a promise go: to the engine with the fewest of them, as long as it begins them."""

from msgspec.structs import replace

from router.policies.parts.least_filled import DEPTH, DEPTH_PART, LeastFilled
from router.policies.policy import Dispatch, Reject, Wait
from router.view.cluster_view import ClusterView
from router.view.engine_view import EngineView, engine_view
from tests.router.cluster import D0, M0, M1, SERVICE, make_engine, make_request, make_status, make_view


def engine(id_: str, waiting: int = 0, running: int = 0, **numbers: object) -> EngineView:
    status = make_status(id_, **numbers)
    services = [replace(one, fillers_waiting=waiting, fillers_running=running) for one in status.services]
    return engine_view(id_, replace(status, services=services), 0.0, ())


def goes_to(policy: LeastFilled, *engines: EngineView) -> str | None:
    decision = policy.decide(make_request(), make_view(*engines), 0.0)
    return decision.prefill_engine if isinstance(decision, Dispatch) else None


def test_the_fewest_that_wait_count_before_the_fewest_that_run():
    assert goes_to(LeastFilled(), engine(M0, waiting=1), engine(M1, running=9)) == M1
    assert goes_to(LeastFilled(), engine(M0, running=9), engine(M1, running=8)) == M1
    assert goes_to(LeastFilled(), engine(M0), engine(M1)) == M0, "of equals the first by name"


def test_an_engine_takes_no_more_than_it_begins():
    assert goes_to(LeastFilled(), engine(M0, waiting=DEPTH - 1)) == M0
    assert goes_to(LeastFilled(), engine(M0, waiting=DEPTH)) is None
    many = DEPTH_PART * (DEPTH + 1)
    assert goes_to(LeastFilled(), engine(M0, waiting=DEPTH, running=many)) == M0, "it runs many, and begins more"
    assert goes_to(LeastFilled(), engine(M0, waiting=DEPTH + 1, running=many)) is None


def test_what_this_gateway_sent_counts_before_the_engine_tells_of_it():
    policy = LeastFilled()
    policy.sent(M0)
    assert goes_to(policy, engine(M0), engine(M1)) == M1
    policy.count([M1, M1])
    assert goes_to(policy, engine(M0), engine(M1)) == M0, "the one that was sent has begun"
    policy.count([M0] * DEPTH)
    assert goes_to(policy, engine(M0)) is None


def test_what_fits_nowhere_is_refused_and_what_has_no_engine_waits():
    policy = LeastFilled()
    assert isinstance(policy.decide(make_request(1600), make_view(engine(M0)), 0.0), Reject)
    assert isinstance(policy.decide(make_request(1599), make_view(engine(M0)), 0.0), Dispatch)
    assert policy.decide(make_request(), ClusterView({}), 0.0) == Wait(f"no engine serves {SERVICE}")
    full = make_view(engine(M0, waiting=DEPTH))
    assert policy.decide(make_request(), full, 0.0) == Wait("no engine has anything to spare")


def test_one_engine_does_both_phases():
    decision = LeastFilled().decide(make_request(), make_view(engine(M0), make_engine(D0)), 0.0)
    assert isinstance(decision, Dispatch)
    assert decision.decode_engine in (None, decision.prefill_engine)
