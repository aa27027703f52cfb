"""What is measured of every token: counted in plain numbers, and made into metrics when Prometheus asks for them.

The library's own histograms take two locks and search their buckets one by one, for each token.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


class TokenTimes:
    """The tokens of one service, and the time between them, in seconds."""

    __slots__ = ("_bounds", "gaps", "num_tokens", "sum_s")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.gaps = [0] * (len(bounds) + 1)  # by bucket, the last one for what is above all bounds
        self.sum_s = 0.0
        self.num_tokens = 0

    def first_tokens(self, count: int) -> None:
        self.num_tokens += count

    def next_tokens(self, count: int, gap_s: float) -> None:
        """So many came together, ``gap_s`` after those before."""
        gap_s /= count
        self.gaps[bisect_left(self._bounds, gap_s)] += 1
        self.sum_s += gap_s
        self.num_tokens += count


class TokenMetrics(Collector):
    """Of all services of a gateway. ``bounds``: the upper ends of the histogram's buckets, in seconds."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._labels = [*map(floatToGoString, self._bounds), "+Inf"]
        self._of: dict[str, TokenTimes] = {}

    def of(self, service: str) -> TokenTimes:
        if (found := self._of.get(service)) is None:
            found = self._of[service] = TokenTimes(self._bounds)
        return found

    def collect(self) -> Iterable[Metric]:
        labels = ("model_name",)
        gaps = HistogramMetricFamily(
            "vllm:inter_token_latency_seconds", "Between two tokens of a request", labels=labels
        )
        tokens = CounterMetricFamily("vllm:generation_tokens", "Tokens generated", labels=labels)
        for service, times in self._of.items():
            buckets = list(zip(self._labels, map(float, accumulate(times.gaps)), strict=True))
            gaps.add_metric((service,), buckets, times.sum_s)
            tokens.add_metric((service,), times.num_tokens)
        return gaps, tokens
