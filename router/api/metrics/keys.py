"""Offers Prometheus what access keys used in a gateway, and how promises to them were kept, of a bounded number."""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from router.api.access.keyring import HeldKey

MOST_KEYS: Final = 100  # that have series of their own, in the order of the file
LABELS: Final = ("key",)


class KeyUse(Collector):
    """Later keys than the first hundred have no series: a sum of them would fall when one is revoked."""

    def __init__(self, keys: Callable[[], Iterable[HeldKey]]) -> None:
        self._keys = keys

    def collect(self) -> Iterable[CounterMetricFamily]:
        requests = CounterMetricFamily("meshserve_key_requests", "Requests that a key brought", labels=LABELS)
        tokens = CounterMetricFamily(
            "meshserve_key_tokens", "Tokens of prompts and answers that a key has used", labels=LABELS
        )
        ended = CounterMetricFamily(
            "meshserve_key_ended", "Requests of a key that ended and were not cancelled", labels=LABELS
        )
        kept = CounterMetricFamily(
            "meshserve_key_kept", "Requests of a key for which both promises were kept", labels=LABELS
        )
        for held in islice(self._keys(), MOST_KEYS):
            requests.add_metric((held.key.name,), held.meter.num_requests)
            tokens.add_metric((held.key.name,), held.meter.num_tokens)
            ended.add_metric((held.key.name,), held.meter.num_ended)
            kept.add_metric((held.key.name,), held.meter.num_kept)
        return requests, tokens, ended, kept
