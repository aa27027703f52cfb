from random import Random

import pytest

from engines.costs.advice import LatencyPromise, Lengths, advise, best, with_link
from engines.costs.linear import decode_step_s, prefill_s
from engines.costs.presets import load_preset, model_shape
from tests.seeds import each_seed

SHARE_GPT = Lengths(321, 509, 674)  # as `mesh advise --lengths llumnix:sharegpt` finds it
TABLE_2 = {
    ("a100", "llama2-70b"): LatencyPromise(1.6, 0.075),
    ("a100", "llama2-13b"): LatencyPromise(0.6, 0.030),
    ("a100", "llama2-7b"): LatencyPromise(0.4, 0.015),
}
TABLE_3 = {"llama2-70b": 2, "llama2-13b": 1, "llama2-7b": 1}


def of(name, lengths=SHARE_GPT, promise=LatencyPromise(1.0, 0.05), link=None):  # noqa: B008 - frozen
    profile = load_preset(name)
    if link is not None:
        profile = with_link(profile, model_shape(name.partition("-")[2].rpartition("-tp")[0]), *link)
    return advise(profile, lengths, promise)


@pytest.mark.parametrize("model", TABLE_3)
def test_table_3_comes_out_where_devices_talk_over_pcie(model):
    """Aladdin's A100s do; over NVLink more devices are better, as steps come further below a tight promise."""
    promise = TABLE_2["a100", model]
    names = [f"a100-{model}-tp{size}" for size in (1, 2, 4) if size >= TABLE_3[model]]
    over_pcie = {name: of(name, promise=promise, link=(10e9, 20e-6)) for name in names}
    assert best(over_pcie) == f"a100-{model}-tp{TABLE_3[model]}"


def test_equation_6_where_memory_is_the_limit():
    found = of("v100-llama2-13b-tp1")
    profile = found.profile
    num = int(found.kv_tokens / SHARE_GPT.held)
    assert found.limited_by == "memory"
    step_s = decode_step_s(profile.decode, num, round(num * SHARE_GPT.held))
    assert found.tokens_per_device == pytest.approx(num / step_s)


def test_equation_6_where_the_promise_is_the_limit():
    found = of("a100-llama2-7b-tp2", promise=LatencyPromise(1.0, 0.015))
    profile = found.profile
    fits = [n for n in range(1, 999) if decode_step_s(profile.decode, n, round(n * SHARE_GPT.held)) <= 0.015]
    assert found.limited_by == "TPOT"
    assert found.tokens_per_device == pytest.approx(max(fits) / (2 * 0.015))


def test_rates_count_prefills_and_keep_the_promise():
    found = of("a100-llama2-13b-tp1")
    own_s = prefill_s(found.profile.prefill, 321)
    step_s = decode_step_s(found.profile.decode, found.num_running, round(found.num_running * SHARE_GPT.held))
    assert found.tpot_s == pytest.approx(step_s / (1 - found.rate * own_s))
    assert 0.9 * 0.05 < found.tpot_s <= 0.05
    assert found.num_running == pytest.approx(found.rate * 509 * found.tpot_s)
    assert own_s < found.ttft_s < 3 * own_s


@pytest.mark.parametrize(
    ("name", "lengths", "promise", "term"),
    [
        ("a100-llama2-70b-tp2", Lengths(4000, 10, 4005), LatencyPromise(0.1, 1.0), "TTFT: the prefill of 4000 tokens"),
        ("a100-llama2-70b-tp2", SHARE_GPT, LatencyPromise(9.0, 0.001), "TPOT: a single request takes"),
        (
            "v100-llama2-13b-tp1",
            Lengths(9000, 10, 9005),
            LatencyPromise(9.0, 1.0),
            "memory: weights leave memory for 5971",
        ),
    ],
)
def test_a_promise_that_cannot_be_kept_says_which_term_breaks_it(name, lengths, promise, term):
    found = of(name, lengths, promise)
    assert found.broken is not None
    assert found.broken.startswith(term)
    assert found.rate == 0
    assert best({name: found}) is None


def test_longer_answers_count_for_longer():
    """A request of 100 tokens for 10 steps, and one of 10 for 1000."""
    lengths = Lengths.of([(100, 10), (10, 1000)])
    assert (lengths.num_input, lengths.num_output) == (55, 505)
    assert lengths.held == pytest.approx((10 * 105 + 1000 * 510) / 1010)


@each_seed(range(20))
def test_a_looser_promise_never_needs_more_engines(seed):
    random = Random(seed)
    lengths = Lengths.of([(random.randrange(10, 2000), random.randrange(1, 900)) for _ in range(20)])
    name = random.choice(["a100-llama2-13b-tp1", "h100-llama2-70b-tp4", "v100-llama2-7b-tp2"])
    rates = [of(name, lengths, LatencyPromise(2.0, tpot_s)).rate for tpot_s in (0.02, 0.04, 0.08, 0.16)]
    assert rates == sorted(rates)


def test_presets_of_a_v100_are_those_of_an_a100_times_the_data_sheets():
    for model in ("llama2-7b", "llama2-13b"):
        for size in (1, 2, 4):
            v100, a100 = (load_preset(f"{device}-{model}-tp{size}") for device in ("v100", "a100"))
            assert prefill_s(v100.prefill, 2048) == pytest.approx(312 / 125 * prefill_s(a100.prefill, 2048), rel=1e-3)
            slower = decode_step_s(v100.decode, 30, 9000) / decode_step_s(a100.decode, 30, 9000)
            assert slower == pytest.approx(2039 / 900, rel=1e-3)
            assert prefill_s(v100.prefill, 1) >= decode_step_s(v100.decode, 1, 1) * 0.99
