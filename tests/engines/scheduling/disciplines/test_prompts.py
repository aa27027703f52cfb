"""Prompts one by one in a discipline's order, against all of them sorted by rank; and what that costs."""

import random
from collections.abc import Callable
from itertools import islice
from math import log2

import pytest

from engines.engine_request import EngineRequest
from engines.scheduling.disciplines.doubling_budget import DoublingBudget
from engines.scheduling.disciplines.fcfs import FirstCome
from engines.scheduling.disciplines.mlfq import SkipJoin
from engines.scheduling.disciplines.ranked import Ranked, RankOrder
from engines.scheduling.disciplines.sjf import ShortestJob
from tests.engines.scheduling.disciplines.serving import Known, ranked, request
from tests.engines.scheduling.disciplines.test_lines import Counted
from tests.seeds import each_seed

SERVICES = ("a", "b")
PROFILES = {"a": Known(2.0, 0.5), "b": Known(5.0, 1.0)}
ORDERS: dict[str, Callable[[], RankOrder]] = {
    "db": lambda: DoublingBudget(PROFILES),
    "fcfs": FirstCome,
    "sjf": lambda: ShortestJob(PROFILES),
    "mlfq": lambda: SkipJoin(lambda request: 0.1, lambda: 0.2),
}


def prompt(name: str, service: str, at: float = 0.0, priority: int = 0) -> EngineRequest:
    """Nothing of it is computed."""
    whole = request(name, service, at, priority)
    whole.tokens.pop()
    whole.num_computed = 0
    return whole


def given(rules: Ranked, service: str, now: float) -> list[EngineRequest]:
    return list(rules.prompts(service, (), now))


@each_seed(range(10))
@pytest.mark.parametrize("order", ORDERS)
def test_prompts_come_in_the_order_of_their_ranks(order: str, seed: int):
    """Some have begun, been preempted, waited too long or are of higher priority; decodes starve beside them."""
    draw, now = random.Random(seed), 0.0
    rules, here = ranked(ORDERS[order](), SERVICES, starvation_s=draw.choice([5.0, 30.0])), list[EngineRequest]()
    for number in range(120):
        now += draw.random()
        make = draw.choice([prompt, prompt, request])
        here.append(make(f"{number}", draw.choice(SERVICES), now, draw.choice([0, 0, 0, 1])))
        rules.came(here[-1])
        batch = [one for one in here if one.spec.service == "a" and draw.random() < 0.2]
        rules.ran("a", batch, draw.random())
        if draw.random() < 0.5:
            rules.ended(here.pop(draw.randrange(len(here))))
        for service in SERVICES:
            waiting = [one for one in here if one.spec.service == service and not one.is_decoding]
            assert given(rules, service, now) == sorted(waiting, key=rules.rank(now))
    rules.check_invariants(here)


def test_one_that_is_not_asked_to_the_end_leaves_everything_as_it_was():
    rules, here = ranked(FirstCome(), SERVICES, starvation_s=5.0), [prompt(f"{n}", "a", float(n)) for n in range(20)]
    for one in here:
        rules.came(one)
    some = rules.prompts("a", (), 15.0)
    assert list(islice(some, 3)) == here[:3]
    some.close()
    assert given(rules, "a", 15.0) == here
    assert next(rules.turns(15.0)).service == "a"


@pytest.mark.parametrize("num", [100, 1000, 8000])
def test_the_first_few_of_many_cost_the_logarithm_of_their_number(num: int):
    draw, rules = random.Random(num), ranked(FirstCome(), SERVICES)
    for number in range(num):
        one = prompt(f"{number}", "a")
        one.arrived_at = Counted(draw.random())
        rules.came(one)
    Counted.num = 0
    assert len(list(islice(rules.prompts("a", (), 1.0), 8))) == 8
    assert Counted.num / 8 < 6 * log2(num)
