"""How many new engines requests would fill: packed first fit, by what makes an engine of that role full."""

import pytest
from msgspec.structs import replace

from mesh.wire.status import DecodeCost
from router.policies.parts.bins import Knobs
from router.policies.parts.new_engines import NewEngines
from router.view.engine_view import RequestView
from tests.router.cluster import M0, P0, make_engine, make_request

KNOBS = Knobs(gamma=0.5, theta=1.0)


def prefilled(num_tokens: int, deadline: float) -> RequestView:
    return make_request(num_tokens, deadline=deadline)


def decoded(num_tokens: int, answer_tokens: int, tpot_slo_s: float = 1.0) -> RequestView:
    return replace(make_request(num_tokens), answer_tokens=answer_tokens, tpot_slo_s=tpot_slo_s)


@pytest.mark.parametrize(
    ("requests", "number"),
    [
        ([(400, 1.0), (600, 1.0)], 1),
        ([(400, 1.0), (601, 1.0)], 2),
        ([(900, 1.0), (900, 1.0), (100, 1.0), (100, 1.0)], 2),
        ([(1500, 1.0)], 1),
    ],
    ids=["they just fit", "they do not", "small ones fill what is left", "one that nobody can keep has an engine"],
)
def test_a_prefill_engine_is_full_when_its_prompts_take_too_long(requests: list[tuple[int, float]], number: int):
    engines = NewEngines(make_engine(P0), KNOBS)
    for one in requests:
        engines.add(prefilled(*one), 0.0)
    assert (engines.num_engines, engines.num_requests) == (number, len(requests))


def test_the_time_that_a_request_has_waited_is_gone():
    engines = NewEngines(make_engine(P0), KNOBS)
    for _ in range(2):
        engines.add(prefilled(500, 1.5), 0.6)
    assert engines.num_engines == 2, "0.9 s are left, and they take 1 s"


def test_other_engines_are_full_when_memory_is():
    engines = NewEngines(make_engine(M0), KNOBS)  # 1600 tokens
    for _ in range(4):
        engines.add(decoded(300, 480), 0.0)
    assert engines.num_engines == 2, "two hold up to 1560 tokens at a time"


def test_other_engines_are_full_when_steps_would_be_late():
    slow = make_engine(M0, num_blocks=10_000, decode_cost=DecodeCost(0.01, 0.01))
    engines = NewEngines(slow, KNOBS)
    for _ in range(10):
        engines.add(decoded(10, 10, tpot_slo_s=0.05), 0.0)
    assert engines.num_engines == 3, "a step of five takes 60 ms"


def test_the_tightest_promise_of_an_engine_counts():
    slow = make_engine(M0, num_blocks=10_000, decode_cost=DecodeCost(0.01, 0.01))
    engines = NewEngines(slow, KNOBS)
    for tpot_slo_s in (0.035, 1.0, 1.0):
        engines.add(decoded(10, 10, tpot_slo_s=tpot_slo_s), 0.0)
    assert engines.num_engines == 2, "a step of two takes 30 ms, one of three 40"
