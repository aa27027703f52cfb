from engines.costs.advice import LatencyPromise, Lengths
from engines.costs.presets import load_preset
from mesh.topology.schema import PolicySpec
from mesh.wire.control import Role
from simulation.search.candidates import EngineOffer, SearchSpace, counts_to_try

LENGTHS, PROMISE = Lengths(500, 100, 550), LatencyPromise(1.0, 0.05)


def offer(name, price=1.0):
    return EngineOffer(load_preset(name), name, price)


def candidates(policies=("elastic",), most_engines=32, rate=8.0, offers=("a100-llama2-13b-tp1",), chunks=(512,)):
    space = SearchSpace([offer(name) for name in offers], [PolicySpec(one) for one in policies], chunks, most_engines)
    return space.candidates(LENGTHS, PROMISE, rate)


def test_counts_lie_around_the_need_and_are_few():
    assert counts_to_try(0.1, 8) == [1, 2]
    assert counts_to_try(2.5, 8) == [1, 2, 3, 4, 5]
    counts = counts_to_try(40.0, 4)
    assert (counts[0], counts[-1], len(counts)) == (24, 80, 4)


def test_candidates_come_from_cheap_to_dear():
    prices = [one.price for one in candidates()]
    assert prices == sorted(prices)
    assert prices[0] < prices[-1]


def test_each_policy_gets_the_roles_that_it_uses():
    roles = {
        name: {tuple(part.role for part in one.engines) for one in candidates([name])}
        for name in ("chunked", "infaas", "llumnix", "slices", "disaggregated", "disaggregated_sjf", "elastic")
    }
    together, split = (Role.MULTIPLEX,), (Role.PREFILL, Role.MULTIPLEX)
    assert roles == {
        **{name: {together} for name in ("chunked", "infaas", "llumnix", "slices")},
        **{name: {(Role.PREFILL, Role.DECODE)} for name in ("disaggregated", "disaggregated_sjf")},
        "elastic": {together, split},
    }


def test_prompts_are_read_by_engines_of_another_size_if_kv_is_alike():
    found = candidates(offers=["a100-llama2-13b-tp1", "a100-llama2-13b-tp2", "a100-llama2-7b-tp1"])
    pairs = {tuple(part.offer.name for part in one.engines) for one in found if len(one.engines) == 2}
    assert ("a100-llama2-13b-tp2", "a100-llama2-13b-tp1") in pairs
    assert not any({"7b" in name for name in pair} == {True, False} for pair in pairs)


def test_nothing_is_larger_than_allowed():
    assert max(sum(part.count for part in one.engines) for one in candidates(most_engines=3)) == 3


def test_engines_that_cannot_keep_the_promise_alone_are_left_out():
    assert (
        SearchSpace([offer("a100-llama2-13b-tp1")], [PolicySpec()], (512,), 32).candidates(
            LENGTHS, LatencyPromise(1.0, 0.001), 1.0
        )
        == []
    )


def test_a_price_counts_every_engine():
    dear = [EngineOffer(load_preset("a100-llama2-13b-tp2"), "a100-llama2-13b-tp2", 2.5)]
    found = SearchSpace(dear, [PolicySpec("elastic")], (512,), 32).candidates(LENGTHS, PROMISE, 8.0)
    for one in found:
        engines = sum(part.count for part in one.engines)
        assert (one.price, one.num_devices) == (2.5 * engines, 2 * engines)
    assert found[0].words() == "1 x a100-llama2-13b-tp2, elastic, chunks of 512"
