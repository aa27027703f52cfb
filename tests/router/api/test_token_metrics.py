"""What is counted of each token reads as the Prometheus library's own metrics would."""

from random import Random

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram

from router.api.metrics import LATENCY_BUCKETS
from router.api.token_metrics import TokenMetrics

ITL, TOKENS = "vllm:inter_token_latency_seconds", "vllm:generation_tokens"


def samples(registry):
    found = {}
    for family in registry.collect():
        for sample in family.samples:
            if not sample.name.endswith("_created"):
                found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


@pytest.mark.parametrize("seed", range(10))
def test_same_as_the_librarys(seed):
    draw, ours, theirs = Random(seed), CollectorRegistry(), CollectorRegistry()
    metrics = TokenMetrics(LATENCY_BUCKETS)
    ours.register(metrics)
    gaps = Histogram(ITL, "Between two tokens of a request", ("model_name",), buckets=LATENCY_BUCKETS, registry=theirs)
    tokens = Counter(TOKENS, "Tokens generated", ("model_name",), registry=theirs)
    for _ in range(300):
        service, count = draw.choice(["a", "b"]), draw.randint(1, 4)
        tokens.labels(service).inc(count)
        if draw.random() < 0.1:
            metrics.of(service).first_tokens(count)
            gaps.labels(service)
            continue
        gap_s = draw.choice([draw.choice(LATENCY_BUCKETS) * count, draw.expovariate(20.0), 0.0, 1e4])
        metrics.of(service).next_tokens(count, gap_s)
        gaps.labels(service).observe(gap_s / count)
    expected = samples(theirs)
    assert expected
    assert samples(ours) == pytest.approx(expected)
