from itertools import pairwise
from random import Random

import pytest

from mesh.wire.requests import FinishReason, RequestSpec, Sampling
from router.history.length_histogram import LONGEST, MEMORY
from router.history.lengths import MOST_KEPT, MOST_LEAST, AskedLength, LengthPredictor, asked_of
from tests.router.cluster import SERVICE, make_spec
from tests.seeds import each_seed

STOP, LENGTH = FinishReason.STOP, FinishReason.LENGTH
LIMIT = 4096


def spec_of(num_prompt=100, max_tokens=LIMIT, service=SERVICE, **sampling):
    return RequestSpec(
        "r", "gateway", service, [1] * num_prompt, Sampling(max_tokens=max_tokens, seed=0, **sampling), 1.0, 0.1
    )


def learn(predictor, lengths, *, num_prompt=100, finish=STOP, **fields):
    for length in lengths:
        spec = spec_of(num_prompt, **fields)
        predictor.ended(spec, predictor.predict(spec), length, finish)


def taught(lengths, **fields):
    predictor = LengthPredictor()
    learn(predictor, lengths, **fields)
    return predictor


def lognormal(random, count, mean=5.5, sigma=0.8):
    return [max(1, min(LIMIT, round(random.lognormvariate(mean, sigma)))) for _ in range(count)]


def test_without_history_an_answer_is_as_long_as_it_may_be():
    prediction = LengthPredictor().predict(spec_of(max_tokens=777))
    assert prediction.steps == (777,)
    assert (prediction.p50, prediction.p90) == (777, 777)


def test_little_history_is_little_trusted():
    """One answer of ten tokens: a quarter of what follows may be as long as it may be."""
    prediction = taught([10]).predict(spec_of(max_tokens=1000))
    assert prediction.steps[0] == round(0.75 * 10 + 0.25 * 1000)
    assert prediction.p90 == 1000


def test_what_must_be_generated_is_known_and_teaches_nothing():
    predictor = LengthPredictor()
    spec = spec_of(max_tokens=5, ignore_eos=True)
    assert predictor.predict(spec).steps == (5,)
    predictor.ended(spec, predictor.predict(spec), 5, LENGTH)
    assert predictor.predict(spec_of()).steps == (LIMIT,)
    assert not predictor.calibration()[SERVICE].num_judged


@each_seed(range(5))
def test_the_mean_has_no_bias_and_quantiles_hold(seed):
    random = Random(seed)
    predictor = taught(lognormal(random, 1500))
    prediction = predictor.predict(spec_of())
    fresh = lognormal(random, 20_000)
    assert prediction.steps[0] == pytest.approx(sum(fresh) / len(fresh), rel=0.08)
    assert sum(length <= prediction.p50 for length in fresh) / len(fresh) == pytest.approx(0.5, abs=0.05)
    assert sum(length <= prediction.p90 for length in fresh) / len(fresh) == pytest.approx(0.9, abs=0.03)


@each_seed(range(5))
def test_answers_that_go_on_count_as_what_they_are_by_now(seed):
    """All begin together: those that have ended so far are the short ones."""
    lengths = lognormal(Random(seed), 600)
    by_now = sorted(lengths)[300]
    ended = [length for length in lengths if length <= by_now]
    alone, predictor = taught(ended), LengthPredictor()
    predictor.watch(lambda: [(spec_of(), by_now)] * (len(lengths) - len(ended)))
    learn(predictor, ended)
    mean = sum(lengths) / len(lengths)
    assert alone.predict(spec_of()).steps[0] < 0.6 * mean
    assert predictor.predict(spec_of()).steps[0] == pytest.approx(mean, rel=0.35)
    assert predictor.least(spec_of(), 0.3)[0] == pytest.approx(sorted(lengths)[180], rel=0.1)


def test_answers_of_other_services_and_of_known_lengths_tell_nothing():
    predictor = taught([10, 20, 30])
    known = predictor.predict(spec_of()).steps
    told = [(spec_of(service="other"), 500), (spec_of(ignore_eos=True), 500), (spec_of(), 0)]
    predictor.watch(lambda: told)
    learn(predictor, [20])
    alone = taught([10, 20, 30, 20])
    assert predictor.predict(spec_of()).steps == alone.predict(spec_of()).steps != known


