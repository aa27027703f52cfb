"""What is counted in plain numbers reads as the Prometheus library's own metrics would."""

from random import Random

import prometheus_client as library
import pytest
from prometheus_client import CollectorRegistry

from mesh.metrics.plain import Counter, Histogram
from router.api.metrics.gateway import LATENCY_BUCKETS
from tests.seeds import each_seed

SECONDS, TOKENS = "vllm:inter_token_latency_seconds", "vllm:generation_tokens"


def exposed(registry):
    """Names, help, types and samples."""
    return {
        (family.name, family.documentation, family.type): sorted(
            (sample.name, tuple(sorted(sample.labels.items())), pytest.approx(sample.value))
            for sample in family.samples
            if not sample.name.endswith("_created")
        )
        for family in registry.collect()
    }


@each_seed(range(10))
def test_same_as_the_librarys(seed):
    draw, ours, theirs = Random(seed), CollectorRegistry(), CollectorRegistry()
    text, labels = "Between two tokens of a request", ("model_name",)
    seconds = [
        Histogram(SECONDS, text, labels, LATENCY_BUCKETS, ours),
        library.Histogram(SECONDS, text, labels, buckets=LATENCY_BUCKETS, registry=theirs),
    ]
    tokens = [
        Counter(TOKENS, "Tokens generated", (*labels, "rule"), ours),
        library.Counter(TOKENS, "Tokens generated", (*labels, "rule"), registry=theirs),
    ]
    for _ in range(300):
        service, rule = draw.choice(["a", "b"]), draw.choice(["1", "2"])
        value = draw.choice([draw.choice(LATENCY_BUCKETS), draw.expovariate(20.0), 0.0, 1e4])
        for histogram in seconds:
            histogram.labels(service).observe(value)
        amount = draw.choice([0, 1, draw.randint(1, 4), True])
        tokens[0].labels(service, rule).value += amount
        tokens[1].labels(service, rule).inc(amount)
    assert exposed(ours) == exposed(theirs)


def test_what_was_looked_up_shows_before_it_counts():
    registry = CollectorRegistry()
    Counter(TOKENS, "Tokens generated", ("model_name",), registry).labels("a")
    assert registry.get_sample_value(f"{TOKENS}_total", {"model_name": "a"}) == 0.0


def test_a_name_can_be_taken_once():
    registry = CollectorRegistry()
    Counter(TOKENS, "Tokens generated", ("model_name",), registry)
    with pytest.raises(ValueError, match="Duplicated"):
        Histogram(TOKENS, "Again", ("model_name",), (1.0,), registry)
