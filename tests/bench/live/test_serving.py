from bench.live.serving import mean_costs
from mesh.wire.status import DecodeCost, PrefillCost


def test_the_mean_of_costs_predicts_the_mean_of_their_predictions():
    fast = (PrefillCost(0.5, 1.0, 0.25, chunk_tokens=64), DecodeCost(1.0, 2.0, 0.5, ((1, 3.0), (4, 8.0))))
    slow = (PrefillCost(1.5, 3.0, 0.75, chunk_tokens=64), DecodeCost(3.0, 4.0, 1.5, ((1, 5.0), (4, 10.0))))
    assert mean_costs([{"a": fast, "b": slow}, {"a": slow, "b": slow}]) == {
        "a": (PrefillCost(1.0, 2.0, 0.5, chunk_tokens=64), DecodeCost(2.0, 3.0, 1.0, ((1, 4.0), (4, 9.0)))),
        "b": slow,
    }
