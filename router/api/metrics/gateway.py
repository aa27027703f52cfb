"""Prometheus metrics of a gateway: under the names that vLLM's dashboards know, and our own as ``meshserve_*``."""

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from mesh.metrics.plain import Counter, Histogram
from mesh.topology.schema import Slo
from mesh.wire.requests import PRIORITY_BATCH
from router.history.lengths import Calibration
from router.history.records import Outcome, Record
from router.history.timeline import RequestTimeline

LATENCY_BUCKETS: Final = (
    0.001, 0.0025, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5,
    10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0,
)  # fmt: skip
RATIO_BUCKETS: Final = (0.25, 0.5, 0.67, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25, 1.5, 2.0, 4.0, 8.0)
TOKEN_BUCKETS: Final = tuple(float(2**exponent) for exponent in range(18))
PROMISE_FACTORS: Final[tuple[float, ...]] = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0)


def edges_around(promise_s: float) -> list[float]:
    """Return bounds of buckets from which attainment can be read: the promise itself, and parts and multiples of it."""
    if not 0 < promise_s < inf:
        return []
    return [promise_s if factor == 1.0 else float(f"{factor * promise_s:.9g}") for factor in PROMISE_FACTORS]


class GatewayMetrics:
    """All metrics of one gateway, registered once in ``registry``. ``promises``: what services promise, by name."""

    def __init__(self, registry: CollectorRegistry, promises: Mapping[str, Slo] | None = None) -> None:
        slos = promises or {}

        def seconds(name: str, text: str, edges: Callable[[Slo], Iterable[float]] = lambda _: ()) -> Histogram:
            def bounds_of(service: str) -> Iterable[float]:
                return edges(slos[service]) if service in slos else ()

            return Histogram(name, text, ("model_name",), LATENCY_BUCKETS, registry, bounds_of)

        def tokens(name: str, text: str) -> Histogram:
            return Histogram(name, text, ("model_name",), TOKEN_BUCKETS, registry)

        def count(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, ("model_name", *labels), registry)

        self.registry = registry
        self.ttft = seconds(
            "vllm:time_to_first_token_seconds",
            "From arrival to the first token; one bucket ends at the service's promise",
            lambda slo: edges_around(slo.ttft_s),
        )
        self.itl = seconds("vllm:inter_token_latency_seconds", "Between two tokens of a request")
        self.generated_tokens = count("vllm:generation_tokens", "Tokens generated")
        self.tpot = seconds(
            "vllm:time_per_output_token_seconds",
            "Mean time of a request's tokens after the first; one bucket ends at the service's promise",
            lambda slo: edges_around(slo.tpot_s),
        )
        self.e2e = seconds("vllm:e2e_request_latency_seconds", "From arrival to the last token")
        self.queue = seconds("vllm:request_queue_time_seconds", "Time that a request waited in the gateway")
        self.prefill = seconds("vllm:request_prefill_time_seconds", "From dispatch to the first token")
        self.decode = seconds("vllm:request_decode_time_seconds", "From the first token to the last one")
        self.request_prompt = tokens("vllm:request_prompt_tokens", "Prompt tokens of a request")
        self.request_generation = tokens("vllm:request_generation_tokens", "Generated tokens of a request")
        self.prompt_tokens = count("vllm:prompt_tokens", "Prompt tokens of finished requests")
        self.prefix_queries = count("vllm:prefix_cache_queries", "Prompt tokens looked up in prefix caches")
        self.prefix_hits = count("vllm:prefix_cache_hits", "Prompt tokens found in prefix caches")
        self.success = count("vllm:request_success", "Requests that ended well", "finished_reason")
        self.dispatches = count("meshserve_dispatches", "Requests by the rule that placed them", "rule")
        self.prediction_error = Histogram(
            "meshserve_prediction_error_ratio",
            "Time from dispatch to the first token, over its prediction: 1 is a perfect one",
            ("model_name",),
            RATIO_BUCKETS,
            registry,
        )
        self.redispatches = count("meshserve_redispatches", "Requests that were dispatched more than once")
        self.failures = count("meshserve_request_failures", "Requests refused, failed or left by their client", "code")
        self.slo_requests = count("meshserve_slo_requests", "Requests that were promised a latency")
        self.slo_attained = count("meshserve_slo_attained", "Requests that met their promises", "promise")
        self.batch_tokens = count("meshserve_batch_tokens", "Tokens of requests of batches", "kind")
        self.batch_lines = count("meshserve_batch_requests", "Requests of batches that ended", "outcome")
        self._of: dict[str, ServiceMetrics] = {}

    def delivered(self, timeline: RequestTimeline, num_tokens: int, gap_s: float | None) -> None:
        """Tokens go to a client, so long after those before; None: they are the first ones."""
        if num_tokens == 0:
            return
        if timeline.facts.is_filler:
            self.batch_tokens.labels(timeline.facts.service, "answer").value += num_tokens
            return
        service = self.of(timeline.facts.service)
        if gap_s is None:
            service.ttft.observe(timeline.ttft_s or 0.0, timeline.trace_id)
        else:
            service.itl.observe(gap_s / num_tokens)
        service.generated_tokens.value += num_tokens

    def ended(self, record: Record, finish: str, trace: str | None = None) -> None:
        """A request is over. Calls count those that did not finish, as one call may ask for several requests."""
        if record.is_filler:
            self._ended_of_batch(record)
        elif record.outcome is Outcome.FINISHED:
            self.of(record.service).ended(record, finish, trace)

    def of_call(self, service: str, priority: int) -> "ServiceMetrics | BatchMetrics":
        """Return what counts of a call of that priority."""
        return BatchMetrics(self, service) if priority <= PRIORITY_BATCH else self.of(service)

    def _ended_of_batch(self, record: Record) -> None:
        """Nothing was promised for it, so it is no part of any latency."""
        self.batch_lines.labels(record.service, str(record.outcome)).value += 1
        if record.outcome is Outcome.FINISHED:
            self.batch_tokens.labels(record.service, "prompt").value += record.input_tokens

    def of(self, service: str) -> "ServiceMetrics":
        if (found := self._of.get(service)) is None:
            found = self._of[service] = ServiceMetrics(self, service)
        return found