@each_seed(range(5))
def test_what_outgrows_its_prediction_gets_the_mean_of_what_is_longer(seed):
    lengths = lognormal(Random(seed), 1500)
    steps = taught(lengths).predict(spec_of()).steps
    assert steps == tuple(sorted(set(steps)))
    assert steps[-1] == LIMIT
    for before, step in pairwise(steps[:3]):
        longer = [length for length in lengths if length > before]
        assert step == pytest.approx(sum(longer) / len(longer), rel=0.05)


@each_seed(range(5))
def test_answers_that_were_cut_do_not_bend_it(seed):
    """Half of all clients leave at a moment that has nothing to do with the answer: mostly its long ones are cut."""
    random, predictor = Random(seed), LengthPredictor()
    lengths, whole = lognormal(random, 3000), []
    for length in lengths:
        patience = round(random.expovariate(1 / 250)) if random.random() < 0.5 else LIMIT
        whole += [length] if length <= patience else []
        learn(predictor, [min(length, patience)], finish=STOP if length <= patience else None)
    truth = sum(lengths) / len(lengths)
    assert sum(whole) / len(whole) < 0.92 * truth
    assert predictor.predict(spec_of()).steps[0] == pytest.approx(truth, rel=0.08)


@each_seed(range(5))
def test_answers_that_were_cut_by_small_limits_tell_of_larger_ones(seed):
    """Two of three requests allow 100 tokens only."""
    random, predictor = Random(seed), LengthPredictor()
    lengths = lognormal(random, 3000)
    for number, length in enumerate(lengths):
        limit = LIMIT if number % 3 == 0 else 100
        learn(predictor, [min(length, limit)], max_tokens=limit, finish=STOP if length < limit else LENGTH)
    assert predictor.predict(spec_of()).steps[0] == pytest.approx(sum(lengths) / len(lengths), rel=0.1)
    short = predictor.predict(spec_of(max_tokens=100))
    assert short.steps[0] == pytest.approx(sum(min(length, 100) for length in lengths) / len(lengths), rel=0.05)


def test_prompts_of_other_lengths_and_other_services_have_other_answers():
    predictor = LengthPredictor()
    learn(predictor, [50] * 500, num_prompt=100)
    learn(predictor, [500] * 500, num_prompt=5000)
    learn(predictor, [7] * 500, service="other")
    assert predictor.predict(spec_of(100)).steps[0] == pytest.approx(50, rel=0.2)
    assert predictor.predict(spec_of(5000)).steps[0] == pytest.approx(500, rel=0.05)
    assert predictor.predict(spec_of(service="other")).steps[0] == 7
    never_seen = predictor.predict(spec_of(40_000)).steps[0]
    assert never_seen == pytest.approx(275, rel=0.05)


def test_it_follows_traffic_that_changes():
    predictor = taught([1000] * 5000)
    learn(predictor, [100] * round(3 * MEMORY))
    assert predictor.predict(spec_of()).steps[0] < 200


def test_outliers_move_it_by_no_more_than_their_share():
    predictor = taught([100] * 999 + [10**12], max_tokens=10**13)
    assert predictor.predict(spec_of(max_tokens=LIMIT)).steps[0] <= 100 + LIMIT // 1000 + 1
    assert predictor.predict(spec_of()).p90 == 100
    assert predictor.predict(spec_of(max_tokens=LONGEST)).steps[0] <= 100 + 1.1 * LONGEST / 1000


def test_no_prediction_is_longer_than_the_request_allows():
    predictor = taught(lognormal(Random(1), 500))
    for limit in (1, 2, 50, 300):
        prediction = predictor.predict(spec_of(max_tokens=limit))
        assert max(*prediction.steps, prediction.p50, prediction.p90) <= limit
        assert prediction.steps[-1] == limit


def test_memory_does_not_grow_with_what_was_seen():
    predictor = LengthPredictor()
    for number in range(3000):
        predictor.predict(spec_of(1 + number % 9000, max_tokens=1 + number))
    service = predictor._services[SERVICE]
    assert len(service.similar) <= 2 * 14
    assert all(len(similar.kept) <= MOST_KEPT for similar in service.similar.values())


