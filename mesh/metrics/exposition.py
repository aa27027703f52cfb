"""The text of metrics, in Prometheus' format or in OpenMetrics, which has exemplars."""

from collections.abc import Sequence

from prometheus_client import exposition
from prometheus_client.core import Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

OPENMETRICS = "application/openmetrics-text"
PLAIN = "text/plain; version=0.0.4; charset=utf-8"


def wants_openmetrics(accept: str) -> bool:
    """Return whether a scraper's ``Accept`` names OpenMetrics. Prometheus does, and prefers it."""
    return any(part.partition(";")[0].strip().lower() == OPENMETRICS for part in accept.split(","))


def written(metrics: Sequence[Metric], accept: str) -> tuple[bytes, str]:
    """Return the text of metrics, and its content type. This takes ten times as long as reading the numbers.

    Names are written as they are: by default the library would make ``vllm_`` of ``vllm:`` in OpenMetrics.
    """
    if wants_openmetrics(accept):
        text: bytes = openmetrics.generate_latest(_Read(metrics), openmetrics.ALLOWUTF8)  # type: ignore[no-untyped-call]
        return text, openmetrics.CONTENT_TYPE_LATEST
    return exposition.generate_latest(_Read(metrics)), PLAIN


class _Read(Collector):
    """Metrics that have their values."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Sequence[Metric]:
        return self._metrics