class BatchMetrics:
    """What counts of calls that are lines of a batch: no promise of them can be broken."""

    def __init__(self, metrics: GatewayMetrics, service: str) -> None:
        self._failures = metrics.failures
        self._service = service

    def failed(self, code: str, *, broke_promise: bool) -> None:
        """A request without a proper end."""
        self._failures.labels(self._service, code).value += 1


class ServiceMetrics:
    """One service's children of the metrics, looked up once: labels are slow to look up."""

    def __init__(self, metrics: GatewayMetrics, service: str) -> None:
        self._metrics = metrics
        self._service = service
        self.itl = metrics.itl.labels(service)
        self.generated_tokens = metrics.generated_tokens.labels(service)
        self.ttft = metrics.ttft.labels(service)
        self._tpot = metrics.tpot.labels(service)
        self._e2e = metrics.e2e.labels(service)
        self._queue = metrics.queue.labels(service)
        self._prefill = metrics.prefill.labels(service)
        self._decode = metrics.decode.labels(service)
        self._request_prompt = metrics.request_prompt.labels(service)
        self._request_generation = metrics.request_generation.labels(service)
        self._prompt_tokens = metrics.prompt_tokens.labels(service)
        self._prefix_queries = metrics.prefix_queries.labels(service)
        self._prefix_hits = metrics.prefix_hits.labels(service)
        self._prediction_error = metrics.prediction_error.labels(service)
        self._slo_requests = metrics.slo_requests.labels(service)
        promises = ("ttft", "tpot", "both")
        self._slo_attained = [metrics.slo_attained.labels(service, promise) for promise in promises]

    def ended(self, record: Record, finish: str, trace: str | None = None) -> None:
        """A request ended well: its client has the whole answer. ``trace``: the id of its trace, if it has one."""
        ttft_s, queued_s, e2e_s = record.ttft_s or 0.0, record.queued_s or 0.0, record.e2e_s or 0.0
        self._e2e.observe(e2e_s, trace)
        self._queue.observe(queued_s)
        self._prefill.observe(max(0.0, ttft_s - queued_s))
        self._decode.observe(e2e_s - ttft_s)
        if record.tpot_s is not None:
            self._tpot.observe(record.tpot_s, trace)
        self._request_prompt.observe(record.input_tokens)
        self._request_generation.observe(record.output_tokens)
        self._prompt_tokens.value += record.input_tokens
        self._prefix_queries.value += record.input_tokens
        self._prefix_hits.value += record.cached_tokens
        self._metrics.success.labels(self._service, finish).value += 1
        self._count_dispatches(record)
        self._judge_prediction(record, ttft_s - queued_s)
        self._count_slo(record)

    def failed(self, code: str, *, broke_promise: bool) -> None:
        """A request without a proper end. One that its client left broke no promise of ours."""
        self._metrics.failures.labels(self._service, code).value += 1
        if broke_promise:
            self._slo_requests.value += 1

    def _count_dispatches(self, record: Record) -> None:
        if record.rule is None:
            return
        self._metrics.dispatches.labels(self._service, record.rule).value += 1
        if record.attempts > 1:
            self._metrics.redispatches.labels(self._service).value += 1

    def _judge_prediction(self, record: Record, first_token_s: float) -> None:
        """Of requests that were dispatched once: a later attempt's prediction was not of the whole time."""
        if record.attempts == 1 and record.predicted_ttft_s:
            self._prediction_error.observe(first_token_s / record.predicted_ttft_s)

    def _count_slo(self, record: Record) -> None:
        self._slo_requests.value += 1
        for attained, met in zip(
            self._slo_attained, (record.meets_ttft, record.meets_tpot, record.meets_slo), strict=True
        ):
            attained.value += met


