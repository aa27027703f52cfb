"""Scrapers that ask for OpenMetrics get it; all others get Prometheus' text."""

import pytest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from mesh.metrics.exposition import wants_openmetrics, written

PROMETHEUS = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,*/*;q=0.1"


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (PROMETHEUS, True),
        ("APPLICATION/OpenMetrics-Text; version=abc", True),
        ("text/plain;version=0.0.4", False),
        ("", False),
        (";,;,", False),
    ],
)
def test_only_who_names_openmetrics_gets_it(accept, wanted):
    assert wants_openmetrics(accept) is wanted


def test_both_formats_tell_the_same_numbers():
    families = [CounterMetricFamily("meshserve_asked", "How often", 3)]
    plain, plain_kind = written(families, "*/*")
    text, kind = written(families, PROMETHEUS)
    assert b"meshserve_asked_total 3.0" in plain
    assert plain_kind.startswith("text/plain; version=0.0.4")
    assert kind.startswith("application/openmetrics-text")
    [family] = text_string_to_metric_families(text.decode())
    assert [(sample.name, sample.value) for sample in family.samples] == [("meshserve_asked_total", 3.0)]


@pytest.mark.parametrize("accept", [PROMETHEUS, "*/*"])
def test_names_of_vllm_keep_their_colon(accept):
    text, _ = written([CounterMetricFamily("vllm:asked", "How often", 3)], accept)
    assert b"\nvllm:asked_total 3.0" in text
