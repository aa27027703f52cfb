"""Peaks of what requests hold, against counting step by step."""

from random import Random

from engines.engine_request import EngineRequest
from engines.scheduling.demand import MOST_PEAKS, EarlyEnds, demand_of, highest_with, peaks_of, with_one_more
from mesh.wire.requests import Epoch
from tests.router.cluster import make_spec
from tests.seeds import each_seed


def held_after(futures, step):
    """Tokens of all that still run in that step."""
    return sum(held + step for steps, held in futures if steps >= step)


def sampled(random, count):
    return [(random.randrange(1, 60), random.randrange(1, 100)) for _ in range(count)]


def bound(peaks, step):
    return next((tokens for end, tokens in peaks if end >= step), 0)


def request_of(num_prompt, num_generated, expected, **fields):
    spec = make_spec(num_tokens=num_prompt, max_tokens=expected[-1], expected=expected, **fields)
    request = EngineRequest.of(spec, Epoch(0), 0.0, frozenset(), 10_000)
    request.tokens += [0] * num_generated
    return request


@each_seed(range(50))
def test_no_step_holds_more_than_the_next_peak_and_peaks_are_reached(seed):
    random = Random(seed)
    futures = sampled(random, random.randrange(1, 12))
    peaks = peaks_of(futures)
    assert all(held_after(futures, step) <= bound(peaks, step) for step in range(1, 61))
    assert all(held_after(futures, end) == tokens for end, tokens in peaks)


@each_seed(range(50))
def test_one_more_request_is_never_counted_for_less_than_it_holds(seed):
    random = Random(seed)
    futures = sampled(random, random.randrange(8))
    peaks, steps, held = peaks_of(futures), *sampled(random, 1)[0]
    joined = with_one_more(peaks, steps, held)
    assert list(joined) == sorted(joined)
    futures.append((steps, held))
    exact = max(held_after(futures, step) for step in range(1, 61))
    assert all(held_after(futures, step) <= bound(joined, step) for step in range(1, 61))
    assert exact <= highest_with(peaks, steps, held) == max(tokens for _, tokens in joined)
    assert highest_with(peaks, steps, held) <= exact + len(futures) * 60


def test_with_nobody_else_a_request_holds_what_it_holds_at_its_end():
    assert with_one_more((), 10, 100) == ((10, 110),)
    assert highest_with((), 10, 100) == 110


@each_seed(range(10))
def test_many_requests_are_told_of_in_few_pairs_and_never_for_too_little(seed):
    random = Random(seed)
    requests = [
        request_of(random.randrange(1, 500), generated, (generated + random.randrange(1, 900),))
        for generated in [random.randrange(300) for _ in range(200)]
    ]
    demand = demand_of(requests, 16, EarlyEnds(), 0.0)
    futures = [(one.spec.expected[0] - one.num_generated, len(one.tokens) + 8) for one in requests]
    assert len(demand.peaks) <= MOST_PEAKS
    assert max(tokens for _, tokens in demand.peaks) == max(tokens for _, tokens in peaks_of(futures))
    assert all(held_after(futures, step) <= bound(demand.peaks, step) for step in range(1, 901, 7))


def test_demand_adds_up_prompts_answers_and_promises():
    found = demand_of([request_of(100, 3, (50, 80)), request_of(10, 60, (50, 80))], 16, EarlyEnds(), 0.0)
    assert (found.num_requests, found.prompt_tokens, found.answer_tokens) == (2, 110, 130)
    assert found.tpot_slo_s == 0.1
    assert found.peaks == ((20, 78 + 20 + 111 + 20), (47, 111 + 47))


def test_who_outgrew_its_prediction_and_who_ended_too_early_are_errors():
    """Algorithm 2: 30 tokens more than first predicted, and 20 that did not come, until they would have."""
    early = EarlyEnds()
    early.ended(request_of(10, 30, (50,)), 0.1, now=5.0)
    early.ended(request_of(10, 50, (50,)), 0.1, now=5.0)
    running = [request_of(10, 50, (50, 80)), request_of(10, 49, (50, 80))]
    over = demand_of(running[:1], 16, EarlyEnds(), 0.0)
    assert (over.error_requests, over.error_tokens) == (1, 30)
    both = demand_of(running, 16, early, 6.9)
    assert (both.error_requests, both.error_tokens) == (0, 10)
    later = demand_of(running, 16, early, 7.1)
    assert (later.error_requests, later.error_tokens) == (1, 30)
