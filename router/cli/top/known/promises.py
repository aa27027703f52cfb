"""Tells by service and key how promises were kept in the last minute, from the buckets of all gateways."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from router.cli.top.words import clean
from router.feed.frames import PromiseBucket, PromisesFrame, Quantiles, ServicePromise

WINDOW_S: Final = 60.0
TREND_PARTS: Final = 12
MOST_BUCKETS: Final = 4096  # of one gateway; it makes at most a few dozen in a minute
ALL_KEYS: Final = "(all)"


class RecentBuckets:
    """Buckets of one gateway's last minute."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[float, str, str], PromiseBucket] = {}

    def take(self, frame: PromisesFrame) -> None:
        for bucket in frame.buckets:
            if bucket.at > frame.at - 2 * WINDOW_S:
                name = (bucket.at, clean(bucket.service), clean(bucket.key))
                self._buckets[name] = _without_names(bucket)
        self._forget(frame.at - WINDOW_S)

    def since(self, at: float) -> list[tuple[str, str, PromiseBucket]]:
        """Buckets that ended after a time of the gateway's clock, each with its service and key."""
        return [(service, key, bucket) for (since, service, key), bucket in self._buckets.items() if since > at]

    def _forget(self, before: float) -> None:
        gone = [name for name in self._buckets if name[0] <= before]
        for name in gone:
            del self._buckets[name]
        while len(self._buckets) > MOST_BUCKETS:
            del self._buckets[next(iter(self._buckets))]


def _without_names(bucket: PromiseBucket) -> PromiseBucket:
    """Names may be long, and are kept apart."""
    return PromiseBucket(
        bucket.at,
        "",
        "",
        bucket.ended,
        bucket.kept_ttft,
        bucket.kept_tpot,
        bucket.kept,
        bucket.not_served,
        bucket.tokens,
        bucket.ttft_s,
        bucket.tpot_s,
        bucket.prediction,
    )


@dataclass(frozen=True, slots=True)
class PromiseRow:
    """A service and key in the last minute. ``trend``: shares that kept both promises, the newest last.

    Quantiles are put together from those of buckets: the median of their P50, and the largest P99.
    """

    service: str
    key: str
    promise: ServicePromise | None
    ended: int
    kept: int
    kept_ttft: int
    kept_tpot: int
    not_served: int
    tokens: int
    ttft_p50_s: float | None
    ttft_p99_s: float | None
    tpot_p50_s: float | None
    tpot_p99_s: float | None
    trend: tuple[float | None, ...]

    @property
    def attainment(self) -> float | None:
        return self.kept / self.ended if self.ended else None

    @property
    def goodput(self) -> float:
        """Requests a second that kept both promises."""
        return self.kept / WINDOW_S


Named = tuple[str, str, float, PromiseBucket]  # service, key, age in seconds, bucket


def promise_rows(buckets: Iterable[Named], promises: Mapping[str, ServicePromise]) -> list[PromiseRow]:
    """Services in order, each with a row for all its keys, and one for each key if there are several."""
    by_service: dict[str, dict[str, list[Named]]] = {}
    for named in buckets:
        by_service.setdefault(named[0], {}).setdefault(named[1], []).append(named)
    rows = []
    for service in sorted(by_service.keys() | promises.keys()):
        keys = by_service.get(service, {})
        promise = promises.get(service)
        rows.append(_row(service, ALL_KEYS, promise, [named for key in keys.values() for named in key]))
        if len(keys) > 1:
            rows += (_row(service, key, promise, keys[key]) for key in sorted(keys))
    return rows


def _row(service: str, key: str, promise: ServicePromise | None, named: Sequence[Named]) -> PromiseRow:
    buckets = [bucket for *_, bucket in named]
    ttft = [(bucket.ttft_s, bucket.ended) for bucket in buckets if bucket.ttft_s is not None]
    tpot = [(bucket.tpot_s, bucket.ended) for bucket in buckets if bucket.tpot_s is not None]
    return PromiseRow(
        service,
        key,
        promise,
        sum(bucket.ended for bucket in buckets),
        sum(bucket.kept for bucket in buckets),
        sum(bucket.kept_ttft for bucket in buckets),
        sum(bucket.kept_tpot for bucket in buckets),
        sum(bucket.not_served for bucket in buckets),
        sum(bucket.tokens for bucket in buckets),
        _median(ttft),
        max((quantiles.p99 for quantiles, _ in ttft), default=None),
        _median(tpot),
        max((quantiles.p99 for quantiles, _ in tpot), default=None),
        _trend(named),
    )


def _median(weighed: Iterable[tuple[Quantiles, int]]) -> float | None:
    """Return the weighted median of the buckets' P50."""
    ordered = sorted((quantiles.p50, weight) for quantiles, weight in weighed)
    half = sum(weight for _, weight in ordered) / 2
    so_far = 0
    for value, weight in ordered:
        so_far += weight
        if so_far >= half:
            return value
    return None


def _trend(named: Iterable[Named]) -> tuple[float | None, ...]:
    ended, kept = [0] * TREND_PARTS, [0] * TREND_PARTS
    for _, _, age_s, bucket in named:
        part = TREND_PARTS - 1 - int(age_s / WINDOW_S * TREND_PARTS)
        if 0 <= part < TREND_PARTS:
            ended[part] += bucket.ended
            kept[part] += bucket.kept
    return tuple(good / all_ if all_ else None for good, all_ in zip(kept, ended, strict=True))
