"""Offers Prometheus what access keys have used in a gateway: by name, of a bounded number of them."""

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
        for held in islice(self._keys(), MOST_KEYS):
            requests.add_metric((held.key.name,), held.meter.num_requests)
            tokens.add_metric((held.key.name,), held.meter.num_tokens)
        return requests, tokens