def test_calibration_counts_whole_answers_and_those_that_reached_their_limit():
    predictor = taught(lognormal(Random(0), 1000))
    before = predictor.calibration()[SERVICE].num_judged
    learn(predictor, [10], finish=None)
    assert predictor.calibration()[SERVICE].num_judged == before
    learn(predictor, [80], max_tokens=80, finish=LENGTH)
    found = predictor.calibration()[SERVICE]
    assert found.num_judged == before + 1
    assert found.num_within_p50 / found.num_judged == pytest.approx(0.5, abs=0.07)
    assert found.num_within_p90 / found.num_judged == pytest.approx(0.9, abs=0.04)
    assert found.predicted_tokens == pytest.approx(found.tokens, rel=0.15)


def test_a_quantile_may_be_asked_for_instead_of_the_mean():
    lengths = lognormal(Random(3), 2000)
    steps = taught(lengths).predict(spec_of(), 0.9).steps
    longer = sorted(length for length in lengths if length > steps[0])
    assert len(longer) / len(lengths) == pytest.approx(0.1, abs=0.01)
    assert steps[1] == pytest.approx(longer[int(0.9 * len(longer))], rel=0.1)


def test_what_a_request_allows_can_be_told_otherwise():
    """As in simulations, where `max_tokens` is the truth."""
    predictor = LengthPredictor(lambda spec: AskedLength(2048, is_exact=False))
    assert predictor.predict(spec_of(max_tokens=3, ignore_eos=True)).steps == (2048,)
    predictor.ended(spec_of(max_tokens=3), predictor.predict(spec_of()), 3, LENGTH)
    assert predictor.predict(spec_of()).steps[0] < 2048
    assert asked_of(spec_of(max_tokens=3)) == (3, False)


def test_a_spec_tells_what_is_expected_of_its_answer():
    spec = make_spec(max_tokens=64, expected=(10, 30, 64))
    assert [spec.answer_tokens(n) for n in (0, 9, 10, 29, 30, 64, 70)] == [10, 10, 30, 30, 64, 65, 71]
    assert make_spec(max_tokens=64).answer_tokens(5) == 64


# --- lengths that few answers are shorter than


def test_few_answers_are_shorter_than_the_least_length():
    least = taught(range(20, 120)).least(spec_of(), 0.2)
    assert 36 <= least[0] <= 44
    assert all(earlier < later for earlier, later in pairwise(least))
    assert least[-1] < LIMIT, "of answers longer than all that were seen, nothing is known"


def test_each_further_one_is_of_the_answers_that_outgrew_the_one_before():
    first, second = taught(range(20, 120)).least(spec_of(), 0.5)[:2]
    assert 65 <= first <= 75
    assert 90 <= second <= 100


def test_of_too_few_answers_no_least_length_is_told():
    assert LengthPredictor().least(spec_of(), 0.2) == ()
    assert taught([50] * 4).least(spec_of(), 0.2) == ()
    assert taught([50] * 5).least(spec_of(), 0.2) != ()


def test_until_enough_answers_were_seen_the_usual_one_tells_the_least_length():
    """Half of geometric lengths are shorter than 0.69 of their mean, and half of the others than as much more."""
    predictor = LengthPredictor(usual={SERVICE: 100})
    assert predictor.least(spec_of(max_tokens=150), 0.5) == (69, 138, 150)
    assert predictor.least(spec_of(service="other"), 0.5) == ()
    assert len(predictor.least(spec_of(), 0.01)) == MOST_LEAST
    learn(predictor, [10, 10])
    assert predictor.least(spec_of(), 0.5)[0] == 10


def test_an_answer_whose_length_was_asked_for_has_it_at_least():
    assert LengthPredictor().least(spec_of(max_tokens=30, ignore_eos=True), 0.2) == (30,)


def test_a_request_knows_what_its_answer_will_hardly_be_shorter_than():
    spec = make_spec(max_tokens=64, at_least=(10, 30))
    assert [spec.least_tokens(n) for n in (0, 9, 10, 29, 30, 63)] == [10, 10, 30, 30, 31, 64]
    assert make_spec(max_tokens=64).least_tokens(5) == 6
