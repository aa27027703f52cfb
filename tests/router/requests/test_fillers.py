"""Requests without a promise in a gateway: sent where there is something to spare, and counted for nobody else."""

import pytest
from msgspec.structs import replace

from mesh.wire.requests import PRIORITY_BATCH, Submit
from router.effects import SendToEngine
from router.generation import Overloaded
from router.history.timelines import Timelines
from router.policies.elastic import Elastic, ElasticParameters
from router.policies.parts.least_filled import DEPTH
from router.requests.dispatcher import Dispatcher
from router.requests.limits import DispatchLimits
from router.view.monitor import Monitor
from tests.router.cluster import M0, M1, make_spec, make_status, sender_of, submit_to

WINDOW_S = 86400.0
LIMITS = DispatchLimits(200, 200, reply_s=1.0)


def line(name: str, num_tokens: int = 100):
    spec = make_spec(name, num_tokens, slo_ttft_s=WINDOW_S, priority=PRIORITY_BATCH)
    return replace(spec, slo_tpot_s=WINDOW_S)


@pytest.fixture
def dispatcher() -> Dispatcher:
    made = Dispatcher(Elastic(ElasticParameters()), Monitor(100.0), LIMITS, Timelines())
    for engine in (M0, M1):
        made.observe(sender_of(engine), make_status(engine), 0.0)
    return made


def sent(effects) -> list[tuple[str, str]]:
    sends = [effect for effect in effects if isinstance(effect, SendToEngine)]
    return [(send.to, send.message.spec.id) for send in sends if isinstance(send.message, Submit)]


def test_lines_go_to_who_has_least_of_them_until_as_many_wait(dispatcher: Dispatcher):
    engines = [sent(submit_to(dispatcher, line(f"l{number}"), 0.0)) for number in range(2 * DEPTH + 3)]
    assert [one[0][0] for one in engines if one] == [M0, M1] * DEPTH
    assert dispatcher.num_filling == 3
    dispatcher.check_invariants()


def test_lines_change_nothing_that_others_are_decided_by(dispatcher: Dispatcher):
    before = dispatcher._monitor.view().engines[M0]
    for number in range(2 * DEPTH + 3):
        submit_to(dispatcher, line(f"l{number}"), 0.0)
    assert dispatcher._monitor.view().engines[M0] == before
    assert (dispatcher.num_waiting, dispatcher.num_by_service()) == (0, {})
    assert sent(submit_to(dispatcher, make_spec("asked"), 0.0)) == [(M0, "asked")]


def test_what_engines_say_waits_counts_too(dispatcher: Dispatcher):
    status = make_status(M0, seq=2)
    full = replace(status, services=[replace(one, fillers_waiting=DEPTH) for one in status.services])
    dispatcher.observe(sender_of(M0), full, 0.0)
    assert sent(submit_to(dispatcher, line("l"), 0.0)) == [(M1, "l")]


def test_a_part_of_the_places_is_for_lines(dispatcher: Dispatcher):
    for number in range(LIMITS.max_requests // 4):
        submit_to(dispatcher, line(f"l{number}"), 0.0)
    with pytest.raises(Overloaded, match="lines of batches"):
        submit_to(dispatcher, line("more"), 0.0)
    assert sent(submit_to(dispatcher, make_spec("asked"), 0.0))


def test_a_line_waits_for_its_window_and_no_longer():
    dispatcher = Dispatcher(Elastic(ElasticParameters()), Monitor(100.0), LIMITS, Timelines())
    assert submit_to(dispatcher, line("l"), 0.0) == []
    dispatcher.expire(WINDOW_S - 1)
    assert dispatcher.num_filling == 1
    dispatcher.expire(WINDOW_S + 1)
    assert dispatcher.num_filling == 0


def test_a_line_that_fits_no_engine_is_told_so(dispatcher: Dispatcher):
    effects = submit_to(dispatcher, line("huge", 10_000_000), 0.0)
    assert "fit no engine" in str(effects[0].error)  # type: ignore[union-attr]
