"""What a twin predicts, against a server whose costs are known."""

from random import Random

import pytest

from bench.load.results.outcome import Failure, Outcome
from bench.twin import predicting
from bench.twin.predicting import (
    Lengths,
    Means,
    measured_means,
    median_error,
    predict,
    predicted_capacity,
    requests_of,
)
from engines.costs.profiles import EngineProfile, ServerTraits
from mesh.topology.schema import Slo
from mesh.wire.status import DecodeCost, PrefillCost
from simulation.loads.trace_request import TraceRequest

TRAITS = ServerTraits(chunk_tokens=512, max_running=8, request_s=0.05)
TWIN = EngineProfile("m", PrefillCost(0.02, 2e-4), DecodeCost(0.02, 1e-3), 4, 4 * 100_000, "made up", server=TRAITS)
PROMISE = Slo(0.3, 0.05, 0.9)


def outcome(sent_s: float, ttft_s: float, tpot_s: float, num_output: int, **more) -> Outcome:
    first_s = sent_s + ttft_s
    last_s = first_s + tpot_s * (num_output - 1)
    times = {
        "due_s": sent_s,
        "woke_s": sent_s,
        "sent_s": sent_s,
        "ended_s": last_s,
        "first_s": first_s,
        "last_s": last_s,
    }
    return Outcome(number=0, model="m", input_tokens=100, output_tokens=num_output, **times, **more)


def test_an_idle_twin_takes_a_requests_way_and_its_iterations():
    means = predict(TWIN, PROMISE, [TraceRequest(0.0, 100, 11), TraceRequest(5.0, 100, 11)])
    assert means.ttft_s == pytest.approx(0.05 + 0.02 + 0.02, rel=1e-3)
    assert means.tpot_s == pytest.approx(0.021, rel=1e-3)
    assert means.attainment == 1.0


def test_a_capacity_lies_between_idle_and_crowded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(predicting, "NUM_REQUESTS", 150)  # of 400: the bounds are wide
    found = predicted_capacity(TWIN, PROMISE, Lengths((50, 150), (10, 30)), 1.0)
    draw = Random(1)

    def attainment(rate: float) -> float:
        at_s, requests = 0.0, []
        for _ in range(300):
            at_s += draw.expovariate(rate)
            requests.append(TraceRequest(at_s, draw.randint(50, 150), draw.randint(10, 30)))
        return predict(TWIN, PROMISE, requests).attainment

    assert attainment(0.7 * found.rate) > 0.9 > attainment(1.5 * found.rate)


def test_means_are_those_of_answers_from_when_they_were_asked_for():
    failed = outcome(2.0, 0.1, 0.01, 5, failure=Failure.TIMEOUT, reason="late")
    outcomes = [outcome(0.0, 0.1, 0.01, 5), outcome(1.0, 0.5, 0.03, 5), failed]
    means = measured_means(outcomes, PROMISE)
    assert (means.ttft_s, means.tpot_s) == pytest.approx((0.3, 0.02))
    assert means.attainment == pytest.approx(1 / 3)
    assert requests_of(outcomes)[1] == TraceRequest(1.0, 100, 5)


def test_the_error_is_the_median_over_both_latencies_of_all_loads():
    pairs = {
        "half": (Means(1.0, 0.10, 1.0), Means(1.1, 0.10, 1.0)),
        "full": (Means(2.0, 0.20, 1.0), Means(1.0, 0.21, 1.0)),
    }
    assert median_error(pairs) == pytest.approx(0.075)