class Promises(Collector):
    """What services promise, to be compared with what they keep."""

    def __init__(self, promises: Mapping[str, Slo]) -> None:
        self._promises = promises

    def collect(self) -> Iterable[GaugeMetricFamily]:
        labels = ("model_name",)
        seconds = GaugeMetricFamily(
            "meshserve_slo_seconds", "Latency that a service promises", labels=(*labels, "promise")
        )
        target = GaugeMetricFamily(
            "meshserve_slo_target", "Part of its requests that are to meet both promises", labels=labels
        )
        for service, slo in self._promises.items():
            seconds.add_metric((service, "ttft"), slo.ttft_s)
            seconds.add_metric((service, "tpot"), slo.tpot_s)
            target.add_metric((service,), slo.attainment)
        return seconds, target


class RecordingCounter(Collector):
    """How many records of requests did not get into the gateway's recording."""

    def __init__(self, num_dropped: Callable[[], int]) -> None:
        self._num_dropped = num_dropped

    def collect(self) -> Iterable[CounterMetricFamily]:
        text = "Records that the recording did not take: the disk was full, failed or too slow"
        return (CounterMetricFamily("meshserve_recording_dropped", text, self._num_dropped()),)


class LengthCalibration(Collector):
    """How long answers were predicted to be when they were asked for, and how that turned out."""

    def __init__(self, calibration: Callable[[], Mapping[str, Calibration]]) -> None:
        self._calibration = calibration

    def collect(self) -> Iterable[CounterMetricFamily]:
        labels = ("model_name",)
        judged = CounterMetricFamily(
            "meshserve_length_predictions", "Answers whose predicted length was put to the test", labels=labels
        )
        within = CounterMetricFamily(
            "meshserve_length_predictions_within",
            "Those that were not longer than that quantile of the prediction: that share of them, if it is right",
            labels=(*labels, "quantile"),
        )
        predicted = CounterMetricFamily("meshserve_predicted_tokens", "Tokens predicted for them", labels=labels)
        actual = CounterMetricFamily("meshserve_predicted_tokens_actual", "Tokens that they had", labels=labels)
        for service, found in self._calibration().items():
            judged.add_metric((service,), found.num_judged)
            within.add_metric((service, "0.5"), found.num_within_p50)
            within.add_metric((service, "0.9"), found.num_within_p90)
            predicted.add_metric((service,), found.predicted_tokens)
            actual.add_metric((service,), found.tokens)
        return judged, within, predicted, actual
