"""Promises as users of ``vllm bench serve`` write them: ``ttft:500 tpot:50``, in milliseconds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from bench.load.results.outcome import Outcome, Promise

METRICS = {"ttft": "ttft_s", "tpot": "tpot_s", "itl": "itl_s", "e2el": "e2el_s"}


@dataclass(frozen=True, slots=True)
class Promises:
    """What all requests are promised, and what those of some services are besides or instead."""

    common: Promise = field(default_factory=Promise)
    services: Mapping[str, Promise] = field(default_factory=dict)

    def of(self, outcome: Outcome) -> Promise:
        """What a request brings itself goes first, then what its service is promised."""
        return self.common.override(outcome.promise).override(self.services.get(outcome.model))

    def is_kept(self, outcome: Outcome) -> bool:
        return outcome.keeps(self.of(outcome))

    @property
    def is_empty(self) -> bool:
        return self.common.is_empty and not self.services

    def words(self) -> str:
        """As they are written."""
        parts = [("", self.common), *((f"{name}/", promise) for name, promise in self.services.items())]
        return " ".join(
            f"{prefix}{metric}:{1e3 * value:g}"
            for prefix, promise in parts
            for metric, key in METRICS.items()
            if (value := getattr(promise, key)) is not None
        )


def parse_promises(words: Sequence[str]) -> Promises:
    """``ttft:500``, or ``chat/ttft:500`` for one service. Raise `ValueError`, saying what would be right."""
    found: dict[str, dict[str, float]] = {}
    for word in words:
        target, _, limit = word.rpartition(":")
        service, _, metric = target.rpartition("/")
        if metric not in METRICS:
            raise ValueError(f"{word!r} is no promise; write METRIC:MS such as ttft:500, of {', '.join(METRICS)}")
        if METRICS[metric] in found.setdefault(service, {}):
            raise ValueError(f"{word!r}: {target} is promised twice; say it once")
        found[service][METRICS[metric]] = _seconds(word, limit)
    common = msgspec.convert(found.pop("", {}), Promise)
    return Promises(common, {service: msgspec.convert(limits, Promise) for service, limits in found.items()})


def _seconds(word: str, limit: str) -> float:
    try:
        milliseconds = float(limit)
    except ValueError:
        milliseconds = 0.0
    if not 0 < milliseconds < float("inf"):
        raise ValueError(f"{word!r}: {limit!r} are no milliseconds; use a number greater than 0")
    return milliseconds / 1e3
