"""Buckets that fit promises, and how many series a gateway can have."""

from itertools import product
from math import inf

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from mesh.metrics.exposition import OPENMETRICS, written
from mesh.metrics.plain import Histogram
from mesh.topology.schema import Slo
from router.api.metrics.gateway import LATENCY_BUCKETS, GatewayMetrics, edges_around
from router.history.records import Outcome, Record

TTFT = "vllm:time_to_first_token_seconds"
PROMISES = {"chat": Slo(0.8, 0.035), "batch": Slo(inf, inf)}


def buckets_of(registry, name, service):
    """Counts by upper bound."""
    [family] = [one for one in registry.collect() if one.name == name]
    found = [one for one in family.samples if one.name.endswith("_bucket") and one.labels["model_name"] == service]
    return {float(sample.labels["le"]): sample.value for sample in found}


@pytest.mark.parametrize("promise_s", [0.035, 0.1, 0.3, 1.0, 30.0])
def test_one_bucket_ends_at_the_promise_itself(promise_s):
    edges = edges_around(promise_s)
    assert promise_s in edges
    assert min(edges) == pytest.approx(promise_s / 4)
    assert max(edges) == pytest.approx(4 * promise_s)


def test_a_service_without_a_promise_has_the_usual_buckets():
    assert edges_around(inf) == []


def test_attainment_can_be_read_from_buckets():
    """What was in time to the last microsecond is below the edge, and what was late is not."""
    registry = CollectorRegistry()
    metrics = GatewayMetrics(registry, PROMISES)
    for service, ttft_s in (("chat", 0.8), ("chat", 0.800001), ("chat", 0.2), ("batch", 0.8)):
        metrics.of(service).ttft.observe(ttft_s)
    chat = buckets_of(registry, TTFT, "chat")
    assert (chat[0.8], chat[0.2], chat[inf]) == (2, 1, 3)
    batch = buckets_of(registry, TTFT, "batch")
    assert set(batch) == {*LATENCY_BUCKETS, inf}
    assert set(chat) == {*LATENCY_BUCKETS, *edges_around(0.8), inf}


def test_the_last_traced_value_of_a_bucket_is_its_exemplar():
    registry = CollectorRegistry()
    seconds = Histogram("meshserve_seconds", "Of anything", ("model_name",), (0.1, 1.0), registry).labels("chat")
    seconds.observe(0.5)
    seconds.observe(0.6, "a" * 32)
    seconds.observe(0.7, "b" * 32)
    text, _ = written(list(registry.collect()), OPENMETRICS)
    [family] = text_string_to_metric_families(text.decode())
    found = {one.labels.get("le"): one.exemplar for one in family.samples if one.exemplar}
    assert {le: (one.labels, one.value) for le, one in found.items()} == {"1.0": ({"trace_id": "b" * 32}, 0.7)}
    plain, _ = written(list(registry.collect()), "")
    assert b"trace_id" not in plain


def test_series_are_bounded_by_services_and_codes():
    """Whatever clients send, names of services, rules, codes and ends of answers are ours."""
    registry = CollectorRegistry()
    metrics = GatewayMetrics(registry, PROMISES)
    for service, number in product(PROMISES, range(500)):
        times = {"ttft_s": number / 100, "tpot_s": 0.01, "e2e_s": 9.0, "queued_s": 0.0}
        ended = Outcome.FINISHED, *times.values()
        metrics.ended(Record(f"cmpl-{number}", 0.0, service, 9, 5, 1.0, 0.1, *ended, rule="1: idle"), "stop")
        metrics.of(service).failed("overloaded", broke_promise=True)
    series = [sample for family in registry.collect() for sample in family.samples]
    assert len(series) < 300 * len(PROMISES)
    assert {name for sample in series for name in sample.labels} <= {
        "model_name", "le", "code", "rule", "promise", "finished_reason"
    }  # fmt: skip
