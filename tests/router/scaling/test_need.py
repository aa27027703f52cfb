"""How many engines a load needs."""

from dataclasses import replace
from math import inf
from random import Random

import pytest

from engines.costs.linear import decode_step_s, prefill_s
from engines.costs.named_profiles import load_profile
from mesh.topology.schema import Slo
from mesh.wire.status import DecodeCost, PrefillCost
from router.placement.observe.traffic import Moments
from router.scaling.need import ImpossibleError, ServiceLoad, Work, engines_needed
from tests.seeds import each_seed

PREFILL = PrefillCost(fixed_s=0.01, per_token_s=0.0001)
DECODE = DecodeCost(fixed_s=0.01, per_request_s=0.001)
SLO = Slo(ttft_s=1.0, tpot_s=0.05)
DEMAND = ServiceLoad("chat", 4.0, Moments(500, 0), Moments(101, 0), SLO, PREFILL, DECODE, 100_000)
BOTH, PREFILLS, DECODES = Work(), Work(decodes=0.0), Work(prefills=0.0)


def needed(demand: ServiceLoad, work: Work = BOTH, margin: float = 1.0) -> float:
    return engines_needed([(demand, work)], margin)


def test_decodes_by_hand():
    """40 requests make a step of 50 ms; 4 a second with 100 steps of 50 ms are 20 at a time."""
    assert needed(DEMAND, DECODES) == pytest.approx(20 / 40, rel=2e-3)
    assert needed(replace(DEMAND, rate=400.0), DECODES) == pytest.approx(50, rel=2e-3)


def test_prefills_by_hand():
    """60 ms each. Nine of ten are to wait no more than 940 ms: u = 0.93 (exp(-2 (1 - u) 0.94 / 0.06) u = 0.1)."""
    rate = 100.0
    in_use = rate * 0.06 / needed(replace(DEMAND, rate=rate), PREFILLS)
    assert in_use == pytest.approx(0.929, abs=2e-3)


def test_cached_tokens_are_not_computed():
    long = replace(DEMAND, num_input=Moments(8000, 0), kv_tokens=10**9)
    cached = replace(long, num_cached=6000.0)
    assert needed(cached, PREFILLS) == needed(replace(long, num_input=Moments(2000, 0)), PREFILLS)
    assert needed(cached, PREFILLS) < needed(long, PREFILLS) / 3
    assert 0 < needed(replace(cached, num_cached=9000.0), PREFILLS) < needed(cached, PREFILLS), "others were longer"


def test_memory_by_hand():
    """Nine tenths of 5505 tokens hold 9 requests of 550.5: a step of 19 ms, and 4 a second make 7.6 at a time."""
    assert needed(replace(DEMAND, kv_tokens=5505), DECODES) == pytest.approx(7.6 / 9, rel=5e-3)


def test_long_answers_are_met_more_often():
    assert replace(DEMAND, num_output=Moments(100, 0)).context_tokens == 550
    assert replace(DEMAND, num_output=Moments(100, 100)).context_tokens == 600


@each_seed(range(30))
def test_it_grows_with_the_load_and_is_nearly_proportional_to_large_ones(seed: int):
    random = Random(seed)
    demand = replace(
        DEMAND,
        rate=random.uniform(0.5, 50),
        num_input=Moments(random.uniform(10, 3000), 0),
        num_output=Moments(random.uniform(2, 500), random.uniform(0, 300)),
    )
    work = random.choice([BOTH, PREFILLS, DECODES])
    one, more = needed(demand, work), needed(replace(demand, rate=demand.rate * 1.5), work)
    assert 0 < one <= more
    assert needed(demand, work, margin=0.8) >= one * 0.99
    many = [needed(replace(demand, rate=rate), work) / rate for rate in (500.0, 1000.0)]
    assert many[0] == pytest.approx(many[1], rel=0.005)
    assert needed(demand, BOTH) >= max(needed(demand, PREFILLS), needed(demand, DECODES)) * 0.999


@each_seed(range(10))
def test_services_that_share_need_as_much_as_alone_or_more(seed: int):
    random = Random(seed)
    demands = [replace(DEMAND, service=name, rate=random.uniform(1, 20)) for name in "ab"]
    both = engines_needed([(demand, BOTH) for demand in demands])
    assert both >= max(needed(demand) for demand in demands)


def test_what_takes_no_time_needs_no_engine():
    """Decodes before any answer was seen, and prefills before any was timed."""
    assert needed(replace(DEMAND, num_output=Moments(0, 0)), DECODES) == pytest.approx(0, abs=1e-3)
    assert needed(replace(DEMAND, prefill=PrefillCost(0.0, 0.0)), PREFILLS) == pytest.approx(0, abs=1e-3)


def test_no_demand_needs_no_engine():
    assert engines_needed([]) == 0.0
    assert needed(replace(DEMAND, rate=0.0)) == 0.0
    assert needed(DEMAND, Work(0.0, 0.0)) == 0.0


@pytest.mark.parametrize(
    ("demand", "said"),
    [
        (
            replace(DEMAND, num_input=Moments(50_000, 0)),
            "chat: a prefill of 50000 tokens takes 5010 ms, TTFT is to be 1000 ms",
        ),
        (
            replace(DEMAND, decode=DecodeCost(fixed_s=0.06, per_request_s=0.0)),
            "chat: a decode step of one request takes 60 ms, TPOT is to be 50 ms",
        ),
        (replace(DEMAND, kv_tokens=600), "chat: a request has 601 tokens, KV memory holds 600"),
    ],
)
def test_what_is_impossible_is_said(demand: ServiceLoad, said: str):
    with pytest.raises(ImpossibleError) as caught:
        needed(demand)
    assert str(caught.value) == said


def test_a_published_profile():
    """Llama 2 13B on one A100, 13 requests a second: an engine that is as busy as reckoned keeps its promises."""
    profile = load_profile("a100-llama2-13b-tp1")
    demand = ServiceLoad(
        "chat", 2.0, Moments(300, 0), Moments(200, 0), Slo(0.6, 0.03), profile.prefill, profile.decode,
        profile.kv_memory_bytes // profile.kv_bytes_per_token,
    )  # fmt: skip
    number = needed(demand)
    batch = demand.rate * 199 * 0.03 / number
    busy = demand.rate * prefill_s(profile.prefill, 300) / number
    assert decode_step_s(profile.decode, round(batch), round(batch * 400)) / (1 - busy) <= 0.03 * 1.05
    assert 0 < number < inf
