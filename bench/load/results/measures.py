"""What the outcomes of a run come to. Percentiles are those of the raw samples, with numpy's linear interpolation.

The keys are those of ``vllm bench serve --save-result`` (vLLM 0.11 and later) where it has such a figure.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from bench.load.results.goodput import Promises
from bench.load.results.outcome import Outcome

PERCENTILES = (50, 90, 95, 99)
STEPS = 200  # quantiles kept of each distribution, for plots
Values = Sequence[float]
Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Metric:
    """``of``: the values that one finished request brings. ``scale``: from seconds to what is told."""

    key: str
    title: str
    of: Callable[[Outcome], Iterable[float | None]]
    unit: str = "ms"
    scale: float = 1e3


def _per_token(outcome: Outcome) -> float | None:
    """Normalised latency: seconds for each token of the answer (Orca, OSDI 2022, section 6)."""
    return None if outcome.e2el_s is None else outcome.e2el_s / max(1, outcome.output_tokens)


METRICS = (
    Metric("ttft", "Time to First Token", lambda one: [one.ttft_s]),
    Metric("tpot", "Time per Output Token (excl. 1st token)", lambda one: [one.tpot_s]),
    Metric("itl", "Inter-token Latency", lambda one: one.itls_s),
    Metric("e2el", "End-to-end Latency", lambda one: [one.e2el_s]),
    Metric("normalized_latency", "Normalised Latency (per output token)", lambda one: [_per_token(one)]),
)
FROM_SENDING = (  # beside those above, which count from when a request was due
    Metric("ttft_sent", "TTFT from sending", lambda one: [_since_sent(one, one.first_s)]),
    Metric("e2el_sent", "End-to-end from sending", lambda one: [_since_sent(one, one.last_s)]),
    Metric("client_queue", "Waiting in the client", lambda one: [one.sent_s - one.due_s]),
)


def _since_sent(outcome: Outcome, at_s: float | None) -> float | None:
    return None if at_s is None else at_s - outcome.sent_s


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a run that counts: requests that were due in it. Its end is when the last one of them ended."""

    begin_s: float
    end_s: float

    @classmethod
    def of(cls, outcomes: Iterable[Outcome], begin_s: float = 0.0) -> "Window":
        return cls(begin_s, max((outcome.ended_s for outcome in outcomes), default=begin_s))

    @property
    def duration_s(self) -> float:
        return self.end_s - self.begin_s


def values_of(metric: Metric, outcomes: Iterable[Outcome]) -> Values:
    """Of the finished ones."""
    return [value for one in outcomes if one.is_finished for value in metric.of(one) if value is not None]


def summarize(outcomes: Sequence[Outcome], promises: Promises, window: Window) -> Json:
    """The figures of all requests, and of each service if there are several."""
    summary = _figures(outcomes, promises, window)
    names = sorted({outcome.model for outcome in outcomes})
    if len(names) > 1:
        parts = {name: [outcome for outcome in outcomes if outcome.model == name] for name in names}
        summary["services"] = {name: _figures(part, promises, window) for name, part in parts.items()}
    return summary


def _figures(outcomes: Sequence[Outcome], promises: Promises, window: Window) -> Json:
    finished = [outcome for outcome in outcomes if outcome.is_finished]
    num_good = sum(promises.is_kept(outcome) for outcome in outcomes)
    num_input, num_output = (sum(getattr(one, f"{side}_tokens") for one in finished) for side in ("input", "output"))
    has_promises = not promises.is_empty or any(outcome.promise is not None for outcome in outcomes)
    figures: Json = {
        "duration": window.duration_s,
        "num_prompts": len(outcomes),
        "completed": len(finished),
        "failed": len(outcomes) - len(finished),
        "errors_by_kind": errors_by_kind(outcomes),
        "total_input_tokens": num_input,
        "total_output_tokens": num_output,
        "request_throughput": _rate(len(finished), window),
        "request_goodput": _rate(num_good, window) if has_promises else None,
        "slo_attainment": num_good / len(outcomes) if has_promises and outcomes else None,
        "output_throughput": _rate(num_output, window),
        "total_token_throughput": _rate(num_input + num_output, window),
        "max_output_tokens_per_s": most_tokens_a_second(finished),
        "max_concurrent_requests": most_in_flight(outcomes),
        "cached_input_tokens": sum(one.cached_tokens for one in finished),
        "counted_by_server": sum(one.is_counted for one in finished),
    }
    for metric in (*METRICS, *FROM_SENDING):
        figures |= statistics(metric, values_of(metric, finished))
    return figures


def statistics(metric: Metric, values: Values) -> Json:
    """Mean, median, standard deviation and percentiles; None if there is no value."""
    prefix, suffix = metric.key, f"_{metric.unit}"
    names = ("mean", "median", "std", *(f"p{percent}" for percent in PERCENTILES))
    if not values:
        return {f"{name}_{prefix}{suffix}": None for name in names}
    array = np.asarray(values) * metric.scale
    found = (array.mean(), np.median(array), array.std(), *np.percentile(array, PERCENTILES))
    return {f"{name}_{prefix}{suffix}": float(value) for name, value in zip(names, found, strict=True)}


def quantiles(metric: Metric, outcomes: Iterable[Outcome]) -> list[float]:
    """At 0, 1 / `STEPS`, ... 1; empty if there is no value."""
    values = values_of(metric, outcomes)
    if not values:
        return []
    return [float(value) for value in np.quantile(np.asarray(values) * metric.scale, np.linspace(0, 1, STEPS + 1))]


def errors_by_kind(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """HTTP errors and refusals by their status."""
    kinds = Counter(
        f"{one.failure}_{one.status}" if one.status not in {0, 200} else str(one.failure)
        for one in outcomes
        if one.failure is not None
    )
    return dict(sorted(kinds.items()))


def most_in_flight(outcomes: Iterable[Outcome]) -> int:
    """The most requests that were on their way at a time. vLLM counts by whole seconds, which is more."""
    changes = [(one.sent_s, 1) for one in outcomes] + [(one.ended_s, -1) for one in outcomes]
    return max(accumulate(change for _, change in sorted(changes)), default=0)


def token_times(outcome: Outcome) -> list[float]:
    """When its events came."""
    if outcome.first_s is None:
        return []
    return [*accumulate(outcome.itls_s, initial=outcome.first_s)]


def most_tokens_a_second(finished: Iterable[Outcome]) -> float:
    """Of whole seconds since the start. An event with several tokens counts as many."""
    seconds: Counter[int] = Counter()
    for one in finished:
        times = token_times(one)
        weight = one.output_tokens / len(times) if times else 0.0
        for at_s in times:
            seconds[int(at_s)] += weight  # type: ignore[assignment]
    return float(max(seconds.values(), default=0.0))


def _rate(count: int, window: Window) -> float:
    return count / window.duration_s if window.duration_s > 0 else 0.0


def comparable(summary: Mapping[str, object]) -> dict[str, float]:
    """The figures that are numbers."""
    return {
        key: float(value)
        for key, value in summary.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
